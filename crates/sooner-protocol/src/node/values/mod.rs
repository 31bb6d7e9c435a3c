//! Values that move: between nodes, to disk and back, and out of a full store.

mod blocks;
pub(super) mod directions;
pub(super) mod eviction;
pub(super) mod home_pulls;
pub(super) mod promotion;
pub(super) mod spilling;
pub(super) mod transfers;
pub(super) mod yielding;
