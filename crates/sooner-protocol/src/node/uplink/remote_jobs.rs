//! Jobs whose driver is on another node, as far as this one has work for them
//! (`docs/adr/0030-jobs-over-nodes.md`).
//!
//! Work for a job that this node does not know waits, in its order, until the control service has sent what
//! the job's workers need. Then the job is like one of a local driver, until the control service says that it
//! is over. While the control service is away, or does not answer, the driver's own node is asked, so that
//! work goes where it never was without a head, too.

use sooner_wire::limits::{GUEST_JOB_NANOS, GUEST_ORDERS_MAX};
use sooner_wire::message::{Job, JobState, LeaseRefused, Message};
use sooner_wire::{NodeId, WorkerId};

use crate::node::{NodeAction, NodeActions, NodeCore, ended_unbegun, refused_for_now};
use crate::table::Map;
use crate::time::Instant;
use crate::uplink::{End, ToControl, ToNode};

/// How long the node waits for the control service before it asks the driver's node, too (nanoseconds). The
/// control service answers at once, unless it stands still, which its connection does not show.
const ASK_DRIVER_NANOS: u64 = 1_000_000_000;

const _: () = assert!(ASK_DRIVER_NANOS < GUEST_JOB_NANOS);

/// A message that is to be carried out for a job.
#[derive(Debug)]
pub(super) enum Order {
    Control(ToNode),
    Routed { from: WorkerId, to: WorkerId, message: Message },
}

impl Order {
    pub(super) fn carry_out(self, node: &mut NodeCore, now: Instant, out: &mut NodeActions) {
        match self {
            Self::Control(word) => node.on_control(word, out),
            Self::Routed { from, to, message } => {
                let handled = node.on_routed(from, to, message, now, out);
                debug_assert_eq!(handled, Ok(None), "it was checked when it came");
            }
        }
    }
}

#[derive(Debug)]
enum Guest {
    /// The control service was asked for the job, and perhaps the driver's node.
    Asked {
        since: Instant,
        orders: Vec<Order>,
        asks_driver: bool,
    },
    Open,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RemoteJobs {
    jobs: Map<WorkerId, Guest>,
    waiting: usize,
}

impl RemoteJobs {
    /// Whether more may come for a job.
    pub(super) fn is_open(&self, job: WorkerId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// A message of the control service that can be carried out now comes back; any other is kept.
    pub(super) fn admit(
        &mut self,
        node: &NodeCore,
        word: ToNode,
        now: Instant,
        out: &mut NodeActions,
    ) -> Option<ToNode> {
        let job = match &word {
            ToNode::PlaceActor(place) => place.create.job.unwrap_or(place.create.actor.owner),
            // It waits here for its job, and not for room: it begins as soon as the job is known.
            ToNode::EndActor { end: End::Recalled, .. } => return Some(word),
            // An actor that waits here is not one of the node's yet.
            ToNode::EndActor { actor, takeover, .. } => {
                let is_it = |order: &Order| {
                    matches!(order, Order::Control(ToNode::PlaceActor(place))
                        if place.create.actor == *actor && place.takeover == *takeover)
                };
                for guest in self.jobs.values_mut() {
                    if let Guest::Asked { orders, .. } = guest {
                        let ended = orders.extract_if(.., |order| is_it(order));
                        for order in ended {
                            self.waiting -= 1;
                            let Order::Control(ToNode::PlaceActor(place)) = order else { continue };
                            out.push(ended_unbegun(*takeover, place.create));
                        }
                    }
                }
                return Some(word);
            }
            _ => return Some(word),
        };
        match self.keep(node, job, Order::Control(word), now, out)? {
            Order::Control(word) => Some(word),
            Order::Routed { .. } => None,
        }
    }

    /// The same for a message from another node.
    pub(super) fn admit_routed(
        &mut self,
        node: &NodeCore,
        (from, to): (WorkerId, WorkerId),
        message: Message,
        now: Instant,
        out: &mut NodeActions,
    ) -> Option<Message> {
        let Message::LeaseAt(ask) = &message else { return Some(message) };
        let job = ask.job;
        if ask.demand == 0 && !self.is_open(job) {
            // Nothing was asked for that could be withdrawn.
            return None;
        }
        match self.keep(node, job, Order::Routed { from, to, message }, now, out)? {
            Order::Routed { message, .. } => Some(message),
            Order::Control(_) => None,
        }
    }

    /// The session with a node is over: its requests are void, also those that wait here. They would be
    /// granted to nobody otherwise, once the control service says what the job needs.
    pub(super) fn void(&mut self, node: NodeId) {
        for guest in self.jobs.values_mut() {
            if let Guest::Asked { orders, .. } = guest {
                let before = orders.len();
                orders.retain(|order| !matches!(order, Order::Routed { from, .. } if from.node() == node));
                self.waiting -= before - orders.len();
            }
        }
    }

    /// Gives an order back that can be carried out.
    fn keep(
        &mut self,
        node: &NodeCore,
        job: WorkerId,
        order: Order,
        now: Instant,
        out: &mut NodeActions,
    ) -> Option<Order> {
        if job.node() == node.id() {
            return Some(order);
        }
        let is_new = !self.jobs.contains_key(&job);
        match self.jobs.entry(job).or_insert_with(|| Guest::Asked {
            since: now,
            orders: Vec::new(),
            asks_driver: false,
        }) {
            Guest::Open => return Some(order),
            Guest::Asked { .. } if self.waiting >= GUEST_ORDERS_MAX => {
                put_off(order, "too much waits here for jobs of other nodes", out);
            }
            Guest::Asked { orders, .. } => {
                orders.push(order);
                self.waiting += 1;
            }
        }
        if is_new {
            out.push(ask(job));
        }
        None
    }

    /// The control service has sent what a job needs. Gives the orders that waited for that; `None` if it was
    /// known.
    pub(super) fn begin(&mut self, job: WorkerId) -> Option<Vec<Order>> {
        match self.jobs.insert(job, Guest::Open) {
            Some(Guest::Asked { orders, .. }) => {
                self.waiting -= orders.len();
                Some(orders)
            }
            Some(Guest::Open) => None,
            // This node did not ask: it is its own job, or the answer to a question that was asked twice.
            None => {
                self.jobs.swap_remove(&job);
                None
            }
        }
    }

    /// A job is over: no order waits for it any more, and its idle workers end.
    pub(super) fn end(&mut self, job: WorkerId, node: &mut NodeCore, out: &mut NodeActions) {
        if let Some(Guest::Asked { orders, .. }) = self.jobs.swap_remove(&job) {
            self.waiting -= orders.len();
            orders.into_iter().for_each(|order| refuse(order, "its job has ended", out));
        }
        node.close_job(job);
    }

    /// When [`Self::give_up`] or [`Self::ask_drivers`] should be called.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let until = |guest: &Guest| match guest {
            Guest::Asked { since, asks_driver: false, .. } => Some(since.plus(ASK_DRIVER_NANOS)),
            Guest::Asked { since, .. } => Some(since.plus(GUEST_JOB_NANOS)),
            Guest::Open => None,
        };
        self.jobs.values().filter_map(until).min()
    }

    /// Refuses orders that have waited for too long: the control service is away, or the job's node does not
    /// answer.
    pub(super) fn give_up(&mut self, now: Instant, out: &mut NodeActions) {
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let is_late =
            |guest: &Guest| matches!(guest, Guest::Asked { since, .. } if since.plus(GUEST_JOB_NANOS) <= now);
        let late: Vec<WorkerId> =
            self.jobs.iter().filter(|(_, guest)| is_late(guest)).map(|(job, _)| *job).collect();
        for job in late {
            let Some(Guest::Asked { orders, .. }) = self.jobs.swap_remove(&job) else { continue };
            self.waiting -= orders.len();
            let reason = "what its job needs could not be learnt from the head of the cluster in time";
            orders.into_iter().for_each(|order| put_off(order, reason, out));
        }
    }

    /// Asks the nodes of drivers, once, what the control service does not say: because it `is_away`, or has
    /// not answered.
    pub(super) fn ask_drivers(&mut self, here: NodeId, is_away: bool, now: Instant, out: &mut NodeActions) {
        for (job, guest) in &mut self.jobs {
            if let Guest::Asked { since, asks_driver, .. } = guest
                && (is_away || since.plus(ASK_DRIVER_NANOS) <= now)
                && !std::mem::replace(asks_driver, true)
            {
                let question = Job { job: *job, state: JobState::Asked, config: None };
                out.push(to_node(here, job.node(), question));
            }
        }
    }

    /// The control service has started again: it is asked for all jobs. It does not know of the actors that
    /// wait here for their job, and gives them a process wherever it finds one: so this node drops them.
    pub(super) fn ask_again(&mut self, out: &mut NodeActions) {
        for guest in self.jobs.values_mut() {
            if let Guest::Asked { orders, .. } = guest {
                let before = orders.len();
                orders.retain(|order| !matches!(order, Order::Control(ToNode::PlaceActor(_))));
                self.waiting -= before - orders.len();
            }
        }
        out.extend(self.jobs.keys().map(|job| ask(*job)));
    }
}

/// A message between nodes.
pub(super) fn to_node(from: NodeId, to: NodeId, message: impl Into<Message>) -> NodeAction {
    let (from, to) = (WorkerId(from.0), WorkerId(to.0));
    NodeAction::Route { from, to, message: Box::new(message.into()) }
}

fn ask(job: WorkerId) -> NodeAction {
    let job = Job { job, state: JobState::Asked, config: None };
    NodeAction::Control(ToControl::Job(Box::new(job)))
}

/// Tells the sender of an order that it is not carried out here: an actor goes elsewhere.
fn put_off(order: Order, reason: &str, out: &mut NodeActions) {
    match order {
        Order::Control(ToNode::PlaceActor(place)) => {
            out.push(refused_for_now(place.takeover, place.create, reason));
        }
        other => refuse(other, reason, out),
    }
}

/// Tells the sender of an order that it is not carried out.
fn refuse(order: Order, reason: &str, out: &mut NodeActions) {
    match order {
        Order::Control(ToNode::PlaceActor(place)) => {
            let (actor, takeover) = (place.create.actor, place.takeover);
            let reason = reason.to_owned();
            let (create, no_workers, for_now) = (None, false, false);
            let refused = ToControl::PlaceRefused { actor, takeover, reason, create, no_workers, for_now };
            out.push(NodeAction::Control(refused));
        }
        Order::Routed { from, to, message: Message::LeaseAt(ask) } => {
            let (client, shape) = (ask.client, ask.shape);
            let reason = reason.to_owned();
            let refused =
                LeaseRefused { client, shape, reason, infeasible: None, no_workers: None, for_now: None };
            let message = Box::new(refused.into());
            out.push(NodeAction::Route { from: to, to: from, message });
        }
        Order::Control(_) | Order::Routed { .. } => {}
    }
}
