//! A configuration: a small world, its faults, and the failures that its program may meet.

use sooner_wire::message::FailureCode;

use super::facts::code_bit;
use super::machines::Setup;
use super::program::{Body, Program};

/// See the module.
#[derive(Debug, Clone)]
pub struct Config {
    /// For the command line.
    pub name: &'static str,
    /// A description of its scope.
    pub about: &'static str,
    /// The program and the machines.
    pub setup: Setup,
    /// How many processes may exist, including the driver and those that replace killed ones.
    pub processes: usize,
    /// How many processes are killed.
    pub kills: u8,
    /// The processes that may be killed, by number.
    pub victims: Vec<u8>,
    /// How many blocks lose their contents: any block, at any time.
    pub losses: u8,
    /// Failures that a body may meet without a fault.
    pub expected: Vec<FailureCode>,
    /// Failures that a body may meet after a fault.
    pub tolerated: Vec<FailureCode>,
    /// A known defect that the search must find: see `docs/explored.md`.
    pub finding: Finding,
}

/// A defect that was found and is not fixed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Finding {
    /// Every property must hold.
    #[default]
    None,
    /// The search must end in a violation whose text begins like this.
    Violation(&'static str),
}

/// How long a task seems to run by default (nanoseconds): so long that none is pushed ahead.
const TASK_NANOS: u64 = 5_000_000;

impl Config {
    /// A world without faults that runs these bodies: the base of most configurations.
    #[must_use]
    pub fn new(
        name: &'static str,
        about: &'static str,
        bodies: Vec<Body>,
        cpus: u32,
        processes: usize,
    ) -> Self {
        let program = Program { bodies, task_nanos: TASK_NANOS, asks_again: false };
        Self {
            name,
            about,
            setup: Setup { program, cpus, pool_size: 8, is_linked: false },
            processes,
            kills: 0,
            victims: (2..9).collect(),
            losses: 0,
            expected: vec![],
            tolerated: vec![],
            finding: Finding::None,
        }
    }

    /// The same, with a control service apart from the node.
    #[must_use]
    pub fn linked(self, name: &'static str, about: &'static str) -> Self {
        Self { name, about, setup: Setup { is_linked: true, ..self.setup }, ..self }
    }

    /// Whether a fault may end this process.
    #[must_use]
    pub fn may_be_killed(&self, index: u8) -> bool {
        self.victims.contains(&index)
    }

    /// The failures that this number of faults explains, as bits.
    #[must_use]
    pub fn allowed(&self, faults: u8) -> u32 {
        let tolerated = if faults > 0 { &self.tolerated[..] } else { &[] };
        self.expected.iter().chain(tolerated).fold(0, |bits, code| bits | code_bit(*code))
    }
}
