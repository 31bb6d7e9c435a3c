//! Objects as a node sees them: blocks of shared memory and who holds them.

mod holders;

pub use holders::Holders;
