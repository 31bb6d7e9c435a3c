//! When a peer is dialled again: after a pause that doubles with each failure in a row, up to a maximum. A
//! good connection resets the pause.
//!
//! Heartbeats, values and the link to the head use it, and the simulator's model of them. It never dials and
//! never reads a clock: the holder of the socket reports each result, and learns when the next attempt may
//! begin. The pauses of a session's own connections are in [`super::link`]: there the first attempt after a
//! cut begins at once.

use sooner_wire::limits::{REDIAL_NANOS, REDIAL_NANOS_MAX};

use crate::time::Instant;

/// How long (nanoseconds) a peer that was asked to dial may be on its way.
const COMING_NANOS: u64 = 2_000_000_000;

/// After every so many failures in a row, the holder of another connection to the same peer must check that
/// one. Not after each failure: that connection may be well, and a busy peer must not be dialled twice for
/// everything that it does not get to.
const FAILURES_TOLD: u32 = 4;

/// How long (nanoseconds) a node that was never admitted keeps trying when connections end without a message.
const PASSING_NANOS: u64 = 3_000_000_000;

/// How often a pause doubles at most.
const DOUBLINGS_MAX: u32 = 16;

/// See the module.
#[derive(Debug, Clone)]
pub struct Redial {
    /// How many addresses the peer has. The pause doubles when all of them were tried once more.
    addresses: u32,
    /// Attempts, or failures, since the last good connection.
    tries: u32,
    dial_at: Instant,
    /// Until when the peer that was asked to dial may be on its way.
    coming_until: Instant,
}

impl Default for Redial {
    fn default() -> Self {
        Self::among(1)
    }
}

impl Redial {
    /// A peer with this many addresses, which may be dialled at once.
    ///
    /// # Panics
    /// If there is no address.
    #[must_use]
    pub fn among(addresses: usize) -> Self {
        assert!(addresses > 0, "somebody is to be dialled");
        let addresses = u32::try_from(addresses).unwrap_or(u32::MAX);
        Self { addresses, tries: 0, dial_at: Instant(0), coming_until: Instant(0) }
    }

    /// An attempt begins, at [`Self::address`]. For callers that count attempts: [`Self::on_lost`] reports
    /// its failure.
    pub fn on_dialled(&mut self) {
        self.tries = self.tries.saturating_add(1);
    }

    /// An attempt failed that [`Self::on_dialled`] had counted, or a good connection was lost. Returns when
    /// the next attempt may begin.
    pub fn on_lost(&mut self, now: Instant) -> Instant {
        let doublings = (self.tries / self.addresses).min(DOUBLINGS_MAX);
        self.dial_at = now.plus((REDIAL_NANOS << doublings).min(REDIAL_NANOS_MAX));
        self.dial_at
    }

    /// The same for callers that count failures instead of attempts: several connections may fail at a time.
    pub fn on_failed(&mut self, now: Instant) -> Instant {
        let dial_at = self.on_lost(now);
        self.tries = self.tries.saturating_add(1);
        dial_at
    }

    /// A connection was good.
    pub fn on_connected(&mut self) {
        self.tries = 0;
        self.dial_at = Instant(0);
    }

    /// The peer cannot be dialled. Returns whether it is to be asked to dial: not again while it may be on
    /// its way.
    pub fn may_ask(&mut self, now: Instant) -> bool {
        let may_ask = self.coming_until <= now;
        if may_ask {
            self.coming_until = now.plus(COMING_NANOS);
        }
        self.dial_at = self.coming_until;
        may_ask
    }

    /// When the peer may be dialled, or asked to dial.
    #[must_use]
    pub fn dial_at(&self) -> Instant {
        self.dial_at
    }

    /// Index of the address that is dialled, or was last: addresses take turns.
    #[must_use]
    pub fn address(&self) -> usize {
        (self.tries.saturating_sub(1) % self.addresses) as usize
    }

    /// Whether every address was tried in vain.
    #[must_use]
    pub fn has_tried_all(&self) -> bool {
        self.tries >= self.addresses
    }

    /// After a failure: whether the holder of another connection to the same peer must check that one.
    #[must_use]
    pub fn is_to_be_told(&self) -> bool {
        self.tries.is_multiple_of(FAILURES_TOLD)
    }

    /// After a failure: whether a node that was never admitted gives up. `may_pass`: the connection ended
    /// without a message, because the peer may have had to make room for others.
    #[must_use]
    pub fn gives_up(&self, began: Instant, may_pass: bool, now: Instant) -> bool {
        self.has_tried_all() && !(may_pass && now < began.plus(PASSING_NANOS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(7_000_000_000);

    fn pauses(count: usize, mut fail: impl FnMut() -> Instant) -> Vec<u64> {
        (0..count).map(|_| fail().since(NOW) / 1_000_000).collect()
    }

    #[test]
    fn the_pause_doubles_with_each_failure_up_to_the_longest() {
        let mut redial = Redial::default();
        assert_eq!(redial.dial_at(), Instant(0), "the first attempt waits for nothing");
        assert_eq!(pauses(7, || redial.on_failed(NOW)), [50, 100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(redial.dial_at(), NOW.plus(REDIAL_NANOS_MAX));
        redial.on_connected();
        assert_eq!(redial.dial_at(), Instant(0));
        assert_eq!(pauses(2, || redial.on_failed(NOW)), [50, 100]);
    }

    #[test]
    fn addresses_take_turns_and_the_pause_doubles_after_all_of_them() {
        let mut redial = Redial::among(3);
        let mut seen = Vec::new();
        let pauses = pauses(7, || {
            redial.on_dialled();
            seen.push((redial.address(), redial.has_tried_all()));
            redial.on_lost(NOW)
        });
        assert_eq!(pauses, [50, 50, 100, 100, 100, 200, 200]);
        let addresses: Vec<usize> = seen.iter().map(|(address, _)| *address).collect();
        assert_eq!(addresses, [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(seen.iter().position(|(_, all)| *all), Some(2));
        redial.on_connected();
        assert_eq!((redial.address(), redial.has_tried_all()), (0, false));
        // A good connection that is lost is no attempt.
        assert_eq!((redial.on_lost(NOW), redial.address()), (NOW.plus(REDIAL_NANOS), 0));
    }

    #[test]
    fn a_row_without_end_has_pauses() {
        let mut redial = Redial { tries: u32::MAX, ..Redial::default() };
        redial.on_dialled();
        assert_eq!(redial.on_failed(NOW), NOW.plus(REDIAL_NANOS_MAX));
    }

    #[test]
    fn every_fourth_failure_is_told() {
        let mut redial = Redial::default();
        let told: Vec<usize> = (1..=9)
            .filter(|_| {
                redial.on_failed(NOW);
                redial.is_to_be_told()
            })
            .collect();
        assert_eq!(told, [4, 8]);
    }

    #[test]
    fn who_cannot_be_dialled_is_not_asked_again_while_it_may_be_on_its_way() {
        let mut redial = Redial::default();
        assert!(redial.may_ask(NOW));
        let later = NOW.plus(COMING_NANOS);
        assert_eq!(redial.dial_at(), later);
        redial.on_failed(NOW);
        assert!(!redial.may_ask(Instant(later.0 - 1)));
        assert_eq!(redial.dial_at(), later, "a failure does not bring it sooner");
        assert!(redial.may_ask(later));
        redial.on_connected();
        assert_eq!(redial.dial_at(), Instant(0));
    }

    #[test]
    fn who_was_never_let_in_gives_up_when_all_was_tried() {
        let mut redial = Redial::among(2);
        redial.on_dialled();
        assert!(!redial.gives_up(NOW, false, NOW), "there is another address");
        redial.on_dialled();
        assert!(redial.gives_up(NOW, false, NOW));
        assert!(!redial.gives_up(NOW, true, NOW.plus(PASSING_NANOS - 1)));
        assert!(redial.gives_up(NOW, true, NOW.plus(PASSING_NANOS)));
    }
}
