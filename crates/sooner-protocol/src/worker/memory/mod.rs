//! Shortage of memory, as the processes see it: blocks that they ask their node for, blocks that it wants
//! back, and tasks that it stopped.

mod allocation;
mod given;
mod relinquishing;
mod stopped;

pub use allocation::{AfterRefusal, Allocation};
pub use given::given_with;
