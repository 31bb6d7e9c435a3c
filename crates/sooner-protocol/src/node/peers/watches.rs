//! Which other nodes hear of the end of a process here, and of which processes there this node has to hear
//! (`docs/adr/0029-settling-over-nodes.md`).
//!
//! Interest is noted where it comes about: before a lease of a process here goes to one elsewhere, and before
//! a line between two processes is handed to the one that is here. So no process has had a word from one
//! whose end its node would not be told of. Interest without a line (an owner in a borrower that somebody
//! else registered, a node in the owner of a block) is said to the other node: [`Watch`].
//!
//! A node that cannot be reached while the control service, which could say it, is away is held for gone
//! (`docs/adr/0095-two-deaths-at-once.md`). That settles nothing: it is done when the control service is
//! back.
//!
//! It tells nobody of any end: the control service does, in one order for all.

use std::hash::{Hash, Hasher};

use sooner_wire::limits::{NODES_GONE_MAX, WATCHES_MAX};
use sooner_wire::message::{Watch, WorkerGone};
use sooner_wire::{NodeId, WorkerId};

use crate::node::core::send;
use crate::node::values::transfers::address;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::probes::mark;
use crate::table::{Map, Set};

/// See the module.
#[derive(Debug, Default, Clone)]
pub struct Watches {
    /// Processes here, and the nodes that hear of their ends.
    watched_by: Map<WorkerId, Set<NodeId>>,
    /// Processes of other nodes that one here has to do with, and whether their node was asked to tell of
    /// their ends.
    watching: Map<WorkerId, bool>,
    /// Nodes that are gone, the latest last.
    gone: Set<NodeId>,
    /// Nodes that nobody here can reach, and that are held for gone until the control service says more.
    given_up: Set<NodeId>,
    /// Nodes that asked for processes here that are gone.
    late: Vec<(NodeId, WorkerId)>,
}

impl Watches {
    /// Two processes have to do with each other, as both nodes know.
    pub fn note(&mut self, local: WorkerId, remote: WorkerId) {
        self.watched_by.entry(local).or_default().insert(remote.node());
        self.watching.entry(remote).or_default();
    }

    /// Another node is to hear of the end of a process here.
    pub fn on_watch(&mut self, local: WorkerId, node: NodeId) {
        self.watched_by.entry(local).or_default().insert(node);
    }

    /// The end of a process of another node matters here. True if that one must be asked to tell of it.
    pub fn watch(&mut self, remote: WorkerId) -> bool {
        !std::mem::replace(self.watching.entry(remote).or_default(), true)
    }

    /// A process here is gone. Gives the nodes that are to hear of it.
    pub fn end(&mut self, local: WorkerId) -> Vec<NodeId> {
        self.watched_by.swap_remove(&local).into_iter().flatten().collect()
    }

    /// A process of another node is gone.
    pub fn forget(&mut self, remote: WorkerId) {
        self.watching.swap_remove(&remote);
    }

    /// Another node is gone. Gives its processes that one here had to do with.
    pub fn end_node(&mut self, node: NodeId) -> Vec<WorkerId> {
        for nodes in self.watched_by.values_mut() {
            nodes.swap_remove(&node);
        }
        self.given_up.swap_remove(&node);
        self.gone.insert(node);
        if self.gone.len() > NODES_GONE_MAX {
            self.gone.shift_remove_index(0);
        }
        self.watching
            .extract_if(.., |process, _| process.node() == node)
            .map(|(process, _)| process)
            .collect()
    }

    /// The nodes with processes whose ends matter here.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        let nodes: Set<NodeId> = self.watching.keys().map(|process| process.node()).collect();
        nodes.into_iter().collect()
    }

    /// Whether a process was on a node that is gone, or is held for gone.
    #[must_use]
    pub fn is_with_node(&self, process: WorkerId) -> bool {
        self.gone.contains(&process.node()) || self.is_given_up(process.node())
    }

    /// Another node is held for gone. Gives its processes that one here has to do with: they will be asked
    /// for again when the control service says that it is.
    pub fn give_up(&mut self, node: NodeId) -> Vec<WorkerId> {
        self.given_up.insert(node);
        self.watching.keys().copied().filter(|process| process.node() == node).collect()
    }

    /// Whether a node is held for gone, and nobody has said that it is.
    #[must_use]
    pub fn is_given_up(&self, node: NodeId) -> bool {
        self.given_up.contains(&node)
    }

    /// Processes of a node that it was asked about.
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
    /// A line to a process of another node is about to be handed to the one here that wants it.
    pub fn on_dialled_for(&mut self, local: WorkerId, remote: WorkerId) {
        self.add_line(local, remote);
    }

    /// A process of another node has come with a line to one here, to which it is about to be handed. False
    /// if that one is gone; then the other node is told so, if it has not heard it.
    pub fn on_arrived_for(&mut self, local: WorkerId, remote: WorkerId) -> bool {
        let is_here = self.clients.contains_key(&local);
        if is_here && !self.may_have_line(local, remote) {
            // It comes again until it has waited for long enough.
            return false;
        }
        if is_here {
            self.add_line(local, remote);
        } else {
            self.watches.late.push((remote.node(), local));
        }
        is_here
    }

    /// Two processes are about to have to do with each other. Said before either hears of it.
    pub fn note_line(&mut self, local: WorkerId, remote: WorkerId) {
        if self.is_elsewhere(remote) && self.clients.contains_key(&local) {
            self.watches.note(local, remote);
        }
    }

    /// The nodes with processes whose ends matter here.
    #[must_use]
    pub fn watched_nodes(&self) -> Vec<NodeId> {
        self.watches.nodes()
    }

    /// A process here has to hear of the end of one of another node.
    pub(in crate::node) fn on_client_watch(
        &mut self,
        from: WorkerId,
        remote: WorkerId,
        out: &mut NodeActions,
    ) {
        match self.watches.is_with_node(remote) {
            true => self.notify_gone_with_node(from, remote, out),
            false => self.on_watch(remote, out),
        }
    }

    /// A process here has to do with one of a node that is gone.
    pub(in crate::node) fn notify_gone_with_node(
        &mut self,
        from: WorkerId,
        remote: WorkerId,
        out: &mut NodeActions,
    ) {
        let reason = "its node is gone".to_owned();
        let gone = WorkerGone { worker: remote, reason, all_begun: Some(true), ..WorkerGone::default() };
        out.push(send(from, gone));
        if !self.settling.join_node(remote) {
            self.notify_if_settled(from, remote, out);
        }
    }

    /// A process here, or this node, has to hear of the end of a process of another node.
    pub(in crate::node) fn on_watch(&mut self, remote: WorkerId, out: &mut NodeActions) {
        if self.is_elsewhere(remote)
            && self.watches.watching.len() < WATCHES_MAX
            && self.watches.watch(remote)
        {
            self.send_watch(remote, out);
        }
    }

    /// Another node wants to hear of the end of a process here.
    pub fn on_watch_from(&mut self, node: NodeId, local: WorkerId, out: &mut NodeActions) {
        if self.clients.contains_key(&local) {
            return self.watches.on_watch(local, node);
        }
        mark!("a node asked to be told of the end of a process that was gone");
        self.notify_late(node, local, out);
    }

    /// Those who asked for processes here that are gone, since the last call.
    pub(in crate::node) fn answer_late_watches(&mut self, out: &mut NodeActions) {
        for (node, local) in std::mem::take(&mut self.watches.late) {
            self.on_watch_from(node, local, out);
        }
    }

    /// What was said over a connection between nodes that is gone may not have arrived.
    pub fn watch_again(&mut self, node: NodeId, out: &mut NodeActions) {
        for remote in self.watches.asked_of(node).collect::<Vec<_>>() {
            self.send_watch(remote, out);
        }
    }

    fn send_watch(&self, remote: WorkerId, out: &mut NodeActions) {
        let message = Box::new(Watch { worker: remote }.into());
        out.push(NodeAction::Route { from: address(self.id()), to: address(remote.node()), message });
    }

    /// Whether a node is held for gone, and the control service has not said that it is.
    #[must_use]
    pub fn is_given_up(&self, node: NodeId) -> bool {
        self.watches.is_given_up(node)
    }

    /// Another node cannot be reached, and there is no control service that could say what became of it: what
    /// here waits for it waits no longer. Its processes are held for gone, and their deaths are settled when
    /// the control service says that they are.
    pub fn give_up(&mut self, node: NodeId, reason: &str, out: &mut NodeActions) {
        let processes = self.watches.give_up(node);
        self.on_node_gone(node, out);
        for worker in processes {
            let (reason, all_begun) = (reason.to_owned(), Some(true));
            self.tell_all(&WorkerGone { worker, reason, all_begun, ..WorkerGone::default() }.into(), out);
            self.end_directions_of(worker, out);
            self.end_questions_to(worker, out);
            self.draining.forget_owner(worker);
        }
        self.give_up_places_at(node, reason, out);
    }
}
