//! Which other nodes learn of the death of a local process, and of which remote processes' deaths this node
//! has to learn (`docs/adr/0029-settling-over-nodes.md`).
//!
//! Interest is recorded where it comes about: before a lease of a local process goes to a remote one, and
//! before a line between two processes is handed to the local one. So no process has a message from one of
//! whose death its node would not learn. Interest without a line (an owner in a borrower that another process
//! registered, a node in the owner of a block) is sent to the other node: [`Watch`].
//!
//! A node that cannot be reached while the control service, which could report its death, is away is presumed
//! dead (`docs/adr/0095-two-deaths-at-once.md`). That settles nothing: its death is settled when the control
//! service is back.
//!
//! This file reports no death to anybody: the control service does, in one order for all.

use std::hash::{Hash, Hasher};

use sooner_wire::limits::{NODES_DEAD_MAX, WATCHES_MAX};
use sooner_wire::message::{Watch, WorkerDead};
use sooner_wire::{NodeId, WorkerId};

use crate::node::core::send;
use crate::node::values::transfers::address;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::probes::mark;
use crate::table::{Map, Set};

/// See the module.
#[derive(Debug, Default, Clone)]
pub struct Watches {
    /// Local processes, with the nodes that learn of their deaths.
    watched_by: Map<WorkerId, Set<NodeId>>,
    /// Remote processes that a local one has to do with, and whether their node was asked to report their
    /// deaths.
    watching: Map<WorkerId, bool>,
    /// Dead nodes, the latest last.
    gone: Set<NodeId>,
    /// Nodes that cannot be reached from here, and are presumed dead until the control service says more.
    given_up: Set<NodeId>,
    /// Nodes that asked for local processes that are dead.
    late: Vec<(NodeId, WorkerId)>,
}

impl Watches {
    /// Two processes have to do with each other, as both nodes know.
    pub fn note(&mut self, local: WorkerId, remote: WorkerId) {
        self.watched_by.entry(local).or_default().insert(remote.node());
        self.watching.entry(remote).or_default();
    }

    /// Another node is to learn of the death of a local process.
    pub fn on_watch(&mut self, local: WorkerId, node: NodeId) {
        self.watched_by.entry(local).or_default().insert(node);
    }

    /// The death of a remote process matters here. True if its node must be asked to report it.
    pub fn watch(&mut self, remote: WorkerId) -> bool {
        !std::mem::replace(self.watching.entry(remote).or_default(), true)
    }

    /// A local process is dead. Gives the nodes that are to learn of it.
    pub fn end(&mut self, local: WorkerId) -> Vec<NodeId> {
        self.watched_by.swap_remove(&local).into_iter().flatten().collect()
    }

    /// A process of another node is dead. True if a local one has to do with it.
    pub fn forget(&mut self, remote: WorkerId) -> bool {
        self.watching.swap_remove(&remote).is_some()
    }

    /// Another node is dead. Gives its processes that a local one had to do with.
    pub fn end_node(&mut self, node: NodeId) -> Vec<WorkerId> {
        for nodes in self.watched_by.values_mut() {
            nodes.swap_remove(&node);
        }
        self.given_up.swap_remove(&node);
        self.gone.insert(node);
        if self.gone.len() > NODES_DEAD_MAX {
            self.gone.shift_remove_index(0);
        }
        self.watching
            .extract_if(.., |process, _| process.node() == node)
            .map(|(process, _)| process)
            .collect()
    }

    /// The nodes with processes whose deaths matter here.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        let nodes: Set<NodeId> = self.watching.keys().map(|process| process.node()).collect();
        nodes.into_iter().collect()
    }

    /// Whether a process was on a node that is dead, or presumed dead.
    #[must_use]
    pub fn is_with_node(&self, process: WorkerId) -> bool {
        self.gone.contains(&process.node()) || self.is_given_up(process.node())
    }

    /// Another node is presumed dead. Gives its processes that a local one has to do with: they will be asked
    /// for again when the control service reports the death.
    pub fn give_up(&mut self, node: NodeId) -> Vec<WorkerId> {
        self.given_up.insert(node);
        self.watching.keys().copied().filter(|process| process.node() == node).collect()
    }

    /// Whether a node is presumed dead, and nobody has reported its death.
    #[must_use]
    pub fn is_given_up(&self, node: NodeId) -> bool {
        self.given_up.contains(&node)
    }

    /// Processes of a node that this node asked it about.
    fn asked_of(&self, node: NodeId) -> impl Iterator<Item = WorkerId> {
        let asked =
            self.watching.iter().filter(move |(process, is_asked)| process.node() == node && **is_asked);
        asked.map(|(process, _)| *process)
    }
}

/// For the explorer.
impl Hash for Watches {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut watched: Vec<_> =
            self.watched_by.iter().flat_map(|(p, n)| n.iter().map(move |n| (p, n))).collect();
        watched.sort_unstable();
        let mut watching: Vec<_> = self.watching.iter().collect();
        watching.sort_unstable();
        let mut gone: Vec<_> = self.gone.iter().collect();
        gone.sort_unstable();
        let mut given_up: Vec<_> = self.given_up.iter().collect();
        given_up.sort_unstable();
        (watched, watching, gone, given_up, &self.late).hash(state);
    }
}

impl NodeCore {
    /// A line to a remote process is about to be handed to the local one that wants it.
    pub fn on_dialled_for(&mut self, local: WorkerId, remote: WorkerId) {
        self.add_line(local, remote);
    }

    /// A remote process has come with a line to a local one, to which it is about to be handed. False if the
    /// local one is dead; then the other node is told so, if it does not know it.
    pub fn on_arrived_for(&mut self, local: WorkerId, remote: WorkerId) -> bool {
        let is_here = self.clients.contains_key(&local);
        if is_here && !self.may_have_line(local, remote) {
            // The remote process comes again until it has waited for long enough.
            return false;
        }
        if is_here {
            self.add_line(local, remote);
        } else {
            self.watches.late.push((remote.node(), local));
        }
        is_here
    }

    /// Two processes are about to have to do with each other. Called before either learns of it.
    pub fn record_line(&mut self, local: WorkerId, remote: WorkerId) {
        if self.is_elsewhere(remote) && self.clients.contains_key(&local) {
            self.watches.note(local, remote);
        }
    }

    /// The nodes with processes whose deaths matter here.
    #[must_use]
    pub fn watched_nodes(&self) -> Vec<NodeId> {
        self.watches.nodes()
    }

    /// A local process has to learn of the death of a remote one.
    pub(in crate::node) fn on_client_watch(
        &mut self,
        from: WorkerId,
        remote: WorkerId,
        out: &mut NodeActions,
    ) {
        match self.watches.is_with_node(remote) {
            true => self.notify_death_with_node(from, remote, out),
            false => self.on_watch(remote, out),
        }
    }

    /// A local process has to do with a process of a dead node.
    pub(in crate::node) fn notify_death_with_node(
        &mut self,
        from: WorkerId,
        remote: WorkerId,
        out: &mut NodeActions,
    ) {
        let reason = "its node is gone".to_owned();
        let gone = WorkerDead { worker: remote, reason, all_begun: Some(true), ..WorkerDead::default() };
        out.push(send(from, gone));
        if !self.settling.join_node(remote) {
            self.notify_if_settled(from, remote, out);
        }
    }

    /// A local process, or this node, has to learn of the death of a remote process.
    pub(in crate::node) fn on_watch(&mut self, remote: WorkerId, out: &mut NodeActions) {
        if self.is_elsewhere(remote)
            && self.watches.watching.len() < WATCHES_MAX
            && self.watches.watch(remote)
        {
            self.send_watch(remote, out);
        }
    }

    /// Another node wants to learn of the death of a local process.
    pub fn on_watch_from(&mut self, node: NodeId, local: WorkerId, out: &mut NodeActions) {
        if self.clients.contains_key(&local) {
            return self.watches.on_watch(local, node);
        }
        mark!("a node asked to be told of the end of a process that was gone");
        self.notify_late(node, local, out);
    }

    /// Answers the nodes that asked for dead local processes since the last call.
    pub(in crate::node) fn answer_late_watches(&mut self, out: &mut NodeActions) {
        for (node, local) in std::mem::take(&mut self.watches.late) {
            self.on_watch_from(node, local, out);
        }
    }

    /// A connection between nodes has ended, and messages over it may be lost: asks again.
    pub fn watch_again(&mut self, node: NodeId, out: &mut NodeActions) {
        for remote in self.watches.asked_of(node).collect::<Vec<_>>() {
            self.send_watch(remote, out);
        }
    }

    fn send_watch(&self, remote: WorkerId, out: &mut NodeActions) {
        let message = Box::new(Watch { worker: remote }.into());
        out.push(NodeAction::Route { from: address(self.id()), to: address(remote.node()), message });
    }

    /// Whether a node is presumed dead, and the control service has not reported its death.
    #[must_use]
    pub fn is_given_up(&self, node: NodeId) -> bool {
        self.watches.is_given_up(node)
    }

    /// Another node cannot be reached, and there is no control service that could say what became of it: what
    /// waits for that node waits no longer. Its processes are presumed dead, and their deaths are settled
    /// when the control service reports them.
    pub fn give_up(&mut self, node: NodeId, reason: &str, out: &mut NodeActions) {
        let processes = self.watches.give_up(node);
        self.on_node_dead(node, out);
        for worker in processes {
            let (reason, all_begun) = (reason.to_owned(), Some(true));
            self.tell_all(&WorkerDead { worker, reason, all_begun, ..WorkerDead::default() }.into(), out);
            self.end_directions_of(worker, out);
            self.end_questions_to(worker, out);
            self.draining.forget_owner(worker);
        }
        self.give_up_places_at(node, reason, out);
    }
}
