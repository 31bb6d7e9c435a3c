//! Settling the deaths of processes that other nodes have to do with
//! (`docs/adr/0029-settling-over-nodes.md`).
//!
//! Each node that learns of a death, and the dead process's own node, answers once for all its clients: what
//! they hold of the dead process. When all nodes have answered, all open deaths are settled together: a
//! process that died meanwhile may have passed on what it had of an earlier one. Nodes settle a death
//! themselves when no other node can know the dead process.
//!
//! Invariants:
//! - DS1: what counts of a death is settled only when every node that was asked has answered or is gone.
//! - DS2: a node that says what its clients hold has said before which of its processes are gone: no answer
//!   counts for a process that died owing one.
//! - DS3: what a node says again, because it was asked again or because the control service started again,
//!   counts once.
//! - DS4: nothing that a node said counts when it is gone, and everybody who is left is asked about all of
//!   its processes.
//!
//! A starting control service knows of no death: nodes repeat what they had sent and not seen settled. Other
//! nodes may have seen it settled by the control service before, and some of its questions may not have
//! arrived. So after an unasked answer all nodes are asked. Nodes remember their answers, and owners the
//! settled deaths.
//!
//! It never counts references itself: owners do.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use sooner_wire::limits::DEATHS_MAX;
use sooner_wire::message::{Held, Settled, WorkerDead};
use sooner_wire::{NodeId, ObjectId, WorkerId};

use super::directory::actors::{Actor, Phase};
use super::{Directory, DirectoryAction, DirectoryActions};
use crate::probes::{bug, mark};
use crate::table::{Map, Set};
use crate::uplink::ToNode;

/// The death of a process, or of all processes of a node, under the id before theirs.
#[derive(Debug, Default, Clone)]
struct Death {
    /// Nodes that have not answered.
    owed: Set<NodeId>,
    /// Nodes that were asked, or have answered unasked.
    told: Set<NodeId>,
    held: Map<What, u32>,
}

/// The dead process that had it, the object, and its holder.
type What = (Option<WorkerId>, ObjectId, WorkerId);

impl Death {
    fn forget(&mut self, is_over: impl Fn(WorkerId) -> bool) {
        self.held.retain(|(_, object, borrower), _| !is_over(*borrower) && !is_over(object.owner()));
    }
}

/// A message to a node.
#[derive(Debug, Clone, PartialEq)]
pub enum DeathMessage {
    /// This process is dead: what do your clients hold of it?
    Dead(NodeId, WorkerId),
    /// All nodes have answered.
    Settled(NodeId, Settled),
}

/// See the module.
#[derive(Debug, Default, Clone)]
pub struct Settling {
    open: Map<WorkerId, Death>,
    /// The deaths that were settled last, in order.
    settled: VecDeque<WorkerId>,
}

impl Settling {
    /// A node reports the death of its process, perhaps again because more nodes turned out to know the
    /// process. These `nodes` are asked in addition to its own.
    pub fn on_dead(
        &mut self,
        gone: WorkerId,
        nodes: impl IntoIterator<Item = NodeId>,
        send: &mut Vec<DeathMessage>,
    ) {
        let home = gone.node();
        if self.is_known_dead(home) {
            // Sent before the node's own death, received after it: all its processes are asked about.
            return;
        }
        if self.settled.contains(&gone) {
            mark!("a node turned out to have to do with a process whose death had been settled");
            let settled = Settled { gone: vec![gone], held: Vec::new() };
            for node in nodes.into_iter().filter(|node| *node != home) {
                send.push(DeathMessage::Dead(node, gone));
                send.push(DeathMessage::Settled(node, settled.clone()));
            }
            // Until this arrives, the node would repeat the death to every control service that starts.
            send.push(DeathMessage::Settled(home, settled));
            return;
        }
        if !self.open.is_empty() {
            mark!("a process died while the death of one of another node was being settled");
        }
        for death in self.open.values_mut() {
            death.forget(|process| process == gone);
        }
        let death = self.open.entry(gone).or_default();
        if death.told.insert(home) {
            death.owed.insert(home);
        }
        for node in nodes {
            if death.told.insert(node) {
                death.owed.insert(node);
                send.push(DeathMessage::Dead(node, gone));
            }
        }
    }

    /// All clients of a node have answered. After a restart of the control service a node may answer unasked:
    /// then all nodes that may know the process are asked about it, or about its whole node if that is dead.
    pub fn on_collected(
        &mut self,
        node: NodeId,
        gone: WorkerId,
        held: Vec<Held>,
        is_home_there: bool,
        nodes: impl IntoIterator<Item = NodeId>,
        send: &mut Vec<DeathMessage>,
    ) {
        if self.is_known_dead(node) || self.settled.contains(&gone) {
            return;
        }
        let home = gone.node();
        let is_unheard = !self.open.contains_key(&gone);
        let death = self.open.entry(gone).or_default();
        death.told.insert(node);
        death.owed.swap_remove(&node);
        for held in held {
            let what = (held.of, held.object, held.borrower);
            let count = death.held.entry(what).or_default();
            *count = (*count).max(held.count);
        }
        if is_unheard {
            let whom = if is_home_there { gone } else { address(home) };
            self.ask(whom, nodes, send);
        }
        self.settle(send);
    }

    /// A node is dead with all its processes: it owes no answer, and the remaining nodes are asked about all
    /// of its processes.
    pub fn on_node_dead(
        &mut self,
        gone: NodeId,
        left: impl IntoIterator<Item = NodeId>,
        send: &mut Vec<DeathMessage>,
    ) {
        for death in self.open.values_mut() {
            death.owed.swap_remove(&gone);
            death.told.swap_remove(&gone);
            death.forget(|process| process.node() == gone);
        }
        self.ask(address(gone), left, send);
        self.settle(send);
    }

    /// Asks the nodes that were neither asked nor have answered about a process, or about all processes of a
    /// dead node.
    fn ask(&mut self, gone: WorkerId, nodes: impl IntoIterator<Item = NodeId>, send: &mut Vec<DeathMessage>) {
        if self.settled.contains(&gone) {
            return;
        }
        let death = self.open.entry(gone).or_default();
        for node in nodes {
            if death.told.insert(node) {
                death.owed.insert(node);
                send.push(DeathMessage::Dead(node, gone));
            }
        }
    }

    /// Whether all nodes were asked about the processes of this node.
    #[must_use]
    pub fn is_known_dead(&self, node: NodeId) -> bool {
        let address = address(node);
        self.open.contains_key(&address) || self.settled.contains(&address)
    }

    /// A node asks about a dead node of which all were told: it may have joined since.
    pub fn on_asked_after(&mut self, node: NodeId, gone: NodeId, send: &mut Vec<DeathMessage>) {
        let address = address(gone);
        if self.settled.contains(&address) {
            send.push(DeathMessage::Dead(node, address));
            send.push(DeathMessage::Settled(node, Settled { gone: vec![address], held: Vec::new() }));
        } else {
            self.ask(address, [node], send);
        }
    }

    /// A node may have missed questions: open ones are sent again.
    pub fn on_node_back(&self, node: NodeId, send: &mut Vec<DeathMessage>) {
        let owed = self.open.iter().filter(|(_, death)| death.owed.contains(&node));
        send.extend(owed.map(|(gone, _)| DeathMessage::Dead(node, *gone)));
    }

    /// How many deaths are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether no death is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn settle(&mut self, send: &mut Vec<DeathMessage>) {
        let is_alone = bug!(SettledAlone);
        if !is_alone && !self.open.values().all(|death| death.owed.is_empty()) {
            return;
        }
        let done: Vec<(WorkerId, Death)> =
            self.open.extract_if(.., |_, death| death.owed.is_empty()).collect();
        if done.is_empty() {
            return;
        }
        let gone: Vec<WorkerId> = done.iter().map(|(gone, _)| *gone).collect();
        let mut nodes: Map<NodeId, Vec<Held>> = Map::default();
        let mut all: Map<What, u32> = Map::default();
        for (_, death) in done {
            for node in death.told {
                nodes.entry(node).or_default();
            }
            all.extend(death.held);
        }
        for ((of, object, borrower), count) in all {
            let held = Held { object, borrower, count, of };
            nodes.entry(object.owner().node()).or_default().push(held);
        }
        for process in &gone {
            if self.settled.len() == DEATHS_MAX {
                self.settled.pop_front();
            }
            self.settled.push_back(*process);
        }
        let settled = |(node, held)| DeathMessage::Settled(node, Settled { gone: gone.clone(), held });
        send.extend(nodes.into_iter().map(settled));
    }
}

/// For the explorer: the order in which deaths were settled does not matter.
impl Hash for Settling {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut open: Vec<_> = self.open.iter().collect();
        open.sort_unstable_by_key(|(gone, _)| **gone);
        for (gone, death) in open {
            let mut nodes = [&death.owed, &death.told].map(|set| set.iter().copied().collect::<Vec<_>>());
            nodes.iter_mut().for_each(|nodes| nodes.sort_unstable());
            let mut held: Vec<_> = death.held.iter().collect();
            held.sort_unstable();
            (gone, nodes, held).hash(state);
        }
        let mut settled: Vec<_> = self.settled.iter().collect();
        settled.sort_unstable();
        settled.hash(state);
    }
}

impl Directory {
    /// A node reports the death of its process: the nodes that know the process are told and asked.
    pub(super) fn on_death(
        &mut self,
        process: WorkerId,
        watchers: &[NodeId],
        gone: Option<Box<WorkerDead>>,
        out: &mut DirectoryActions,
    ) {
        let Some(gone) = gone else { return };
        // What it gave to the control service is with actors now: their nodes are asked, too.
        let with_actors = self.nodes_of_actors_of(process);
        let nodes = watchers.iter().copied().chain(with_actors);
        let nodes: Vec<NodeId> = nodes.filter(|node| !self.is_lost(*node)).collect();
        let mut send = Vec::new();
        self.settling.on_dead(process, nodes, &mut send);
        self.send_deaths(send, Some(&gone), out);
    }

    /// A node has collected the answers of its clients.
    pub(super) fn on_collected(
        &mut self,
        node: NodeId,
        gone: WorkerId,
        held: Vec<Held>,
        out: &mut DirectoryActions,
    ) {
        let mut send = Vec::new();
        let is_home_there = !self.is_lost(gone.node());
        let all: Vec<NodeId> = self.nodes_that_may_be().collect();
        self.settling.on_collected(node, gone, held, is_home_there, all, &mut send);
        self.send_deaths(send, None, out);
    }

    /// A node is dead with all its processes.
    pub fn settle_without(&mut self, node: NodeId, out: &mut DirectoryActions) {
        let left: Vec<NodeId> = self.nodes_that_may_be().filter(|other| *other != node).collect();
        let mut send = Vec::new();
        self.settling.on_node_dead(node, left, &mut send);
        self.send_deaths(send, None, out);
    }

    /// Some nodes know processes of these nodes. For a dead one no record is left, and not all nodes may have
    /// been told.
    pub fn settle_forgotten(
        &mut self,
        watched: impl IntoIterator<Item = NodeId>,
        out: &mut DirectoryActions,
    ) {
        for node in self.not_too_early(watched) {
            if self.is_lost(node) && !self.settling.is_known_dead(node) {
                self.settle_without(node, out);
            }
        }
    }

    /// A node asks about a dead node: it is told of the deaths there, if it has not been.
    pub fn on_asked_after(&mut self, from: NodeId, gone: NodeId, out: &mut DirectoryActions) {
        if self.settling.is_known_dead(gone) {
            let mut send = Vec::new();
            self.settling.on_asked_after(from, gone, &mut send);
            return self.send_deaths(send, None, out);
        }
        self.settle_forgotten([gone], out);
    }

    /// A node reports what it has. Open questions are sent again: it may have come late, or over another
    /// connection than they did.
    pub(super) fn ask_what_is_owed(&self, node: NodeId, out: &mut DirectoryActions) {
        let mut send = Vec::new();
        self.settling.on_node_back(node, &mut send);
        self.send_deaths(send, None, out);
    }

    /// The nodes of this owner's actors: processes there got references from the control service only.
    fn nodes_of_actors_of(&self, owner: WorkerId) -> Vec<NodeId> {
        let owned = self.actors.values().filter(|actor| actor.owner == owner);
        let node = |actor: &Actor| match actor.phase {
            Phase::Placing { node } | Phase::Placed { node, .. } => Some(node),
            Phase::Reserved | Phase::Pending(_) | Phase::Dead(_) => None,
        };
        owned.filter_map(node).collect()
    }

    fn send_deaths(&self, send: Vec<DeathMessage>, news: Option<&WorkerDead>, out: &mut DirectoryActions) {
        for saying in send {
            let (node, word) = match saying {
                DeathMessage::Dead(node, worker) => {
                    let known = news.filter(|news| news.worker == worker).cloned();
                    let gone = known.unwrap_or_else(|| end_of_a_node(worker));
                    (node, ToNode::WorkerDead(Box::new(gone)))
                }
                DeathMessage::Settled(node, settled) => (node, ToNode::Settled(Box::new(settled))),
            };
            if self.nodes.contains_key(&node) {
                out.push(DirectoryAction::Send(node, Box::new(word)));
            }
        }
    }
}

/// Stands for all processes of a node.
fn address(node: NodeId) -> WorkerId {
    WorkerId(node.0)
}

/// The death of a process on a dead node: no node saw what it had begun.
fn end_of_a_node(worker: WorkerId) -> WorkerDead {
    let reason = "its node is gone".to_owned();
    WorkerDead { worker, reason, all_begun: Some(true), ..WorkerDead::default() }
}

#[cfg(test)]
mod tests {
    use sooner_wire::TaskId;

    use super::*;

    const A: NodeId = NodeId(1 << 24);
    const B: NodeId = NodeId(2 << 24);
    const C: NodeId = NodeId(3 << 24);
    const X: WorkerId = WorkerId(A.0 + 1);
    const Q: WorkerId = WorkerId(B.0 + 1);
    const W: WorkerId = WorkerId(C.0 + 1);

    fn held(borrower: WorkerId) -> Held {
        let owner = WorkerId(A.0 + 9);
        Held { object: TaskId { owner, number: 1 }.object(0), borrower, count: 1, of: Some(X) }
    }

    fn gone(settling: &mut Settling, process: WorkerId, nodes: &[NodeId]) -> Vec<DeathMessage> {
        let mut send = Vec::new();
        settling.on_dead(process, nodes.iter().copied(), &mut send);
        send
    }

    fn collected(
        settling: &mut Settling,
        node: NodeId,
        process: WorkerId,
        held: &[Held],
    ) -> Vec<DeathMessage> {
        let mut send = Vec::new();
        settling.on_collected(node, process, held.to_vec(), true, [A, B, C], &mut send);
        send
    }

    fn settled(node: NodeId, gone: &[WorkerId], held: &[Held]) -> DeathMessage {
        DeathMessage::Settled(node, Settled { gone: gone.to_vec(), held: held.to_vec() })
    }

    #[test]
    fn deaths_of_two_nodes_are_settled_together_and_what_the_dead_held_counts_no_more() {
        let mut settling = Settling::default();
        assert_eq!(gone(&mut settling, X, &[B]), [DeathMessage::Dead(B, X)]);
        assert_eq!(collected(&mut settling, A, X, &[]), []);
        // It dies after it was heard on X: what it had of that, and handed on, is said of it.
        assert_eq!(collected(&mut settling, B, X, &[held(Q)])[0], settled(A, &[X], &[held(Q)]));
        assert_eq!(gone(&mut settling, WorkerId(X.0 + 1), &[B]).len(), 1);
        assert_eq!(collected(&mut settling, B, WorkerId(X.0 + 1), &[held(Q)]), []);
        assert_eq!(gone(&mut settling, Q, &[C]), [DeathMessage::Dead(C, Q)]);
        assert_eq!(collected(&mut settling, A, WorkerId(X.0 + 1), &[]), []);
        assert_eq!(collected(&mut settling, B, Q, &[]), []);
        let all = [WorkerId(X.0 + 1), Q];
        let last = [settled(A, &all, &[held(W)]), settled(B, &all, &[]), settled(C, &all, &[])];
        assert_eq!(collected(&mut settling, C, Q, &[held(W)]), last);
    }

    #[test]
    fn who_turns_out_to_have_to_do_with_a_death_is_asked_or_told() {
        let mut settling = Settling::default();
        assert_eq!(gone(&mut settling, X, &[]), []);
        assert_eq!(gone(&mut settling, X, &[B]), [DeathMessage::Dead(B, X)], "it is open");
        assert_eq!(gone(&mut settling, X, &[B]), [], "it has been asked");
        collected(&mut settling, B, X, &[]);
        assert_eq!(collected(&mut settling, A, X, &[]).len(), 2);
        let told = [DeathMessage::Dead(C, X), settled(C, &[X], &[]), settled(A, &[X], &[])];
        assert_eq!(gone(&mut settling, X, &[A, C]), told);
        assert_eq!(collected(&mut settling, C, X, &[]), [], "nobody waits for that");
        assert!(settling.is_empty());
    }

    #[test]
    fn a_node_that_is_gone_owes_nothing_and_is_answered_for() {
        let mut settling = Settling::default();
        gone(&mut settling, X, &[B, C]);
        collected(&mut settling, A, X, &[]);
        collected(&mut settling, B, X, &[held(Q)]);
        let mut send = Vec::new();
        settling.on_node_dead(B, [A, C], &mut send);
        let address = address(B);
        assert_eq!(send, [DeathMessage::Dead(A, address), DeathMessage::Dead(C, address)]);
        collected(&mut settling, C, X, &[held(W)]);
        collected(&mut settling, C, address, &[]);
        let all = [X, address];
        let last = [settled(A, &all, &[held(W)]), settled(C, &all, &[])];
        assert_eq!(collected(&mut settling, A, address, &[]), last);
    }

    #[test]
    fn an_answer_that_comes_before_the_question_has_everybody_asked() {
        let mut settling = Settling::default();
        let asked = [DeathMessage::Dead(A, X), DeathMessage::Dead(C, X)];
        assert_eq!(collected(&mut settling, B, X, &[held(Q)]), asked);
        assert_eq!(collected(&mut settling, C, X, &[]), []);
        let last = [settled(B, &[X], &[]), settled(A, &[X], &[held(Q)]), settled(C, &[X], &[])];
        assert_eq!(collected(&mut settling, A, X, &[]), last);
    }

    #[test]
    fn of_a_process_whose_node_is_gone_everybody_is_asked_with_that_node() {
        let mut settling = Settling::default();
        let mut send = Vec::new();
        settling.on_collected(B, X, vec![held(Q)], false, [B, C], &mut send);
        let node = address(A);
        assert_eq!(send, [DeathMessage::Dead(B, node), DeathMessage::Dead(C, node)]);
        assert_eq!(collected(&mut settling, C, node, &[held(W)]), []);
        // What it has said of the process by itself is among what it says of the node.
        let last = collected(&mut settling, B, node, &[held(Q)]);
        let all = [X, node];
        let held = [held(Q), held(W)];
        assert_eq!(last, [settled(B, &all, &[]), settled(C, &all, &[]), settled(A, &all, &held)]);
    }

    #[test]
    fn what_a_node_says_again_counts_once() {
        let mut settling = Settling::default();
        gone(&mut settling, X, &[B, C]);
        collected(&mut settling, B, X, &[held(Q)]);
        collected(&mut settling, B, X, &[held(Q)]);
        collected(&mut settling, C, X, &[]);
        let last = collected(&mut settling, A, X, &[]);
        assert_eq!(last[0], settled(A, &[X], &[held(Q)]));
    }

    #[test]
    fn what_a_node_had_said_before_its_end_opens_nothing_after_it() {
        let mut settling = Settling::default();
        settling.on_node_dead(A, [B, C], &mut Vec::new());
        assert_eq!(gone(&mut settling, X, &[B]), [], "all are asked about its node");
        assert_eq!(collected(&mut settling, A, Q, &[held(WorkerId(A.0 + 2))]), []);
        assert_eq!(settling.len(), 1);
        collected(&mut settling, B, address(A), &[]);
        assert_eq!(collected(&mut settling, C, address(A), &[]).len(), 2);
        assert_eq!(gone(&mut settling, X, &[B]), []);
        assert!(settling.is_empty());
    }

    #[test]
    fn who_asks_after_a_node_that_is_gone_is_told_of_it() {
        let mut settling = Settling::default();
        settling.on_node_dead(A, [B], &mut Vec::new());
        let asked = |settling: &mut Settling, node| {
            let mut send = Vec::new();
            settling.on_asked_after(node, A, &mut send);
            send
        };
        assert_eq!(asked(&mut settling, B), [], "it has been told");
        let told = DeathMessage::Dead(C, address(A));
        assert_eq!(asked(&mut settling, C), std::slice::from_ref(&told));
        collected(&mut settling, B, address(A), &[]);
        assert_eq!(collected(&mut settling, C, address(A), &[]).len(), 2);
        assert_eq!(asked(&mut settling, C), [told, settled(C, &[address(A)], &[])]);
    }

    #[test]
    fn who_comes_back_is_asked_what_it_owes() {
        let mut settling = Settling::default();
        gone(&mut settling, X, &[B, C]);
        collected(&mut settling, B, X, &[]);
        let asked = |node| {
            let mut send = Vec::new();
            settling.on_node_back(node, &mut send);
            send
        };
        assert_eq!(asked(C), [DeathMessage::Dead(C, X)]);
        assert_eq!(asked(B), []);
    }
}
