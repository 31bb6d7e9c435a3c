//! Clients, with a node that does what a test tells it.

mod lines;
mod remotes;
