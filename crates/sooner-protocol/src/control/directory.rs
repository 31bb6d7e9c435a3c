//! The directory of the control service: the actors and names of the whole cluster.
//!
//! [`super::ControlCore`] contains it where nodes join over connections; where everything runs on one machine
//! it works alone ([`crate::engine::Solo`]).
//!
//! It decides which node gives an actor a process, counts restarts, and informs the nodes of subscribed
//! processes. It keeps names, and which checkpoint of an actor stands. Nodes send the requests of their
//! processes and the results of their orders ([`ToControl`]), and carry out the decisions ([`ToNode`]).
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
    /// Send a message to a node.
    Send(NodeId, Box<ToNode>),
    /// Write, and report the result with [`Directory::on_persisted`]. Only a directory with records asks for
    /// that.
    Persist(super::persist::BatchId, Vec<super::persist::Write>),
    /// Warn the user.
    Warn(String),
}

/// Actions in order.
pub type DirectoryActions = Vec<DirectoryAction>;

/// See the module.
#[derive(Debug, Default)]
pub struct Directory {
    /// The total resources of each node.
    pub(super) nodes: Map<NodeId, ResourceSet>,
    /// Nodes of programs: they run nothing, not even actors that need no resources.
    program_nodes: Set<NodeId>,
    pub(super) actors: Map<ActorId, Actor>,
    pub(super) names: Map<(String, String), (ActorId, Blob)>,
    /// Actors that wait for a node, or for their next process to be allowed.
    pending: VecDeque<ActorId>,
    /// How many actors began to wait so far.
    turns: u64,
    /// Ended actors that nobody refers to, the latest last: for tools that show the state.
    ended_actors: VecDeque<ActorId>,
    lookups: lookups::Lookups,
    pub(super) groups: super::groups::Groups,
    /// The free resources and the labels of nodes, by their reports.
    rows: rows::Rows,
    pub(super) recalls: recalling::Recalls,
    pub(super) jobs: jobs::Jobs,
    /// `Some` while an earlier control service knew more than is known here.
    pub(super) learning: Option<super::rejoin::Learning>,
    pub(super) unheard_ends: Vec<super::rejoin::UnheardEnd>,
    pub(super) settling: super::deaths::Settling,
    /// Nodes that leave: no actor begins there.
    draining: Set<NodeId>,
    /// Actors for which nodes could start no workers.
    refused: Set<ActorId>,
    /// What outlives the control service; `None` where nothing does.
    pub(super) durable: Option<Box<durable::Durable>>,
}

impl Directory {
    /// A node is connected, with these total resources.
    pub fn on_registered(&mut self, node: NodeId, total: ResourceSet) {
        self.nodes.insert(node, total);
    }

    /// A message came from a node.
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
                let is_recorded = no_workers && self.record_unable(node, actor, &reason);
                match create {
                    Some(create) if is_recorded => self.place_elsewhere(node, actor, takeover, create),
                    Some(create) if !no_workers => self.on_place_given_back(node, actor, takeover, create),
                    _ => self.on_place_refused(node, actor, takeover, &reason, out),
                }
            }
            ToControl::ActorProcessDead { actor, takeover, gone } => {
                self.on_actor_process_dead(actor, takeover, *gone, out);
            }
            ToControl::ProcessLeaves { process } => {
                self.end_actors_of(process, End::Finished, out);
                self.on_job_leaves(process, out);
            }
            ToControl::ProcessDead { process, watchers, gone } => {
                // Its actors first: no node may begin one of them after it has learned of this death.
                self.on_process_dead(process, out);
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
            Message::Sever(sever) => self.send(sever.worker, Sever { worker: from, ..sever }, out),
            Message::Query(query) if query.what == QueryKind::TotalResources => {
                let mut total = self.total();
                self.groups.add_formatted(&mut total);
                let (request, resources) = (query.request, Some(total));
                self.send(from, Answer { request, resources, ..Answer::default() }, out);
            }
            // Nodes pass no other message on.
            _ => {}
        }
    }

    fn on_process_dead(&mut self, process: WorkerId, out: &mut DirectoryActions) {
        for actor in self.actors.values_mut() {
            actor.subscribers.swap_remove(&process);
        }
        self.end_actors_of(process, End::Killed, out);
        self.end_lookups_of(process, out);
        self.end_groups_of(process, out);
        self.on_driver_dead(process, out);
    }

    /// Places what can be placed. Called once after each batch of events.
    pub fn after_events(&mut self, now: Instant, out: &mut DirectoryActions) {
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

    /// When [`Self::after_events`] must be called again, even if nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let actors = self.pending.iter().filter_map(|id| self.actors.get(id)?.pace.next()).min();
        let sent =
            [self.rows.next_deadline(), self.recalls.next_deadline(), self.refusals_lapse_at()].into_iter();
        let rest = [actors, self.groups.next_deadline(), self.learning_ends(), self.writes_at()];
        sent.chain(rest).flatten().min()
    }

    /// Sends a message to a process, wherever it is.
    fn send(&self, to: WorkerId, message: impl Into<Message>, out: &mut DirectoryActions) {
        if self.nodes.contains_key(&to.node()) {
            let routed = ToNode::Routed { to, message: Box::new(message.into()) };
            out.push(DirectoryAction::Send(to.node(), Box::new(routed)));
        }
    }

    /// The total resources of all nodes together.
    fn total(&self) -> ResourceSet {
        let mut total = ResourceSet::default();
        self.nodes.values().for_each(|of_node| total.add(of_node));
        total
    }

    /// Reports a request that no node can ever meet.
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
