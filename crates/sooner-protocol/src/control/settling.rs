//! Settling the deaths of processes that other nodes have to do with (`docs/adr/0029-settling-over-nodes.md`).
//!
//! Each node that is told of a death, and the node where it was, answers once for all its clients with what they hold of the
//! dead process. When nobody owes an answer any more all open deaths are settled together: one who died meanwhile may
//! have handed on what it had of an earlier one. Nodes settle by themselves what no other node can know of.
//!
//! Invariants:
//! - D1: what counts of a death is settled only when every node that was asked has answered or is gone.
//! - D2: a node that says what its clients hold has said before which of its processes are gone: no answer counts for a
//!   process that died owing one.
//!
//! It counts nothing itself: owners do.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use sooner_wire::limits::DEATHS_MAX;
use sooner_wire::message::{Held, Settled, WorkerGone};
use sooner_wire::{NodeId, WorkerId};

use super::actors::{Actor, Phase};
use super::{ControlAction, ControlActions, ControlCore, ToNode};
use crate::probes::{bug, mark};
use crate::table::{Map, Set};

/// A process that is gone, or all processes of a node, under the id before theirs.
#[derive(Debug, Default, Clone)]
struct Death {
    /// Nodes that have not answered.
    owed: Set<NodeId>,
    /// Nodes that were asked, or have answered unasked.
    told: Set<NodeId>,
    held: Vec<Held>,
}

/// What is to be said to a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Saying {
    /// This process is gone: what do your clients hold of it?
    Gone(NodeId, WorkerId),
    /// Everybody has been heard.
    Settled(NodeId, Settled),
}

/// See the module.
#[derive(Debug, Default, Clone)]
pub struct Settling {
    open: Map<WorkerId, Death>,
    /// The latest that were settled, the last one last.
    settled: VecDeque<WorkerId>,
}

impl Settling {
    /// A process is gone, as its node says, perhaps again because more nodes turned out to have to do with it. These nodes
    /// are to be asked besides its own.
    pub fn on_gone(
        &mut self,
        gone: WorkerId,
        nodes: impl IntoIterator<Item = NodeId>,
        say: &mut Vec<Saying>,
    ) {
        let home = gone.node();
        if self.settled.contains(&gone) {
            mark!("a node turned out to have to do with a process whose death had been settled");
            let settled = Settled { gone: vec![gone], held: Vec::new() };
            for node in nodes.into_iter().filter(|node| *node != home) {
                say.push(Saying::Gone(node, gone));
                say.push(Saying::Settled(node, settled.clone()));
            }
            // Until it hears that it says so again to every control service that starts.
            say.push(Saying::Settled(home, settled));
            return;
        }
        if !self.open.is_empty() {
            mark!("a process died while the death of one of another node was being settled");
        }
        for death in self.open.values_mut() {
            death.held.retain(|held| held.borrower != gone && held.object.owner() != gone);
        }
        let death = self.open.entry(gone).or_default();
        if death.told.insert(home) {
            death.owed.insert(home);
        }
        for node in nodes {
            if death.told.insert(node) {
                death.owed.insert(node);
                say.push(Saying::Gone(node, gone));
            }
        }
    }

    /// A node has heard its clients. After a restart of the control service a node may answer before the one of the process
    /// has said that it is gone: that one is asked, if it is there.
    pub fn on_collected(
        &mut self,
        node: NodeId,
        gone: WorkerId,
        held: Vec<Held>,
        is_home_there: bool,
        say: &mut Vec<Saying>,
    ) {
        if self.settled.contains(&gone) {
            return;
        }
        let home = gone.node();
        let is_unheard = !self.open.contains_key(&gone);
        let death = self.open.entry(gone).or_default();
        death.told.insert(node);
        death.owed.swap_remove(&node);
        death.held.extend(held);
        if is_unheard && is_home_there && death.told.insert(home) {
            death.owed.insert(home);
            say.push(Saying::Gone(home, gone));
        }
        self.settle(say);
    }

    /// A node is gone with all its processes: it owes nothing, and those that are left are asked about all of them.
    pub fn on_node_gone(
        &mut self,
        gone: NodeId,
        left: impl IntoIterator<Item = NodeId>,
        say: &mut Vec<Saying>,
    ) {
        for death in self.open.values_mut() {
            death.owed.swap_remove(&gone);
            death.told.swap_remove(&gone);
            death.held.retain(|held| held.borrower.node() != gone && held.object.owner().node() != gone);
        }
        let address = WorkerId(gone.0);
        let death = self.open.entry(address).or_default();
        for node in left {
            if death.told.insert(node) {
                death.owed.insert(node);
                say.push(Saying::Gone(node, address));
            }
        }
        self.settle(say);
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

    fn settle(&mut self, say: &mut Vec<Saying>) {
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
        for (_, death) in done {
            for node in death.told {
                nodes.entry(node).or_default();
            }
            for held in death.held {
                nodes.entry(held.object.owner().node()).or_default().push(held);
            }
        }
        for process in &gone {
            if self.settled.len() == DEATHS_MAX {
                self.settled.pop_front();
            }
            self.settled.push_back(*process);
        }
        let settled = |(node, held)| Saying::Settled(node, Settled { gone: gone.clone(), held });
        say.extend(nodes.into_iter().map(settled));
    }
}

/// For the explorer: what it was settled earlier matters no more than that it was.
impl Hash for Settling {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut open: Vec<_> = self.open.iter().collect();
        open.sort_unstable_by_key(|(gone, _)| **gone);
        for (gone, death) in open {
            let mut nodes = [&death.owed, &death.told].map(|set| set.iter().copied().collect::<Vec<_>>());
            nodes.iter_mut().for_each(|nodes| nodes.sort_unstable());
            let mut held: Vec<_> =
                death.held.iter().map(|one| (one.object, one.borrower, one.count)).collect();
            held.sort_unstable();
            (gone, nodes, held).hash(state);
        }
        let mut settled: Vec<_> = self.settled.iter().collect();
        settled.sort_unstable();
        settled.hash(state);
    }
}

impl ControlCore {
    /// A process is gone, as its node says: the nodes that have to do with it are told, and asked.
    pub(super) fn on_death(
        &mut self,
        process: WorkerId,
        watchers: &[NodeId],
        gone: Option<Box<WorkerGone>>,
        out: &mut ControlActions,
    ) {
        let Some(gone) = gone else { return };
        // What it gave to the control service is with actors now: their nodes are asked, too.
        let with_actors = self.nodes_of_actors_of(process);
        let nodes = watchers.iter().copied().chain(with_actors);
        let nodes: Vec<NodeId> = nodes.filter(|node| self.nodes.contains_key(node)).collect();
        let mut say = Vec::new();
        self.settling.on_gone(process, nodes, &mut say);
        self.say_deaths(say, Some(&gone), out);
    }

    /// A node has heard its clients.
    pub(super) fn on_collected(
        &mut self,
        node: NodeId,
        gone: WorkerId,
        held: Vec<Held>,
        out: &mut ControlActions,
    ) {
        let mut say = Vec::new();
        let is_home_there = self.nodes.contains_key(&gone.node());
        self.settling.on_collected(node, gone, held, is_home_there, &mut say);
        self.say_deaths(say, None, out);
    }

    /// A node is gone with all its processes.
    pub fn settle_without(&mut self, node: NodeId, out: &mut ControlActions) {
        let left: Vec<NodeId> = self.nodes.keys().copied().filter(|other| *other != node).collect();
        let mut say = Vec::new();
        self.settling.on_node_gone(node, left, &mut say);
        self.say_deaths(say, None, out);
    }

    /// Where processes are that were told of references by the control service and not by who had them.
    fn nodes_of_actors_of(&self, owner: WorkerId) -> Vec<NodeId> {
        let owned = self.actors.values().filter(|actor| actor.owner == owner);
        let node = |actor: &Actor| match actor.phase {
            Phase::Placing { node } | Phase::Placed { node, .. } => Some(node),
            Phase::Reserved | Phase::Pending(_) | Phase::Dead(_) => None,
        };
        owned.filter_map(node).collect()
    }

    fn say_deaths(&self, say: Vec<Saying>, news: Option<&WorkerGone>, out: &mut ControlActions) {
        for saying in say {
            let (node, word) = match saying {
                Saying::Gone(node, worker) => {
                    let known = news.filter(|news| news.worker == worker).cloned();
                    let gone = known.unwrap_or_else(|| end_of_a_node(worker));
                    (node, ToNode::Gone(Box::new(gone)))
                }
                Saying::Settled(node, settled) => (node, ToNode::Settled(Box::new(settled))),
            };
            if self.nodes.contains_key(&node) {
                out.push(ControlAction::Send(node, Box::new(word)));
            }
        }
    }
}

/// Nobody saw what the processes of a node that is gone had begun.
fn end_of_a_node(worker: WorkerId) -> WorkerGone {
    let reason = "its node is gone".to_owned();
    WorkerGone { worker, reason, all_begun: Some(true), ..WorkerGone::default() }
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
        Held { object: TaskId { owner, number: 1 }.object(0), borrower, count: 1 }
    }

    fn gone(settling: &mut Settling, process: WorkerId, nodes: &[NodeId]) -> Vec<Saying> {
        let mut say = Vec::new();
        settling.on_gone(process, nodes.iter().copied(), &mut say);
        say
    }

    fn collected(settling: &mut Settling, node: NodeId, process: WorkerId, held: &[Held]) -> Vec<Saying> {
        let mut say = Vec::new();
        settling.on_collected(node, process, held.to_vec(), true, &mut say);
        say
    }

    fn settled(node: NodeId, gone: &[WorkerId], held: &[Held]) -> Saying {
        Saying::Settled(node, Settled { gone: gone.to_vec(), held: held.to_vec() })
    }

    #[test]
    fn deaths_of_two_nodes_are_settled_together_and_what_the_dead_held_counts_no_more() {
        let mut settling = Settling::default();
        assert_eq!(gone(&mut settling, X, &[B]), [Saying::Gone(B, X)]);
        assert_eq!(collected(&mut settling, A, X, &[]), []);
        // It dies after it was heard on X: what it had of that, and handed on, is said of it.
        assert_eq!(collected(&mut settling, B, X, &[held(Q)])[0], settled(A, &[X], &[held(Q)]));
        assert_eq!(gone(&mut settling, WorkerId(X.0 + 1), &[B]).len(), 1);
        assert_eq!(collected(&mut settling, B, WorkerId(X.0 + 1), &[held(Q)]), []);
        assert_eq!(gone(&mut settling, Q, &[C]), [Saying::Gone(C, Q)]);
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
        assert_eq!(gone(&mut settling, X, &[B]), [Saying::Gone(B, X)], "it is open");
        assert_eq!(gone(&mut settling, X, &[B]), [], "it has been asked");
        collected(&mut settling, B, X, &[]);
        assert_eq!(collected(&mut settling, A, X, &[]).len(), 2);
        let told = [Saying::Gone(C, X), settled(C, &[X], &[]), settled(A, &[X], &[])];
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
        let mut say = Vec::new();
        settling.on_node_gone(B, [A, C], &mut say);
        let address = WorkerId(B.0);
        assert_eq!(say, [Saying::Gone(A, address), Saying::Gone(C, address)]);
        collected(&mut settling, C, X, &[held(W)]);
        collected(&mut settling, C, address, &[]);
        let all = [X, address];
        let last = [settled(A, &all, &[held(W)]), settled(C, &all, &[])];
        assert_eq!(collected(&mut settling, A, address, &[]), last);
    }

    #[test]
    fn an_answer_that_comes_before_the_question_has_the_home_asked() {
        let mut settling = Settling::default();
        assert_eq!(collected(&mut settling, B, X, &[held(Q)]), [Saying::Gone(A, X)]);
        let last = [settled(B, &[X], &[]), settled(A, &[X], &[held(Q)])];
        assert_eq!(collected(&mut settling, A, X, &[]), last);
    }
}
