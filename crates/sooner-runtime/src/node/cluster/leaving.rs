//! A node that leaves its cluster in order: the head learns of it before the connections end.

use sooner_wire::NodeId;
use sooner_wire::message::Drained;

use super::{Cluster, FIRST_OF_LINK, FIRST_OF_NODES};
use crate::clock::now;
use crate::poller::Events;

/// How long a node that leaves waits for the head to know that (nanoseconds).
const LEAVE_NANOS: u64 = 500_000_000;

impl Cluster {
    /// Tells the head that this node leaves.
    pub(in crate::node) fn leave(&mut self, node: NodeId) {
        self.is_leaving = true;
        if self.link.is_up() && !self.must_end() {
            self.link.send(&Drained { node }.into());
            self.link.flush(&self.poller);
        }
    }

    /// Waits a moment until the head knows: a connection that is closed early may lose its last messages.
    pub(in crate::node) fn close(mut self) {
        let deadline = now().plus(LEAVE_NANOS);
        let mut events = Events::with_capacity(4);
        while self.link.is_up() && !self.must_end() && now() < deadline {
            let _ = self.poller.wait(&mut events, Some(deadline.since(now())));
            for event in &events {
                match event.token {
                    FIRST_OF_LINK..FIRST_OF_NODES => {
                        drop(self.link.on_ready(event, &self.poller));
                    }
                    // Connections that come now are not served.
                    _ => self.knocked(),
                }
            }
        }
        drop(self.health);
        drop(self.control);
    }
}
