//! Nodes of one machine and user read values in each other's memory instead of having them sent
//! (`docs/adr/0036-nodes-of-one-machine.md`).
//!
//! All messages about a value go over the same connection as between machines, between peers that have proved
//! who they are; only its bytes go another way. Two nodes are neighbours if they share kernel, process
//! numbers and network: nodes that namespaces keep apart are treated as different machines. Values in memory
//! that cannot be opened are sent.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sooner_store::{ForeignMemory, Mapping, Whereabouts};
use sooner_wire::limits::MACHINE_BYTES_MAX;
use sooner_wire::message::{Lent, MemoryHere};

/// See the module.
pub(super) struct Neighbours {
    /// Identifies this machine; `None` if the node shares nothing.
    machine: Option<String>,
    mapping: Arc<Mapping>,
    /// Other nodes' memory, by inode. Connections keep what they read.
    open: Mutex<HashMap<u64, Weak<ForeignMemory>>>,
    next: AtomicU64,
}

/// The memory of this node, lent over one connection until this is dropped.
pub(super) struct Lending {
    mapping: Arc<Mapping>,
    cell: u32,
    pub(super) lender: u64,
}

/// The memory of another node, read over one connection.
pub(super) struct Reading {
    memory: Arc<ForeignMemory>,
    cell: u32,
    pub(super) lender: u64,
}

impl Neighbours {
    pub(super) fn new(mapping: Arc<Mapping>, shares: bool) -> Self {
        let machine = if shares { machine() } else { None };
        Self { machine, mapping, open: Mutex::default(), next: AtomicU64::new(1) }
    }

    /// Bytes of this node's memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.mapping.total_bytes()
    }

    /// Begins to lend. Returns the message for the other side, too.
    pub(super) fn lend(&self) -> Option<(Lending, MemoryHere)> {
        let machine = self.machine.clone()?;
        let Whereabouts { process, descriptor, inode, bytes } = self.mapping.whereabouts()?;
        let lender = self.next.fetch_add(1, Ordering::Relaxed);
        let cell = self.mapping.begin_lending(lender)?;
        let lending = Lending { mapping: self.mapping.clone(), cell, lender };
        Some((lending, MemoryHere { machine, process, descriptor, inode, bytes, cell, lender }))
    }

    /// Opens the memory that the other side lends, if it is on this machine.
    pub(super) fn read(&self, here: &MemoryHere) -> Option<Reading> {
        let MemoryHere { process, descriptor, inode, bytes, cell, lender, .. } = *here;
        self.machine.as_ref().filter(|machine| **machine == here.machine)?;
        let mut open = self.open.lock();
        open.retain(|_, memory| memory.strong_count() > 0);
        let memory = match open.get(&inode).and_then(Weak::upgrade) {
            Some(memory) => memory,
            None => {
                let at = Whereabouts { process, descriptor, inode, bytes };
                let memory = Arc::new(ForeignMemory::open(&at).ok()?);
                open.insert(inode, Arc::downgrade(&memory));
                memory
            }
        };
        Some(Reading { memory, cell, lender })
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        self.mapping.end_lending(self.cell);
    }
}

impl Reading {
    /// Copies bytes that are lent. False if they are not lent any more.
    pub(super) fn copy(&self, lent: &Lent, to: &mut [u8]) -> bool {
        self.memory.read(lent.offset, to, self.cell, self.lender)
    }
}

/// A name that all neighbours share, and no other node has.
fn machine() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let mut name = boot.trim().to_owned();
    for namespace in ["pid", "net"] {
        let link = std::fs::read_link(format!("/proc/self/ns/{namespace}")).ok()?;
        name = format!("{name} {}", link.to_str()?);
    }
    (name.len() <= MACHINE_BYTES_MAX).then_some(name)
}
