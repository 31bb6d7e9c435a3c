//! Objects as a node sees them: blocks of shared memory and who holds them.

mod creations;
mod holders;
mod lost;
mod orphans;
mod permit;
mod pull;
mod residency;
mod stuck;

pub use creations::{Creations, Due};
pub use holders::{Holders, Serves};
pub use lost::Lost;
pub use permit::Permit;
pub use pull::{CopyAt, Fetching, PullAction, Pulls, StreamEnd};
pub use residency::{AfterAnswer, AfterWrite, Residency, SpillSource};
pub use stuck::Stuck;
