//! All processes of a world, by number.
//!
//! A process's number is its id without what all ids have in common: which node it is on (from bit 24 up) and its count
//! there. Count 0 stands for the node itself.

use weft_wire::WorkerId;

use super::Process;

/// Bits of a number that count the processes of one node; as in their ids.
const NODE_BITS: u32 = 24;
/// Ids of a node's processes count up from here.
const FIRST: u64 = 1000;

/// See the module.
pub struct Processes(Vec<Process>);

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

/// Where a number's node is among the nodes.
#[must_use]
pub fn node_at(number: u32) -> usize {
    (number >> NODE_BITS) as usize
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
    /// A node, and nobody on it.
    #[must_use]
    pub fn of_one_node() -> Self {
        Self(vec![Process::new(id_of(0))])
    }

    /// A process is started: its id is the next one of its node.
    pub fn add(&mut self, worker: WorkerId) -> u32 {
        let number = number_of(worker);
        assert_eq!(number as usize, self.0.len(), "ids count up");
        self.0.push(Process::new(worker));
        number
    }

    /// A process by its number.
    #[inline]
    #[must_use]
    pub fn get(&self, number: u32) -> &Process {
        &self.0[number as usize]
    }

    /// A process by its number, to change it.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> &mut Process {
        &mut self.0[number as usize]
    }

    /// Those that take part.
    pub fn running(&self) -> impl Iterator<Item = &Process> {
        self.0.iter().filter(|process| process.is_running())
    }

    /// The numbers of all processes and of the node there are now.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        0..u32::try_from(self.0.len()).expect("few processes")
    }
}
