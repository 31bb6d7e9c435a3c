//! The true state of the cluster, and what the nodes and the head must never say against it.
//!
//! - FL1: when nothing goes wrong any more, the head and all nodes know the nodes that run, and no others.
//! - FL2: every lease and every actor that somebody asks for, and that a node could have, comes; and all is
//!   given back in the end.
//! - FL3: a worker is leased to one driver at a time, and the workers that are leased or hold actors have no
//!   more processors than their node.
//! - FL4: a value that somebody asks for arrives whole while its owner lives.
//! - FL5: a sender sends an object that is not small to one receiver, and nobody receives what comes from
//!   itself.
//! - FL6: what the head and a node keep is bounded by what there is.
//! - FL7: a value is lost only if no node has all of it ([`super::losses`]); where a copy has become the
//!   value all of it is.

use std::collections::BTreeSet;

use sooner_protocol::table::Map;
use sooner_protocol::worker::ownership::ChainLimits;
use sooner_wire::message::Location;
use sooner_wire::{NodeId, ObjectId, ShapeId, WorkerId};

use super::node::Link;
use super::script::resources_of;
use super::world::World;
use crate::violation::fail;

/// Bounds for the head's tables, written out (bytes): per node, and for all. The latest actors that ended
/// stay for a while.
const HEAD_BYTES: (usize, usize) = (6_000, 600_000);
/// Bounds for a node's tables: per other node, and for all.
const NODE_BYTES: (usize, usize) = (2_500, 200_000);

/// See the module.
#[derive(Debug, Default)]
pub struct Truth {
    /// The driver that has leased each worker, and the processors of the lease.
    leased: Map<WorkerId, (WorkerId, u64)>,
    /// Leases that were given back after use, and actors that died.
    pub(super) used: u64,
    /// How long drivers waited for the last lease of a round (nanoseconds): the sum, the count, and the
    /// longest time.
    pub(super) waited: (u64, u64, u64),
}

impl Truth {
    pub(super) fn forget(&mut self, process: WorkerId) {
        self.leased.retain(|worker, (driver, _)| *worker != process && *driver != process);
    }

    pub(super) fn give_back(&mut self, driver: WorkerId, worker: WorkerId) {
        if self.leased.get(&worker).is_some_and(|(whose, _)| *whose == driver) {
            self.leased.swap_remove(&worker);
        }
    }

    pub(super) fn record_waited(&mut self, nanos: u64) {
        let (sum, count, longest) = self.waited;
        self.waited = (sum + nanos, count + 1, longest.max(nanos));
    }
}

impl World {
    /// Checks a lease that a driver was granted.
    pub(super) fn judge_lease(&mut self, driver: WorkerId, worker: WorkerId, shape: ShapeId) {
        let cpus = resources_of(shape.0).amount("CPU") / 10_000;
        if let Some((other, _)) = self.truth.leased.insert(worker, (driver, cpus)) {
            fail("FL3", format!("{worker:?} is leased to {driver:?}, and to {other:?}"));
        }
        let node = worker.node();
        let of_node = self.truth.leased.iter().filter(|(worker, _)| worker.node() == node);
        let used: u64 = of_node.map(|(_, (_, cpus))| *cpus).sum();
        let Some(at) = self.index_of(node) else { fail("FL3", format!("{worker:?} is of no node")) };
        if used > self.nodes[at].cpus {
            fail("FL3", format!("{node:?} has {} processors, and {used} are leased", self.nodes[at].cpus));
        }
    }

    /// Checks a value that a driver was told has arrived.
    pub(super) fn judge_copy(&self, driver: WorkerId, object: ObjectId, location: Location) {
        let at = self.processes[&driver].node;
        let block = self.nodes[at].blocks.get(&location.offset);
        let is_whole = block.is_some_and(|block| block.object == object && block.bytes == location.length);
        if !is_whole {
            fail("FL4", format!("{driver:?} is told that {object:?} is at {location:?}, where {block:?} is"));
        }
    }

    /// Checks a sender that has got another receiver.
    pub(super) fn judge_chain(&self, sender: usize, object: ObjectId, length: u64) {
        let limits = ChainLimits::default();
        let most = if length <= limits.small_bytes { limits.small_receivers as usize } else { 1 };
        // The owner no longer counts a receiver that it believes dead, and a receiver that believes the owner
        // dead does not ask it.
        let home = object.owner().node();
        let owner = self.index_of(home);
        let counts = |receiver: usize| {
            let receiver = &self.nodes[receiver];
            let counts =
                |owner: usize| self.nodes[owner].runs() && !self.nodes[owner].has_buried(receiver.id);
            owner.is_some_and(counts) && !receiver.has_buried(home)
        };
        let all = self.transfers.values().filter(|one| one.is_open && counts(one.receiver));
        let its = all.filter(|one| one.sender == sender && one.fetching.object == object);
        let receivers: BTreeSet<usize> = its.map(|transfer| transfer.receiver).collect();
        if receivers.len() > most {
            fail("FL5", format!("{:?} sends {object:?} to {receivers:?}", self.nodes[sender].id));
        }
        let from = |receiver: usize| {
            let mut all = self.transfers.values();
            let of_it = |one: &&super::uplinks::Transfer| {
                one.is_open && one.receiver == receiver && one.fetching.object == object
            };
            all.find(of_it).map(|one| one.sender)
        };
        let mut at = sender;
        for _ in 0..self.nodes.len() {
            let Some(next) = from(at) else { return };
            if next == sender {
                break;
            }
            at = next;
        }
        fail("FL5", format!("{object:?} comes to {:?} from itself", self.nodes[sender].id));
    }

    /// Checks the final state: no fault has happened for a while.
    pub(super) fn judge_end(&mut self) {
        let Some(head) = &self.head else { fail("FL1", "there is no head") };
        let running: Vec<usize> = (0..self.nodes.len()).filter(|at| self.nodes[*at].runs()).collect();
        let truth: BTreeSet<NodeId> = running.iter().map(|at| self.nodes[*at].id).collect();
        let known: BTreeSet<NodeId> = head.core.nodes().rows().map(|row| row.node).collect();
        if known != truth || !head.core.nodes().is_complete() {
            fail("FL1", format!("the head knows {}", difference(&known, &truth)));
        }
        if running.len() != self.plan.nodes {
            fail("FL1", format!("{} of {} machines have a node", running.len(), self.plan.nodes));
        }
        for at in &running {
            let node = &self.nodes[*at];
            if node.link != Link::Up || node.known != truth {
                let what = difference(&node.known, &truth);
                fail("FL1", format!("{:?} ({:?}) knows {what}", node.id, node.link));
            }
        }
        self.judge_drivers();
        self.judge_rest(&running);
        self.judge_sizes(&running);
    }

    fn judge_drivers(&self) {
        let has_load = self.plan.load.leases > 0 || self.plan.load.actors > 0;
        for (driver, process) in &self.processes {
            let Some(script) = &process.script else { continue };
            if script.wanted > 0 || !script.held.is_empty() || !script.actors.is_empty() {
                fail("FL2", format!("{driver:?} waits since {:?}: {script:?}", script.since));
            }
            if script.rounds.1 == 0 && has_load {
                fail("FL2", format!("{driver:?} was never served"));
            }
            if let Some(object) = script.pulls.keys().find(|it| self.processes.contains_key(&it.owner())) {
                fail("FL4", format!("{driver:?} waits for {object:?}"));
            }
        }
    }

    fn judge_rest(&self, running: &[usize]) {
        for at in running {
            let node = &self.nodes[*at];
            let Some(core) = &node.core else { continue };
            core.check();
            if !core.is_quiet() {
                fail("FL2", format!("{:?} is not at rest: {:?}", node.id, core.resources_now()));
            }
        }
        for process in self.processes.values() {
            process.core.ownership().check_directory();
        }
    }

    fn judge_sizes(&self, running: &[usize]) {
        let Some(head) = &self.head else { return };
        let nodes = running.len();
        let bytes = format!("{:?}", head.core).len();
        if bytes > HEAD_BYTES.0 * nodes + HEAD_BYTES.1 {
            fail("FL6", format!("the head's tables take {bytes} bytes for {nodes} nodes"));
        }
        for at in running.iter().take(3) {
            let Some(core) = &self.nodes[*at].core else { continue };
            let bytes = format!("{core:?}").len();
            if bytes > NODE_BYTES.0 * nodes + NODE_BYTES.1 {
                fail("FL6", format!("the tables of a node take {bytes} bytes for {nodes} nodes"));
            }
        }
    }
}

fn difference(found: &BTreeSet<NodeId>, truth: &BTreeSet<NodeId>) -> String {
    let missing: Vec<_> = truth.difference(found).take(5).collect();
    let extra: Vec<_> = found.difference(truth).take(5).collect();
    format!("{} of {}, not {missing:?}, and believes in {extra:?}", found.len(), truth.len())
}
