//! The service's half of connections between processes: what it says to each, and the sockets with which it connects two.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use sooner_wire::WorkerId;
use sooner_wire::limits::CLIENT_UNREAD_BYTES_MAX;
use sooner_wire::message::{Message, PeerConnected};

use super::Service;
use crate::transport::{Flush, Outlet, pair};

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
        let is_full = flush_or_cut(&mut connection.outlet, &connection.socket, CLIENT_UNREAD_BYTES_MAX);
        if is_full != connection.is_full {
            connection.is_full = is_full;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, is_full);
            let data = epoll::EventData::new_u64(token);
            let _ = epoll::modify(&self.epoll, &connection.socket, data, flags);
        }
    }
}

/// Sends what the socket takes. True if there is more. A process that leaves more than `unread_max` bytes unread has stopped,
/// or is broken: it is cut off, so that its end is noticed like any other.
fn flush_or_cut(outlet: &mut Outlet, socket: impl AsFd, unread_max: usize) -> bool {
    if outlet.flush(&socket) != Flush::Full {
        return false;
    }
    if outlet.waiting() <= unread_max {
        return true;
    }
    *outlet = Outlet::default();
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
    false
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use sooner_wire::message::LoseBlocks;

    use super::*;

    #[test]
    fn a_process_that_reads_nothing_is_cut_off() {
        let (node, mut process) = UnixStream::pair().expect("sockets");
        node.set_nonblocking(true).expect("a socket");
        let mut outlet = Outlet::default();
        let message = LoseBlocks { offsets: vec![u64::MAX; 10_000] }.into();
        let mut waiting = 0;
        while waiting < 900_000 {
            outlet.push(&message);
            flush_or_cut(&mut outlet, &node, 1 << 20);
            waiting = outlet.waiting();
            assert!(waiting < 1 << 20);
        }
        let mut some = vec![0; 100_000];
        process.read_exact(&mut some).expect("it is connected still");
        while outlet.waiting() > 0 {
            outlet.push(&message);
            flush_or_cut(&mut outlet, &node, 1 << 20);
        }
        let mut rest = Vec::new();
        process.read_to_end(&mut rest).expect("what had been sent, and the end");
        assert_eq!(outlet.flush(&node), Flush::Done, "nothing waits any more");
    }
}
