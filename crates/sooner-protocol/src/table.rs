//! Maps and sets with a defined order and a fixed hash: the same events give the same actions on every run.

use indexmap::{IndexMap, IndexSet};
use rustc_hash::FxBuildHasher;

/// A map that iterates in order of insertion (removal by swap moves the last entry).
pub type Map<K, V> = IndexMap<K, V, FxBuildHasher>;
/// A set with the order of [`Map`].
pub type Set<K> = IndexSet<K, FxBuildHasher>;
