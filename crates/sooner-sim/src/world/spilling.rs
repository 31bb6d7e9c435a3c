//! The disk of a node: values that found no room in memory.

use std::collections::BTreeMap;

use sooner_protocol::probes::hit;
use sooner_wire::message::SpillId;

use super::{SimNode, Wake, World};
use crate::violation::fail;

/// How long a write takes at most (nanoseconds).
const WRITE_NANOS: usize = 20_000_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Disk {
    /// Values that are being written, with their blocks.
    writing: BTreeMap<SpillId, u64>,
    /// Values that could not be written and stayed in their blocks.
    unwritten: BTreeMap<SpillId, u64>,
    values: BTreeMap<SpillId, u64>,
}

impl Disk {
    /// Whether no value is on the disk or on its way there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writing.is_empty() && self.values.is_empty() && self.unwritten.is_empty()
    }
}

/// The result of looking for a value on the disk.
pub(super) enum Found {
    Value(u64),
    NotYet,
    Nothing,
}

impl SimNode {
    pub(super) fn value_on_disk(&self, spilled: SpillId) -> Found {
        if self.disk.writing.contains_key(&spilled) {
            return Found::NotYet;
        }
        let unwritten = || self.blocks.read(*self.disk.unwritten.get(&spilled)?);
        let value = self.disk.values.get(&spilled).copied();
        value.or_else(unwritten).map_or(Found::Nothing, Found::Value)
    }
}

impl World {
    pub(super) fn spill(&mut self, at: usize, spilled: SpillId, block: u64) {
        self.trace.send(|| format!("node {at} writes block {block} as {spilled}"));
        let disk = &mut self.nodes[at].disk;
        // This may be another attempt.
        disk.unwritten.remove(&spilled);
        disk.writing.insert(spilled, block);
        let nanos = 1 + self.random.below(WRITE_NANOS) as u64;
        self.wake_in(nanos, Wake::Written(at, spilled));
    }

    pub(super) fn on_written(&mut self, at: usize, spilled: SpillId) {
        let is_full = self.has_faults() && self.random.chance(1, 8);
        let SimNode { core, blocks, disk, out, .. } = &mut self.nodes[at];
        let Some(block) = disk.writing.remove(&spilled) else { return };
        let Some(value) = blocks.read(block) else {
            fail("I5", format!("block {block} was freed while it was written as {spilled}"));
        };
        if is_full {
            hit("a value stayed in its block because the disk was full");
            disk.unwritten.insert(spilled, block);
        } else {
            disk.values.insert(spilled, value);
        }
        core.on_spilled(spilled, !is_full, out);
        self.list_node_at(at);
    }

    pub(super) fn drop_spilled(&mut self, at: usize, spilled: SpillId) {
        let disk = &mut self.nodes[at].disk;
        if disk.values.remove(&spilled).or(disk.unwritten.remove(&spilled)).is_none() {
            fail("I5", format!("node {at} has never tried to write {spilled}, and drops it"));
        }
    }
}
