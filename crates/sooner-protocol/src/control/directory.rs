//! The directory of the control service: which actors and names there are, on whatever node.
//!
//! [`super::ControlCore`] carries it where nodes join over connections; by itself it serves where everything
//! runs on one machine ([`crate::engine::Solo`]).
//!
//! It decides where an actor gets a process, counts its restarts, and tells the nodes whose processes want to
//! know; it keeps names, and which checkpoint of an actor stands. Nodes say what their processes ask and what
//! became of what they were told to do ([`ToControl`]), and carry out what is decided ([`ToNode`]).
//!
//! Invariants:
//! - CT1: an actor has at most one process at a time. What belongs to an earlier one is known by the number
//!   of its takeover and changes nothing.
//! - CT2: a name belongs to one actor, which is not dead.
//! - CT3: all that the processes of a node hear about one actor they hear in the order in which it was
//!   decided here.

use std::collections::VecDeque;

use sooner_wire::message::{Answer, Failure, FailureCode, Infeasible, Message, QueryKind, Sever};
use sooner_wire::{ActorId, Blob, NodeId, ResourceSet, WorkerId};

use crate::table::{Map, Set};
use crate::time::Instant;
use crate::uplink::{End, ToControl, ToNode};
use actors::Actor;

pub(super) mod actors;
pub(super) mod checkpoints;
mod draining;
pub(super) mod durable;
mod jobs;
mod leaving;
mod lookups;
mod names;
mod placing;
mod recalling;
mod report;
mod rows;

/// An effect the directory asks for. Messages to one node stay in order.
#[derive(Debug, Clone, PartialEq)]
pub enum DirectoryAction {
    /// Tell a node.
    Send(NodeId, Box<ToNode>),
    /// Write, and say with [`Directory::on_persisted`] how it went. Only a core with records asks for that.
    Persist(super::persist::BatchId, Vec<super::persist::Write>),
    /// Tell the user.
    Warn(String),
}

/// Actions in order.
pub type DirectoryActions = Vec<DirectoryAction>;

/// See the module.
#[derive(Debug, Default)]
pub struct Directory {
    /// What each node has.
    pub(super) nodes: Map<NodeId, ResourceSet>,
    /// Nodes of programs: they run nothing, also not what needs nothing.
    program_nodes: Set<NodeId>,
    pub(super) actors: Map<ActorId, Actor>,
    pub(super) names: Map<(String, String), (ActorId, Blob)>,
    /// Actors that wait for a node, or for their next process to be allowed.
    pending: VecDeque<ActorId>,
    /// How many actors began to wait so far.
    turns: u64,
    /// Actors that ended and that nobody refers to, the latest last: for those who look at the state.
    ended_actors: VecDeque<ActorId>,
    lookups: lookups::Lookups,
    pub(super) groups: super::groups::Groups,
    /// What nodes have free, and their labels, as far as they said.
    rows: rows::Rows,
    pub(super) recalls: recalling::Recalls,
    pub(super) jobs: jobs::Jobs,
    /// Not all that an earlier control service knew is known yet.
    pub(super) learning: Option<super::rejoin::Learning>,
    pub(super) unheard_ends: Vec<super::rejoin::UnheardEnd>,
    pub(super) settling: super::deaths::Settling,
    /// Nodes that leave: nothing begins there.
    draining: Set<NodeId>,
    /// Actors that nodes could start no workers for.
    refused: Set<ActorId>,
    /// What outlives it; `None` where nothing does.
    pub(super) durable: Option<Box<durable::Durable>>,
}

impl Directory {
    /// A node is there, with these resources.
    pub fn on_registered(&mut self, node: NodeId, total: ResourceSet) {
        self.nodes.insert(node, total);
    }

    /// A node says something.
    pub fn on_node(&mut self, node: NodeId, message: ToControl, now: Instant, out: &mut DirectoryActions) {
        let Some(message) = self.must_wait(node, message) else { return };
        match message {
            ToControl::Routed { from, message } => self.on_routed(from, *message, out),
            ToControl::ActorPlaced { actor, takeover, worker } => {
                self.on_actor_placed(actor, takeover, (node, worker), now, out);
            }
            ToControl::PlaceRefused { actor, takeover, .. }
                if self.has_ended_unbegun(node, actor, takeover, out) => {}
            ToControl::PlaceRefused {
                actor, takeover, reason, create: Some(create), for_now: true, ..
            } => {
                self.on_place_refused_for_now(node, (actor, takeover), reason, create, now);
            }
            ToControl::PlaceRefused { actor, takeover, reason, create, no_workers, .. } => {
                let is_noted = no_workers && self.note_unable(node, actor, &reason);
                match create {
                    Some(create) if is_noted => self.place_elsewhere(node, actor, takeover, create),
                    Some(create) if !no_workers => self.on_place_given_back(node, actor, takeover, create),
                    _ => self.on_place_refused(node, actor, takeover, &reason, out),
                }
            }
            ToControl::ActorProcessGone { actor, takeover, gone } => {
                self.on_actor_process_gone(actor, takeover, *gone, out);
            }
            ToControl::ProcessLeaves { process } => {
                self.end_actors_of(process, End::Finished, out);
                self.on_job_leaves(process, out);
            }
            ToControl::ProcessGone { process, watchers, gone } => {
                // First its actors: no node is to begin one after it has heard of this.
                self.on_process_gone(process, out);
                self.on_death(process, &watchers, gone, out);
            }
            ToControl::Collected { gone, held } => self.on_collected(node, gone, held, out),
            ToControl::Bundles(answer) => self.on_bundles(node, *answer, now, out),
            ToControl::Job(job) => self.on_job(node, *job, out),
            ToControl::Here(here) => self.on_here(node, *here, out),
        }
    }

    fn on_routed(&mut self, from: WorkerId, message: Message, out: &mut DirectoryActions) {
        match message {
            Message::CreateActor(create) => self.on_create_actor(from, create, out),
            Message::SubscribeActor(subscribe) => self.on_subscribe(from, subscribe.actor, out),
            Message::KillActor(kill) => self.on_kill_actor(kill.actor, kill.may_restart == Some(true), out),
            Message::ActorOutOfScope(gone) => self.on_out_of_scope(gone.actor, out),
            Message::ActorReady(ready) => self.on_actor_ready(ready.actor, ready.failure, out),
            Message::Checkpoint(checkpoint) => self.on_checkpoint(from, checkpoint, out),
            Message::ReserveName(reserve) => self.on_reserve_name(from, reserve, out),
            Message::FindName(find) => self.on_find_name(from, &find, out),
            Message::ListNames(list) => self.on_list_names(from, &list, out),
            Message::CreateGroup(create) => {
                self.with_groups(out, |groups, acts| groups.on_create(from, create, acts));
            }
            Message::RemoveGroup(remove) => self.remove_group(remove.group, out),
            Message::FindGroup(find) => {
                self.with_groups(out, |groups, acts| groups.on_find(from, &find, acts));
            }
            Message::StillRead(answer) => self.on_looked_up(answer.round, out),
            // Its node decides which of the two is ended.
            Message::Sever(sever) => self.say(sever.worker, Sever { worker: from, ..sever }, out),
            Message::Query(query) if query.what == QueryKind::TotalResources => {
                let mut total = self.total();
                self.groups.add_formatted(&mut total);
                let (request, resources) = (query.request, Some(total));
                self.say(from, Answer { request, resources, ..Answer::default() }, out);
            }
            // Nodes pass nothing else on.
            _ => {}
        }
    }

    fn on_process_gone(&mut self, process: WorkerId, out: &mut DirectoryActions) {
        for actor in self.actors.values_mut() {
            actor.subscribers.swap_remove(&process);
        }
        self.end_actors_of(process, End::Killed, out);
        self.end_lookups_of(process, out);
        self.end_groups_of(process, out);
        self.on_driver_gone(process, out);
    }

    /// Places what can be placed. Called once after each batch of events.
    pub fn settle(&mut self, now: Instant, out: &mut DirectoryActions) {
        self.wait_no_longer(now, out);
        if !self.is_learning() {
            self.place_groups(now, out);
            self.rows.expire(now);
            self.lapse_refusals(now);
            self.place_actors(now, out);
            self.recall(now, out);
            self.end_jobs(out);
        }
        self.write_down(now, out);
    }

    /// When [`Self::settle`] should be called again although nothing happened.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let actors = self.pending.iter().filter_map(|id| self.actors.get(id)?.pace.next()).min();
        let sent =
            [self.rows.next_deadline(), self.recalls.next_deadline(), self.refusals_lapse_at()].into_iter();
        let rest = [actors, self.groups.next_deadline(), self.learning_ends(), self.writes_at()];
        sent.chain(rest).flatten().min()
    }

    /// Says something to a process, wherever it is.
    fn say(&self, to: WorkerId, message: impl Into<Message>, out: &mut DirectoryActions) {
        if self.nodes.contains_key(&to.node()) {
            let routed = ToNode::Routed { to, message: Box::new(message.into()) };
            out.push(DirectoryAction::Send(to.node(), Box::new(routed)));
        }
    }

    /// What all nodes have together.
    fn total(&self) -> ResourceSet {
        let mut total = ResourceSet::default();
        self.nodes.values().for_each(|of_node| total.add(of_node));
        total
    }

    /// What no node will ever have, if that is asked for.
    fn infeasible(&self, asked: [&ResourceSet; 2]) -> Option<Infeasible> {
        let covers = |wanted: &[&ResourceSet]| {
            self.nodes.values().any(|total| wanted.iter().all(|set| total.covers(set)))
        };
        if covers(&asked) {
            return None;
        }
        let asked = asked.into_iter().find(|set| !covers(&[*set])).unwrap_or(asked[0]);
        Some(Infeasible { asked: asked.clone(), total: self.total(), closed: None, reason: None })
    }
}

pub(super) fn actor_died(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::ActorDied, message)
}
