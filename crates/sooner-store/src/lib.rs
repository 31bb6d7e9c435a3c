//! The bytes of objects: one node's shared memory, and the files for what it has no room for.
//!
//! [`Mapping`] is the memory of a node as one process sees it. In the node only, [`Arena`] decides which part
//! belongs to which block, and [`Room`] makes sure that the pages of blocks are there. [`copy`] moves large
//! values with several threads, [`combine`] adds them up, [`Progress`] records how much of a value is
//! written, [`ForeignMemory`] reads the memory of another node on this machine, [`BlockCache`] keeps blocks
//! for reuse while their pages are warm, [`spill`] has the files for objects without room in memory, and
//! [`FallbackFile`] is memory in a file. This room never sends a message and does not know what an object is.

mod arena;
mod cache;
pub mod combine;
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
