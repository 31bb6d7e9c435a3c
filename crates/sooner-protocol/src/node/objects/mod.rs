//! Objects as a node sees them: blocks of shared memory and who holds them.

mod holders;
mod lost;
mod orphans;
mod pull;
mod residency;
mod stuck;

pub use holders::{Holders, Serves};
pub use lost::Lost;
pub use pull::{CopyAt, Fetching, PullAction, Pulls, StreamEnd};
pub use residency::{AfterAnswer, AfterWrite, Residency, SpillSource};
pub use stuck::Stuck;
