//! Objects as a node sees them: blocks of shared memory and who holds them.

mod holders;
mod lost;
mod orphans;
mod pull;

pub use holders::{Holders, Serves};
pub use lost::Lost;
pub use pull::{Fetching, PullAction, Pulls, StreamEnd};
