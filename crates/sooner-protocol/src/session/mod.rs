//! What processes say to each other on the way from core to core: below the meaning of messages, and above
//! the encryption.
//!
//! [`hello`] says who may speak to whom; [`link`] makes one ordered stream of connections that can be cut;
//! [`redial`] says when somebody is dialled again who could not be reached. The rules of order beyond one
//! stream are [`flush_order`] (whose turn it is to be sent to), [`behind`] (what waits until others have
//! heard) and [`news`] (what waits until a line was read to its end).

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
