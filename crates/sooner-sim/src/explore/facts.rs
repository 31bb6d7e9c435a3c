//! What the explorer needs to know about a local state, worked out once when the state is met.

use sooner_wire::Started;
use sooner_wire::message::{FailureCode, Location};

/// Distance of blocks in shared memory (bytes).
pub const BLOCK_BYTES: u64 = 4096;

/// What a machine in one of its states can do, holds and has seen. Sets of blocks are bits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// A body can go on, or a task can begin.
    pub can_run: bool,
    /// It waits for some time to pass.
    pub can_fire: bool,
    /// Tasks wait behind a running one.
    pub can_return: bool,
    /// The running task waits and its CPU is not lent yet.
    pub can_block: bool,
    /// Nothing runs.
    pub is_idle: bool,
    /// It does not end because it is idle.
    pub is_needed: bool,
    /// What is left although nothing is going on.
    pub leftover: Option<&'static str>,
    /// Failures that bodies have met, as bits of [`code_bit`].
    pub failures: u32,
    /// Blocks that may be read through handles.
    pub reads: u64,
    /// Blocks that this process may use again.
    pub freed: u64,
    /// Blocks that the node has given out.
    pub blocks: u64,
    /// The actor that lives here, as a number; zero for none.
    pub actor: u64,
    /// Words of the node wait for the control service, and the other way round.
    pub words: [bool; 2],
    /// The task that began last.
    pub last_started: Option<Started>,
}

/// The bit of a block.
#[must_use]
pub fn block_of(location: Location) -> u64 {
    1 << (location.offset / BLOCK_BYTES)
}

/// The bit of a kind of failure.
#[must_use]
pub fn code_bit(code: FailureCode) -> u32 {
    1 << (code as u32)
}
