//! Sessions between processes of different nodes: above the encryption, and below what is said over them.
//!
//! [`hello`] says who may speak to whom; [`link`] makes one ordered stream of connections that can be cut;
//! [`redial`] says when somebody is dialled again who could not be reached.

pub mod hello;
pub mod link;
pub mod redial;

pub use link::{Connection, Link, LinkAction, LinkActions, Resume, Resumed};
pub use redial::Redial;
