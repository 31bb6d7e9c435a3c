//! Nodes that join and die, as far as the directory is concerned.

use sooner_wire::message::WorkerDead;
use sooner_wire::{ActorId, NodeId, ResourceSet, Takeover, WorkerId};

use super::actors::Phase;
use crate::control::{Directory, DirectoryActions};
use crate::scheduling::policy::NodeRow;
use crate::table::Set;

impl Directory {
    /// A node takes part, with these resources and labels. A node that registers again stays as it is.
    pub fn on_node_joined(&mut self, row: NodeRow) {
        self.expect_message_of(row.node);
        if !self.nodes.contains_key(&row.node) {
            self.on_registered(row.node, row.total.clone());
            self.on_report(row);
        }
    }

    /// A program's node takes part; it runs no work.
    pub fn on_program_joined(&mut self, node: NodeId) {
        self.program_nodes.insert(node);
        self.on_registered(node, ResourceSet::default());
    }

    /// A node is dead with all that was on it. Other nodes learn of that death before they receive anything
    /// that follows from it.
    pub fn on_node_dead(&mut self, node: NodeId, reason: &str, out: &mut DirectoryActions) {
        let was_expected = self.expect_no_longer(node);
        if self.nodes.swap_remove(&node).is_none() && !was_expected {
            return;
        }
        self.program_nodes.swap_remove(&node);
        self.rows.remove(node);
        self.draining.swap_remove(&node);
        for process in self.processes_on(node) {
            self.on_process_dead(process, out);
        }
        if !self.must_settle_later(node) {
            self.settle_without(node, out);
        }
        self.end_actors_on(node, reason, out);
        self.with_groups(out, |groups, acts| groups.on_node_dead(node, acts));
        self.end_jobs_on(node, out);
    }

    /// Processes of a node that are known here: owners and subscribers of actors, in lookups, and drivers of
    /// groups.
    fn processes_on(&self, node: NodeId) -> Set<WorkerId> {
        let owners = self.actors.values().map(|actor| actor.owner);
        let subscribers = self.actors.values().flat_map(|actor| actor.subscribers.iter().copied());
        let known = owners.chain(subscribers).chain(self.lookups.processes()).chain(self.groups.drivers());
        known.filter(|process| process.node() == node).collect()
    }

    fn end_actors_on(&mut self, node: NodeId, reason: &str, out: &mut DirectoryActions) {
        let there = |phase: &Phase| match phase {
            Phase::Placing { node: at } => (*at == node).then_some(WorkerId::default()),
            Phase::Placed { node: at, worker } => (*at == node).then_some(*worker),
            Phase::Reserved | Phase::Pending(_) | Phase::Dead(_) => None,
        };
        let actors = self.actors.iter();
        let lost: Vec<(ActorId, Takeover, WorkerId)> =
            actors.filter_map(|(id, actor)| Some((*id, actor.takeovers, there(&actor.phase)?))).collect();
        for (id, takeover, worker) in lost {
            if let Some(actor) = self.actors.get_mut(&id) {
                // An actor that was only on its way there ends as if it had arrived.
                actor.phase = Phase::Placed { node, worker };
            }
            let reason = format!("was on a node that is gone: {reason}");
            let all_begun = Some(true);
            let gone = WorkerDead { worker, reason, all_begun, ..WorkerDead::default() };
            self.on_actor_process_dead(id, takeover, gone, out);
        }
    }
}
