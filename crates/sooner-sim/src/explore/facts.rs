//! The facts that the explorer needs about a local state, computed once when the state is met.

use sooner_wire::Started;
use sooner_wire::message::{FailureCode, Location};

/// Distance of blocks in shared memory (bytes).
pub const BLOCK_BYTES: u64 = 4096;

/// What a machine in this state can do, holds and has seen. Sets of blocks are bits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// A body can go on, or a task can begin.
    pub can_run: bool,
    /// It waits for a deadline.
    pub can_fire: bool,
    /// Tasks wait behind a running one, and can be returned.
    pub can_return: bool,
    /// The running task waits, and its CPU is not lent yet.
    pub can_block: bool,
    /// Nothing runs.
    pub is_idle: bool,
    /// It must not end for being idle.
    pub is_needed: bool,
    /// A table that is not empty although nothing is going on.
    pub leftover: Option<&'static str>,
    /// Failures that bodies have met, as bits of [`code_bit`].
    pub failures: u32,
    /// Blocks that its handles make readable.
    pub reads: u64,
    /// Blocks that this process may use again.
    pub freed: u64,
    /// Blocks that the node has given out.
    pub blocks: u64,
    /// The number of the actor that lives in it, plus one; zero for none.
    pub actor: u64,
    /// Whether messages from the node to the control service are on their way, and back.
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
