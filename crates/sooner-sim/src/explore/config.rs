//! A configuration: a small world, the faults in it, and what its program may meet.

use sooner_wire::message::FailureCode;

use super::facts::code_bit;
use super::machines::Setup;
use super::program::{Body, Program};

/// See the module.
#[derive(Debug, Clone)]
pub struct Config {
    /// For the command line.
    pub name: &'static str,
    /// What it covers.
    pub about: &'static str,
    /// The machines.
    pub setup: Setup,
    /// Processes that may exist, the driver and those that take over from killed ones included.
    pub processes: usize,
    /// Processes that are killed.
    pub kills: u8,
    /// Processes that may be killed, by number.
    pub victims: Vec<u8>,
    /// Blocks whose contents are lost, at any time and whichever they are.
    pub losses: u8,
    /// Failures that a body may meet without any fault.
    pub expected: Vec<FailureCode>,
    /// Failures that it may meet after a fault.
    pub tolerated: Vec<FailureCode>,
    /// What is known to be wrong, and only to be told: see `docs/explored.md`.
    pub finding: Finding,
}

/// A defect that was found and is not mended yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Finding {
    /// Every property must hold.
    #[default]
    None,
    /// The search must end in a violation whose words begin like this.
    Violation(&'static str),
}

/// How long a task seems to run if nothing else is said (nanoseconds): long enough that none is pushed ahead.
const TASK_NANOS: u64 = 5_000_000;

impl Config {
    /// A world with these programs, in which no fault happens: what most configurations begin with.
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

    /// The same, with a control service that is not in the node.
    #[must_use]
    pub fn linked(self, name: &'static str, about: &'static str) -> Self {
        Self { name, about, setup: Setup { is_linked: true, ..self.setup }, ..self }
    }

    /// Whether a fault may end this process.
    #[must_use]
    pub fn may_be_killed(&self, index: u8) -> bool {
        self.victims.contains(&index)
    }

    /// Failures that are explained after so many faults, as bits.
    #[must_use]
    pub fn allowed(&self, faults: u8) -> u32 {
        let tolerated = if faults > 0 { &self.tolerated[..] } else { &[] };
        self.expected.iter().chain(tolerated).fold(0, |bits, code| bits | code_bit(*code))
    }
}
