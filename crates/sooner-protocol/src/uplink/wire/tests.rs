//! Every word between nodes and the control service, there and back, and those that are refused.

use proptest::prelude::*;
use sooner_wire::frame::HEAD_BYTES;
use sooner_wire::message::{
    ActorDead, ActorHere, ActorRestarting, ActorStarted, ActorsHere, AddBorrow, AlsoHere, Answer, Checkpoint,
    Commit, Define, Failure, FailureCode, FindGroup, FindName, ForgetLost, Held, Job, JobConfig, JobState,
    KillActor, Location, Place, PlaceActor, Prepare, Prepared, Push, Query, Release, Remote, Return, Round,
    Settled, SpillId, StillRead, SubscribeActor, TaskKind, TaskSpec, WorkerDead,
};
use sooner_wire::message::{BundleStep, Outcome, QueryKind};
use sooner_wire::{
    ActorId, Blob, BlockId, FunctionId, Name, PlacementAttempt, ResourceSet, Takeover, TaskId,
};

use super::*;

const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);
const PROCESS: WorkerId = WorkerId(HERE.0 + 5);
const FAR: WorkerId = WorkerId(THERE.0 + 6);
const ACTOR: ActorId = TaskId { owner: PROCESS, number: 7 };

fn through(message: Message) -> Message {
    let mut frame = Vec::new();
    message.append(&mut frame, 0);
    assert!(is_for_directory(message.kind()), "{}", message.kind());
    Message::decode(message.kind(), &frame[HEAD_BYTES..]).expect("it was encoded")
}

fn create(actor: ActorId, outcomes: Vec<(WorkerId, Outcome)>) -> CreateActor {
    let (name, code) = (Name::from("Counter"), Blob::default());
    let spec = TaskSpec::new(actor, TaskKind::Creation, FunctionId(1), name.clone(), code.clone());
    let dependency = |(number, (owner, outcome))| Dependency {
        object: TaskId { owner, number }.object(0),
        outcome,
        contained: Vec::new(),
    };
    let dependencies = (1..).zip(outcomes).map(dependency).collect();
    CreateActor {
        actor,
        placement: ResourceSet::default(),
        lifetime: ResourceSet::default(),
        class: Box::new(Define { function: FunctionId(1), name, code, references: Vec::new(), place: None }),
        constructor: Box::new(Push { spec: Box::new(spec), dependencies, gpus: Vec::new() }),
        restarts: Some(3),
        detached: Some(true),
        job: Some(PROCESS),
    }
}

fn gone(worker: WorkerId) -> Box<WorkerDead> {
    let reason = "was killed".to_owned();
    Box::new(WorkerDead { worker, reason, all_begun: Some(true), ..WorkerDead::default() })
}

fn held(borrower: WorkerId) -> Held {
    Held { object: ACTOR.object(0), borrower, count: 2, of: None }
}

fn job(state: JobState) -> Box<Job> {
    let config = (state == JobState::Started).then(|| Box::new(JobConfig::default()));
    Box::new(Job { job: PROCESS, state, config })
}

fn here() -> ActorsHere {
    let row = ActorHere {
        actor: ACTOR,
        takeover: Takeover(2),
        worker: Some(PROCESS),
        is_ready: true,
        job: FAR,
        name: Some(("space".to_owned(), "it".to_owned())),
        description: Some(Blob::from(&b"handle"[..])),
        class: "Counter".to_owned(),
        detached: true,
        concurrency: 3,
        restarts: -1,
        create: Some(Box::new(create(ACTOR, Vec::new()))),
        checkpoint: Some(Return { outcome: Outcome::Inline(Blob::default()), contained: Vec::new() }),
        gone: None,
        group: Some(ACTOR),
        covered: Some(vec![ACTOR]),
    };
    let ended = ActorHere { worker: None, gone: Some(gone(PROCESS)), ..row.clone() };
    let state = Return { outcome: Outcome::Inline(Blob::default()), contained: Vec::new() };
    let checkpoint = Checkpoint { actor: ACTOR, state, calls: vec![ACTOR] };
    let dead = ActorDead { actor: ACTOR, failure: Failure::new(FailureCode::ActorDied, "why") };
    ActorsHere {
        actors: vec![row, ended],
        jobs: vec![*job(JobState::Started)],
        subscribers: vec![(ACTOR, PROCESS)],
        keepers: Some(vec![(ACTOR, PROCESS)]),
        kept: Some(vec![(ACTOR, Some(Place::of(64))), (ACTOR, None)]),
        also: Some(Box::new(AlsoHere {
            checkpoints: vec![(PROCESS, checkpoint)],
            dead: vec![dead],
            watched: Some(vec![NodeId(1 << 24)]),
        })),
    }
}

fn said(from: WorkerId, message: impl Into<Message>) -> ToControl {
    ToControl::Routed { from, message: Box::new(message.into()) }
}

/// One of each.
fn refused(no_workers: bool) -> ToControl {
    let reason = "why".to_owned();
    ToControl::PlaceRefused {
        actor: ACTOR,
        takeover: Takeover(1),
        reason,
        create: None,
        no_workers,
        for_now: no_workers,
    }
}

fn to_control() -> Vec<ToControl> {
    let asks = FindGroup { request: 0, group: Some(ACTOR), title: None, attempt: Some(PlacementAttempt(3)) };
    let prepared = Prepared { group: ACTOR, attempt: PlacementAttempt(3), step: BundleStep::Prepared };
    vec![
        said(PROCESS, create(ACTOR, Vec::new())),
        said(PROCESS, SubscribeActor { actor: ACTOR }),
        said(PROCESS, KillActor { actor: ACTOR, may_restart: None }),
        said(PROCESS, StillRead { round: Round::of_control(0), places: Vec::new(), lent: None }),
        said(PROCESS, Query { request: 3, what: QueryKind::TotalResources }),
        ToControl::ActorPlaced { actor: ACTOR, takeover: Takeover(1), worker: PROCESS },
        refused(false),
        refused(true),
        ToControl::ActorProcessDead { actor: ACTOR, takeover: Takeover(1), gone: gone(PROCESS) },
        ToControl::Bundles(Box::new(BundleAnswer::Prepared(prepared))),
        ToControl::Bundles(Box::new(BundleAnswer::Asks(asks))),
        ToControl::ProcessLeaves { process: PROCESS },
        ToControl::ProcessDead { process: PROCESS, watchers: Vec::new(), gone: None },
        ToControl::ProcessDead { process: PROCESS, watchers: vec![THERE], gone: Some(gone(PROCESS)) },
        ToControl::Collected { gone: FAR, held: vec![held(PROCESS)] },
        ToControl::Job(job(JobState::Started)),
        ToControl::Job(job(JobState::Asked)),
        ToControl::Here(Box::new(here())),
    ]
}

fn told(to: WorkerId, message: impl Into<Message>) -> ToNode {
    ToNode::Routed { to, message: Box::new(message.into()) }
}

/// One of each.
fn to_node() -> Vec<ToNode> {
    let started =
        ActorStarted { actor: ACTOR, worker: FAR, concurrency: 1, replays: Some(true), restarts: None };
    let restarting = ActorRestarting {
        actor: ACTOR,
        reason: "why".to_owned(),
        last_started: Some(ACTOR),
        nobody_starts_it: None,
        unbegun: None,
    };
    let dead = ActorDead { actor: ACTOR, failure: Failure::new(FailureCode::ActorDied, "why") };
    let place = PlaceActor {
        takeover: Takeover(1),
        turn: 2,
        name: Some(("space".to_owned(), "it".to_owned())),
        restores: true,
        create: Box::new(create(ACTOR, Vec::new())),
        restarts: Some(4),
        description: Some(Blob::from(&b"handle"[..])),
    };
    let state = Some(Return { outcome: Outcome::Inline(Blob::default()), contained: Vec::new() });
    let restore = Restore { actor: ACTOR, state, callers: vec![FAR], takeover: None };
    let bundles = |order| ToNode::Bundles(Box::new(order));
    let subscribed = |started| ToNode::Subscribed { actor: ACTOR, process: PROCESS, started };
    vec![
        told(PROCESS, Answer { request: 3, ..Answer::default() }),
        told(PROCESS, AddBorrow { object: ACTOR.object(0), borrower: FAR }),
        told(PROCESS, ForgetLost { round: Round::of_control(0), blocks: Vec::new() }),
        told(PROCESS, dead.clone()),
        ToNode::PlaceActor(Box::new(place)),
        ToNode::Restore { takeover: Takeover(1), restore: Box::new(restore) },
        ToNode::EndActor { actor: ACTOR, takeover: Takeover(1), end: End::Killed },
        ToNode::EndActor { actor: ACTOR, takeover: Takeover(1), end: End::Finished },
        ToNode::EndActor { actor: ACTOR, takeover: Takeover(1), end: End::Recalled },
        ToNode::EndActor { actor: ACTOR, takeover: Takeover(1), end: End::Succeeded },
        subscribed(None),
        subscribed(Some(Box::new(started.clone()))),
        ToNode::Started(Box::new(started)),
        ToNode::Restarting(Box::new(restarting)),
        ToNode::Dead(Box::new(dead)),
        bundles(BundleOrder::Prepare(Prepare {
            group: ACTOR,
            attempt: PlacementAttempt(1),
            bundles: Vec::new(),
        })),
        bundles(BundleOrder::Commit(Commit { group: ACTOR, attempt: PlacementAttempt(1) })),
        bundles(BundleOrder::Release(Release { group: ACTOR, attempt: Some(PlacementAttempt(1)) })),
        ToNode::LetGo(Place::of(64)),
        ToNode::WorkerDead(gone(FAR)),
        ToNode::Settled(Box::new(Settled { gone: vec![FAR], held: vec![held(PROCESS)] })),
        ToNode::Job(job(JobState::Leaving)),
    ]
}

#[test]
fn every_word_arrives_as_it_was_said() {
    for word in to_control() {
        let message = through(word.clone().into_message(HERE));
        assert_eq!(ToControl::parse(message, HERE), Ok(word));
    }
    for word in to_node() {
        let message = through(word.clone().into_message());
        assert_eq!(ToNode::parse(message, HERE), Ok(word));
    }
}

#[test]
fn a_node_speaks_for_its_own_processes_only() {
    let speaks_for_one = |word: &ToControl| {
        let is_of_all = matches!(word, ToControl::Bundles(_) | ToControl::PlaceRefused { .. });
        let asks = matches!(word, ToControl::Job(job) if job.state == JobState::Asked);
        !is_of_all && !asks
    };
    for word in to_control().into_iter().filter(speaks_for_one) {
        let told = ToControl::parse(word.clone().into_message(HERE), THERE);
        assert!(told.is_err(), "{word:?}");
    }
    let node_itself = ToControl::ProcessLeaves { process: WorkerId(HERE.0) };
    assert!(ToControl::parse(node_itself.into_message(HERE), HERE).is_err());
}

#[test]
fn a_node_asks_for_itself_where_bundles_are_and_nothing_else() {
    let node = WorkerId(HERE.0);
    let find = FindGroup { request: 1, group: Some(ACTOR), title: None, attempt: None };
    let word = said(node, find);
    let message = through(word.clone().into_message(HERE));
    assert_eq!(ToControl::parse(message.clone(), HERE), Ok(word));
    assert!(ToControl::parse(message, THERE).is_err());
    let kill = said(node, KillActor { actor: ACTOR, may_restart: None });
    assert!(ToControl::parse(kill.into_message(HERE), HERE).is_err());
}

#[test]
fn what_is_no_message_is_refused() {
    let find = FindName { request: 1, namespace: String::new(), name: String::new() };
    let routed = |from, to, message: Message| Message::from(Routed { from, to, message: Box::new(message) });
    let released = Message::from(Release { group: ACTOR, attempt: None });
    let to_other = routed(PROCESS, FAR, find.clone().into());
    let low = StillRead { round: Round::of_readers(0), places: Vec::new(), lent: None };
    let ended = Job { job: PROCESS, state: JobState::Ended, config: None };
    let unstarted = Job { job: PROCESS, state: JobState::Started, config: None };
    for message in [to_other, routed(PROCESS, CONTROL, low.into()), released, ended.into(), unstarted.into()]
    {
        assert!(ToControl::parse(message.clone(), HERE).is_err(), "{message:?}");
    }
    let prepared =
        Message::from(Prepared { group: ACTOR, attempt: PlacementAttempt(3), step: BundleStep::Prepared });
    let foreign = routed(FAR, PROCESS, Answer::default().into());
    let elsewhere = routed(CONTROL, FAR, Answer::default().into());
    let blocks =
        routed(CONTROL, PROCESS, ForgetLost { round: Round::of_lost(3), blocks: vec![BlockId(64)] }.into());
    let asked = routed(CONTROL, PROCESS, find.into());
    let timeless = Restore { actor: ACTOR, state: None, callers: Vec::new(), takeover: None }.into();
    for message in [prepared, foreign, elsewhere, blocks, asked, timeless] {
        assert!(ToNode::parse(message.clone(), HERE).is_err(), "{message:?}");
    }
}

fn placed(creator: WorkerId, owner: WorkerId, outcome: Outcome) -> ToNode {
    let actor = TaskId { owner: creator, number: 7 };
    let create = Box::new(create(actor, vec![(owner, outcome)]));
    let (name, restores, restarts, description) = (None, false, None, None);
    ToNode::PlaceActor(Box::new(PlaceActor {
        takeover: Takeover(0),
        turn: 0,
        name,
        restores,
        create,
        restarts,
        description,
    }))
}

/// What a constructor's argument is at a node after it was said there or elsewhere.
fn arrives(creator: WorkerId, owner: WorkerId, outcome: Outcome, at: NodeId) -> Outcome {
    let actor = TaskId { owner: creator, number: 7 };
    let said = said(creator, create(actor, vec![(owner, outcome)]));
    let home = creator.node();
    let Ok(ToControl::Routed { message, .. }) = ToControl::parse(through(said.into_message(home)), home)
    else {
        panic!("a word of its node")
    };
    let Message::CreateActor(created) = *message else { panic!("{message:?}") };
    let outcome = created.constructor.dependencies[0].outcome.clone();
    let word = placed(creator, owner, outcome).into_message();
    let Ok(ToNode::PlaceActor(place)) = ToNode::parse(through(word), at) else { panic!("a word of control") };
    place.create.constructor.dependencies[0].outcome.clone()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_value_is_said_with_its_node(offset in 0..SpillId(0).offset(), length in any::<u64>()) {
        let location = Location { offset, length };
        let (stored, remote) = (Outcome::Stored(location), |node| Outcome::Remote(Box::new(Remote { node, location })));
        prop_assert_eq!(arrives(PROCESS, PROCESS, stored.clone(), HERE), stored.clone());
        prop_assert_eq!(arrives(PROCESS, PROCESS, stored.clone(), THERE), remote(HERE));
        // What the creator owns lies at the other node.
        prop_assert_eq!(arrives(PROCESS, PROCESS, remote(THERE), THERE), stored.clone());
        // What it has borrowed: it cannot know whether it still does.
        prop_assert_eq!(arrives(PROCESS, FAR, remote(THERE), THERE), remote(THERE));
        // The state of an actor is kept by the node where it lies.
        let state = Return { outcome: stored.clone(), contained: Vec::new() };
        let checkpoint = said(PROCESS, Checkpoint { actor: ACTOR, state, calls: Vec::new() });
        let Ok(ToControl::Routed { message, .. }) = ToControl::parse(through(checkpoint.into_message(HERE)), HERE)
        else {
            panic!("a word of its node")
        };
        let Message::Checkpoint(checkpoint) = *message else { panic!("{message:?}") };
        let restore = Restore { actor: ACTOR, state: Some(checkpoint.state), callers: Vec::new(), takeover: None };
        let word = ToNode::Restore { takeover: Takeover(1), restore: Box::new(restore) };
        for (at, expected) in [(HERE, stored.clone()), (THERE, remote(HERE))] {
            let Ok(ToNode::Restore { restore, .. }) = ToNode::parse(through(word.clone().into_message()), at) else {
                panic!("a word of control")
            };
            prop_assert_eq!(&restore.state.as_ref().expect("said above").outcome, &expected);
        }
    }
}
