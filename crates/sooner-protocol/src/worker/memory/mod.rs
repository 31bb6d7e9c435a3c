//! Shortage of memory, as the processes see it: blocks that they ask their node for, blocks that it wants
//! back, values that they are still writing, and tasks that it stopped.

mod allocation;
mod given;
mod relinquishing;
mod stopped;
mod unsealed;

pub use allocation::{AfterRefusal, Allocation};
pub use given::given_with;
pub use unsealed::Unsealed;
pub(super) use unsealed::abandoned_failure;
