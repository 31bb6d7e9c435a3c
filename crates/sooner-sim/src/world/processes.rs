//! All processes of a world, by number.
//!
//! A process's number is its id minus `FIRST`: the index of its node (from bit 24 up) and its count on that
//! node. Count 0 stands for the node itself.

use sooner_wire::{NodeId, WorkerId};

use super::Process;

/// The bits of a number that hold the count on a node, as in process ids.
const NODE_BITS: u32 = 24;
/// The process ids of the first node count up from here: node id zero is the control service's.
const FIRST: u64 = (1 << NODE_BITS) + 1000;

/// The number that stands for the control service where it is apart from the nodes.
pub const HEAD: u32 = 0xff << NODE_BITS;

/// Processes by node, then by count.
pub struct Processes(Vec<Vec<Process>>);

/// The number of the process with this id.
#[must_use]
pub fn number_of(worker: WorkerId) -> u32 {
    u32::try_from(worker.0 - FIRST).expect("few nodes, whose ids count up")
}

/// The id of the process with this number.
#[must_use]
pub fn id_of(number: u32) -> WorkerId {
    WorkerId(u64::from(number) + FIRST)
}

/// The index of a number's node.
#[must_use]
pub fn node_at(number: u32) -> usize {
    (number >> NODE_BITS) as usize
}

/// The number that stands for the node with this index.
#[must_use]
pub fn node_number(at: usize) -> u32 {
    u32::try_from(at).expect("few nodes") << NODE_BITS
}

/// The number that stands for the node with this id; [`HEAD`] if the id is the control service's.
#[must_use]
pub fn number_of_node(node: NodeId) -> u32 {
    if node.0 == 0 { HEAD } else { node_of(number_of(WorkerId(node.0 + FIRST % (1 << NODE_BITS)))) }
}

/// The number that stands for the node of a process.
#[must_use]
pub fn node_of(number: u32) -> u32 {
    number >> NODE_BITS << NODE_BITS
}

/// Whether a number stands for a node.
#[must_use]
pub fn is_node(number: u32) -> bool {
    node_of(number) == number
}

impl Processes {
    /// `count` nodes without processes.
    #[must_use]
    pub fn of_nodes(count: usize) -> Self {
        let nodes = 0..u32::try_from(count).expect("few nodes");
        Self(nodes.map(|at| vec![Process::new(id_of(at << NODE_BITS), false)]).collect())
    }

    /// Adds a process that is being started; its id must be the next one of its node.
    pub fn add(&mut self, worker: WorkerId, is_driver: bool) -> u32 {
        let number = number_of(worker);
        let of_node = &mut self.0[node_at(number)];
        assert_eq!((number - node_of(number)) as usize, of_node.len(), "ids count up");
        of_node.push(Process::new(worker, is_driver));
        number
    }

    /// A process by its number.
    #[inline]
    #[must_use]
    pub fn get(&self, number: u32) -> &Process {
        &self.0[node_at(number)][(number - node_of(number)) as usize]
    }

    /// A process by its number, to change it.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> &mut Process {
        &mut self.0[node_at(number)][(number - node_of(number)) as usize]
    }

    /// The processes that run.
    pub fn running(&self) -> impl Iterator<Item = &Process> {
        self.0.iter().flatten().filter(|process| process.is_running())
    }

    /// The numbers of all processes and nodes there are now.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        let counts: Vec<u32> = self.0.iter().map(|all| u32::try_from(all.len()).expect("few")).collect();
        (0..).zip(counts).flat_map(|(at, count)| (0..count).map(move |number| (at << NODE_BITS) + number))
    }
}
