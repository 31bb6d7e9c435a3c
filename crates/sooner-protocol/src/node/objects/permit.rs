//! Whether a piece of a value may be sent to a node that asks for it.
//!
//! The node says of each piece whether the value is local. The asking node may have learned of a value before
//! this node ([`Serves::NotYet`]): then this node is asked again a little later. After a while the piece is
//! refused, so that the asking node looks elsewhere. The block of a piece is kept until the piece was sent.

use sooner_wire::message::FetchEnd;

use super::Serves;
use crate::time::Instant;

/// How soon the node is asked again (nanoseconds).
const AGAIN_NANOS: u64 = 2_000_000;

/// How long the node may answer "not yet" (nanoseconds).
const UNKNOWN_NANOS: u64 = 5_000_000_000;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// The node is asked.
    Asked,
    /// The node will know later, and is asked again then.
    Later(Instant),
    /// The node keeps the block.
    Given,
    /// The piece is not sent, and the block is not kept.
    Refused(FetchEnd),
}

impl Permit {
    /// What the node's answer means for a piece that was first asked for at `since`.
    #[must_use]
    pub fn after(serves: Serves, since: Instant, now: Instant) -> Self {
        match serves {
            Serves::Yes => Self::Given,
            Serves::NotYet if now < since.plus(UNKNOWN_NANOS) => Self::Later(now.plus(AGAIN_NANOS)),
            Serves::NotYet | Serves::No => Self::Refused(FetchEnd::NotThere),
        }
    }

    /// When the node is to be asked again.
    #[must_use]
    pub fn asks_at(self) -> Option<Instant> {
        match self {
            Self::Later(at) => Some(at),
            Self::Asked | Self::Given | Self::Refused(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE: Instant = Instant(3);

    #[test]
    fn what_is_here_is_sent_and_what_is_not_is_refused() {
        assert_eq!(Permit::after(Serves::Yes, SINCE, SINCE), Permit::Given);
        let refused = Permit::Refused(FetchEnd::NotThere);
        assert_eq!(Permit::after(Serves::No, SINCE, SINCE), refused);
        assert_eq!((Permit::Given.asks_at(), refused.asks_at()), (None, None));
    }

    #[test]
    fn a_node_that_does_not_know_is_asked_again_for_a_while() {
        let (mut now, mut asked) = (SINCE, 0_u64);
        let end = loop {
            match Permit::after(Serves::NotYet, SINCE, now) {
                Permit::Later(at) => {
                    assert_eq!(Permit::Later(at).asks_at(), Some(now.plus(AGAIN_NANOS)));
                    (now, asked) = (at, asked + 1);
                }
                end => break end,
            }
        };
        assert_eq!(end, Permit::Refused(FetchEnd::NotThere));
        assert_eq!(asked, UNKNOWN_NANOS / AGAIN_NANOS);
    }
}
