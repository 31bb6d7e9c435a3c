//! The service's half of connections between processes: what it says to each, and the sockets with which it connects two.

use std::os::fd::OwnedFd;

use rustix::event::epoll;
use weft_wire::WorkerId;
use weft_wire::message::{Message, PeerConnected};

use super::Service;
use crate::transport::{Flush, pair};

impl Service {
    pub(super) fn send(&mut self, to: WorkerId, message: &Message, descriptors: Vec<OwnedFd>) {
        let Some(token) = self.tokens.get(&to) else { return };
        let Some(connection) = self.connections.get_mut(token) else { return };
        if descriptors.is_empty() {
            connection.outlet.push(message);
        } else {
            connection.outlet.push_with(message, descriptors);
        }
        self.dirty.push(*token);
    }

    pub(super) fn introduce(&mut self, a: WorkerId, b: WorkerId) {
        match pair() {
            Ok((for_a, for_b)) => {
                self.send(a, &PeerConnected::pair(b).into(), vec![for_a]);
                self.send(b, &PeerConnected::pair(a).into(), vec![for_b]);
            }
            Err(error) => {
                let text = format!(
                    "cannot connect two processes: {error}. Raise the limit of open files (ulimit -n)"
                );
                self.warn(&text);
            }
        }
    }

    pub(super) fn flush_dirty(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        for token in dirty {
            self.flush(token);
        }
    }

    pub(super) fn flush(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let is_full = connection.outlet.flush(&connection.socket) == Flush::Full;
        if is_full != connection.is_full {
            connection.is_full = is_full;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, is_full);
            let data = epoll::EventData::new_u64(token);
            let _ = epoll::modify(&self.epoll, &connection.socket, data, flags);
        }
    }
}
