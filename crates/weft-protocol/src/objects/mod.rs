//! Objects as a node sees them: blocks of shared memory and who holds them.

mod holders;
mod lost;
mod orphans;

pub use holders::Holders;
pub use lost::Lost;
