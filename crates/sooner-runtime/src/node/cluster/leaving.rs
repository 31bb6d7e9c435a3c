//! A node that leaves its cluster in order: the head learns of it before the connections end.

use rustix::event::epoll;
use sooner_wire::NodeId;
use sooner_wire::message::Drained;

use super::{Cluster, FIRST_OF_LINK, FIRST_OF_NODES};
use crate::clock::now;

/// How long a node that leaves waits for the head to know that (nanoseconds).
const LEAVE_NANOS: u64 = 500_000_000;

impl Cluster {
    /// Tells the head that this node leaves.
    pub(in crate::node) fn leave(&mut self, node: NodeId) {
        self.is_leaving = true;
        if self.link.is_up() && !self.must_end() {
            self.link.send(&Drained { node }.into());
            self.link.flush(&self.epoll);
        }
    }

    /// Waits a moment until the head knows: a connection that is closed early may lose its last messages.
    pub(in crate::node) fn close(mut self) {
        let deadline = now().plus(LEAVE_NANOS);
        while self.link.is_up() && !self.must_end() && now() < deadline {
            let timeout = crate::clock::timespec(deadline.since(now()));
            let mut events = Vec::with_capacity(4);
            let space = rustix::buffer::spare_capacity(&mut events);
            let _ = epoll::wait(&self.epoll, space, Some(&timeout));
            for event in events {
                match event.data.u64() {
                    token @ FIRST_OF_LINK..FIRST_OF_NODES => {
                        drop(self.link.on_ready(token, event.flags, &self.epoll));
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
