//! Stops the workers of a node that stands still: the head declares such a node dead and has its tasks and
//! actors run elsewhere, and the old ones must have no effects beside the new ones.
//!
//! The node's process cannot do that when it is stopped itself, so the templates do: the node tells them that
//! it is alive, and without that message for as long as the head waits, they stop their workers. A node that
//! goes on after such a time waits a moment before it sends that message: meanwhile the head can tell it that
//! it was declared dead and must end.

use sooner_protocol::time::Instant;
use sooner_wire::WorkerId;
use sooner_wire::message::NodeLives;

use super::Service;
use crate::clock::now;
use crate::node::cluster::Cluster;

/// Time between two messages (nanoseconds), and a quarter of the patience at most.
const PULSE_NANOS: u64 = 1_000_000_000;

fn pulse_of(patience: u64) -> u64 {
    PULSE_NANOS.min(patience / 4)
}

/// When to tell templates that the node is alive.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    last_turn: Option<Instant>,
    next: Instant,
}

impl Pulse {
    /// The node's loop turns. Whether to tell templates now, which wait for so long.
    fn turn(&mut self, patience: u64, now: Instant) -> bool {
        let pulse = pulse_of(patience);
        let stood = self.last_turn.map_or(0, |last| now.since(last));
        self.last_turn = Some(now);
        // The head may have waited for two pulses longer: a heartbeat is older than the last turn.
        if stood >= patience.saturating_sub(PULSE_NANOS.min(2 * pulse)) {
            self.next = now.plus(pulse);
        }
        if now < self.next {
            return false;
        }
        self.next = now.plus(pulse);
        true
    }
}

impl Service {
    /// How long templates wait for the node's message. The head's own node is never declared dead.
    fn patience_of_templates(&self) -> Option<u64> {
        self.cluster.as_ref().and_then(Cluster::silence_allowed)
    }

    /// Tells a template that has started: the node may stand still before the next message is due.
    pub(super) fn introduce_node(&mut self, job: WorkerId) {
        if let (Some(patience), Some(job)) = (self.patience_of_templates(), self.jobs.get_mut(&job)) {
            job.send_node_lives(NodeLives { patience });
        }
    }

    /// When to tell templates again.
    pub(super) fn beat_deadline(&self) -> Option<Instant> {
        self.patience_of_templates().filter(|_| !self.jobs.is_empty()).map(|_| self.pulse.next)
    }

    /// Tells templates that the node is alive, from time to time.
    pub(super) fn beat(&mut self) {
        let Some(patience) = self.patience_of_templates() else { return };
        if self.pulse.turn(patience, now()) {
            for job in self.jobs.values_mut() {
                job.send_node_lives(NodeLives { patience });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const PATIENCE: u64 = 5 * SECOND;

    #[test]
    fn it_is_said_each_second_and_late_by_a_node_that_stood_still() {
        let mut pulse = Pulse::default();
        let mut at = |tenths: u64| pulse.turn(PATIENCE, Instant(tenths * SECOND / 10));
        assert!(at(10));
        let said: Vec<u64> = (11..=45).filter(|tenths| at(*tenths)).collect();
        assert_eq!(said, [20, 30, 40]);
        assert!(at(80), "not long enough to be declared gone");
        assert!(!at(125) && !at(134), "the head may have");
        assert!(at(135));
    }

    #[test]
    fn who_waits_for_a_second_only_is_told_in_time() {
        let mut pulse = Pulse::default();
        let mut at = |hundredths: u64| pulse.turn(SECOND, Instant(hundredths * SECOND / 100));
        // The loop turns for other reasons, too.
        let said: Vec<u64> =
            (0..20).map(|turn| 1_000 + 10 * turn).filter(|hundredths| at(*hundredths)).collect();
        assert_eq!(said, [1_000, 1_030, 1_060, 1_090, 1_120, 1_150, 1_180]);
        assert!(at(1_220), "late, and not long enough to be declared gone");
        assert!(!at(1_280) && !at(1_300), "the head may have");
        assert!(at(1_305));
    }
}
