//! A process forgets where an actor is when it has no handle of it and no call to it any more.

use std::num::NonZeroU32;
use std::sync::Arc;

use sooner_protocol::time::Instant;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::ownership::Slot;
use sooner_protocol::worker::{ActorDemand, WorkerCore};
use sooner_wire::message::{
    ActorDead, ActorStarted, AddBorrow, Define, Failure, FailureCode, Fetch, Message, Outcome, RemoveBorrow,
    TaskKind, TaskSpec,
};
use sooner_wire::{Blob, FunctionId, Name, ResourceSet, TaskId, WorkerId};

mod kit;

use kit::{plain, reply_of};

const ME: WorkerId = WorkerId(1);
const HOME: WorkerId = WorkerId(9);
const OTHER: WorkerId = WorkerId(5);
const NOW: Instant = Instant(0);

fn held() -> Arc<Slot> {
    let slot = Arc::new(Slot::default());
    slot.acquire();
    slot
}

fn from_node(core: &mut WorkerCore, message: impl Into<Message>) {
    assert_eq!(core.on_message(Peer::Node, message.into(), NOW, &mut Actions::new()), None);
    core.on_timer(NOW, &mut Actions::new());
}

fn dead(actor: TaskId) -> ActorDead {
    ActorDead { actor, failure: Failure::new(FailureCode::ActorDied, "gone") }
}

#[test]
fn the_creator_forgets_an_actor_that_was_killed_before_its_handle_was_dropped() {
    let mut core = WorkerCore::new(ME);
    let (function, name, code) = (FunctionId(1), Name::from("Counter"), Blob::default());
    core.define(Define { function, name: name.clone(), code, references: vec![], place: None });
    let actor = TaskId { owner: ME, number: 1 };
    let spec = TaskSpec::new(actor, TaskKind::Creation, function, name, Blob::default());
    let none = ResourceSet::default();
    let demand = ActorDemand { placement: none.clone(), lifetime: none, restarts: 0, detached: false };
    let slot = held();
    core.create_actor(Arc::new(spec), slot.clone(), demand, &mut Actions::new());
    from_node(&mut core, ActorStarted { actor, worker: HOME, concurrency: 1, replays: None, restarts: None });
    core.kill_actor(actor, "it", false, &mut Actions::new());
    from_node(&mut core, dead(actor));
    assert!(core.actor_place(actor).is_some(), "later calls are refused");
    assert!(slot.release());
    core.on_handles_dropped(&[actor.object(0)], &mut Actions::new());
    assert_eq!(core.actor_place(actor), None);
    assert!(core.ownership().is_empty());
}

#[test]
fn the_handle_of_an_actor_that_is_announced_is_there_before_it_is_created_and_goes_with_its_last_use() {
    let mut core = WorkerCore::new(ME);
    let actor = TaskId { owner: ME, number: 1 };
    let slot = held();
    core.announce_actor(actor, slot.clone());
    // Another process has found it by its name.
    let mut out = Actions::new();
    let borrow = AddBorrow { object: actor.object(0), borrower: OTHER };
    core.on_message(Peer::Worker(OTHER), borrow.into(), NOW, &mut out);
    core.on_message(
        Peer::Worker(OTHER),
        Fetch { object: actor.object(0), missing_at: None }.into(),
        NOW,
        &mut out,
    );
    assert_eq!(out, [], "it is not gone");
    // Somebody else has taken the name: it is never created.
    assert!(slot.release());
    core.on_handles_dropped(&[actor.object(0)], &mut out);
    core.on_message(
        Peer::Worker(OTHER),
        RemoveBorrow { object: actor.object(0), count: 1, giver: None, was_sent: None }.into(),
        NOW,
        &mut out,
    );
    core.on_timer(NOW, &mut out);
    assert_eq!(core.actor_place(actor), None);
    assert!(core.ownership().is_empty());
}

#[test]
fn a_borrower_forgets_an_actor_with_its_last_handle_and_call() {
    let mut core = WorkerCore::new(ME);
    let actor = TaskId { owner: WorkerId(5), number: 1 };
    let handle = core.ownership_mut().received(actor.object(0));
    handle.acquire();
    let call = TaskId { owner: ME, number: 2 };
    let name = Name::from("ping");
    let spec = TaskSpec::new(call, TaskKind::Method(actor), FunctionId(0), name, Blob::default());
    let mut out = Actions::new();
    core.submit(Arc::new(spec), [held()], None, &mut out);
    from_node(&mut core, ActorStarted { actor, worker: HOME, concurrency: 1, replays: None, restarts: None });
    assert!(handle.release());
    core.on_handles_dropped(&[actor.object(0)], &mut out);
    assert!(core.actor_place(actor).is_some(), "the call is on its way");
    let reply = reply_of(call, vec![plain(Outcome::Inline(Blob::default()))], 5);
    core.on_message(Peer::Worker(HOME), reply.into(), NOW, &mut out);
    core.on_timer(NOW, &mut out);
    assert_eq!(core.actor_place(actor), None);
    assert!(!out.iter().any(|action| matches!(action, Action::Warn(_))));
    // News that was on its way enters nothing.
    from_node(&mut core, ActorStarted { actor, worker: HOME, concurrency: 1, replays: None, restarts: None });
    from_node(&mut core, dead(actor));
    assert_eq!(core.actor_place(actor), None);
}

/// The object that stands for an actor's end, dropped or not.
#[test]
fn an_actor_whose_end_is_news_is_known_until_then_and_not_longer() {
    for drops_it in [false, true] {
        let mut core = WorkerCore::new(ME);
        let actor = TaskId { owner: OTHER, number: 1 };
        let handle = core.ownership_mut().received(actor.object(0));
        handle.acquire();
        let mut out = Actions::new();
        let fresh = TaskId { owner: ME, number: 2 };
        let (end, slot) = core.end_of_actor(actor, fresh, &mut out);
        assert!(out.iter().any(|action| matches!(action,
            Action::Send { message, .. } if matches!(&**message, Message::SubscribeActor(_)))));
        let (same, other) = core.end_of_actor(actor, TaskId { owner: ME, number: 3 }, &mut Actions::new());
        assert_eq!((same, end), (fresh.object(0), fresh.object(0)), "there is one");
        assert!(!other.release(), "the first one is left");
        let restarts = NonZeroU32::new(2);
        from_node(&mut core, ActorStarted { actor, worker: HOME, concurrency: 1, replays: None, restarts });
        assert_eq!(core.actor_restarts(actor), Some(2));
        assert!(handle.release());
        core.on_handles_dropped(&[actor.object(0)], &mut out);
        if drops_it {
            assert!(slot.release());
            core.on_handles_dropped(&[end], &mut out);
        }
        from_node(&mut core, dead(actor));
        assert_eq!((core.actor_place(actor), slot.has_failed()), (None, true));
        if !drops_it {
            assert!(slot.release());
            core.on_handles_dropped(&[end], &mut out);
        }
        assert!(core.ownership().is_empty());
    }
}

#[test]
fn the_end_of_an_actor_that_this_process_knows_to_be_dead_has_come() {
    let mut core = WorkerCore::new(ME);
    // It is of this process, which knows it no more.
    let actor = TaskId { owner: ME, number: 1 };
    let (end, slot) = core.end_of_actor(actor, TaskId { owner: ME, number: 2 }, &mut Actions::new());
    assert!(slot.has_failed());
    assert!(core.ownership().record(end).is_some(), "whoever gets the reference from here asks for it");
    assert!(slot.release());
    core.on_handles_dropped(&[end], &mut Actions::new());
    assert!(core.ownership().is_empty());
}
