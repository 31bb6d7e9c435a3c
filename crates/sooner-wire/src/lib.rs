//! Vocabulary of what sooner's processes send each other: ids, messages, frames, versions and limits.
//!
//! This room holds vocabulary only. It never opens a socket, reads a clock or decides anything; every other
//! room depends on it and it depends on none. Only this crate knows the encoding (CBOR with numbered fields,
//! `docs/adr/0001`): other crates see [`Message`] and [`frame`].

pub mod blob;
pub mod frame;
pub mod id;
pub mod limits;
pub mod message;
pub mod names;
pub mod place;
pub mod record;
pub mod resources;
pub mod strategy;
pub mod value;
pub mod version;

pub use blob::{Blob, Name};
pub use id::{
    ActorId, BlockId, DialAttempt, ExecutionAttempt, FetchAttempt, FunctionId, GroupId, LeaseId, NodeId,
    ObjectId, PlacementAttempt, ShapeId, Started, Takeover, TaskId, TransferAttempt, WorkerId,
};
pub use message::Message;
pub use resources::{ResourceSet, size};
pub use strategy::Strategy;
