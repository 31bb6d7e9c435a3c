//! Tasks that wait at a worker of another node for what they take are passed by those that were sent after
//! them.

use super::*;

/// A driver that has sent tasks 2 and 3 to one worker, of which 2 takes a value of this node, and none may be
/// executed twice.
fn two_sent() -> (WorkerCore, [Arc<Slot>; 2]) {
    let (mut core, _, _slot) = owner();
    let shape = core.shape(&ResourceSet::default());
    let here = task(ME, 9).object(0);
    let held = Arc::new(Slot::with_outcome(Outcome::Stored(THE_COPY)));
    held.acquire();
    core.ownership_mut().own(here, held);
    let slots = [(); 2].map(|()| Arc::new(Slot::default()));
    for (number, slot) in (2..).zip(&slots) {
        slot.acquire();
        let taken: &[ObjectId] = if number == 2 { &[here] } else { &[] };
        let once = TaskSpec { retries: 0, ..spec(task(ME, number), TaskKind::Task(shape), taken) };
        let mut out = Actions::new();
        core.submit(Arc::new(once), [slot.clone()], None, &mut out);
        let is_sent = |action: &Action| matches!(action, Action::Push { worker: FAR, .. });
        assert!(out.iter().any(is_sent), "{out:?}");
    }
    (core, slots)
}

fn dies_in(core: &mut WorkerCore, number: u64) {
    let last_started = Some(task(ME, number));
    on(core, Peer::Node, WorkerDead { worker: FAR, last_started, ..WorkerDead::default() });
}

fn has_failed(slot: &Slot) -> bool {
    matches!(slot.outcome().as_deref(), Some(Outcome::Failed(failure)) if failure.code == FailureCode::WorkerCrashed)
}

#[test]
fn one_that_may_have_passed_the_last_one_is_not_executed_again() {
    let (mut core, slots) = two_sent();
    dies_in(&mut core, 2);
    assert!(has_failed(&slots[0]));
    assert!(has_failed(&slots[1]), "it may have begun while the other one waited");
}

#[test]
fn one_behind_the_last_one_that_could_not_be_passed_is_executed() {
    let (mut core, slots) = two_sent();
    dies_in(&mut core, 3);
    assert!(slots.iter().all(|slot| has_failed(slot)), "nobody knows whether the first one had its argument");
    let (mut core, slots) = two_sent();
    on(&mut core, Peer::Worker(FAR), reply(2, Outcome::Inline(Blob::default())));
    dies_in(&mut core, 2);
    assert_eq!(slots[1].outcome(), None);
}
