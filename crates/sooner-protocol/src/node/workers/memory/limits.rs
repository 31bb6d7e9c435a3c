//! Limits on the memory of single workers: which worker has one, and how large it is.
//!
//! What a task or actor reserves with `memory=` is a promise, and where a node can, it lets the kernel
//! enforce it. A worker that goes far beyond is ended by the kernel, and no other process is. A limit must
//! not decide whether a program ends, only when. So it is for work whose next execution reserves more and has
//! a larger limit, as far as that is free: work that has all there is has no limit. Other work has one only
//! where the user wants it ([`Limited::All`]).
//!
//! A worker serves leases of several shapes: its limit begins and ends with the lease.
//!
//! This file never limits a worker: it asks for that, with [`NodeAction::LimitMemory`].

use sooner_wire::resources::UNIT;
use sooner_wire::{ResourceSet, WorkerId};

use crate::node::workers::pool::WorkerState;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::scheduling::Grant;
use crate::table::Set;

/// What a worker may take beside its task's reservation (bytes): what an interpreter imports, and the kernel
/// for it.
const ALLOWANCE_BYTES: u64 = 128 << 20;
/// And one part in this many of the reservation: people round, and pages of memory need tables, and files are
/// read.
const ALLOWANCE_SHARE: u64 = 8;
/// The kernel keeps eight bytes for each page of 4 KiB that a process sees of shared memory.
const TABLE_SHARE: u64 = 512;

/// Which memory is limited to what was reserved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Limited {
    /// No worker's.
    #[default]
    Nobody,
    /// That of tasks that are executed again with a larger reservation if the limit ends them.
    Retried,
    /// That of every task and actor with a reservation.
    All,
}

/// The limit (bytes) of a worker that holds `held` already, and whose task reserved `reserved`. Of the memory
/// that it shares with others (`shared`) only the tables count.
#[must_use]
pub fn limit(reserved: u64, held: u64, shared: u64) -> u64 {
    let allowance = ALLOWANCE_BYTES + reserved / ALLOWANCE_SHARE + shared / TABLE_SHARE;
    held.saturating_add(reserved).saturating_add(allowance)
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Limits {
    limited: Limited,
    /// Workers that have a limit.
    workers: Set<WorkerId>,
}

impl Limits {
    /// The limit of a worker that has got `grant`, on a node with `total` in all.
    pub(in crate::node) fn of(
        &mut self,
        worker: WorkerId,
        grant: &Grant,
        total: &ResourceSet,
    ) -> Option<NodeAction> {
        let is_meant = match self.limited {
            Limited::Nobody => false,
            Limited::Retried => grant.raises_memory,
            Limited::All => true,
        };
        // In bytes: of a total with a fraction, that is not what anybody can reserve.
        let [reserved, total] = [&grant.resources, total].map(|one| one.amount("memory") / UNIT);
        if !is_meant || reserved == 0 || reserved >= total {
            return None;
        }
        self.workers.insert(worker);
        Some(NodeAction::LimitMemory(worker, Some(reserved)))
    }

    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.workers.swap_remove(&worker);
    }
}

impl NodeCore {
    /// The node can limit the memory of single workers.
    pub fn set_memory_limits(&mut self, limited: Limited) {
        self.memory.limits.limited = limited;
    }

    /// A worker got a lease.
    pub(in crate::node) fn limit_memory(&mut self, worker: WorkerId, grant: &Grant, out: &mut NodeActions) {
        out.extend(self.memory.limits.of(worker, grant, self.resources.total()));
    }

    /// How much the task of a worker can reserve next without waiting for other tasks (bytes): some never
    /// end. Where a limit is meant for all, the task may have to wait.
    pub(super) fn reservable_beside(&self, worker: WorkerId) -> u64 {
        let total = self.resources.total().amount("memory");
        if self.memory.limits.limited == Limited::All {
            return total / UNIT;
        }
        let lease = match self.pool.state(worker) {
            Some(WorkerState::Leased(lease)) => self.leases.get(lease),
            Some(_) | None => None,
        };
        let own = lease.map_or(0, |lease| lease.grant.resources.amount("memory"));
        self.resources.free().amount("memory").saturating_add(own).min(total) / UNIT
    }

    /// A worker has no lease any more.
    pub(in crate::node) fn lift_memory_limit(&mut self, worker: WorkerId, out: &mut NodeActions) {
        if self.memory.limits.workers.swap_remove(&worker) {
            out.push(NodeAction::LimitMemory(worker, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_limit_leaves_room_for_what_nobody_reserves() {
        assert_eq!(limit(8 * GIB, 0, 0), 9 * GIB + ALLOWANCE_BYTES);
        assert_eq!(limit(8 * GIB, GIB, 512 * GIB), 11 * GIB + ALLOWANCE_BYTES, "what it held, and tables");
        assert_eq!(limit(u64::MAX, 1, 0), u64::MAX);
    }
}
