//! A few defects of the bank are found within a few seeds; `sooner-sim --bugs` looks for all of them.

use sooner_protocol::probes::Bug;
use sooner_sim::bank::look_for;

#[test]
fn defects_are_found() {
    for bug in [
        Bug::LeaseNotReturned,
        Bug::DeadBorrowerKept,
        Bug::BlockNeverFreed,
        Bug::DependentsForgotten,
        Bug::RetainedReleasedOnFlush,
        Bug::ResumeFromSent,
        Bug::ResumeFromAcknowledged,
        Bug::FlushedIsAcknowledged,
        Bug::StaleRedialTaken,
        Bug::AckBeforeProcessed,
        Bug::JoinedUntold,
        Bug::DeathUntold,
        Bug::CompleteTooEarly,
        Bug::AwaitedFailureForgotten,
    ] {
        assert!(look_for(bug, 1).is_some(), "{bug:?}");
    }
}
