//! Nodes and a control service that say anything, in any order: nobody panics, and no node loses count of its
//! resources.

use proptest::prelude::*;
use sooner_protocol::control::{Directory, DirectoryActions};
use sooner_protocol::node::uplink::Member;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::{BundleOrder, End, ToControl, ToNode};
use sooner_wire::message::{
    ActorCreation, ActorDead, ActorHere, ActorOutOfScope, ActorReady, ActorRestarting, ActorStarted,
    ActorsHere, AlsoHere, Answer, BundleStep, Checkpoint, Commit, CreateActor, Define, Failure, FailureCode,
    FindName, Job, JobConfig, JobState, KillActor, Location, Message, Outcome, Place, PlaceActor, Prepare,
    Prepared, Push, Release, Remote, ReserveName, Restore, Return, Round, StillRead, SubscribeActor, Target,
    TaskSpec, WorkerDead,
};
use sooner_wire::{ActorId, Blob, FunctionId, Name, NodeId, PlacementAttempt, Takeover, TaskId, WorkerId};

mod kit;

use kit::{cpus, worker_dead};

const NODES: [NodeId; 2] = [NodeId(1 << 24), NodeId(2 << 24)];
const STEP_NANOS: u64 = 1_000_000_000;

fn process() -> impl Strategy<Value = WorkerId> {
    (0..2usize, 1..5u64).prop_map(|(node, number)| WorkerId(NODES[node].0 + number))
}

fn actor() -> impl Strategy<Value = ActorId> {
    (process(), 1..3u64).prop_map(|(owner, number)| TaskId { owner, number })
}

fn name() -> impl Strategy<Value = Option<(String, String)>> {
    prop::option::of((0..2u8).prop_map(|name| ("space".to_owned(), name.to_string())))
}

fn create() -> impl Strategy<Value = Box<CreateActor>> {
    let spec = (actor(), -1..3i32, any::<bool>(), prop::option::of(process()), prop::option::of(1..3u32));
    spec.prop_map(|(actor, restarts, detached, job, every)| {
        let (name, code) = (Name::from("Counter"), Blob::default());
        let creation = ActorCreation { checkpoint_every: every, ..ActorCreation::new(FunctionId(1)) };
        let spec = TaskSpec::of(actor, Target::Class(creation), name.clone(), code.clone());
        Box::new(CreateActor {
            actor,
            placement: cpus(1.0),
            lifetime: cpus(0.5),
            class: Box::new(Define {
                function: FunctionId(1),
                name,
                code,
                references: Vec::new(),
                place: None,
            }),
            constructor: Box::new(Push { spec: Box::new(spec), dependencies: Vec::new(), gpus: Vec::new() }),
            restarts: Some(restarts),
            detached: Some(detached),
            job,
        })
    })
}

fn state() -> impl Strategy<Value = Return> {
    let location = Location { offset: 64, length: 7 };
    let outcome = prop_oneof![
        Just(Outcome::Stored(location)),
        (0..2usize).prop_map(move |node| Outcome::Remote(Box::new(Remote { node: NODES[node], location }))),
        Just(Outcome::Inline(Blob::default())),
    ];
    (outcome, prop::collection::vec(actor().prop_map(|actor| actor.object(0)), 0..2))
        .prop_map(|(outcome, contained)| Return { outcome, contained })
}

fn gone() -> impl Strategy<Value = Box<WorkerDead>> {
    process().prop_map(|worker| Box::new(worker_dead(worker, "")))
}

fn said() -> impl Strategy<Value = Message> {
    prop_oneof![
        3 => create().prop_map(|create| Message::CreateActor(*create)),
        1 => actor().prop_map(|actor| SubscribeActor { actor }.into()),
        1 => (actor(), any::<bool>())
            .prop_map(|(actor, may)| KillActor { actor, may_restart: Some(may) }.into()),
        1 => actor().prop_map(|actor| ActorOutOfScope { actor }.into()),
        1 => (actor(), any::<bool>()).prop_map(|(actor, fails)| {
            let failure = fails.then(|| Failure::new(FailureCode::ActorInit, "why"));
            ActorReady { actor, failure }.into()
        }),
        1 => (actor(), state()).prop_map(|(actor, state)| Checkpoint { actor, state, calls: vec![actor] }.into()),
        1 => (actor(), 0..2u8).prop_map(|(actor, name)| {
            let (namespace, name, description) = ("space".to_owned(), name.to_string(), Blob::default());
            ReserveName { request: 1, namespace, name, actor, description }.into()
        }),
        1 => (0..2u8).prop_map(|name| {
            FindName { request: 1, namespace: "space".to_owned(), name: name.to_string() }.into()
        }),
        1 => (0..4u64).prop_map(|round| {
            StillRead { round: Round::of_control(round), places: Vec::new(), lent: None }.into()
        }),
    ]
}

fn job() -> impl Strategy<Value = Box<Job>> {
    let states =
        prop::sample::select(vec![JobState::Started, JobState::Asked, JobState::Leaving, JobState::Ended]);
    (process(), states, any::<bool>()).prop_map(|(job, state, has)| {
        let config = has.then(|| Box::new(JobConfig::default()));
        Box::new(Job { job, state, config })
    })
}

fn takeover() -> impl Strategy<Value = Takeover> {
    (0..3u32).prop_map(Takeover)
}

fn row() -> impl Strategy<Value = ActorHere> {
    let about = (create(), takeover(), prop::option::of(process()), prop::option::of(gone()), name());
    (about, prop::option::of(state()), any::<bool>(), -1..2i32).prop_map(
        |((create, takeover, worker, gone, name), checkpoint, has_creation, restarts)| ActorHere {
            actor: create.actor,
            takeover,
            worker,
            is_ready: true,
            job: create.job.unwrap_or_default(),
            description: name.as_ref().map(|_| Blob::default()),
            name,
            class: String::new(),
            detached: create.detached == Some(true),
            concurrency: 1,
            restarts,
            create: has_creation.then_some(create),
            checkpoint,
            gone,
            group: None,
            covered: None,
        },
    )
}

fn to_control() -> impl Strategy<Value = ToControl> {
    prop_oneof![
        6 => (process(), said()).prop_map(|(from, message)| ToControl::Routed { from, message: Box::new(message) }),
        2 => (actor(), takeover(), process())
            .prop_map(|(actor, takeover, worker)| ToControl::ActorPlaced { actor, takeover, worker }),
        1 => (create(), takeover(), any::<bool>(), any::<bool>()).prop_map(|(create, takeover, gives_back, no_workers)| {
            let (actor, reason, create) = (create.actor, String::new(), gives_back.then_some(create));
            ToControl::PlaceRefused { actor, takeover, reason, create, no_workers, for_now: no_workers }
        }),
        2 => (actor(), takeover(), gone())
            .prop_map(|(actor, takeover, gone)| ToControl::ActorProcessDead { actor, takeover, gone }),
        1 => process().prop_map(|process| ToControl::ProcessLeaves { process }),
        2 => (process(), any::<bool>()).prop_map(|(process, is_watched)| {
            let watchers = if is_watched { NODES.to_vec() } else { Vec::new() };
            let gone = is_watched.then(|| Box::new(worker_dead(process, "")));
            ToControl::ProcessDead { process, watchers, gone }
        }),
        1 => process().prop_map(|gone| ToControl::Collected { gone, held: Vec::new() }),
        2 => job().prop_map(ToControl::Job),
        2 => (prop::collection::vec(row(), 0..3), prop::collection::vec((actor(), process()), 0..2)).prop_map(
            |(actors, subscribers)| {
                let keepers = Some(subscribers.clone());
                let kept = subscribers.iter().map(|(actor, process)| (*actor, Some(Place::of(process.0))));
                let kept = Some(kept.collect());
                let state = Return { outcome: Outcome::Inline(Blob::default()), contained: Vec::new() };
                let taken = |actor| Checkpoint { actor, state: state.clone(), calls: Vec::new() };
                let checkpoints = subscribers.iter().map(|(actor, process)| (*process, taken(*actor)));
                let failure = Failure::new(FailureCode::ActorDied, "why");
                let dead = |(actor, _): &(ActorId, WorkerId)| ActorDead { actor: *actor, failure: failure.clone() };
                let dead = subscribers.iter().map(dead).collect();
                let also = Some(Box::new(AlsoHere { checkpoints: checkpoints.collect(), dead, watched: None }));
                let jobs = Vec::new();
                ToControl::Here(Box::new(ActorsHere { actors, jobs, subscribers, keepers, kept, also }))
            }),
        1 => actor().prop_map(|group| {
            let prepared = Prepared { group, attempt: PlacementAttempt(1), step: BundleStep::Prepared };
            ToControl::Bundles(Box::new(sooner_protocol::uplink::BundleAnswer::Prepared(prepared)))
        }),
    ]
}

fn to_node() -> impl Strategy<Value = ToNode> {
    let order = prop_oneof![
        actor().prop_map(|group| {
            BundleOrder::Prepare(Prepare {
                group,
                attempt: PlacementAttempt(1),
                bundles: vec![(0, cpus(0.5))],
            })
        }),
        actor().prop_map(|group| BundleOrder::Commit(Commit { group, attempt: PlacementAttempt(1) })),
        actor().prop_map(|group| BundleOrder::Release(Release { group, attempt: None })),
    ];
    let started = || {
        (actor(), process()).prop_map(|(actor, worker)| {
            Box::new(ActorStarted { actor, worker, concurrency: 1, replays: None, restarts: None })
        })
    };
    prop_oneof![
        1 => process().prop_map(|to| {
            ToNode::Routed { to, message: Box::new(Answer { request: 1, ..Answer::default() }.into()) }
        }),
        4 => (create(), takeover(), any::<bool>(), name()).prop_map(|(create, takeover, restores, name)| {
            let restarts = create.restarts;
            let place = PlaceActor { takeover, turn: 1, name, restores, create, restarts, description: None };
            ToNode::PlaceActor(Box::new(place))
        }),
        1 => (actor(), takeover(), prop::option::of(state())).prop_map(|(actor, takeover, state)| {
            let restore = Box::new(Restore { actor, state, callers: Vec::new(), takeover: None });
            ToNode::Restore { takeover, restore }
        }),
        2 => (actor(), takeover(), 0..3usize).prop_map(|(actor, takeover, end)| {
            ToNode::EndActor { actor, takeover, end: [End::Killed, End::Finished, End::Succeeded][end] }
        }),
        1 => (actor(), process(), prop::option::of(started()))
            .prop_map(|(actor, process, started)| ToNode::Subscribed { actor, process, started }),
        1 => started().prop_map(ToNode::Started),
        1 => actor().prop_map(|actor| {
            ToNode::Restarting(Box::new(ActorRestarting { actor, reason: String::new(), last_started: None, nobody_starts_it: None, unbegun: None }))
        }),
        1 => actor().prop_map(|actor| {
            let failure = Failure::new(FailureCode::ActorDied, "why");
            ToNode::Dead(Box::new(ActorDead { actor, failure }))
        }),
        1 => order.prop_map(|order| ToNode::Bundles(Box::new(order))),
        1 => Just(ToNode::LetGo(Place::of(64))),
        1 => gone().prop_map(ToNode::WorkerDead),
        2 => job().prop_map(ToNode::Job),
    ]
}

#[derive(Debug, Clone)]
enum Event {
    /// A node says something.
    Up(usize, ToControl),
    /// The control service says something.
    Down(ToNode),
    End(WorkerId),
    NodeDead,
    Restart,
    AllHere,
    Away(bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0..2usize, to_control()).prop_map(|(node, word)| Event::Up(node, word)),
        8 => to_node().prop_map(Event::Down),
        1 => process().prop_map(Event::End),
        1 => Just(Event::NodeDead),
        1 => Just(Event::Restart),
        1 => Just(Event::AllHere),
        1 => any::<bool>().prop_map(Event::Away),
    ]
}

struct World {
    control: Directory,
    member: Member,
    now: Instant,
}

impl World {
    fn with_control(&mut self, work: impl FnOnce(&mut Directory, Instant, &mut DirectoryActions)) {
        let mut out = DirectoryActions::new();
        work(&mut self.control, self.now, &mut out);
        self.control.after_events(self.now, &mut out);
    }

    /// Its workers come and go at once.
    fn with_member(&mut self, work: impl FnOnce(&mut Member, Instant, &mut NodeActions)) {
        let mut out = NodeActions::new();
        work(&mut self.member, self.now, &mut out);
        for _ in 0..100 {
            self.member.after_events(self.now, &mut out);
            self.member.check();
            if out.is_empty() {
                return;
            }
            let mut more = NodeActions::new();
            for action in out {
                match action {
                    NodeAction::StartWorker(worker) => self.member.on_connected(worker, 2, self.now),
                    NodeAction::KillWorker(worker) => self.member.on_dead(worker, "killed", None, &mut more),
                    _ => {}
                }
            }
            out = more;
        }
        panic!("it never comes to rest");
    }

    fn step(&mut self, event: Event) {
        self.now = self.now.plus(STEP_NANOS);
        match event {
            Event::Up(node, word) => {
                self.with_control(|control, now, out| control.on_node(NODES[node], word, now, out));
            }
            Event::Down(word) => self.with_member(|member, now, out| member.on_control(word, now, out)),
            Event::End(process) => self.with_member(|member, _, out| {
                member.on_dead(process, "was killed", None, out);
            }),
            Event::NodeDead => {
                self.with_control(|control, _, out| control.on_node_dead(NODES[1], "it was silent", out));
                self.control.on_node_joined(Member::new(cpus(2.0), NODES[1].0, 0).row());
            }
            Event::Restart => self.control.expect_nodes(self.now.plus(5 * STEP_NANOS)),
            Event::AllHere => self.with_control(|control, now, out| control.on_all_here(now, out)),
            Event::Away(true) => self.member.on_control_down(self.now),
            Event::Away(false) => self.with_member(|member, now, out| member.on_control_up(true, now, out)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_said_nobody_panics(events in prop::collection::vec(event(), 0..60)) {
        let mut member = Member::new(cpus(2.0), NODES[0].0, 1);
        let driver = member.new_worker_id();
        member.on_connected(driver, 1, Instant(0));
        let mut control = Directory::default();
        for node in NODES {
            control.on_node_joined(Member::new(cpus(2.0), node.0, 0).row());
        }
        let mut world = World { control, member, now: Instant(0) };
        events.into_iter().for_each(|event| world.step(event));
    }
}
