//! The directory over a disk that crashes: whatever was told by then is there when the next head looks.

mod disk;

use std::collections::{BTreeMap, BTreeSet};

use sooner_protocol::control::persist::{BatchId, Write};
use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions, Found};
use sooner_protocol::scheduling::policy::NodeRow;
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::{End, ToControl, ToNode};
use sooner_runtime::control::records;
use sooner_runtime::control::store::{Outcome, Store, StoreError};
use sooner_wire::message::{
    CreateActor, Define, KillActor, Message, Push, ReserveName, TaskKind, TaskSpec, WorkerDead,
};
use sooner_wire::{ActorId, Blob, FunctionId, Name, NodeId, ResourceSet, Takeover, TaskId, WorkerId};

use disk::{Disk, Step, apply};

const NOW: Instant = Instant(1_000);
const NODE: NodeId = NodeId(1 << 24);
const DRIVER: WorkerId = WorkerId(NODE.0 + 1);

/// What was told so far: names that are given, takeovers that a node was asked for, and actors that were
/// ended.
#[derive(Debug, Clone, Default)]
struct Told {
    names: BTreeSet<String>,
    takeovers: BTreeMap<ActorId, Takeover>,
    ended: BTreeSet<ActorId>,
}

struct Head {
    core: Directory,
    disk: Disk,
    store: Box<dyn Store>,
    told: Told,
    asked: BTreeMap<u64, String>,
    /// How far the disk was when something was told, and all that was.
    history: Vec<(usize, Told)>,
}

impl Head {
    fn new() -> Self {
        let disk = Disk::default();
        let store = Box::new(disk.open(NOW).expect("a new store"));
        let mut core = Directory::default();
        core.keep_records(Found::default());
        let total = ResourceSet::from_amounts([("CPU".to_owned(), 100.0)]);
        core.on_node_joined(NodeRow { node: NODE, free: total.clone(), total, labels: Vec::new() });
        let (told, asked, history) = (Told::default(), BTreeMap::new(), Vec::new());
        Self { core, disk, store, told, asked, history }
    }

    fn send(&mut self, word: ToControl) {
        let mut out = DirectoryActions::new();
        self.core.on_node(NODE, word, NOW, &mut out);
        self.core.after_events(NOW, &mut out);
        self.carry_out(out);
    }

    fn tell(&mut self, message: impl Into<Message>) {
        self.send(ToControl::Routed { from: DRIVER, message: Box::new(message.into()) });
    }

    fn carry_out(&mut self, actions: DirectoryActions) {
        for action in actions {
            match action {
                DirectoryAction::Persist(batch, writes) => self.write(batch, writes),
                DirectoryAction::Send(_, word) => self.receive(*word),
                DirectoryAction::Warn(_) => {}
            }
        }
    }

    fn write(&mut self, batch: BatchId, writes: Vec<Write>) {
        let outcome = self.store.commit_one(records::batch(writes), NOW).expect("writable");
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        let mut out = DirectoryActions::new();
        self.core.on_persisted(batch, Ok(()), NOW, &mut out);
        self.core.after_events(NOW, &mut out);
        self.carry_out(out);
    }

    fn receive(&mut self, word: ToNode) {
        match word {
            ToNode::PlaceActor(place) => {
                let (actor, takeover) = (place.create.actor, place.takeover);
                self.told.takeovers.insert(actor, takeover);
                self.note();
                let worker = WorkerId(NODE.0 + 100 + u64::from(takeover.0));
                self.send(ToControl::ActorPlaced { actor, takeover, worker });
            }
            ToNode::Routed { message, .. } => {
                let Message::Answer(answer) = *message else { return };
                self.told.names.extend(self.asked.remove(&answer.request));
                self.note();
            }
            ToNode::EndActor { actor, takeover, end: End::Killed | End::Finished } => {
                let gone = Box::new(WorkerDead::default());
                self.send(ToControl::ActorProcessDead { actor, takeover, gone });
            }
            ToNode::Dead(dead) => {
                self.told.ended.insert(dead.actor);
                self.note();
            }
            _ => {}
        }
    }

    fn note(&mut self) {
        self.history.push((self.disk.step_count(), self.told.clone()));
    }

    fn make(&mut self, number: u64, bytes: usize) {
        let actor = TaskId { owner: DRIVER, number };
        let (namespace, name) = ("space".to_owned(), format!("n{number}"));
        self.asked.insert(number, name.clone());
        let description = Blob::from(&b"how"[..]);
        self.tell(ReserveName { request: number, namespace, name, actor, description });
        self.tell(creation(actor, bytes));
    }

    fn lose_process(&mut self, number: u64) {
        let actor = TaskId { owner: DRIVER, number };
        let takeover = self.told.takeovers[&actor];
        let gone = Box::new(WorkerDead { reason: "was killed".into(), ..WorkerDead::default() });
        self.send(ToControl::ActorProcessDead { actor, takeover, gone });
        // A process that ends before it was ready is followed by another one after a pause.
        let mut out = DirectoryActions::new();
        self.core.after_events(NOW.plus(3_600_000_000_000), &mut out);
        self.carry_out(out);
    }
}

fn creation(actor: ActorId, bytes: usize) -> CreateActor {
    let name = Name::from("Counter");
    let spec =
        TaskSpec::new(actor, TaskKind::Creation, FunctionId(1), name.clone(), Blob::from(vec![7; bytes]));
    let (code, references) = (Blob::default(), Vec::new());
    CreateActor {
        actor,
        placement: ResourceSet::default(),
        lifetime: ResourceSet::default(),
        class: Box::new(Define { function: FunctionId(1), name, code, references, place: None }),
        constructor: Box::new(Push { spec: Box::new(spec), dependencies: Vec::new(), gpus: Vec::new() }),
        restarts: Some(-1),
        detached: Some(true),
        job: Some(DRIVER),
    }
}

/// What the next head finds on such a disk must be what the one before has told.
fn check(history: &[(usize, Told)], image: Vec<u8>, steps: usize, what: &str) {
    let told = history.iter().rfind(|(at, _)| *at <= steps).map(|(_, told)| told.clone()).unwrap_or_default();
    let store = match Disk::with(image).open(NOW) {
        Ok(store) => store,
        Err(StoreError::Damaged { .. } | StoreError::Open { .. }) if told.names.is_empty() => return,
        Err(error) => panic!("{what} after {steps} steps: {error}"),
    };
    let found = records::found(&store).unwrap_or_else(|error| panic!("{what} after {steps} steps: {error}"));
    let ended = |actor: &ActorId| history.iter().any(|(_, told)| told.ended.contains(actor));
    let names: BTreeSet<&String> = found.names.iter().map(|record| &record.name).collect();
    for (number, name) in told.names.iter().filter_map(|name| Some((name[1..].parse().ok()?, name))) {
        let is_ended = ended(&TaskId { owner: DRIVER, number });
        assert!(is_ended || names.contains(name), "{what} after {steps} steps: {name} was given");
    }
    for (actor, takeover) in told.takeovers {
        let record = found.actors.iter().find(|(record, _)| record.actor == actor);
        let is_there = record.is_some_and(|(record, create)| {
            record.takeover >= takeover && record.node == Some(NODE) && create.is_some()
        });
        assert!(is_there || ended(&actor), "{what} after {steps} steps: {actor:?} {takeover}: {record:?}");
    }
    for (record, create) in &found.actors {
        assert!(create.is_some(), "{what} after {steps} steps: all of {:?} or nothing", record.actor);
    }
}

#[test]
fn what_the_directory_has_told_is_on_the_disk_after_any_crash() {
    let mut head = Head::new();
    for number in 1..6 {
        head.make(number, if number == 3 { 1_100_000 } else { 3_000 });
        if number % 2 == 1 {
            head.lose_process(number);
        }
    }
    head.tell(KillActor { actor: TaskId { owner: DRIVER, number: 2 }, may_restart: None });
    assert_eq!((head.told.names.len(), head.told.takeovers.len()), (5, 5));
    assert!(
        head.told.takeovers.values().any(|takeover| *takeover == Takeover(1)) && head.told.ended.len() == 1
    );

    let steps = head.disk.steps();
    let (mut image, mut synced) = (Vec::new(), Vec::new());
    let mut since: Vec<&Step> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        apply(&mut image, step);
        if *step == Step::Sync {
            since.drain(..).for_each(|step| apply(&mut synced, step));
            check(&head.history, image.clone(), number + 1, "a crash");
        } else {
            since.push(step);
            // What has not been synced may be lost: all of it, or every other write.
            let mut lost = synced.clone();
            since.iter().step_by(2).for_each(|step| apply(&mut lost, step));
            check(&head.history, lost, number + 1, "lost writes");
        }
    }
}
