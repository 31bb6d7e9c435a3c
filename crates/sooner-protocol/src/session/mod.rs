//! How messages travel from core to core: below the meaning of messages, and above the encryption.
//!
//! [`hello`] decides which processes may speak to each other; [`link`] makes one ordered stream of
//! connections that can be cut; [`redial`] decides when an unreachable peer is dialled again. The order
//! beyond one stream is kept by [`flush_order`] (which peer is sent to next), [`behind`] (what waits for
//! earlier messages to others) and [`news`] (what waits until a connection was read to its end).

pub mod behind;
pub mod flush_order;
pub mod hello;
pub mod link;
pub mod news;
pub mod redial;

pub use behind::{Behind, goes_behind};
pub use flush_order::{FlushOrder, Turn};
pub use link::{Connection, Link, LinkAction, LinkActions, Resume, Resumed};
pub use news::HeldNews;
pub use redial::Redial;
