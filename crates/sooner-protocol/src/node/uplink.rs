//! A node whose control service is elsewhere: behind a connection, also where it is on the same machine.
//!
//! It has the calls of [`crate::engine::Solo`], so that the carrier of a node does not care which of the two
//! it is. The node's messages to the control service come out as [`NodeAction::Control`], in order; those of
//! the control service go to [`Member::on_control`]. Nothing is answered from earlier messages: questions to
//! a control service that is away, or stands still, wait, and end with an error when that lasts
//! (`uplink/requests.rs`).
//!
//! The control service may have started again and know nothing: the node reports what it has
//! ([`Member::on_control_up`]), and sends again what was not answered.
//!
//! Work of jobs whose driver is on another node waits until the control service has said what that job needs
//! (`uplink/remote_jobs.rs`).

use std::ops::{Deref, DerefMut};

use sooner_wire::limits::CONTROL_AWAY_NANOS;
use sooner_wire::message::state::NodeReport;
use sooner_wire::message::{ActorsHere, AlsoHere, Job, JobConfig, JobState, Message, RouteError};
use sooner_wire::{NodeId, ResourceSet, Started, WorkerId};

use super::{NodeAction, NodeActions, NodeCore};
use crate::table::Map;
use crate::time::Instant;
use crate::uplink::{ToControl, ToNode};
use checkpoint_pins::CheckpointPins;
use cut_off::CutOff;
use remote_jobs::RemoteJobs;
use requests::Requests;

mod checkpoint_pins;
mod cut_off;
mod remote_jobs;
pub mod reporter;
mod requests;

/// See the module. It asks for every [`NodeAction`].
#[derive(Debug)]
pub struct Member {
    node: NodeCore,
    /// The jobs of local drivers, until the control service says that they are over.
    jobs: Map<WorkerId, Box<JobConfig>>,
    remote_jobs: RemoteJobs,
    requests: Requests,
    checkpoint_pins: CheckpointPins,
    cut_off: CutOff,
}

impl Member {
    /// A node with these resources. Ids of its processes count up from `first_worker`, which must be unlike
    /// that of any other session; `pool_size` idle workers are kept.
    #[must_use]
    pub fn new(total: ResourceSet, first_worker: u64, pool_size: usize) -> Self {
        let mut node = NodeCore::new(total, first_worker, pool_size);
        node.join_cluster();
        node.local_actors.keep_snapshots();
        let (jobs, remote_jobs, requests) = (Map::default(), RemoteJobs::default(), Requests::default());
        Self {
            node,
            jobs,
            remote_jobs,
            requests,
            checkpoint_pins: CheckpointPins::default(),
            cut_off: CutOff::default(),
        }
    }

    /// The node is a part of a program, and runs no work.
    #[must_use]
    pub fn of_program(mut self) -> Self {
        self.node.run_nothing();
        self
    }

    /// A driver was admitted, with what its workers need. Follows [`NodeCore::on_connected`].
    pub fn on_job(&mut self, job: WorkerId, config: Box<JobConfig>, out: &mut NodeActions) {
        self.node.make_known(job);
        self.jobs.insert(job, config.clone());
        let started = begun(job, config);
        out.push(NodeAction::Control(ToControl::Job(Box::new(started))));
    }

    /// A client's connection ended. `reason` is for people; `last_started` its last task.
    pub fn on_dead(
        &mut self,
        client: WorkerId,
        reason: &str,
        last_started: Option<Started>,
        out: &mut NodeActions,
    ) {
        let begin = out.len();
        self.node.on_dead(client, reason, last_started, out);
        self.requests.on_sent(&out[begin..]);
        self.requests.end(client);
        self.checkpoint_pins.end(client);
    }

    /// Whether nothing is left of a job: no driver, no worker here, and no actor anywhere.
    #[must_use]
    pub fn is_over(&self, job: WorkerId) -> bool {
        self.node.is_over(job) && !self.jobs.contains_key(&job) && !self.remote_jobs.is_open(job)
    }

    /// A client sent a message. Messages that the core does not handle (allocation) are returned.
    pub fn on_message(
        &mut self,
        from: WorkerId,
        message: Message,
        now: Instant,
        out: &mut NodeActions,
    ) -> Option<Message> {
        if let Message::ActorReady(ready) = &message
            && ready.failure.is_none()
        {
            self.node.local_actors.record_ready(ready.actor);
        }
        let begin = out.len();
        let left = self.node.on_message(from, message, now, out);
        self.requests.on_sent(&out[begin..]);
        left
    }

    /// The control service sent a message.
    pub fn on_control(&mut self, word: ToNode, now: Instant, out: &mut NodeActions) {
        if let ToNode::Job(job) = word {
            return self.on_job_news(*job, now, out);
        }
        if let Some((process, checkpoint)) = self.requests.take_checkpoint(&word) {
            self.node.local_actors.record_checkpoint(process, *checkpoint);
        }
        if let ToNode::LetGo(place) = word {
            self.requests.forget_checkpoint_in(place);
        }
        self.checkpoint_pins.on_control(&self.node, &word);
        if self.requests.is_stale(&word) {
            return;
        }
        if let Some(word) = self.remote_jobs.admit(&self.node, word, now, out) {
            self.node.on_control(word, out);
        }
    }

    /// A message came over the link of node `link`, from it or a process there, for this node or a local
    /// process. Messages for the shell are returned: lines that workers printed.
    ///
    /// # Errors
    /// [`RouteError`]: no sender there may send that. The link is to be cut.
    pub fn on_routed(
        &mut self,
        link: NodeId,
        from: WorkerId,
        to: WorkerId,
        message: Message,
        now: Instant,
        out: &mut NodeActions,
    ) -> Result<Option<Message>, RouteError> {
        self.node.check_routed(link, from, to, &message)?;
        if self.is_given_up(link) {
            return Ok(None);
        }
        self.cut_off.on_received(link);
        if let Message::Job(job) = message {
            self.on_job_of_node(link, job, now, out);
            return Ok(None);
        }
        match self.remote_jobs.admit_routed(&self.node, (from, to), message, now, out) {
            Some(message) => self.node.on_routed(from, to, message, now, out),
            None => Ok(None),
        }
    }

    /// The control service is connected. `is_new`: it knows nothing of this node, because the node has just
    /// joined or the control service has started again.
    pub fn on_control_up(&mut self, is_new: bool, _now: Instant, out: &mut NodeActions) {
        self.requests.on_up(is_new);
        if !is_new {
            return;
        }
        let (checkpoints, dead) = (self.requests.checkpoints(), self.node.local_actors.dead());
        let watched = self.node.watched_nodes();
        let has_more = !checkpoints.is_empty() || !dead.is_empty() || !watched.is_empty();
        let also = has_more.then(|| Box::new(AlsoHere { checkpoints, dead, watched: Some(watched) }));
        let here = ActorsHere {
            actors: self.node.local_actors.rows().collect(),
            jobs: self.jobs.iter().map(|(job, config)| begun(*job, config.clone())).collect(),
            subscribers: self.node.subscribers_here(true),
            keepers: Some(self.checkpoint_pins.all()),
            kept: Some(self.node.kept_for_actors()),
            also,
        };
        // Also when there is nothing: what is not reported is not here.
        out.push(NodeAction::Control(ToControl::Here(Box::new(here))));
        self.node.send_deaths_again(out);
        self.node.local_actors.send_placed_again(out);
        self.requests.send_again(&self.node.subscribers_here(false), out);
        self.remote_jobs.ask_again(out);
        self.node.ask_for_groups_again();
        // Behind what removes groups: those are asked about once, and are no more.
        self.node.ask_about_all_bundles(out);
    }

    /// The connection to the control service has ended.
    pub fn on_control_down(&mut self, now: Instant) {
        self.requests.on_down(now);
    }

    /// A node is dead for good. That its processes are dead is a message of its own.
    pub fn on_node_dead(&mut self, node: NodeId, out: &mut NodeActions) {
        self.cut_off.on_node_dead(node);
        self.remote_jobs.void(node);
        self.node.on_node_dead(node, out);
    }

    /// The session with another node is over, though that node may live.
    pub fn on_link_ended(&mut self, node: NodeId, out: &mut NodeActions) {
        self.on_unreached(node);
        self.remote_jobs.void(node);
        self.node.on_link_ended(node, out);
    }

    /// A local process has not reached one of another node for as long as a link may be without a connection,
    /// and this node does not reach that node either.
    pub fn on_unreached(&mut self, node: NodeId) {
        if !self.is_given_up(node) {
            self.cut_off.on_link_ended(node);
        }
    }

    fn give_up(&mut self, node: NodeId, out: &mut NodeActions) {
        let seconds = CONTROL_AWAY_NANOS / 1_000_000_000;
        let reason = format!(
            "its node {:016x} cannot be reached, and the head of the cluster, which could say whether it lives and start work again elsewhere, has been away for {seconds} s",
            node.0
        );
        self.node.give_up(node, &reason, out);
        out.push(NodeAction::GiveUp(node));
    }

    fn on_job_news(&mut self, news: Job, now: Instant, out: &mut NodeActions) {
        let job = news.job;
        match (news.state, news.config) {
            (JobState::Ended, _) if self.jobs.swap_remove(&job).is_some() => {}
            (JobState::Ended, _) => {
                self.remote_jobs.end(job, &mut self.node, out);
            }
            (JobState::Leaving, _) => {
                self.node.on_remote_job_leaves(job);
                out.push(NodeAction::JobLeaves(job));
            }
            (JobState::Started, Some(config)) => {
                let Some(held) = self.remote_jobs.begin(job) else { return };
                self.node.open_job(job);
                out.push(NodeAction::BeginJob(job, config));
                for order in held {
                    order.carry_out(&mut self.node, now, out);
                }
            }
            (JobState::Started | JobState::Asked, _) => {}
        }
    }

    /// While the control service is away, a node asks what a job of a local driver needs, or says it of its
    /// own driver's.
    fn on_job_of_node(&mut self, node: NodeId, news: Job, now: Instant, out: &mut NodeActions) {
        match (news.state, self.jobs.get(&news.job)) {
            (JobState::Asked, Some(config)) => {
                out.push(remote_jobs::to_node(self.id(), node, begun(news.job, config.clone())));
            }
            (JobState::Started, None) => self.on_job_news(news, now, out),
            _ => {}
        }
    }

    /// Places what can be placed. Called once after each batch of events.
    pub fn after_events(&mut self, now: Instant, out: &mut NodeActions) {
        self.requests.give_up(now, out);
        self.remote_jobs.give_up(now, out);
        let away = self.requests.away_since();
        for node in self.cut_off.take(away, now) {
            self.give_up(node, out);
        }
        self.remote_jobs.ask_drivers(self.node.id(), away.is_some(), now, out);
        self.node.after_events(now, out);
    }

    /// When [`Self::after_events`] should be called again although nothing happened.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let cut_off = self.cut_off.next_deadline(self.requests.away_since());
        let own = [self.requests.next_deadline(), self.remote_jobs.next_deadline(), cut_off];
        own.into_iter().chain([self.node.next_deadline()]).flatten().min()
    }

    /// What the core knows, and the actors on this node.
    #[must_use]
    pub fn report(&self) -> NodeReport {
        let mut actors = self.node.local_actors.rows_for_people();
        actors.iter_mut().for_each(|row| self.node.complete(row));
        NodeReport { actors, ..self.node.report() }
    }
}

impl Deref for Member {
    type Target = NodeCore;

    fn deref(&self) -> &NodeCore {
        &self.node
    }
}

impl DerefMut for Member {
    fn deref_mut(&mut self) -> &mut NodeCore {
        &mut self.node
    }
}

fn begun(job: WorkerId, config: Box<JobConfig>) -> Job {
    Job { job, state: JobState::Started, config: Some(config) }
}
