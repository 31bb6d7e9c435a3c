//! Whether one node lives: its signs of life, and what a doubt leads to (`docs/adr/0022`).
//!
//! A closed connection is not a death: it raises a doubt, and the node's port is dialled. A port that refuses
//! means that its process has ended; one that answers ends the doubt; one that does neither leaves the
//! decision to the silence timeout. A node that cannot be dialled gets some time to come back.
//!
//! It never declares a node dead because the head itself stood still: [`crate::control::membership`] restarts
//! all silence timeouts then.

use sooner_wire::NodeId;
use sooner_wire::limits::{RESUME_GRACE_NANOS, SLOW_BEATS, SLOW_LAG_NANOS};
use sooner_wire::message::Heartbeat;

use crate::time::Instant;

/// The result of dialling a node's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Probed {
    /// Nothing listens there, or the listener hung up.
    Refused,
    /// A node answered, and proved that it is this one.
    Answered(NodeId),
    /// No answer in time.
    Silent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// No doubt.
    No,
    /// The node's port is being dialled, by the probe with this number.
    Probing(u32),
    /// The last probe was not answered.
    Unanswered,
    /// The node cannot be dialled and has had no connection since this time.
    Waiting(Instant),
}

/// See the module.
#[derive(Debug)]
pub(in crate::control) struct Health {
    heard: Instant,
    doubt: Doubt,
    probes: u32,
    /// Heartbeats in a row that contradict `is_slow`.
    streak: u8,
    is_slow: bool,
}

impl Health {
    /// A node that gave a sign of life now.
    pub(in crate::control) fn new(now: Instant) -> Self {
        Self { heard: now, doubt: Doubt::No, probes: 0, streak: 0, is_slow: false }
    }

    /// A sign of life. Only the node itself can give one.
    pub(in crate::control) fn on_received(&mut self, now: Instant) {
        self.heard = now;
        self.doubt = Doubt::No;
    }

    /// A heartbeat. Returns whether the node became slow or quick.
    pub(in crate::control) fn on_heartbeat(&mut self, beat: Heartbeat, now: Instant) -> bool {
        self.on_received(now);
        let lags = beat.node_lag.max(beat.data_lag) > SLOW_LAG_NANOS;
        self.streak = if lags == self.is_slow { 0 } else { self.streak + 1 };
        if self.streak < SLOW_BEATS {
            return false;
        }
        self.streak = 0;
        self.is_slow = lags;
        true
    }

    /// A connection to the node ended, or so another node reports. Returns the number of the probe to make,
    /// if any.
    pub(in crate::control) fn doubt(&mut self) -> Option<u32> {
        if let Doubt::Probing(_) = self.doubt {
            return None;
        }
        self.probes += 1;
        self.doubt = Doubt::Probing(self.probes);
        Some(self.probes)
    }

    /// A connection of a node that cannot be dialled ended.
    pub(in crate::control) fn wait(&mut self, now: Instant) {
        if self.doubt == Doubt::No {
            self.doubt = Doubt::Waiting(now);
        }
    }

    /// A probe ended. Returns why the node is dead, if it is. A late answer is a sign of life, too, but only
    /// the latest probe decides a doubt: the doubt may be newer than that answer.
    pub(in crate::control) fn on_probed(
        &mut self,
        me: NodeId,
        number: u32,
        probed: Probed,
        now: Instant,
    ) -> Option<String> {
        if probed == Probed::Answered(me) {
            self.heard = now;
        }
        if self.doubt != Doubt::Probing(number) {
            return None;
        }
        match probed {
            Probed::Answered(node) if node == me => {
                self.doubt = Doubt::No;
                None
            }
            Probed::Refused => Some("its port is closed: the daemon has ended".to_owned()),
            Probed::Answered(_) => {
                Some("another node answers at its address: the daemon has ended".to_owned())
            }
            Probed::Silent => {
                self.doubt = Doubt::Unanswered;
                None
            }
        }
    }

    /// Whether the last probe was not answered: another one may be.
    pub(in crate::control) fn is_unanswered(&self) -> bool {
        self.doubt == Doubt::Unanswered
    }

    /// Why the node is dead, if it has been silent for too long.
    pub(in crate::control) fn silence(&self, timeout: u64, now: Instant) -> Option<String> {
        let silent = now.since(self.heard);
        if silent >= timeout {
            return Some(format!("no heartbeat for {}", seconds(silent)));
        }
        match self.doubt {
            Doubt::Waiting(since) if now.since(since) >= RESUME_GRACE_NANOS => Some(format!(
                "its connection ended {} ago and it did not come back",
                seconds(now.since(since))
            )),
            Doubt::No | Doubt::Probing(_) | Doubt::Unanswered | Doubt::Waiting(_) => None,
        }
    }

    /// The head stood still: every silence timeout restarts.
    pub(in crate::control) fn forgive(&mut self, now: Instant) {
        self.heard = now;
        if let Doubt::Waiting(_) = self.doubt {
            self.doubt = Doubt::Waiting(now);
        }
    }

    /// Whether the node reports that it lags behind.
    pub(in crate::control) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Whether there is a doubt that the node lives.
    pub(in crate::control) fn is_doubted(&self) -> bool {
        self.doubt != Doubt::No
    }
}

fn seconds(nanos: u64) -> String {
    format!("{}.{} s", nanos / 1_000_000_000, nanos / 100_000_000 % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sooner_wire::limits::HEALTH_TIMEOUT_NANOS;

    const ME: NodeId = NodeId(1 << 24);

    fn beat(lag: u64) -> Heartbeat {
        Heartbeat { number: 1, node_lag: lag, data_lag: 0 }
    }

    fn at(millis: u64) -> Instant {
        Instant(millis * 1_000_000)
    }

    #[test]
    fn a_lagging_node_becomes_slow_after_three_beats_and_quick_after_three() {
        let mut health = Health::new(at(0));
        let slow = SLOW_LAG_NANOS + 1;
        let lags = [slow, slow, 0, slow, slow, slow, slow, 0, 0, slow, 0, 0, 0];
        let changes: Vec<bool> = lags.iter().map(|lag| health.on_heartbeat(beat(*lag), at(0))).collect();
        let at_beats: Vec<usize> = (0..lags.len()).filter(|at| changes[*at]).collect();
        assert_eq!(at_beats, [5, 12]);
        assert!(!health.is_slow());
        assert_eq!(health.silence(HEALTH_TIMEOUT_NANOS, at(1)), None, "slow is not dead");
    }

    #[test]
    fn silence_ends_it_at_the_timeout_and_not_before() {
        let mut health = Health::new(at(0));
        health.on_heartbeat(beat(0), at(700));
        assert_eq!(health.silence(HEALTH_TIMEOUT_NANOS, at(5_699)), None);
        let reason = health.silence(HEALTH_TIMEOUT_NANOS, at(5_700));
        assert_eq!(reason.as_deref(), Some("no heartbeat for 5.0 s"));
    }

    #[test]
    fn a_doubt_is_one_probe_at_a_time() {
        let mut health = Health::new(at(0));
        assert_eq!(health.doubt(), Some(1));
        assert_eq!(health.doubt(), None);
        assert_eq!(health.on_probed(ME, 1, Probed::Silent, at(1)), None);
        assert!(health.is_unanswered() && health.is_doubted());
        assert_eq!(health.doubt(), Some(2));
        assert_eq!(health.on_probed(ME, 2, Probed::Answered(ME), at(2)), None);
        assert!(!health.is_doubted());
    }

    #[test]
    fn only_the_last_probe_decides() {
        let mut health = Health::new(at(0));
        assert_eq!(health.doubt(), Some(1));
        health.on_heartbeat(beat(0), at(1));
        assert_eq!(health.on_probed(ME, 1, Probed::Refused, at(2)), None, "a heartbeat came since");
        assert_eq!(health.doubt(), Some(2));
        assert_eq!(health.on_probed(ME, 1, Probed::Refused, at(3)), None, "the answer to an earlier one");
        assert_eq!(health.on_probed(ME, 1, Probed::Answered(ME), at(3)), None, "it may have died since");
        assert!(health.on_probed(ME, 2, Probed::Refused, at(3)).is_some());
        assert_eq!(health.doubt(), None);
        let mut health = Health::new(at(0));
        health.doubt();
        health.on_received(at(1));
        assert_eq!(health.on_probed(ME, 1, Probed::Answered(ME), at(5_000)), None);
        assert_eq!(health.silence(HEALTH_TIMEOUT_NANOS, at(9_999)), None, "a late answer is a sign of life");
        assert_eq!(health.doubt(), Some(2));
        let other = Probed::Answered(NodeId(2 << 24));
        assert!(health.on_probed(ME, 2, other, at(3)).expect("gone").contains("another node"));
    }

    #[test]
    fn who_cannot_be_dialled_gets_two_seconds() {
        let mut health = Health::new(at(0));
        health.wait(at(100));
        health.wait(at(1_000));
        assert_eq!(health.silence(HEALTH_TIMEOUT_NANOS, at(2_099)), None);
        let reason = health.silence(HEALTH_TIMEOUT_NANOS, at(2_100));
        assert_eq!(reason.as_deref(), Some("its connection ended 2.0 s ago and it did not come back"));
        health.forgive(at(2_100));
        assert_eq!(health.silence(HEALTH_TIMEOUT_NANOS, at(4_099)), None);
        health.on_received(at(4_099));
        assert_eq!(health.silence(HEALTH_TIMEOUT_NANOS, at(8_000)), None);
    }
}
