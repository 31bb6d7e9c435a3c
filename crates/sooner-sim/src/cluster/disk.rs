//! The disk under the head: batches in order, written a group at a time, and what a crash leaves of them.
//!
//! It gives only the promises of the control store (`sooner-runtime/src/control/store.rs`). After a crash,
//! the group that was being written is there whole or not at all, and later batches are lost. A group that
//! was answered with an error may be found by the next head, if nothing was written since. The store's own
//! tests check these promises on torn and lost writes.

use std::collections::{BTreeMap, VecDeque};

use sooner_protocol::control::membership::NodesOptions;
use sooner_protocol::control::persist::Write;
use sooner_protocol::control::{Batch, Beginning, Found};
use sooner_wire::NodeId;
use sooner_wire::limits::{STORE_GROUP_MAX, STORE_QUEUE_MAX};
use sooner_wire::record::{NODES, NodeRecord};

use super::head::{CLUSTER, PYTHON};
use crate::violation::fail;

type Writes = (Batch, Vec<Write>);

/// See the module.
#[derive(Debug, Default)]
pub struct Disk {
    entries: BTreeMap<String, Vec<u8>>,
    queue: VecDeque<Writes>,
    writing: Vec<Writes>,
    /// The group that was answered with an error, and may be on the disk all the same.
    doubtful: Vec<Writes>,
    /// The longest queue so far.
    pub longest: usize,
}

impl Disk {
    /// Queues a batch; false when too many wait.
    pub fn submit(&mut self, batch: Batch, writes: Vec<Write>) -> bool {
        if self.queue.len() >= STORE_QUEUE_MAX {
            return false;
        }
        self.queue.push_back((batch, writes));
        self.longest = self.longest.max(self.queue.len());
        true
    }

    /// Begins to write the next group. False when there is none, or a group is being written.
    pub fn begin(&mut self) -> bool {
        if !self.writing.is_empty() || self.queue.is_empty() {
            return false;
        }
        let count = self.queue.len().min(STORE_GROUP_MAX);
        self.writing = self.queue.drain(..count).collect();
        true
    }

    /// The group that was being written is on the disk, or was refused.
    pub fn finish(&mut self, works: bool) -> Vec<Batch> {
        let group = std::mem::take(&mut self.writing);
        let numbers = group.iter().map(|(batch, _)| *batch).collect();
        if works {
            self.doubtful.clear();
            self.apply(&group);
        } else {
            self.doubtful = group;
        }
        numbers
    }

    fn apply(&mut self, group: &[Writes]) {
        group.iter().for_each(|(_, writes)| apply(&mut self.entries, writes));
    }

    /// The head dies. `is_there`: the uncertain group has reached the disk.
    pub fn crash(&mut self, is_there: bool) {
        let doubtful = std::mem::take(&mut self.doubtful);
        let writing = std::mem::take(&mut self.writing);
        if is_there {
            // If a group was being written, it is based on the entries from before a failed one.
            self.apply(if writing.is_empty() { &doubtful } else { &writing });
        }
        self.queue.clear();
    }

    /// Whether no batch waits or is being written.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.writing.is_empty()
    }

    /// The keys of the entries.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.entries.keys()
    }

    /// The state from which the next head begins; `incarnation` heads came before it.
    #[must_use]
    pub fn beginning(
        &self,
        me: NodeId,
        former: Option<NodeId>,
        incarnation: u32,
        health_timeout: u64,
    ) -> Beginning {
        beginning(&self.entries, me, former, incarnation, health_timeout)
    }
}

/// The state from which a head begins with these entries; `incarnation` heads came before it.
#[must_use]
pub fn beginning(
    entries: &BTreeMap<String, Vec<u8>>,
    me: NodeId,
    former: Option<NodeId>,
    incarnation: u32,
    health_timeout: u64,
) -> Beginning {
    let rows = entries.iter().filter(|(key, _)| key.starts_with(NODES));
    let nodes: Vec<NodeRecord> =
        rows.map(|(_, bytes)| NodeRecord::from_bytes(bytes).expect("a head wrote it")).collect();
    let found = Found::read(entries.clone())
        .unwrap_or_else(|(key, error)| fail("I11", format!("the record {key:?}: {error}")));
    let known = nodes.iter().map(|record| record.node).collect();
    let found = Found { incarnation, nodes: known, ..found };
    let options = NodesOptions { cluster: CLUSTER, python: PYTHON.into(), health_timeout };
    Beginning { me, former, options, nodes, found }
}

/// Applies writes to the entries.
pub fn apply(entries: &mut BTreeMap<String, Vec<u8>>, writes: &[Write]) {
    for Write { key, value } in writes {
        match value {
            Some(value) => drop(entries.insert(key.clone(), value.clone())),
            None => drop(entries.remove(key)),
        }
    }
}
