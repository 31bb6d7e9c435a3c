//! A node that is to leave: because its process was told to stop, or the head was asked for it.
//!
//! The node begins nothing more, and waits until its tasks have ended, its actors have moved and its values
//! are handed over; not longer than it was given. In a cluster the head learns of it first, so that the other
//! nodes send nothing more and what can move does.

use sooner_protocol::time::Instant;
use sooner_wire::limits::DRAIN_MESSAGE_NANOS;
use sooner_wire::message::{Drain, Drained};

use super::{Cluster, Service, now};

/// How long a node that is stopped waits for tasks that run (nanoseconds).
const DRAIN_NANOS: u64 = 5_000_000_000;

/// A node leaves this part (one in so many) of its time before the head would end it.
const MARGIN: u64 = 8;

/// How far a node has come with leaving.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draining {
    /// When the node ends although something is left.
    by: Instant,
    /// Until when the node waits for the head's answer.
    message_by: Option<Instant>,
    /// The node's process was told to stop.
    is_stopping: bool,
}

impl Draining {
    pub(super) fn deadline(&self) -> Instant {
        self.message_by.map_or(self.by, |message_by| message_by.min(self.by))
    }
}

impl Service {
    /// The process was told to stop.
    pub(super) fn begin_to_stop(&mut self) {
        let latest = now().plus(DRAIN_NANOS);
        match &mut self.draining {
            Some(draining) if draining.is_stopping => return,
            // The head knows already.
            Some(draining) => {
                draining.by = draining.by.min(latest);
                draining.is_stopping = true;
                return;
            }
            None => self.note("draining"),
        }
        self.core.drain();
        let node = self.options.node;
        let asks = |cluster: &mut Cluster| {
            !cluster.others().is_empty() && cluster.ask_to_drain(node, DRAIN_NANOS + DRAIN_NANOS / MARGIN)
        };
        let has_asked = self.cluster.as_mut().is_some_and(asks);
        let message_by = has_asked.then(|| now().plus(DRAIN_MESSAGE_NANOS));
        self.draining = Some(Draining { by: latest, message_by, is_stopping: true });
    }

    /// The head has this node leave.
    pub(super) fn on_drain(&mut self, nanos: u64) {
        let mut by = now().plus(nanos - nanos / MARGIN);
        let is_stopping = self.draining.is_some_and(|draining| draining.is_stopping);
        match self.draining {
            Some(earlier) => by = by.min(earlier.by),
            None => self.note("draining: the head says that this node is to leave"),
        }
        self.core.drain();
        self.draining = Some(Draining { by, message_by: None, is_stopping });
    }

    /// Whether nothing is left to wait for, or the time is up.
    pub(super) fn has_drained(&mut self) -> bool {
        let Some(draining) = &mut self.draining else { return false };
        let time = now();
        // Without a head nothing moves, and no node is reported dead.
        let is_alone = !self.cluster.as_ref().is_some_and(Cluster::is_connected);
        // A deadline that has passed does not count.
        draining.message_by = draining.message_by.filter(|message_by| !is_alone && time < *message_by);
        let is_over = if is_alone { self.core.has_ended_tasks() } else { self.core.is_drained() };
        draining.by <= time || (draining.message_by.is_none() && is_over)
    }

    /// A tool asks that a node leave: the answer says only that the head was asked.
    pub(super) fn on_drain_asked(&mut self, token: u64, drain: Drain) {
        let Some(cluster) = &mut self.cluster else {
            return self.refuse(token, "this node belongs to a program: end the program");
        };
        if !cluster.knows(drain.node) {
            return self.refuse(token, "there is no such node in the cluster: see `sooner list nodes`");
        }
        if cluster.is_head(drain.node) {
            let text = "that is the head, which keeps the cluster together: end it last, with `sooner stop`";
            return self.refuse(token, text);
        }
        if !cluster.ask_to_drain(drain.node, drain.nanos) {
            return self.refuse(token, "there is no connection to the head: try again when it is back");
        }
        self.notify_tool(token, &Drained { node: drain.node }.into());
    }
}
