//! Broadcast chains by themselves. An owner directs the copies of one object; nodes ask for it, pull it,
//! forward the part that they have, drop it, and ask again. Nodes die, and pairs of nodes lose touch.
//!
//! Bytes move one unit at a time. Messages between the owner and a node arrive in order, with any delay.

use std::collections::VecDeque;

use sooner_protocol::worker::ownership::{Assigned, ChainAction, ChainLimits, Chains};
use sooner_wire::{NodeId, ObjectId, TaskId, TransferAttempt, WorkerId};

use super::plain::{self, Model};
use super::search::Found;
use super::world::Violation;

/// Steps of a walk at most.
const WALK_STEPS: u64 = 4000;
/// The node at which the value is made first.
const SOURCE: usize = 0;

/// The nodes of a broadcast, and the faults that may happen.
#[derive(Debug, Clone)]
pub struct Broadcasts {
    /// For the command line.
    pub name: &'static str,
    /// What it covers.
    pub about: &'static str,
    /// The number of nodes: the one at which the value is made, and those that may want it.
    pub nodes: usize,
    /// Length of the value in units.
    pub length: u8,
    /// Whether a complete copy serves several receivers at once.
    pub is_small: bool,
    /// How many nodes die.
    pub kills: u8,
    /// How many pairs of nodes lose their connection for good.
    pub cuts: u8,
    /// How many copies, complete or not, are dropped by their nodes without asking.
    pub drops: u8,
    /// How many copies, complete or not, are not needed any more: their nodes ask before they drop them.
    pub leaves: u8,
}

/// A message from a node to the owner.
#[derive(Debug, Clone, Copy, Hash)]
enum News {
    Wants,
    Complete(TransferAttempt),
    Failed(TransferAttempt),
    Dropped,
    Leaves,
}

/// A message from the owner to a node.
#[derive(Debug, Clone, Copy, Hash)]
enum Told {
    Pull(Assigned),
    Drop,
    Keep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Asked,
    Pulling { sender: usize, attempt: TransferAttempt },
    Here { kept: bool, counts: bool },
}

#[derive(Debug, Clone, Hash)]
struct Node {
    is_dead: bool,
    /// The owner has learned that the node is dead.
    is_known_dead: bool,
    wants: bool,
    /// The node has asked whether it may drop its copy.
    is_leaving: bool,
    phase: Phase,
    generation: u64,
    /// How many units the node has.
    at: u8,
    said: VecDeque<News>,
    told: VecDeque<Told>,
}

/// See [`Model`].
#[derive(Debug, Clone, Hash)]
pub struct State {
    chains: Chains,
    /// The last node is the one at which the value is made again.
    nodes: Vec<Node>,
    is_lost: bool,
    cut: Vec<(usize, usize)>,
    kills: u8,
    cuts: u8,
    drops: u8,
    leaves: u8,
}

/// Moves; the numbers are those of nodes.
#[derive(Debug, Clone, Copy)]
pub enum Move {
    /// A node wants the value.
    Join(usize),
    /// The owner reads a node's message.
    OwnerReads(usize),
    /// A node reads the owner's message.
    NodeReads(usize),
    /// A unit arrives from the node's sender.
    Bytes(usize),
    /// A node notices that its sender has nothing, or cannot be reached.
    Fails(usize),
    /// The owner learns that a node is dead.
    LearnsOfDeath(usize),
    /// The value is made again.
    Remade,
    /// A node dies.
    Kill(usize),
    /// Two nodes lose their connection.
    Cut(usize, usize),
    /// A node drops its copy.
    Drops(usize),
    /// A node asks whether it may drop its copy.
    Leaves(usize),
}

fn object() -> ObjectId {
    TaskId { owner: WorkerId(1), number: 1 }.object(0)
}

fn id(node: usize) -> NodeId {
    NodeId((node as u64 + 1) << 24)
}

fn index(node: NodeId) -> usize {
    usize::try_from((node.0 >> 24) - 1).expect("made by id")
}

impl Model for Broadcasts {
    type State = State;
    type Move = Move;

    fn first(&self) -> State {
        let limits = ChainLimits { small_receivers: 2, ..ChainLimits::default() };
        let node = Node {
            is_dead: false,
            is_known_dead: false,
            wants: false,
            is_leaving: false,
            phase: Phase::Idle,
            generation: 0,
            at: 0,
            said: VecDeque::new(),
            told: VecDeque::new(),
        };
        let mut state = State {
            chains: Chains::new(limits),
            nodes: vec![node; self.nodes + 1],
            is_lost: false,
            cut: Vec::new(),
            kills: self.kills,
            cuts: self.cuts,
            drops: self.drops,
            leaves: self.leaves,
        };
        state.make(self, SOURCE);
        state
    }

    fn moves(&self, state: &State, moves: &mut Vec<(Move, bool)>) {
        for at in 0..self.nodes {
            state.moves_of(at, moves);
        }
        if state.is_lost {
            moves.push((Move::Remade, false));
        }
        if state.cuts > 0 {
            for one in 0..self.nodes {
                moves.extend((one + 1..self.nodes).map(|other| (Move::Cut(one, other), true)));
            }
        }
    }

    fn take(&self, state: &State, taken: Move) -> Result<State, Violation> {
        let mut next = state.clone();
        next.happen(self, taken);
        next.chains.check();
        Ok(next)
    }

    fn check_end(&self, state: &State) -> Result<(), Violation> {
        for (at, node) in state.nodes.iter().enumerate().filter(|(_, node)| !node.is_dead && node.wants) {
            if !matches!(node.phase, Phase::Here { .. }) {
                return Err(format!("I1: node {at} never gets the value: {:?}", node.phase));
            }
        }
        if let Some(at) = state.nodes.iter().position(|node| !node.is_dead && node.is_leaving) {
            return Err(format!("node {at} asked whether its copy may go, and is not answered"));
        }
        let is_alive = |node: NodeId| !state.nodes[index(node)].is_dead;
        match state.chains.kept_at(object()) {
            Some(node) if is_alive(node) => Ok(()),
            other => Err(format!("the kept copy is at {other:?}")),
        }
    }

    fn is_late(&self, _: &State, taken: Move) -> bool {
        matches!(taken, Move::LearnsOfDeath(_) | Move::Remade)
    }

    fn describe(&self, state: &State, taken: Move) -> String {
        match taken {
            Move::Join(at) => format!("node {at} wants the value"),
            Move::OwnerReads(at) => format!("the owner reads from node {at}: {:?}", state.nodes[at].said[0]),
            Move::NodeReads(at) => format!("node {at} reads: {:?}", state.nodes[at].told[0]),
            Move::Bytes(at) => format!("node {at} gets a unit: {:?}", state.nodes[at].phase),
            Move::Fails(at) => format!("node {at} cannot go on: {:?}", state.nodes[at].phase),
            Move::LearnsOfDeath(at) => format!("the owner hears that node {at} is gone"),
            Move::Remade => "the value is made again".to_owned(),
            Move::Kill(at) => format!("FAULT: node {at} dies"),
            Move::Cut(one, other) => format!("FAULT: nodes {one} and {other} lose sight of each other"),
            Move::Drops(at) => format!("FAULT: node {at} drops what it has"),
            Move::Leaves(at) => format!("FAULT: node {at} does not need what it has"),
        }
    }
}

impl State {
    fn moves_of(&self, at: usize, moves: &mut Vec<(Move, bool)>) {
        let node = &self.nodes[at];
        if !node.said.is_empty() {
            moves.push((Move::OwnerReads(at), false));
        }
        if node.is_dead {
            if !node.is_known_dead {
                moves.push((Move::LearnsOfDeath(at), false));
            }
            return;
        }
        if !node.told.is_empty() {
            moves.push((Move::NodeReads(at), false));
        }
        match node.phase {
            Phase::Idle if !node.wants && at != SOURCE => moves.push((Move::Join(at), false)),
            Phase::Pulling { sender, .. } => self.moves_of_pull(at, sender, moves),
            Phase::Idle | Phase::Asked | Phase::Here { .. } => {}
        }
        if self.kills > 0 {
            moves.push((Move::Kill(at), true));
        }
        let may_drop = !matches!(node.phase, Phase::Idle | Phase::Here { kept: true, .. });
        if self.drops > 0 && may_drop {
            moves.push((Move::Drops(at), true));
        }
        let counts = matches!(node.phase, Phase::Pulling { .. } | Phase::Here { kept: false, counts: true });
        if self.leaves > 0 && counts && !node.is_leaving {
            moves.push((Move::Leaves(at), true));
        }
    }

    fn moves_of_pull(&self, at: usize, sender: usize, moves: &mut Vec<(Move, bool)>) {
        let (node, from) = (&self.nodes[at], &self.nodes[sender]);
        if from.is_dead || from.phase == Phase::Idle || self.is_cut(at, sender) {
            moves.push((Move::Fails(at), false));
        } else if from.generation == node.generation && from.at > node.at {
            moves.push((Move::Bytes(at), false));
        }
    }

    fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cut.contains(&(one.min(other), one.max(other)))
    }

    fn happen(&mut self, model: &Broadcasts, taken: Move) {
        let mut out = Vec::new();
        match taken {
            Move::Join(at) => {
                self.nodes[at].wants = true;
                self.ask(at);
            }
            Move::OwnerReads(at) => {
                let news = self.nodes[at].said.pop_front().expect("it has said something");
                self.owner_reads(at, news, &mut out);
            }
            Move::NodeReads(at) => {
                let told = self.nodes[at].told.pop_front().expect("it was told something");
                self.node_reads(model, at, told);
            }
            Move::Bytes(at) => {
                self.nodes[at].at += 1;
                self.end_if_whole(model, at);
            }
            Move::Fails(at) => {
                let Phase::Pulling { attempt, .. } = self.nodes[at].phase else { return };
                self.nodes[at].phase = Phase::Asked;
                self.nodes[at].said.push_back(News::Failed(attempt));
            }
            Move::LearnsOfDeath(at) => {
                self.nodes[at].is_known_dead = true;
                self.nodes[at].said.clear();
                self.chains.on_node_dead(id(at), &mut out);
            }
            Move::Remade => self.make(model, model.nodes),
            Move::Kill(at) => {
                self.kills -= 1;
                self.nodes[at].is_dead = true;
                self.nodes[at].told.clear();
            }
            Move::Cut(one, other) => {
                self.cuts -= 1;
                self.cut.push((one, other));
            }
            Move::Drops(at) => {
                self.drops -= 1;
                let node = &mut self.nodes[at];
                (node.phase, node.wants, node.at) = (Phase::Idle, false, 0);
                node.is_leaving = false;
                node.said.push_back(News::Dropped);
            }
            Move::Leaves(at) => {
                self.leaves -= 1;
                let node = &mut self.nodes[at];
                (node.wants, node.is_leaving) = (false, true);
                node.said.push_back(News::Leaves);
            }
        }
        self.act(out);
    }

    fn owner_reads(&mut self, at: usize, news: News, out: &mut Vec<ChainAction>) {
        match news {
            News::Wants => self.chains.on_locate(object(), id(at), out),
            News::Complete(attempt) => self.chains.on_complete(object(), id(at), attempt, out),
            News::Failed(attempt) => self.chains.on_failed(object(), id(at), attempt, out),
            News::Dropped => self.chains.on_dropped(object(), id(at), out),
            News::Leaves => self.chains.on_leaving(object(), id(at), out),
        }
    }

    fn node_reads(&mut self, model: &Broadcasts, at: usize, told: Told) {
        let node = &mut self.nodes[at];
        if matches!(told, Told::Drop) && std::mem::take(&mut node.is_leaving) {
            (node.phase, node.at) = (Phase::Idle, 0);
            return;
        }
        match (told, node.phase) {
            (Told::Pull(assigned), Phase::Asked | Phase::Pulling { .. }) => {
                if node.generation != assigned.generation {
                    (node.generation, node.at) = (assigned.generation, 0);
                }
                node.phase = Phase::Pulling { sender: index(assigned.sender), attempt: assigned.attempt };
                self.end_if_whole(model, at);
            }
            (Told::Pull(assigned), Phase::Here { counts, .. }) => {
                if counts && node.generation == assigned.generation {
                    node.said.push_back(News::Complete(assigned.attempt));
                } else {
                    node.said.push_back(News::Dropped);
                }
            }
            (Told::Drop, Phase::Asked | Phase::Pulling { .. }) => self.ask(at),
            (Told::Drop, Phase::Here { .. }) => node.phase = Phase::Here { kept: false, counts: false },
            (Told::Keep, Phase::Here { counts, .. }) => node.phase = Phase::Here { kept: true, counts },
            (Told::Keep, Phase::Asked | Phase::Pulling { .. }) | (_, Phase::Idle) => {}
        }
    }

    fn ask(&mut self, at: usize) {
        self.nodes[at].phase = Phase::Asked;
        self.nodes[at].said.push_back(News::Wants);
    }

    fn end_if_whole(&mut self, model: &Broadcasts, at: usize) {
        let node = &mut self.nodes[at];
        let Phase::Pulling { attempt, .. } = node.phase else { return };
        if node.at == model.length {
            node.phase = Phase::Here { kept: false, counts: true };
            node.said.push_back(News::Complete(attempt));
        }
    }

    /// The value is made at node `at`.
    fn make(&mut self, model: &Broadcasts, at: usize) {
        let mut out = Vec::new();
        let bytes = if model.is_small { 1 } else { u64::MAX };
        let generation = self.chains.on_made(object(), id(at), bytes, &mut out);
        self.is_lost = false;
        if let Some(generation) = generation {
            let node = &mut self.nodes[at];
            node.phase = Phase::Here { kept: true, counts: true };
            (node.generation, node.at) = (generation, model.length);
        }
        self.act(out);
    }

    fn act(&mut self, actions: Vec<ChainAction>) {
        for action in actions {
            match action {
                ChainAction::Pull(assigned) => self.tell(assigned.receiver, Told::Pull(assigned)),
                ChainAction::Drop { node, .. } => self.tell(node, Told::Drop),
                ChainAction::Keep { node, .. } => {
                    self.is_lost = false;
                    self.tell(node, Told::Keep);
                }
                ChainAction::Lost { .. } => self.is_lost = true,
                ChainAction::Refused { .. } => unreachable!("there is room for all"),
            }
        }
    }

    fn tell(&mut self, node: NodeId, told: Told) {
        let node = &mut self.nodes[index(node)];
        if !node.is_dead {
            node.told.push_back(told);
        }
    }
}

/// The broadcasts that are searched within seconds.
#[must_use]
pub fn small() -> Vec<Broadcasts> {
    vec![
        broadcasts("chains", "4 nodes; one dies", (4, 2, false), (1, 0, 0)),
        broadcasts("chains-small", "4 nodes, a small value; one dies", (4, 1, true), (1, 0, 0)),
        broadcasts("chains-cut", "4 nodes; two lose sight of each other", (4, 2, false), (0, 1, 0)),
        broadcasts("chains-drop", "3 nodes; one dies, a copy is dropped", (3, 2, false), (1, 0, 1)),
        Broadcasts {
            leaves: 2,
            ..broadcasts("chains-leave", "3 nodes; two copies are not needed", (3, 2, false), (0, 0, 0))
        },
        broadcasts("chains-three", "3 nodes; one dies, two lose sight", (3, 2, false), (1, 1, 0)),
    ]
}

/// All broadcasts.
#[must_use]
pub fn all() -> Vec<Broadcasts> {
    let mut all = small();
    all.push(broadcasts("chains-two", "4 nodes; two die", (4, 2, false), (2, 0, 0)));
    // With 4 nodes the search needs more memory than the machines have that run it.
    all.push(broadcasts("chains-all", "3 nodes; one of each", (3, 1, false), (1, 1, 1)));
    all
}

fn broadcasts(
    name: &'static str,
    about: &'static str,
    (nodes, length, is_small): (usize, u8, bool),
    (kills, cuts, drops): (u8, u8, u8),
) -> Broadcasts {
    Broadcasts { name, about, nodes, length, is_small, kills, cuts, drops, leaves: 0 }
}

/// Searches a broadcast.
#[must_use]
pub fn search(broadcasts: &Broadcasts, states_max: u64) -> Found {
    plain::search(broadcasts, states_max)
}

/// Walks through a broadcast with more nodes and faults; the seed picks the moves. Returns the steps taken.
///
/// # Errors
/// What is wrong.
pub fn walk(seed: u64) -> Result<u64, Violation> {
    let faults = (1 + (seed % 3) as u8, (seed % 4) as u8, (seed % 5) as u8);
    let shape = (4 + (seed % 7) as usize, 3, seed.is_multiple_of(2));
    let broadcasts = broadcasts("chains-walk", "4 to 10 nodes", shape, faults);
    plain::walk(&Broadcasts { leaves: (seed % 3) as u8, ..broadcasts }, seed, WALK_STEPS)
}
