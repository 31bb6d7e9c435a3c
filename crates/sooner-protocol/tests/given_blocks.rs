//! A worker is killed between its message to the node about a block and its message to the caller with the
//! value.

use std::sync::Arc;

use sooner_protocol::engine::Solo;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::ownership::Slot;
use sooner_wire::message::{
    Define, GiveBlock, Location, Message, Outcome, TaskKind, TaskSpec, UnknownBlocks,
};
use sooner_wire::{Blob, BlockId, FunctionId, Name, ResourceSet, TaskId, WorkerId};

mod kit;

use kit::plain;

const CALLER: WorkerId = WorkerId(1);
const GIVER: WorkerId = WorkerId(101);
const NOW: Instant = Instant(0);
const BLOCK: Location = Location { offset: 4096, length: 1 << 20 };

struct World {
    node: Solo,
    caller: WorkerCore,
    giver: WorkerCore,
    freed: Vec<u64>,
}

impl World {
    fn new() -> Self {
        let cpus = ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]);
        let mut node = Solo::new(cpus, 100, 1);
        node.on_connected(CALLER, 1, NOW);
        Self { node, caller: WorkerCore::new(CALLER), giver: WorkerCore::new(GIVER), freed: Vec::new() }
    }

    /// Carries out what the node wants. What the caller's core leaves to its shell comes back.
    fn perform(&mut self, actions: NodeActions) -> Vec<Message> {
        let mut left = Vec::new();
        for action in actions {
            match action {
                NodeAction::Send(CALLER, message) => {
                    let mut out = Actions::new();
                    left.extend(self.caller.on_message(Peer::Node, *message, NOW, &mut out));
                    left.extend(self.deliver(CALLER, &mut out));
                }
                NodeAction::StartWorker(GIVER) => self.node.on_connected(GIVER, 2, NOW),
                NodeAction::FreeBlock(block) => self.freed.push(block.offset()),
                _ => {}
            }
        }
        left
    }

    /// Tells the node what a core wants to tell it, and leaves the rest.
    fn deliver(&mut self, from: WorkerId, actions: &mut Actions) -> Vec<Message> {
        let mut left = Vec::new();
        for action in std::mem::take(actions) {
            match action {
                Action::Send { to: Peer::Node, message } => left.extend(self.tell(from, *message)),
                Action::Push { spec, dependencies, .. } => {
                    let push = sooner_wire::message::Push {
                        spec: Box::new((*spec).clone()),
                        dependencies,
                        gpus: vec![],
                    };
                    let mut out = Actions::new();
                    self.giver.on_message(Peer::Worker(CALLER), push.into(), NOW, &mut out);
                }
                other => actions.push(other),
            }
        }
        left
    }

    fn tell(&mut self, from: WorkerId, message: Message) -> Vec<Message> {
        let mut out = NodeActions::new();
        assert_eq!(self.node.on_message(from, message, NOW, &mut out), None);
        self.node.after_events(NOW, &mut out);
        let left = self.perform(out);
        let mut out = NodeActions::new();
        self.node.after_events(NOW, &mut out);
        [left, self.perform(out)].concat()
    }

    /// The caller submits a task, the worker runs it. The slot of its return, and the worker's message with
    /// the value.
    fn run_a_task(&mut self) -> (Arc<Slot>, Message) {
        let (code, name) = (Blob::default(), Name::from("f"));
        let function = FunctionId(1);
        self.caller.define(Define { function, name: name.clone(), code, references: vec![], place: None });
        let shape = self.caller.shape(&ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]));
        let task = TaskId { owner: CALLER, number: 1 };
        let spec = TaskSpec::new(task, TaskKind::Task(shape), function, name, Blob::default());
        let slot = Arc::new(Slot::default());
        slot.acquire();
        let mut out = Actions::new();
        self.caller.submit(Arc::new(spec), [slot.clone()], None, &mut out);
        self.deliver(CALLER, &mut out);
        assert!(self.giver.next_execution().is_some(), "it was pushed");
        self.node.on_allocated(BlockId(BLOCK.offset), GIVER);
        let value = plain(Outcome::Stored(BLOCK));
        let mut out = Actions::new();
        self.giver.on_finished(task, vec![value], 5, false, &mut out);
        self.deliver(GIVER, &mut out);
        let [Action::Send { message, .. }] = &out[..] else { panic!("only the reply is left: {out:?}") };
        (slot, (**message).clone())
    }

    /// The worker ends. What the caller's shell is asked.
    fn kill_the_giver(&mut self) -> Vec<Message> {
        let mut out = NodeActions::new();
        self.node.on_dead(GIVER, "was killed by signal 9", None, &mut out);
        self.perform(out)
    }
}

#[test]
fn a_block_whose_value_was_lost_is_freed() {
    let mut world = World::new();
    let (slot, _lost) = world.run_a_task();
    let asked = world.kill_the_giver();
    let [Message::GivenBlocks(question)] = &asked[..] else { panic!("the shell is asked: {asked:?}") };
    assert_eq!((question.giver, &question.places[..]), (GIVER, &[BLOCK.place()][..]));
    assert!(world.freed.is_empty(), "the shell may know it");
    let answer = UnknownBlocks { giver: GIVER, places: question.places.clone() };
    world.tell(CALLER, answer.into());
    assert_eq!(world.freed, [BLOCK.offset]);
    assert!(world.node.holders().is_empty());
    // Not begun, as far as the node knows: the task goes to the next worker.
    assert_eq!(slot.outcome().as_deref(), None);
}

#[test]
fn a_block_whose_value_came_stays() {
    let mut world = World::new();
    let (slot, reply) = world.run_a_task();
    let mut out = Actions::new();
    assert_eq!(world.caller.on_message(Peer::Worker(GIVER), reply, NOW, &mut out), None);
    assert_eq!(world.kill_the_giver(), [], "the table knows it: the shell is not asked");
    assert!(world.freed.is_empty());
    assert_eq!(slot.outcome().as_deref(), Some(&Outcome::Stored(BLOCK)));
    assert!(slot.release());
    let mut out = Actions::new();
    world.caller.on_handles_dropped(&[TaskId { owner: CALLER, number: 1 }.object(0)], &mut out);
    assert!(out.contains(&Action::FreeBlock(BLOCK)));
    assert!(!world.caller.ownership().knows_block(BLOCK.place()));
}

/// The value of a block was read, the block used again for another value, and so on, before the node learned
/// of any of it: the message of the first giver comes last. The later givers are dead by then.
#[test]
fn the_last_receiver_is_asked_although_no_giver_lives_that_the_node_knew_of() {
    let [first, second, third] = [2, 3, 4].map(WorkerId);
    for dead in [&[second][..], &[third], &[second, third]] {
        let mut world = World::new();
        for (process, pid) in [first, second, third].into_iter().zip(2..) {
            world.node.on_connected(process, pid, NOW);
        }
        let block = BlockId(BLOCK.offset);
        world.node.on_allocated(block, first);
        let give = |owner: WorkerId| GiveBlock { block, owner, object: None };
        assert_eq!(world.tell(second, give(third).into()), []);
        assert_eq!(world.tell(third, give(CALLER).into()), []);
        for process in dead {
            let mut out = NodeActions::new();
            world.node.on_dead(*process, "was killed by signal 9", None, &mut out);
            assert_eq!(world.perform(out), [], "the node does not know that the caller got it");
        }
        let mut asked = world.tell(first, give(second).into());
        asked.retain(|message| matches!(message, Message::GivenBlocks(_)));
        if !dead.contains(&third) {
            assert_eq!(asked, [], "it lives, and its message comes");
            continue;
        }
        let [Message::GivenBlocks(question)] = &asked[..] else { panic!("the caller is asked: {asked:?}") };
        assert_eq!((question.giver, &question.places[..]), (third, &[BLOCK.place()][..]));
        let answer = UnknownBlocks { giver: third, places: question.places.clone() };
        world.tell(CALLER, answer.into());
        assert_eq!(world.freed, [BLOCK.offset]);
    }
}
