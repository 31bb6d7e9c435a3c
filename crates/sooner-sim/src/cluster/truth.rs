//! The true state of the cluster, and what the head and the nodes must never say against it.
//!
//! - K1: a node is gone only when its process has ended, when the head has not heard of it for the health
//!   timeout while it could have, when nobody can dial it and its connection ended, or when it leaves.
//! - K2: an id of which others were told that it is gone is never taken in again, and no news of it follows.
//!   That is judged where the head speaks, and again at each node by what this node has heard: news that was
//!   said before may still be on its way to one node when another one hears of the end.
//! - K3: no node is a candidate that leaves, is not known, or does not have so much in total.
//! - K4: when nothing goes wrong any more, all nodes that run are known to the head and to each other, and
//!   nobody else is; the disk says the same; what nodes have free is what others were told; and nothing is
//!   unfinished.
//! - K5: what waits is bounded: probes by the number of nodes, the disk's queue by its limit.
//! - K6: the head waits for something when it has done what was due.
//!
//! One exception is documented (`docs/adr/0022`): if the disk failed to delete the record of a node whose
//! death was announced, a later head may take the node in again.

use std::collections::BTreeSet;

use sooner_protocol::control::persist::Write;
use sooner_wire::limits::{RESUME_GRACE_NANOS, VIEW_NODES_MAX};
use sooner_wire::message::Message;
use sooner_wire::record::{NODES, node_key};
use sooner_wire::{NodeId, ResourceSet};

use super::daemons::Link;
use super::world::World;
use crate::violation::fail;

impl World {
    /// The head has received a sign of life from a node.
    pub(super) fn is_received(&mut self, id: NodeId) {
        self.heard.insert(id, self.now);
    }

    /// The head has only now begun to listen: before, it could have received nothing from any node.
    pub(super) fn all_are_heard(&mut self) {
        let now = self.now;
        self.heard.values_mut().for_each(|heard| *heard = now);
    }

    /// The head writes. Deleting a node's record means that it has just declared the node dead. A node that
    /// it takes in replaces the record of a former node with its name: that one was judged before, or never
    /// taken in.
    pub(super) fn judge_writes(&mut self, writes: &[Write]) {
        if writes.iter().any(|write| write.value.is_some()) {
            return;
        }
        for write in writes.iter().filter(|write| write.value.is_none()) {
            let digits = write.key.strip_prefix(NODES).expect("only records of nodes are deleted");
            let id = NodeId(u64::from_str_radix(digits, 16).expect("a number"));
            if self.judged.insert(id) {
                self.judge_dead(id);
            }
        }
    }

    fn judge_dead(&mut self, id: NodeId) {
        let Some(daemon) = self.members.get(&id).map(|daemon| &self.daemons[*daemon]) else { return };
        let silent = self.now.since(self.heard.get(&id).copied().unwrap_or_default());
        let is_silent = silent >= self.plan.health_timeout;
        let is_lost = daemon.address.is_none() && silent >= RESUME_GRACE_NANOS.min(self.plan.health_timeout);
        // Of two nodes with one id, one may be declared dead: for example the previous head's own node.
        let may_go = daemon.leaves || self.drained.contains(&id) || self.twins.contains(&id);
        if daemon.runs && !is_silent && !is_lost && !may_go {
            let why = self.head.as_ref().and_then(|head| head.core.nodes().why_dead(id)).unwrap_or_default();
            fail("K1", format!("{id:?} lives, was heard of {silent} ns ago, and is gone: {why}"));
        }
        if daemon.runs && is_silent {
            self.saw("a node that lives was declared gone");
        }
    }

    /// Records that other nodes were told of a node's death.
    pub(super) fn tell(&mut self, id: NodeId) {
        self.told.insert(id);
    }

    /// Whether a head may know a node that was declared dead, because its record could not be deleted.
    fn may_come_back(&self, id: NodeId) -> bool {
        self.plan.has("disk-full")
            || self.plan.has("disk-slow")
            || !self.told.contains(&id)
            || self.twins.contains(&id)
    }

    /// Checks a message of the head about other nodes.
    pub(super) fn judge_words(&self, to: NodeId, message: &Message) {
        let rows = match message {
            Message::Registered(registered) => &registered.nodes,
            Message::NodesChanged(changed) => &changed.rows,
            _ => return,
        };
        if let Some(row) = rows.iter().find(|row| !self.may_come_back(row.node)) {
            fail("K2", format!("{to:?} is told of {:?}, and others were told that it is gone", row.node));
        }
    }

    /// Checks the nodes that a node has just received at its registration.
    pub(super) fn judge_registered(&self, daemon: usize) {
        let one = &self.daemons[daemon];
        if !one.known.contains(&one.id) {
            fail("K2", format!("{:?} was taken in, and is not among the nodes", one.id));
        }
        one.known.iter().for_each(|id| self.judge_news(daemon, *id));
    }

    /// Checks that a node does not learn of a node whose death it has learned of.
    pub(super) fn judge_news(&self, daemon: usize, about: NodeId) {
        let one = &self.daemons[daemon];
        if one.learnt_dead.contains(&about) && !self.may_come_back(about) {
            fail("K2", format!("{:?} hears of {about:?}, and had heard that it is gone", one.id));
        }
    }

    /// Checks the head's answer to the question of which nodes could run a task now.
    pub(super) fn judge_candidates(&mut self) {
        if !self.random.chance(1, 8) {
            return;
        }
        let mut wanted = ResourceSet::default();
        wanted.add_one("CPU", 10_000 * self.random.below(9) as u64);
        let seed = self.random.next_number();
        let Some(head) = &self.head else { return };
        for candidate in head.core.view().candidates(&wanted, 4, None, seed) {
            let id = candidate.node;
            let Some(row) = head.core.nodes().row(id) else {
                // The record of its death waits for the disk.
                if head.core.nodes().why_dead(id).is_some() {
                    continue;
                }
                fail("K3", format!("{id:?} is a candidate, and is not known"));
            };
            if !row.about.resources.covers(&wanted) {
                fail("K3", format!("{id:?} is a candidate for {} CPUs", wanted.describe()));
            }
        }
        let known = self.members.len() + self.hosts.len();
        if head.probes > 16 * known {
            fail("K5", format!("{} probes of {known} nodes", head.probes));
        }
    }

    /// Checks the final state: no fault has happened for a while.
    pub(super) fn judge_end(&mut self) {
        let Some(head) = &self.head else { fail("K4", "there is no head") };
        let running: Vec<usize> = (0..self.daemons.len()).filter(|at| self.daemons[*at].runs).collect();
        let truth: BTreeSet<NodeId> = running.iter().map(|at| self.daemons[*at].id).collect();
        let known: BTreeSet<NodeId> = head.core.nodes().rows().map(|row| row.node).collect();
        if known != truth {
            let missing: Vec<_> = truth.difference(&known).collect();
            let extra: Vec<_> = known.difference(&truth).collect();
            fail("K4", format!("the head does not know {missing:?}, and believes in {extra:?}"));
        }
        if !head.core.nodes().is_complete() || head.probes > 0 {
            fail("K4", format!("something is unfinished: {} probes", head.probes));
        }
        let keys: BTreeSet<String> = self.disk.keys().filter(|key| key.starts_with(NODES)).cloned().collect();
        let expected: BTreeSet<String> = truth.iter().map(|id| node_key(*id)).collect();
        if !self.disk.is_idle() || keys != expected {
            fail("K4", format!("the disk has {keys:?}, and the nodes are {expected:?}"));
        }
        for at in &running {
            self.judge_member(*at, &truth, &running);
        }
    }

    fn judge_member(&self, at: usize, truth: &BTreeSet<NodeId>, running: &[usize]) {
        let one = &self.daemons[at];
        let id = one.id;
        let is_up = |link: Link| matches!(link, Link::Up(_));
        if !one.is_registered || !is_up(one.control) || !is_up(one.health) {
            fail("K4", format!("{id:?} is not connected: {:?}, {:?}", one.control, one.health));
        }
        if one.known != *truth {
            let missing: Vec<_> = truth.difference(&one.known).collect();
            let extra: Vec<_> = one.known.difference(truth).collect();
            fail("K4", format!("{id:?} does not know {missing:?}, and believes in {extra:?}"));
        }
        if one.must_ask != (truth.len() > VIEW_NODES_MAX) {
            fail("K4", format!("{id:?} of {} nodes must ask: {}", truth.len(), one.must_ask));
        }
        if one.must_ask {
            return;
        }
        for other in running.iter().map(|at| &self.daemons[*at]).filter(|other| other.address.is_some()) {
            let free = one.view.get(&other.id);
            if free != Some(&other.free) {
                fail(
                    "K4",
                    format!("{id:?} believes that {:?} has {free:?} free, not {:?}", other.id, other.free),
                );
            }
        }
    }
}
