//! Where bytes lie: one node's shared-memory objects.
//!
//! [`Mapping`] is the memory of a node as one process sees it, [`Arena`] decides which part is whose and
//! [`Room`] that its pages are there (both in the node only), [`copy`] moves large values with several
//! threads, [`Progress`] says how much of a value is there that is written part by part, [`ForeignMemory`]
//! reads that of another node on this machine, [`BlockCache`] keeps blocks for reuse while their pages are
//! warm, [`spill`] has the files for what has no room in memory, and [`FallbackFile`] is memory in a file.
//! This room never sends a message and does not know what an object is.

mod arena;
mod cache;
pub mod copy;
mod fallback;
mod foreign;
mod huge;
mod mapping;
mod pages;
mod progress;
mod room;
pub mod spill;

pub use arena::Arena;
pub use cache::BlockCache;
pub use fallback::FallbackFile;
pub use foreign::{ForeignMemory, Whereabouts};
pub use mapping::{Begun, Mapping, MappingError, PrivateCopy};
pub use progress::Progress;
pub use room::{Available, NoBlock, Room};
