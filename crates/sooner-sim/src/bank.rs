//! The bug bank: defects that can be switched on in the cores, each modelled on a real one in another system.
//! A test that does not find them proves nothing.

use sooner_protocol::probes::{Bug, switch};

use crate::explore::{configs, links, search, settle_nodes};
use crate::runner::{Orders, run_many};
use crate::scale::{self, plan::ScalePlan};
use crate::trace::Trace;
use crate::violation::Violation;

/// The number of seeds within which each defect must be found.
pub const SEEDS_MAX: u64 = 2000;
/// Nodes of the clusters in which defects of the control service are searched.
const CLUSTER_NODES: usize = 6;

/// Where each defect was seen, and how it is modelled here.
pub const MODELS: &[(Bug, &str, &str)] = &[
    (
        Bug::ReplyBeforeRegistration,
        "ray#19910",
        "a worker gives its references up before it registers who gets them",
    ),
    (Bug::BorrowerDroppedEarly, "ray#18292", "a worker does not say which arguments it holds on"),
    (
        Bug::KeptWhileLent,
        "ray#19659",
        "a worker does not say what it holds on while another of its tasks was lent the same",
    ),
    (Bug::ReturnedIsTold, "ray#19910", "who got a reference back in a result takes that for a registration"),
    (Bug::BorrowerNotRegistered, "ray#20554", "a reference is handed on without word to its owner"),
    (Bug::OwnerDeathLostInFetch, "ray#63694", "who asked a dead owner for a value is not told"),
    (Bug::OwnerDeathHandledTwice, "ray#54332", "the resources of a dead owner's lease come back twice"),
    (Bug::DeadBorrowerKept, "ray#32956", "a borrower that died keeps the object"),
    (Bug::LateBorrowerOfTheDead, "ray#27297", "a borrower is registered after its death was handled"),
    (Bug::LeaseNotReturned, "ray#45704", "an idle lease is forgotten, not given back"),
    (Bug::LeaseNotEnded, "ray#20706", "a dead worker's lease is never ended"),
    (Bug::RetriesForTheUnbegun, "ray#44719", "a task that never began counts as executed"),
    (Bug::RetriesNeverEnd, "ray#25457", "a crash does not use up a retry"),
    (Bug::RetryAfterCancel, "dask#5497", "a cancelled task is executed again after a crash"),
    (Bug::CallsReorderedAfterRestart, "ray#25176", "calls in flight are repeated in the wrong order"),
    (Bug::CallsLostAtRestart, "ray#24969", "calls in flight are forgotten when an actor restarts"),
    (Bug::ActorCollectedWhileBorrowed, "ray#20713", "an actor ends although another process has a handle"),
    (Bug::ActorNeverCollected, "ray#12337", "an actor lives on after its last handle"),
    (Bug::BlockFreedTwice, "ray#14182", "a block is given back twice"),
    (Bug::BlockNeverFreed, "ray#7908", "a block is never given back"),
    (Bug::BlockOfDeadOwnerFreed, "ray#20018", "a dead owner's block is reused while others read it"),
    (Bug::NestedNotKept, "ray#7302", "what a value contains is not kept with it"),
    (Bug::DependentsForgotten, "dask#6244", "tasks are not told that their argument is there"),
    (Bug::DemandForgotten, "ray#3644", "a caller does not ask for workers again"),
    (Bug::CpuNotReclaimed, "ray#49783", "a lent CPU is lent for ever"),
    (Bug::StartFailureForgotten, "ray#65067", "a worker that never came is waited for"),
    (Bug::QueuedTaskLostWhenBlocked, "ray#26772", "a task queued behind a waiting one is dropped"),
    (Bug::ItemTakenTwice, "ray#59339", "an item comes twice when its task is executed again"),
    (Bug::BackpressureForgotten, "ray#45632", "a producer is not told that its items were read"),
    (Bug::CallBeforeConstructor, "ray#22818", "a call overtakes the constructor"),
    (Bug::RestartUncounted, "ray#26994", "restarts are not counted"),
    (Bug::FetcherForgotten, "ray#1049", "who asks for a value that is not there yet is forgotten"),
    (Bug::RetainedReleasedOnFlush, "ray#20276", "what was written to a connection counts as received"),
    (Bug::ResumeFromSent, "dask#5457", "what was on its way when a connection was cut is not sent again"),
    (Bug::ResumeFromAcknowledged, "ray#58265", "what was received before a cut is received again"),
    (Bug::FlushedIsAcknowledged, "ray#44079", "a flush is over before the other side has everything"),
    (Bug::StaleRedialTaken, "ray#64695", "an attempt that was given up takes the place of a later one"),
    (Bug::AckBeforeProcessed, "dask#421", "what was read from a socket counts, and is never handled"),
    (Bug::SettledAlone, "ray#18292", "a death is settled although who had been handed something died, too"),
    (
        Bug::PlaceLeftWhileRead,
        "ray#62896",
        "a value moves, and its old place is used again while a task reads it there",
    ),
    (
        Bug::SpilledWhilePushed,
        "ray#14182",
        "a value goes to disk while a worker that was told where it is reads it",
    ),
    (Bug::SpilledWhileBorrowed, "ray#16025", "a value goes to disk while a borrower believes it in memory"),
    (
        Bug::ToldAndForgotten,
        "own",
        "who was told where a value is, by whatever way, does not count as a reader",
    ),
    (
        Bug::RestoreNotTriedAgain,
        "ray#14660",
        "what found no room is asked for again only when something is freed",
    ),
    (
        Bug::HeldBackForGood,
        "own",
        "a task held back beside others that lacked room is not looked at again when they wait for it",
    ),
    (Bug::PromotedWhileArriving, "own", "a copy becomes the value although it is only partly there"),
    (Bug::PromotedForNobody, "own", "a copy stays pinned whose reference went while it was asked for"),
    (
        Bug::OwnerEndedWhileIdle,
        "own",
        "a worker that has nothing to do ends although others need what it owns",
    ),
    (
        Bug::ForgottenCopyKept,
        "own",
        "a node that would let go of a copy hears nothing, because its owner has forgotten the value",
    ),
    (Bug::JoinedUntold, "own", "the directory does not hear of nodes that join"),
    (Bug::DeathUntold, "own", "the directory does not hear of nodes that are gone"),
    (
        Bug::CompleteTooEarly,
        "own",
        "a head that starts again does not wait for the nodes that the one before knew",
    ),
    (Bug::AwaitedFailureForgotten, "own", "a task waits for a value that failed instead of coming"),
];

/// Defects of sessions: the simulated world has one node, so sessions are simulated by themselves.
const OF_SESSIONS: &[Bug] = &[
    Bug::RetainedReleasedOnFlush,
    Bug::ResumeFromSent,
    Bug::ResumeFromAcknowledged,
    Bug::FlushedIsAcknowledged,
    Bug::StaleRedialTaken,
    Bug::AckBeforeProcessed,
];

/// Defects between the parts of the control service: found where nodes join it and are watched.
const OF_CLUSTERS: &[Bug] = &[Bug::JoinedUntold, Bug::DeathUntold, Bug::CompleteTooEarly];

/// Defects that need an end or a delay at one moment. Seeds meet that moment too rarely, so every state of a
/// small world is searched.
const OF_SMALL_WORLDS: &[(Bug, &str)] =
    &[(Bug::KeptWhileLent, "actor-shared"), (Bug::ReturnedIsTold, "actor-returned")];

/// Looks for one defect: returns the first seed that finds it, and the violation.
#[must_use]
pub fn look_for(bug: Bug, jobs: usize) -> Option<(u64, Violation)> {
    if OF_SESSIONS.contains(&bug) {
        return (0..SEEDS_MAX).find_map(|seed| Some((seed, links::walk(seed, Some(bug)).err()?)));
    }
    if OF_CLUSTERS.contains(&bug) {
        switch(Some(bug));
        let found = (0..SEEDS_MAX).find_map(|seed| {
            let plan = ScalePlan::new(seed, Some(CLUSTER_NODES));
            Some((seed, scale::world::run(&plan, Trace::default()).violation?))
        });
        switch(None);
        return found;
    }
    if bug == Bug::SettledAlone {
        // Two deaths at once on two nodes, with messages lost in both: too rare for seeds.
        let found = settle_nodes::search(&settle_nodes::two_deaths(), Some(bug), u64::MAX);
        return found.violation.map(|(text, _)| (0, Violation { invariant: "I5".to_owned(), text }));
    }
    if let Some((_, name)) = OF_SMALL_WORLDS.iter().find(|(known, _)| *known == bug) {
        let config = configs::all().into_iter().find(|config| config.name == *name)?;
        switch(Some(bug));
        let found = search(&config, u64::MAX);
        switch(None);
        return found.violation.map(|(text, _)| (0, Violation { invariant: "I5".to_owned(), text }));
    }
    let orders = match bug {
        // Only on several nodes do values move and have copies. Faults that lead to other findings there are
        // left out.
        Bug::PlaceLeftWhileRead | Bug::ForgottenCopyKept => {
            let without = ["head", "lost-blocks"].map(str::to_owned).to_vec();
            Orders { nodes: Some(2), without, ..Orders::new(0, SEEDS_MAX) }
        }
        // The same, with lost blocks.
        Bug::PromotedWhileArriving | Bug::PromotedForNobody => {
            let without = vec!["head".to_owned()];
            Orders { nodes: Some(2), without, ..Orders::new(0, SEEDS_MAX) }
        }
        _ => Orders::new(0, SEEDS_MAX).without_open(),
    };
    let totals = run_many(&Orders { bug: Some(bug), jobs, ..orders });
    totals.failed.map(|(plan, violation)| (plan.seed, violation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_defect_has_a_model() {
        for bug in Bug::ALL {
            assert_eq!(MODELS.iter().filter(|(known, ..)| known == bug).count(), 1, "{bug:?}");
        }
    }
}
