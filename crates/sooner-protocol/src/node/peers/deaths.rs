//! Settling deaths: which process holds what of a dead one (`docs/adr/0015-settling-a-death.md`).
//!
//! Each process answers the message about a death with what it has of the dead one. When no process owes an
//! answer any more, all are told, for all deaths at once: one that died meanwhile may have handed on what it
//! had of an earlier one.
//!
//! A death that no other node can know of is settled by this node. Any other is settled by the control
//! service (`docs/adr/0029-settling-over-nodes.md`): the node reports what its processes hold, once all have
//! answered. As long as one such death is open, every other is settled that way, too, because they may depend
//! on each other.
//!
//! This file counts nothing itself: owners do.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use sooner_wire::limits::{DEATHS_MAX, HELD_MAX};
use sooner_wire::message::{Held, HeldFrom, NodeDead, Settled, WorkerDead};
use sooner_wire::{NodeId, ObjectId, WorkerId};

use crate::node::values::transfers::address;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::probes::mark;
use crate::table::{Map, Set};
use crate::uplink::ToControl;

/// Who settles a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Stage {
    /// This node, if nothing else comes up.
    Here,
    /// The control service, to which this node still has to report what is held here.
    Asked,
    /// The control service, which has that report.
    Said,
}

#[derive(Debug, Clone)]
struct Death {
    /// Processes that have not answered.
    owed: Set<WorkerId>,
    held: Vec<Held>,
    stage: Stage,
    /// The process was on a dead node: what is held of all its processes is reported at once.
    is_with_node: bool,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Tell the control service that this process of this node is dead: it settles that death.
    Share(WorkerId),
    /// Report to it what the processes of this node hold of a dead one, or of all processes of a dead node.
    Collected(WorkerId, Vec<Held>),
    /// Tell all processes: every process has answered.
    Settled(Settled),
}

/// See the module.
#[derive(Debug, Default, Clone)]
pub struct Settling {
    open: Map<WorkerId, Death>,
    /// Dead nodes, and whether the control service was told what is held of their processes.
    nodes: Map<NodeId, bool>,
    over: Over,
}

/// Processes whose deaths the control service has settled, the latest last, with what was held of them on
/// this node: no local process answers for them again. A restarted control service may ask once more, for
/// those that the one before it had not told.
#[derive(Debug, Default, Clone)]
struct Over {
    deaths: VecDeque<(WorkerId, Vec<Held>)>,
    /// How many entries are held in all.
    held: usize,
}

impl Over {
    fn insert(&mut self, gone: WorkerId, held: Vec<Held>) {
        if self.deaths.len() == DEATHS_MAX
            && let Some((_, held)) = self.deaths.pop_front()
        {
            self.held -= held.len();
        }
        self.held += held.len();
        self.deaths.push_back((gone, held));
        for (_, held) in &mut self.deaths {
            if self.held <= HELD_MAX {
                break;
            }
            self.held -= std::mem::take(held).len();
        }
    }

    fn contains(&self, gone: WorkerId) -> bool {
        self.deaths.iter().any(|(process, _)| *process == gone)
    }

    fn held_of(&self, gone: WorkerId) -> Vec<Held> {
        let same = self.deaths.iter().rev().find(|(process, _)| *process == gone);
        same.map(|(_, held)| held.clone()).unwrap_or_default()
    }

    fn held_of_node(&self, node: NodeId) -> impl Iterator<Item = &Held> {
        self.deaths.iter().filter(move |(process, _)| process.node() == node).flat_map(|(_, held)| held)
    }

    /// A process is dead, and holds nothing any more.
    fn forget(&mut self, borrower: WorkerId) {
        if self.held > 0 {
            self.deaths.iter_mut().for_each(|(_, held)| held.retain(|held| held.borrower != borrower));
            self.held = self.deaths.iter().map(|(_, held)| held.len()).sum();
        }
    }
}

impl Settling {
    /// A process of this node is dead, and these are left. `is_shared`: another node may know of it. Gives
    /// the processes, perhaps with this one, of whose deaths the control service must be told first.
    pub fn on_dead(
        &mut self,
        gone: WorkerId,
        clients: impl Iterator<Item = WorkerId>,
        is_shared: bool,
    ) -> Vec<WorkerId> {
        if !self.open.is_empty() {
            mark!("a process died while the death of another one was being settled");
        }
        self.forget(gone);
        let is_shared = is_shared || self.is_shared();
        let mut shared = if is_shared { self.share() } else { Vec::new() };
        shared.extend(is_shared.then_some(gone));
        let stage = if is_shared { Stage::Asked } else { Stage::Here };
        self.insert(gone, clients, stage, false);
        shared
    }

    /// A process of another node is dead. Gives those of this node of whose deaths the control service must
    /// be told first.
    pub fn on_dead_elsewhere(
        &mut self,
        gone: WorkerId,
        clients: impl Iterator<Item = WorkerId>,
    ) -> Vec<WorkerId> {
        self.forget(gone);
        self.insert(gone, clients, Stage::Asked, false);
        self.share()
    }

    /// Another node is dead with all its processes, of which these had to do with a local one.
    pub fn on_node_dead(
        &mut self,
        node: NodeId,
        processes: &[WorkerId],
        clients: &[WorkerId],
    ) -> Vec<WorkerId> {
        self.nodes.insert(node, false);
        for process in processes {
            self.forget(*process);
            if !self.open.contains_key(process) {
                self.insert(*process, clients.iter().copied(), Stage::Asked, true);
            }
        }
        self.share()
    }

    /// A process turns up that was on a dead node. False if the death of that node is settled.
    pub fn join_node(&mut self, process: WorkerId) -> bool {
        let is_open = self.nodes.contains_key(&process.node());
        if is_open && !self.open.contains_key(&process) {
            self.insert(process, std::iter::empty(), Stage::Said, true);
        }
        is_open
    }

    fn insert(
        &mut self,
        gone: WorkerId,
        clients: impl Iterator<Item = WorkerId>,
        stage: Stage,
        is_with_node: bool,
    ) {
        let death = Death { owed: clients.collect(), held: Vec::new(), stage, is_with_node };
        self.open.insert(gone, death);
    }

    /// A dead process owes and holds nothing, and nothing is held of it.
    fn forget(&mut self, gone: WorkerId) {
        for death in self.open.values_mut() {
            death.owed.swap_remove(&gone);
            death.held.retain(|held| held.borrower != gone && held.object.owner() != gone);
        }
        self.over.forget(gone);
    }

    /// From now on the control service settles the open deaths. Gives the deaths that it does not know of.
    pub fn share(&mut self) -> Vec<WorkerId> {
        let here = self.open.iter_mut().filter(|(_, death)| death.stage == Stage::Here);
        let share = |(gone, death): (&WorkerId, &mut Death)| {
            death.stage = Stage::Asked;
            *gone
        };
        here.map(share).collect()
    }

    /// Whether no death is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.nodes.is_empty()
    }

    /// Whether the control service settles the open deaths.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        !self.nodes.is_empty() || self.open.values().any(|death| death.stage != Stage::Here)
    }

    /// Whether a death is not settled.
    #[must_use]
    pub fn is_open(&self, gone: WorkerId) -> bool {
        self.open.contains_key(&gone)
    }

    /// Whether a process of another node is known to be dead, settled or not.
    #[must_use]
    pub fn knows(&self, gone: WorkerId) -> bool {
        self.is_open(gone) || self.has_answered(gone)
    }

    /// Whether local processes need not be asked about a process of another node: they were.
    #[must_use]
    pub fn has_answered(&self, gone: WorkerId) -> bool {
        self.open.get(&gone).is_some_and(|death| death.stage == Stage::Said) || self.over.contains(gone)
    }

    /// What local processes have reported that they hold of a dead one.
    #[must_use]
    pub fn answer_of(&self, gone: WorkerId) -> Vec<Held> {
        match self.open.get(&gone) {
            Some(death) => death.held.clone(),
            None => self.over.held_of(gone),
        }
    }

    /// The control service asks about one process of whose death this node learned with its node: it counts
    /// that death by itself. True if what is held of the process was reported with the node.
    pub fn on_asked_alone(&mut self, gone: WorkerId) -> bool {
        let is_sent = self.nodes.get(&gone.node()).is_some_and(|is_sent| *is_sent);
        match self.open.get_mut(&gone) {
            Some(death) if death.is_with_node && !is_sent => {
                death.is_with_node = false;
                false
            }
            Some(death) => death.is_with_node,
            None => false,
        }
    }

    /// A process reports what it has of a dead one.
    pub fn on_answer(&mut self, from: WorkerId, answer: HeldFrom) {
        let Some(death) = self.open.get_mut(&answer.gone) else { return };
        if death.owed.swap_remove(&from) {
            let of = Some(answer.gone);
            death.held.extend(answer.held.into_iter().map(|held| Held { borrower: from, of, ..held }));
        }
    }

    /// What is to be done next, at node `me`, in order. Called after everything else. Without a control
    /// service of other nodes, every death is settled here.
    pub fn next(&mut self, me: NodeId, is_member: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        if !self.is_shared() {
            if self.open.is_empty() || !self.open.values().all(|death| death.owed.is_empty()) {
                return steps;
            }
            let is_ours = |held: &Held| !is_member || held.object.owner().node() == me;
            if self.open.values().flat_map(|death| &death.held).all(is_ours) {
                let mut settled = Settled { gone: Vec::new(), held: Vec::new() };
                for (gone, death) in std::mem::take(&mut self.open) {
                    settled.gone.push(gone);
                    settled.held.extend(death.held);
                }
                return vec![Step::Settled(settled)];
            }
            // An owner at another node has to be told: it may have learned of the dead process from a third
            // one.
            mark!("a death that no other node knew of left something of theirs behind");
            steps.extend(self.share().into_iter().map(Step::Share));
        }
        for (gone, death) in &mut self.open {
            if death.stage == Stage::Asked && death.owed.is_empty() && !death.is_with_node {
                death.stage = Stage::Said;
                steps.push(Step::Collected(*gone, death.held.clone()));
            }
        }
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            if !self.nodes[&node] {
                steps.extend(self.collect_node(node));
            }
        }
        steps
    }

    fn collect_node(&mut self, node: NodeId) -> Option<Step> {
        let is_there = |(gone, death): &(&WorkerId, &mut Death)| gone.node() == node && death.is_with_node;
        if self.open.iter_mut().filter(is_there).any(|(_, death)| !death.owed.is_empty()) {
            return None;
        }
        self.nodes.insert(node, true);
        Some(Step::Collected(WorkerId(node.0), self.held_of_node(node)))
    }

    fn held_of_node(&self, node: NodeId) -> Vec<Held> {
        let there = self.open.iter().filter(|(gone, death)| gone.node() == node && death.is_with_node);
        there.flat_map(|(_, death)| &death.held).chain(self.over.held_of_node(node)).copied().collect()
    }

    /// The control service has settled these deaths. Gives them, with the processes of each dead node in its
    /// place.
    pub fn on_settled(&mut self, gone: Vec<WorkerId>) -> Vec<WorkerId> {
        let mut all = Vec::new();
        for gone in gone {
            if gone == address(gone.node()) {
                self.nodes.swap_remove(&gone.node());
                let of_node = |process: &WorkerId, death: &mut Death| {
                    process.node() == gone.node() && death.is_with_node
                };
                for (process, death) in self.open.extract_if(.., of_node) {
                    self.over.insert(process, death.held);
                    all.push(process);
                }
            } else {
                // A death that this node does not know of may be asked about later: then it is new.
                if let Some(death) = self.open.swap_remove(&gone) {
                    self.over.insert(gone, death.held);
                }
                all.push(gone);
            }
        }
        all
    }

    /// What a new control service must be told again: of the deaths of this node's own processes first.
    #[must_use]
    pub fn again(&self, me: NodeId) -> Vec<Step> {
        let shared = || self.open.iter().filter(|(_, death)| death.stage != Stage::Here);
        let ours = shared().filter(|(gone, _)| gone.node() == me).map(|(gone, _)| Step::Share(*gone));
        let said = shared().filter(|(_, death)| death.stage == Stage::Said);
        let answers = said.map(|(gone, death)| Step::Collected(*gone, death.held.clone()));
        let nodes = self.nodes.iter().filter(|(_, is_sent)| **is_sent);
        let of_nodes = nodes.map(|(node, _)| Step::Collected(WorkerId(node.0), self.held_of_node(*node)));
        ours.chain(answers).chain(of_nodes).collect()
    }
}

fn sorted(held: &[Held]) -> Vec<(ObjectId, WorkerId, Option<WorkerId>, u32)> {
    let mut held: Vec<_> = held.iter().map(|one| (one.object, one.borrower, one.of, one.count)).collect();
    held.sort_unstable();
    held
}

/// For the explorer.
impl Hash for Settling {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut open: Vec<_> = self.open.iter().collect();
        open.sort_unstable_by_key(|(gone, _)| **gone);
        for (gone, death) in open {
            let mut owed: Vec<_> = death.owed.iter().collect();
            owed.sort_unstable();
            let held = sorted(&death.held);
            (gone, owed, held, death.stage, death.is_with_node).hash(state);
        }
        let mut nodes: Vec<_> = self.nodes.iter().collect();
        nodes.sort_unstable();
        nodes.hash(state);
        let mut over: Vec<_> = self.over.deaths.iter().map(|(gone, held)| (gone, sorted(held))).collect();
        over.sort_unstable();
        over.hash(state);
    }
}

/// What the control service was told of dead processes, as far as a new one has to be told it again.
#[derive(Debug, Default)]
pub(in crate::node) struct Announced {
    /// Processes of whose deaths it was told, and that are not being settled yet.
    unsettled: Vec<WorkerId>,
    /// Processes whose deaths it settles: what it was told, and the nodes that have to do with them.
    ended: Map<WorkerId, (WorkerDead, Vec<NodeId>)>,
    /// Dead local processes, with nodes that asked afterwards to learn of their deaths: the latest.
    asked_late: VecDeque<(WorkerId, NodeId)>,
}

impl Announced {
    fn insert(&mut self, news: &WorkerDead, watchers: &[NodeId]) {
        self.unsettled.push(news.worker);
        self.ended.insert(news.worker, (news.clone(), watchers.to_vec()));
    }

    /// The death of a process begins to be settled. True if the control service was told of it.
    fn begin_to_settle(&mut self, gone: WorkerId) -> bool {
        let at = self.unsettled.iter().position(|process| *process == gone);
        at.map(|at| self.unsettled.swap_remove(at)).is_some()
    }

    /// These deaths are settled.
    fn on_settled(&mut self, gone: &[WorkerId]) {
        if !self.ended.is_empty() {
            gone.iter().for_each(|process| drop(self.ended.swap_remove(process)));
        }
    }

    /// A node has asked to learn of an earlier death.
    fn record_late(&mut self, gone: WorkerId, node: NodeId) {
        if !self.asked_late.contains(&(gone, node)) {
            if self.asked_late.len() == DEATHS_MAX {
                self.asked_late.pop_front();
            }
            self.asked_late.push_back((gone, node));
        }
    }
}

impl NodeCore {
    /// A process is dead, and no message says so yet. If another node may know of the process, the control
    /// service is told first: whatever else it learns may follow from the death.
    pub(in crate::node) fn announce_death(
        &mut self,
        news: &WorkerDead,
        is_known_to_control: bool,
        out: &mut NodeActions,
    ) -> bool {
        let watchers = self.watches.end(news.worker);
        let is_shared = self.role.is_member()
            && (is_known_to_control || !watchers.is_empty() || self.settling.is_shared());
        if is_shared {
            self.announced.insert(news, &watchers);
            out.push(process_dead(news.clone(), watchers));
        }
        is_shared
    }

    /// A process is dead, and the others know: settles the death.
    pub(in crate::node) fn settle_death(&mut self, gone: WorkerId, out: &mut NodeActions) {
        let is_announced = self.announced.begin_to_settle(gone);
        let shared = self.settling.on_dead(gone, self.clients.keys().copied(), is_announced);
        let unsaid = shared.into_iter().filter(|process| !(is_announced && *process == gone)).collect();
        self.send_ends(unsaid, out);
        self.go_on_settling(out);
    }

    /// A process of another node is dead, or that node with all its processes, as the control service
    /// reports.
    pub(in crate::node) fn on_dead_elsewhere(&mut self, gone: WorkerDead, out: &mut NodeActions) {
        let worker = gone.worker;
        let is_ours = worker.node() == self.id();
        if worker == address(worker.node()) {
            return self.on_processes_dead(&gone, out);
        }
        let is_asked_for = self.watches.forget(worker);
        if is_asked_for && self.settling.knows(worker) {
            // Those that came after the death was reported here, and have to do with the dead process.
            mark!("a process asked for one that had been dead for so long that nobody here knew");
            self.end_elsewhere(&gone, out);
        }
        if self.settling.has_answered(worker) || (is_ours && !self.settling.is_open(worker)) {
            // All local processes have answered for it before. The control service that asks may be another
            // than the one that was told.
            return out.push(collected(worker, self.settling.answer_of(worker)));
        }
        if self.settling.is_open(worker) {
            if self.settling.on_asked_alone(worker) {
                out.push(collected(worker, Vec::new()));
            }
            return self.go_on_settling(out);
        }
        self.end_elsewhere(&gone, out);
        let shared = self.settling.on_dead_elsewhere(worker, self.clients.keys().copied());
        self.send_ends(shared, out);
        self.go_on_settling(out);
    }

    /// A node is dead for good. That its processes are dead is a message of its own.
    pub fn on_node_dead(&mut self, node: NodeId, out: &mut NodeActions) {
        // Before anything that follows: a process that learns that a pull found nothing is not to look for
        // the value there again.
        self.tell_all(&NodeDead { node, reason: String::new() }.into(), out);
        self.view.on_dead(node);
        self.spillback.turns.forget(node);
        self.unable.forget_node(node);
        self.forget_lines(|remote| remote.node() == node);
        self.promoting.forget_node(node);
        self.on_link_ended(node, out);
        self.end_pulls_from(node, out);
    }

    fn on_processes_dead(&mut self, gone: &WorkerDead, out: &mut NodeActions) {
        let node = gone.worker.node();
        let mut processes = self.watches.end_node(node);
        for process in &processes {
            self.end_elsewhere(&WorkerDead { worker: *process, ..gone.clone() }, out);
        }
        processes.retain(|process| !self.settling.knows(*process));
        let clients: Vec<WorkerId> = self.clients.keys().copied().collect();
        let shared = self.settling.on_node_dead(node, &processes, &clients);
        self.send_ends(shared, out);
        self.go_on_settling(out);
    }

    /// What the death of a process of another node means here, except for what is held of it.
    fn end_elsewhere(&mut self, gone: &WorkerDead, out: &mut NodeActions) {
        let worker = gone.worker;
        self.end_remote(worker, out);
        self.forget_client(worker);
        self.departed.note(gone);
        self.tell_all(&gone.clone().into(), out);
        self.end_directions_of(worker, out);
        self.end_questions_to(worker, out);
        self.draining.forget_owner(worker);
        self.orphan_blocks_of(worker, out);
    }

    pub(in crate::node) fn on_held_from(&mut self, from: WorkerId, answer: HeldFrom, out: &mut NodeActions) {
        self.settling.on_answer(from, answer);
        self.go_on_settling(out);
    }

    /// The control service has settled deaths.
    pub(in crate::node) fn on_settled(&mut self, settled: Settled, out: &mut NodeActions) {
        let gone = self.settling.on_settled(settled.gone);
        self.announced.on_settled(&gone);
        gone.iter().for_each(|process| self.ask_receivers_elsewhere(*process, out));
        self.notify_settled(Settled { gone, held: settled.held }, out);
        self.go_on_settling(out);
    }

    /// A client that came after a death learns of it by asking for the dead process.
    pub(in crate::node) fn notify_if_settled(&self, client: WorkerId, gone: WorkerId, out: &mut NodeActions) {
        // A death that is only presumed is not settled.
        if !self.settling.is_open(gone) && !self.watches.is_given_up(gone.node()) {
            let settled = Settled { gone: vec![gone], held: Vec::new() };
            out.push(NodeAction::Send(client, Box::new(settled.into())));
        }
    }

    /// A node has to do with a dead local process.
    pub(in crate::node) fn notify_late(&mut self, node: NodeId, gone: WorkerId, out: &mut NodeActions) {
        let is_open = self.settling.is_open(gone);
        let shared = self.settling.share();
        self.send_ends(shared, out);
        out.push(process_dead(self.departed.of(gone), vec![node]));
        self.announced.record_late(gone, node);
        if !is_open {
            out.push(collected(gone, Vec::new()));
        }
        self.go_on_settling(out);
    }

    /// There is a new control service: it is told of open deaths again.
    pub fn send_deaths_again(&mut self, out: &mut NodeActions) {
        for step in self.settling.again(self.id()) {
            match step {
                Step::Share(gone) => match self.announced.ended.get(&gone) {
                    Some((news, watchers)) => out.push(process_dead(news.clone(), watchers.clone())),
                    None => self.send_ends(vec![gone], out),
                },
                Step::Collected(gone, held) => out.push(collected(gone, held)),
                Step::Settled(_) => {}
            }
        }
        // The old control service may have told this node that the death is settled, and not the node that
        // asked.
        for (gone, node) in &self.announced.asked_late {
            out.push(process_dead(self.departed.of(*gone), vec![*node]));
            if !self.settling.is_open(*gone) {
                out.push(collected(*gone, Vec::new()));
            }
        }
    }

    fn send_ends(&self, gone: Vec<WorkerId>, out: &mut NodeActions) {
        out.extend(gone.into_iter().map(|gone| process_dead(self.departed.of(gone), Vec::new())));
    }

    fn go_on_settling(&mut self, out: &mut NodeActions) {
        for step in self.settling.next(self.id(), self.role.is_member()) {
            match step {
                Step::Share(gone) => self.send_ends(vec![gone], out),
                Step::Collected(gone, held) => out.push(collected(gone, held)),
                Step::Settled(settled) => self.notify_settled(settled, out),
            }
        }
    }

    fn notify_settled(&self, settled: Settled, out: &mut NodeActions) {
        let mut by_owner: Map<WorkerId, Vec<Held>> = Map::default();
        for held in settled.held {
            by_owner.entry(held.object.owner()).or_default().push(held);
        }
        for client in self.clients.keys() {
            let held = by_owner.swap_remove(client).unwrap_or_default();
            let settled = Settled { gone: settled.gone.clone(), held };
            out.push(NodeAction::Send(*client, Box::new(settled.into())));
        }
    }
}

fn process_dead(news: WorkerDead, watchers: Vec<NodeId>) -> NodeAction {
    let (process, gone) = (news.worker, Some(Box::new(news)));
    NodeAction::Control(ToControl::ProcessDead { process, watchers, gone })
}

fn collected(gone: WorkerId, held: Vec<Held>) -> NodeAction {
    NodeAction::Control(ToControl::Collected { gone, held })
}

#[cfg(test)]
mod tests;
