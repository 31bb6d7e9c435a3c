//! Exhaustive exploration: every state that a small world can be in, over the cores that run in production.
//!
//! A [`Config`] is a world with a few processes, a program for them and a number of faults. [`search()`]
//! visits every state that the world can reach, and checks its properties ([`world::World`] says what may
//! happen and what must hold). `docs/adr/0012-exhaustive-exploration.md` says why no library does this,
//! `docs/adr/0097-reductions-of-the-search.md` how a search leaves out what is like something else.

pub mod chains;
mod channels;
mod config;
pub mod configs;
pub mod facts;
mod hash;
pub mod links;
mod machines;
mod node;
pub mod plain;
mod process;
pub mod program;
mod renaming;
mod search;
pub mod settle_nodes;
mod sleep;
mod visited;
pub mod world;

pub use config::{Config, Finding};
pub use machines::Setup;
pub use search::{Bounds, Found, Reductions, check_names, search, search_with};
