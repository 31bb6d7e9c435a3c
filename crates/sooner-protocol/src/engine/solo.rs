//! A node that contains the control service, too: all there is where everything runs on one machine.
//!
//! The two cores exchange messages as values, before the node does anything else: each receives the other's
//! messages in the order in which they were sent, and what follows from them comes before the node's next
//! step. There is never a second implementation for one machine: in a cluster, a node and the control service
//! are the same cores with a connection in between.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use sooner_wire::message::Message;
use sooner_wire::message::state::NodeReport;
use sooner_wire::strategy::Labels;
use sooner_wire::{NodeId, ResourceSet, Started, WorkerId};

use crate::control::{Directory, DirectoryAction, DirectoryActions};
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::time::Instant;

/// See the module. It asks the shell for every [`NodeAction`] but [`NodeAction::Control`].
#[derive(Debug)]
pub struct Solo {
    id: NodeId,
    node: NodeCore,
    control: Directory,
    /// The latest time that came in.
    now: Instant,
}

impl Solo {
    /// A node with these resources. Ids of its processes count up from `first_worker`, which must differ from
    /// that of every other session; `pool_size` idle workers are kept.
    #[must_use]
    pub fn new(total: ResourceSet, first_worker: u64, pool_size: usize) -> Self {
        let id = WorkerId(first_worker).node();
        let mut control = Directory::default();
        control.on_registered(id, total.clone());
        let mut this = Self {
            id,
            node: NodeCore::new(total, first_worker, pool_size),
            control,
            now: Instant::default(),
        };
        this.set_labels(Labels::new());
        this
    }

    /// The node has these labels, sorted by key.
    pub fn set_labels(&mut self, labels: Labels) {
        self.node.set_labels(labels);
        self.control.on_report(self.node.row());
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
        if self.node.end_process(client, reason, last_started, out) {
            self.pass_on(begin, out);
            self.node.settle_end(client, out);
        }
    }

    /// Whether nothing is left of a job: no driver, no worker, no actor.
    #[must_use]
    pub fn is_over(&self, job: WorkerId) -> bool {
        self.node.is_over(job) && !self.control.has_actors(job)
    }

    /// A driver leaves in order: nothing more begins for it.
    pub fn on_leaving(&mut self, driver: WorkerId, out: &mut NodeActions) {
        let begin = out.len();
        self.node.on_leaving(driver, out);
        self.pass_on(begin, out);
    }

    /// A message came from a client. Returned if the core does not handle it (allocation).
    pub fn on_message(
        &mut self,
        from: WorkerId,
        message: Message,
        now: Instant,
        out: &mut NodeActions,
    ) -> Option<Message> {
        self.now = now;
        let begin = out.len();
        let left = self.node.on_message(from, message, now, out);
        self.pass_on(begin, out);
        left
    }

    /// Places what can be placed. Called once after each batch of events.
    pub fn after_events(&mut self, now: Instant, out: &mut NodeActions) {
        self.now = now;
        let begin = out.len();
        self.node.send_refused(out);
        self.pass_on(begin, out);
        let places_groups = self.control.wants_reports();
        self.consult(begin, out);
        if places_groups {
            // Actors that wait for a group have a place now.
            self.consult(begin, out);
            self.node.ask_about_bundles(now, out);
            self.pass_on(begin, out);
        }
        self.node.place(out);
        while self.node.assign_workers(out) {
            self.pass_on(begin, out);
        }
        self.node.adjust_pool(now, out);
    }

    /// Has the control service decide what it can, and the node carry that out: after it, bundles of groups
    /// are committed.
    fn consult(&mut self, begin: usize, out: &mut NodeActions) {
        if self.control.wants_reports() {
            self.control.on_report(self.node.row());
        }
        let mut decided = DirectoryActions::new();
        self.control.after_events(self.now, &mut decided);
        let answers = self.follow(decided, out);
        out.extend(answers);
        self.pass_on(begin, out);
    }

    /// When [`Self::after_events`] must be called again, even if nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        [self.node.next_deadline(), self.control.next_deadline()].into_iter().flatten().min()
    }

    /// What the node knows, with the actors and groups of the control service.
    #[must_use]
    pub fn report(&self) -> NodeReport {
        let mut actors = self.control.report();
        actors.iter_mut().for_each(|row| self.node.complete(row));
        let groups = Some(self.control.groups()).filter(|groups| !groups.is_empty());
        NodeReport { actors, groups, ..self.node.report() }
    }

    /// Delivers the node's messages at the end of these actions, and the messages in answer, until neither
    /// core has more.
    fn pass_on(&mut self, begin: usize, out: &mut NodeActions) {
        let is_sent = |action: &NodeAction| matches!(action, NodeAction::Control(_));
        let Some(first) = out[begin..].iter().position(is_sent) else { return };
        debug_assert!(out[begin + first..].iter().all(is_sent), "the rest was decided before the answer");
        let mut said: VecDeque<NodeAction> = out.drain(begin + first..).collect();
        while let Some(NodeAction::Control(message)) = said.pop_front() {
            let mut decided = DirectoryActions::new();
            self.control.on_node(self.id, message, self.now, &mut decided);
            // The node's answer goes behind its earlier messages.
            said.extend(self.follow(decided, out));
        }
    }

    /// Has the node carry out the decisions. Returns the node's messages in answer.
    #[must_use]
    fn follow(&mut self, decided: DirectoryActions, out: &mut NodeActions) -> NodeActions {
        let mut followed = NodeActions::new();
        self.notify_node(decided, &mut followed);
        let is_sent = |action: &NodeAction| matches!(action, NodeAction::Control(_));
        let (answers, done): (NodeActions, NodeActions) = followed.into_iter().partition(is_sent);
        out.extend(done);
        answers
    }

    fn notify_node(&mut self, decided: DirectoryActions, out: &mut NodeActions) {
        for action in decided {
            match action {
                DirectoryAction::Send(_, message) => self.node.on_control(*message, out),
                DirectoryAction::Warn(text) => out.push(NodeAction::Warn(text)),
                DirectoryAction::Persist(..) => {
                    unreachable!("it keeps no records: nothing outlives the session")
                }
            }
        }
    }
}

impl Deref for Solo {
    type Target = NodeCore;

    fn deref(&self) -> &NodeCore {
        &self.node
    }
}

impl DerefMut for Solo {
    fn deref_mut(&mut self) -> &mut NodeCore {
        &mut self.node
    }
}
