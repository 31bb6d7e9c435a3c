//! Probes for the simulator: marks of rare states, and defects that can be switched on to see whether it
//! finds them.
//!
//! `mark!("...")` counts that a state was reached (feature `marks`); `bug!(Name)` is true when that defect is
//! on (feature `bugs`). Without the features, which only the simulator enables, a mark is nothing and a bug
//! is `false`: the compiler leaves no trace of either.

#[cfg(feature = "marks")]
mod marks {
    use std::cell::RefCell;

    use crate::table::Map;

    thread_local! {
        static TALLY: RefCell<Map<&'static str, u64>> = RefCell::default();
    }

    /// A named state was reached.
    pub fn hit(name: &'static str) {
        TALLY.with_borrow_mut(|tally| *tally.entry(name).or_default() += 1);
    }

    /// The marks that this thread has counted since the last call.
    #[must_use]
    pub fn take_tally() -> Map<&'static str, u64> {
        TALLY.take()
    }
}

#[cfg(feature = "marks")]
pub use marks::{hit, take_tally};

#[cfg(feature = "marks")]
macro_rules! mark {
    ($name:expr) => {
        $crate::probes::hit($name)
    };
}

#[cfg(not(feature = "marks"))]
macro_rules! mark {
    // A block, so that it stands wherever the call above does: also as the whole arm of a match.
    ($name:expr) => {{}};
}

pub(crate) use mark;

#[cfg(feature = "bugs")]
mod bugs {
    use std::cell::Cell;

    macro_rules! bugs {
        ($($name:ident),* $(,)?) => {
            /// A defect that can be switched on. `sooner-sim/src/bank.rs` says where each was seen.
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            #[allow(missing_docs)]
            pub enum Bug { $($name,)* }

            impl Bug {
                /// Every defect.
                pub const ALL: &[Bug] = &[$(Bug::$name,)*];
            }
        };
    }

    bugs! {
        ReplyBeforeRegistration, BorrowerDroppedEarly, KeptWhileLent, ReturnedIsTold, BorrowerNotRegistered,
        OwnerDeathLostInFetch,
        OwnerDeathHandledTwice, DeadBorrowerKept, LateBorrowerOfTheDead, LeaseNotReturned, LeaseNotEnded,
        RetriesForTheUnbegun, RetriesNeverEnd, RetryAfterCancel, CallsReorderedAfterRestart,
        CallsLostAtRestart, ActorCollectedWhileBorrowed, ActorNeverCollected, BlockFreedTwice, BlockNeverFreed,
        BlockOfDeadOwnerFreed, NestedNotKept, DependentsForgotten, DemandForgotten, CpuNotReclaimed,
        StartFailureForgotten, QueuedTaskLostWhenBlocked, ItemTakenTwice, BackpressureForgotten,
        CallBeforeConstructor, RestartUncounted, FetcherForgotten,
        RetainedReleasedOnFlush, ResumeFromSent, ResumeFromAcknowledged, FlushedIsAcknowledged, StaleRedialTaken,
        AckBeforeProcessed, SettledAlone, PlaceLeftWhileRead, SpilledWhileBorrowed, SpilledWhilePushed,
        ToldAndForgotten, RestoreNotTriedAgain, HeldBackForGood, PromotedWhileArriving, PromotedForNobody,
        ForgottenCopyKept, OwnerEndedWhileIdle, JoinedUntold, DeathUntold, CompleteTooEarly,
        AwaitedFailureForgotten,
    }

    thread_local! {
        static ON: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Switches one defect on in this thread, or all off.
    pub fn switch(bug: Option<Bug>) {
        ON.set(bug);
    }

    /// Whether a defect is on.
    #[inline]
    #[must_use]
    pub fn is_on(bug: Bug) -> bool {
        ON.get() == Some(bug)
    }
}

#[cfg(feature = "bugs")]
pub use bugs::{Bug, is_on, switch};

#[cfg(feature = "bugs")]
macro_rules! bug {
    ($name:ident) => {
        $crate::probes::is_on($crate::probes::Bug::$name)
    };
}

#[cfg(not(feature = "bugs"))]
macro_rules! bug {
    ($name:ident) => {
        false
    };
}

pub(crate) use bug;
