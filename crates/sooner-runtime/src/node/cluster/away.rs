//! How long the node of a program goes on without its head.
//!
//! A daemon waits for its head without end: its tasks go on, and somebody starts the head again. A program's
//! tasks run on other nodes, and may be lost with the head, with nobody left to report it. So that each of
//! its waits ends, the program's session does.

use sooner_protocol::time::Instant;

/// This many times the silence after which a node is dead: a minute, unless the cluster sets another silence.
/// A head that is started again on the same machine is back long before.
const TIMEOUTS: u64 = 12;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// How long the head may be away (nanoseconds); zero before the first registration.
    patience: u64,
    since: Option<Instant>,
}

impl Away {
    /// The head has registered the node. `health_timeout` is the cluster's (nanoseconds).
    pub(super) fn on_registered(&mut self, health_timeout: u64) {
        self.patience = health_timeout.saturating_mul(TIMEOUTS);
    }

    /// How long the head was away (seconds), once that is too long.
    pub(super) fn look(&mut self, is_up: bool, now: Instant) -> Option<u64> {
        if is_up || self.patience == 0 {
            self.since = None;
            return None;
        }
        let away = now.since(*self.since.get_or_insert(now));
        (away >= self.patience).then_some(away / 1_000_000_000)
    }

    /// When to look again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.since.map(|since| since.plus(self.patience))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * SECOND)
    }

    #[test]
    fn only_a_head_that_stays_away_is_given_up() {
        let mut away = Away::default();
        assert_eq!(away.look(false, at(1000)), None, "it never was there: whoever joins waits for that");
        away.on_registered(5 * SECOND);
        assert_eq!((away.look(true, at(1000)), away.deadline()), (None, None));
        assert_eq!((away.look(false, at(1001)), away.deadline()), (None, Some(at(1061))));
        assert_eq!(away.look(false, at(1060)), None);
        assert_eq!((away.look(true, at(1060)), away.deadline()), (None, None), "it is back");
        assert_eq!(away.look(false, at(1070)), None);
        assert_eq!(away.look(false, at(1129)), None);
        assert_eq!(away.look(false, at(1130)), Some(60));
        assert!(away.deadline().is_some_and(|deadline| deadline <= at(1130)), "it is looked at once more");
    }
}
