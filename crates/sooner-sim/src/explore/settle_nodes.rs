//! Settling deaths over nodes, by itself (`docs/adr/0029-settling-over-nodes.md`): an owner, three processes
//! that pass its object on from one to the next, their nodes, and the control service.
//!
//! The logic of the nodes and of the control service, and the owner's count, are the production code;
//! processes and nodes around them are reduced to the handling of one object. When a process is killed, the
//! last messages in each of its channels may be lost: its registrations, the references that it passed on,
//! both or neither. A process and its node receive each other's messages at once, unless the process has to
//! read others first; between processes, and between nodes and the control service, messages may be delayed.

use std::collections::{BTreeMap, BTreeSet};

use sooner_protocol::control::deaths::Settling as Control;
use sooner_protocol::node::peers::deaths::Settling;
use sooner_protocol::node::peers::watches::Watches;
use sooner_protocol::probes::{Bug, switch};
use sooner_protocol::worker::ownership::Borrowers;
use sooner_wire::message::Held;
use sooner_wire::{NodeId, ObjectId, TaskId, WorkerId};

use super::plain::{self, Model};
use super::search::Found;
use super::world::Violation;

mod ends;

const OWNER: u8 = 0;
const LENT: u8 = 1;
const LENDER: u8 = 2;
const PROCESSES: usize = 4;
const NAMES: [&str; PROCESSES] = ["the owner", "X", "Q", "W"];
const NODES: usize = 3;
/// The ends of channels are numbered: processes, then nodes, then the control service.
const CONTROL: u8 = (PROCESSES + NODES) as u8;

/// Where the processes run, and which of them are killed.
#[derive(Debug, Clone)]
pub struct SettleNodes {
    /// For the command line.
    pub name: &'static str,
    /// What it covers.
    pub about: &'static str,
    /// The node of each process.
    pub nodes: [u8; PROCESSES],
    /// Processes that may be killed.
    pub victims: Vec<u8>,
    /// Processes that never drop their reference.
    pub keepers: Vec<u8>,
    /// Nodes that may end, with all their processes.
    pub dying_nodes: Vec<u8>,
    /// How often the control service may end and start again.
    pub restarts: u8,
    /// Q begins as a borrower and has lent the object to X, which gives it back with its reply. When Q has
    /// dropped both references, the owner passes it one again.
    pub gives_back: bool,
    /// The defect that a process answers a death while its earlier messages are still on their way.
    pub answers_early: bool,
    /// The defect that a node forgets its answer about a death that is being settled.
    pub forgets: bool,
    /// The defect that references returned before a death is settled are set off against later ones.
    pub sets_off: bool,
}

/// The dead process, the process that holds references from it, and their number.
type Holding = (u8, u8, u32);

/// A message between two ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Word {
    /// Process to process: a reference to the object.
    Reference,
    /// To the owner: that process borrows the object, too.
    AddBorrow(u8),
    /// To the owner: the sender returns this many references that it got from that process, and whether it
    /// had reported them as held of the dead.
    RemoveBorrow(u32, Option<u8>, bool),
    /// To a node, from its process or another node: report the end of that process.
    Watch(u8),
    /// To a node: how many references its process holds from a dead one.
    HeldFrom(u8, u32),
    /// To a node: the end of its process. To the control service: the end of the node.
    End,
    /// A process is dead, or a node (numbered as an end).
    Gone(u8),
    /// These deaths are settled: the references that are held from them.
    Settled(Vec<u8>, Vec<Holding>),
    /// Node to control: a process is dead that these nodes have to do with.
    ProcessDead(u8, Vec<u8>),
    /// Node to control: the references that processes of this node hold from the dead one.
    Collected(u8, Vec<Holding>),
    /// Node to control: the nodes that processes of this node have to do with.
    Here(Vec<u8>),
    /// Node to control: that node cannot be reached.
    Suspect(u8),
}

#[derive(Debug, Clone, Default, Hash)]
struct Process {
    is_dead: bool,
    /// Whether the process has the reference, and whether it ever had it.
    has: bool,
    had: bool,
    has_handed_on: bool,
    /// References from the owner, which certainly count, and by giver those that other processes registered.
    received: u32,
    handed: BTreeMap<u8, u32>,
    /// References that were reported as held of dead processes.
    said: BTreeMap<u8, u32>,
    gone: Vec<u8>,
    /// Its answers to deaths, sent when its earlier messages to other processes have been received.
    answers: Vec<(u8, u32)>,
}

#[derive(Debug, Clone, Default, Hash)]
struct Node {
    is_dead: bool,
    clients: Vec<u8>,
    settling: Settling,
    watches: Watches,
    /// Processes that ended on this node, with the nodes that watched them, until their deaths are settled.
    ended: BTreeMap<u8, Vec<u8>>,
    /// Processes that other nodes asked to watch after their end.
    asked_late: BTreeSet<(u8, u8)>,
}

/// What a restarted control service has received before all nodes have reported.
#[derive(Debug, Clone, Default, Hash)]
struct Learning {
    silent: Vec<u8>,
    words: Vec<(u8, Word)>,
    gone: Vec<u8>,
    watched: BTreeSet<u8>,
}

/// See [`Model`].
#[derive(Debug, Clone, Hash)]
pub struct State {
    processes: [Process; PROCESSES],
    nodes: [Node; NODES],
    control: Control,
    restarts: u8,
    learning: Option<Learning>,
    /// Nodes that the control service knows to be dead.
    known_dead: Vec<u8>,
    channels: BTreeMap<(u8, u8), Vec<Word>>,
    /// The owner's count, and the dead processes whose deaths it has not learned to be settled.
    borrowers: Borrowers,
    unsettled: Vec<u8>,
    watched: Vec<u8>,
    has_handed_again: bool,
    is_freed: bool,
}

/// See [`Model`].
#[derive(Debug, Clone, Copy)]
pub enum Move {
    HandOn(u8),
    /// The owner passes the object to Q again.
    HandAgain,
    Drop(u8),
    Read(u8, u8),
    /// A process is killed. How many messages have left it in each channel, to processes and to its node.
    Kill(u8, [u8; PROCESSES + 1]),
    KillNode(u8),
    /// The control service starts again: without records of dead nodes, or with all of them (`true`).
    RestartControl(bool),
}

impl Process {
    /// Whether X has given the object back.
    fn has_back(&self) -> bool {
        self.handed.contains_key(&LENT) || self.said.contains_key(&LENT)
    }
}

fn node_id(node: u8) -> NodeId {
    NodeId(u64::from(node + 1) << 24)
}

fn id(process: u8, node: u8) -> WorkerId {
    WorkerId(node_id(node).0 + 1 + u64::from(process))
}

fn as_end(node: u8) -> u8 {
    PROCESSES as u8 + node
}

fn is_process(end: u8) -> bool {
    usize::from(end) < PROCESSES
}

impl SettleNodes {
    fn object(&self) -> ObjectId {
        TaskId { owner: self.id(OWNER), number: 1 }.object(0)
    }

    fn id(&self, process: u8) -> WorkerId {
        if is_process(process) {
            id(process, self.nodes[usize::from(process)])
        } else {
            WorkerId(node_id(process - PROCESSES as u8).0)
        }
    }

    /// The channel end that stands for a process or a node.
    fn end(&self, id: WorkerId) -> u8 {
        let count = (id.0 & 0xff_ffff) as u8;
        if count == 0 { as_end(node_of(id.node())) } else { count - 1 }
    }

    fn held(&self, held: &[Holding]) -> Vec<Held> {
        let held = held.iter().map(|(of, who, count)| Held {
            object: self.object(),
            borrower: self.id(*who),
            count: *count,
            of: Some(self.id(*of)),
        });
        held.collect()
    }

    fn plain(&self, held: Vec<Held>) -> Vec<Holding> {
        let of = |held: &Held| self.end(held.of.expect("nodes say it"));
        held.into_iter().map(|held| (of(&held), self.end(held.borrower), held.count)).collect()
    }
}

fn node_of(node: NodeId) -> u8 {
    (node.0 >> 24) as u8 - 1
}

impl Model for SettleNodes {
    type State = State;
    type Move = Move;

    fn first(&self) -> State {
        let mut processes: [Process; PROCESSES] = Default::default();
        (processes[0].has, processes[0].had) = (true, true);
        let mut borrowers = Borrowers::default();
        if self.gives_back {
            let [owner, lent, lender, _] = &mut processes;
            (lent.has, lent.had) = (true, true);
            (lender.has, lender.had, lender.received) = (true, true, 1);
            // The owner and the lender pass the object to nobody else.
            (owner.has_handed_on, lender.has_handed_on) = (true, true);
            borrowers.change(self.id(LENDER), None, 1);
        }
        let mut nodes: [Node; NODES] = Default::default();
        for (process, node) in (0u8..).zip(self.nodes) {
            nodes[usize::from(node)].clients.push(process);
        }
        State {
            processes,
            nodes,
            control: Control::default(),
            restarts: self.restarts,
            learning: None,
            known_dead: Vec::new(),
            channels: BTreeMap::new(),
            borrowers,
            unsettled: Vec::new(),
            watched: Vec::new(),
            has_handed_again: false,
            is_freed: false,
        }
    }

    fn moves(&self, state: &State, moves: &mut Vec<(Move, bool)>) {
        for (index, process) in (0u8..).zip(&state.processes) {
            if process.is_dead {
                continue;
            }
            if process.has && !process.has_handed_on && usize::from(index) + 1 < PROCESSES {
                moves.push((Move::HandOn(index), false));
            }
            // A process passes the object on before it drops it: without that, the next process has no part.
            let is_done = process.has_handed_on || usize::from(index) + 1 == PROCESSES;
            let is_lent = self.gives_back && index == LENDER && !process.has_back();
            if process.has && is_done && !is_lent && !self.keepers.contains(&index) {
                moves.push((Move::Drop(index), false));
            }
            if self.victims.contains(&index) {
                self.kills(state, index, moves);
            }
        }
        if self.gives_back && state.can_hand_again() {
            moves.push((Move::HandAgain, false));
        }
        for node in self.dying_nodes.iter().filter(|node| !state.nodes[usize::from(**node)].is_dead) {
            moves.push((Move::KillNode(*node), true));
        }
        if state.restarts > 0 && state.learning.is_none() && state.has_begun_to_settle() {
            moves.push((Move::RestartControl(false), true));
            if !state.known_dead.is_empty() {
                moves.push((Move::RestartControl(true), true));
            }
        }
        for ((from, to), words) in &state.channels {
            if let Some(word) = words.first()
                && !state.is_held(self, *from, *to, word)
            {
                moves.push((Move::Read(*from, *to), false));
            }
        }
    }

    fn take(&self, state: &State, taken: Move) -> Result<State, Violation> {
        let mut next = state.clone();
        match taken {
            Move::HandOn(process) => next.hand_on(self, process),
            Move::HandAgain => next.hand_again(self),
            Move::Drop(process) => next.drop_reference(self, process),
            Move::Kill(process, left) => next.kill(self, process, left),
            Move::KillNode(node) => next.kill_node(self, node),
            Move::RestartControl(remembers) => next.restart_control(self, remembers),
            Move::Read(from, to) => {
                let words = next.channels.get_mut(&(from, to)).expect("there is a word");
                let word = words.remove(0);
                if to == CONTROL {
                    next.on_control_message(self, from, word);
                } else if is_process(to) {
                    next.on_process_message(self, from, to, word);
                    if is_process(from) && next.is_received(from) {
                        next.answer(self, from);
                    }
                } else {
                    next.on_node_message(self, to - PROCESSES as u8, from, word);
                }
            }
        }
        next.channels.retain(|_, words| !words.is_empty());
        next.check()?;
        Ok(next)
    }

    fn check_end(&self, state: &State) -> Result<(), Violation> {
        if !state.control.is_empty() {
            return Err("I1: the control service never settles a death".to_owned());
        }
        for node in state.nodes.iter().filter(|node| !node.is_dead) {
            if !node.settling.is_empty() {
                return Err("I1: a node never hears the last of a death".to_owned());
            }
        }
        let owner = &state.processes[usize::from(OWNER)];
        let is_needed = state.processes.iter().any(|process| !process.is_dead && process.has);
        if !owner.is_dead && !is_needed && !state.is_freed {
            return Err("I4: nobody has a reference, and the value stays".to_owned());
        }
        Ok(())
    }

    fn is_late(&self, _: &State, taken: Move) -> bool {
        // Messages to and from the control service.
        matches!(taken, Move::Read(from, to) if from == CONTROL || to == CONTROL)
    }

    fn describe(&self, state: &State, taken: Move) -> String {
        let name = |end: u8| match usize::from(end) {
            process if process < PROCESSES => NAMES[process].to_owned(),
            node if node < PROCESSES + NODES => format!("node {}", ["A", "B", "C"][node - PROCESSES]),
            _ => "control".to_owned(),
        };
        match taken {
            Move::HandOn(process) => format!("{} hands the object on", name(process)),
            Move::HandAgain => format!("{} hands the object to {}", name(OWNER), name(LENDER)),
            Move::Drop(process) => format!("{} drops its reference", name(process)),
            Move::Kill(process, left) => {
                format!("FAULT: {} is killed; words that had left it: {left:?}", name(process))
            }
            Move::KillNode(node) => format!("FAULT: {} ends", name(as_end(node))),
            Move::RestartControl(remembers) => {
                let how = if remembers {
                    "and knows of all nodes that are gone"
                } else {
                    "and forgets nodes that are gone"
                };
                format!("FAULT: control starts again {how}")
            }
            Move::Read(from, to) => {
                let word = state.channels.get(&(from, to)).and_then(|words| words.first());
                format!("{} hears from {}: {word:?}", name(to), name(from))
            }
        }
    }
}

impl SettleNodes {
    /// All ways to kill a process: its channels may lose their last messages with it.
    fn kills(&self, state: &State, process: u8, moves: &mut Vec<(Move, bool)>) {
        let node = as_end(self.nodes[usize::from(process)]);
        let mut ways = vec![[0; PROCESSES + 1]];
        for index in 0..=PROCESSES {
            let to = if index < PROCESSES { index as u8 } else { node };
            let words = state.channels.get(&(process, to)).map_or(0, Vec::len);
            let with = |way: &[u8; PROCESSES + 1], count: usize| {
                let mut way = *way;
                way[index] = count as u8;
                way
            };
            ways = ways.iter().flat_map(|way| (0..=words).map(move |count| with(way, count))).collect();
        }
        moves.extend(ways.into_iter().map(|way| (Move::Kill(process, way), true)));
    }
}

/// The configurations that are searched completely on every change.
#[must_use]
pub fn small() -> Vec<SettleNodes> {
    vec![
        config(
            "settle-one-death",
            "one hands on and dies, the next hands on and drops; 3 nodes",
            [0, 0, 1, 2],
            &[1],
        ),
        config(
            "settle-one-node",
            "two deaths on one node: nothing goes through control",
            [0, 0, 0, 0],
            &[1, 2],
        ),
        SettleNodes {
            dying_nodes: vec![1],
            ..config(
                "settle-node",
                "a process dies, and the node of the next one; 3 nodes",
                [0, 0, 1, 2],
                &[1],
            )
        },
        given_back(),
        control_restarts(),
    ]
}

/// The control service starts again while a death is settled.
#[must_use]
pub fn control_restarts() -> SettleNodes {
    let about = "one hands on and dies, and the control service starts again; 3 nodes";
    SettleNodes { restarts: 1, ..config("settle-restart", about, [0, 0, 1, 2], &[1]) }
}

/// The control service starts again while the deaths of a process and of its node are settled.
#[must_use]
pub fn control_restarts_and_a_node_ends() -> SettleNodes {
    let about = "one hands on and dies, its node ends, and the control service starts again; 3 nodes";
    SettleNodes {
        restarts: 1,
        dying_nodes: vec![1],
        ..config("settle-restart-node", about, [0, 1, 0, 2], &[1])
    }
}

/// A process has dropped the references that it held of a dead one, and gets the object again from its owner.
#[must_use]
pub fn given_back() -> SettleNodes {
    let about =
        "one gives back what it was lent and dies; its lender drops it and is handed it again; 3 nodes";
    SettleNodes { gives_back: true, ..config("settle-given-back", about, [0, 0, 1, 2], &[1]) }
}

/// Two processes that pass an object on die at once, and the third one keeps it: neither death can be settled
/// alone.
#[must_use]
pub fn two_deaths() -> SettleNodes {
    let about = "two that hand an object on die, the third one keeps it; 3 nodes";
    SettleNodes { keepers: vec![1, 2, 3], ..config("settle-kept", about, [0, 0, 1, 2], &[1, 2]) }
}

/// All configurations.
#[must_use]
pub fn all() -> Vec<SettleNodes> {
    let mut all = small();
    all.push(two_deaths());
    let about = "the same, and the third one drops it";
    all.push(SettleNodes {
        keepers: vec![1, 2],
        ..config("settle-two-deaths", about, [0, 0, 1, 2], &[1, 2])
    });
    let about = "the same, one of them known to its own node only";
    all.push(SettleNodes { keepers: vec![1, 2], ..config("settle-local", about, [1, 0, 0, 2], &[1, 2]) });
    let about = "the same, and they may drop it before";
    all.push(config("settle-drops", about, [0, 0, 1, 2], &[1, 2]));
    all.push(control_restarts_and_a_node_ends());
    all
}

fn config(name: &'static str, about: &'static str, nodes: [u8; PROCESSES], victims: &[u8]) -> SettleNodes {
    let (keepers, dying_nodes) = (Vec::new(), Vec::new());
    SettleNodes {
        name,
        about,
        nodes,
        victims: victims.to_vec(),
        keepers,
        dying_nodes,
        restarts: 0,
        gives_back: false,
        answers_early: false,
        forgets: false,
        sets_off: false,
    }
}

/// Searches a configuration.
#[must_use]
pub fn search(model: &SettleNodes, bug: Option<Bug>, states_max: u64) -> Found {
    switch(bug);
    let found = plain::search(model, states_max);
    switch(None);
    found
}
