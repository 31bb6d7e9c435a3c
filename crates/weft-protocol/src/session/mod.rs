//! Connections between processes of different nodes, above the encryption and below what is said over them.

pub mod hello;
