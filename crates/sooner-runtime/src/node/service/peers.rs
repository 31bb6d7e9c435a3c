//! The service's half of connections between processes: the messages to each, and the sockets that connect
//! two.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustc_hash::FxHashMap;
use sooner_protocol::time::Instant;
use sooner_wire::WorkerId;
use sooner_wire::limits::{CLIENT_UNREAD_BYTES_MAX, START_PATIENCE_NANOS};
use sooner_wire::message::{Message, PeerConnected};

use super::{Role, Service, now};
use crate::poller::Interest;
use crate::transport::{Flush, Outlet, pair};
use crate::ulimits::told;

/// Time between two attempts to connect two processes (nanoseconds).
const INTRODUCE_AGAIN_NANOS: u64 = 50_000_000;

/// Two processes that no descriptor was left to connect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Introduction {
    a: WorkerId,
    b: WorkerId,
    since: Instant,
}

/// A copy of one process's end of a connection, until the process confirms its own. If it had no descriptor
/// for that, the kernel has closed it, and the copy still has what the other process has sent meanwhile.
pub(super) struct Handed {
    end: OwnedFd,
    /// Since when the process has no descriptor for it, and why, for people.
    lack: Option<(Instant, String)>,
    /// The end was sent, and is not answered.
    is_underway: bool,
}

/// Ends of connections that are not confirmed: (whose, to whom).
pub(super) type HandedEnds = FxHashMap<(WorkerId, WorkerId), Handed>;

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
        if let Err(error) = self.try_to_introduce(a, b) {
            if self.introductions.is_empty() {
                self.warn(&format!("two processes wait to be connected: {}", told(&error)));
            }
            self.introductions.push(Introduction { a, b, since: now() });
        }
    }

    fn try_to_introduce(&mut self, a: WorkerId, b: WorkerId) -> io::Result<()> {
        let (for_a, for_b) = pair()?;
        let (kept_for_a, kept_for_b) = (for_a.try_clone()?, for_b.try_clone()?);
        self.hand(a, b, for_a, kept_for_a);
        self.hand(b, a, for_b, kept_for_b);
        Ok(())
    }

    fn hand(&mut self, to: WorkerId, other: WorkerId, end: OwnedFd, kept: OwnedFd) {
        self.send(to, &PeerConnected::pair(other).into(), vec![end]);
        self.handed.insert((to, other), Handed { end: kept, lack: None, is_underway: true });
    }

    /// A process confirms its end of a connection, or had no descriptor for it.
    pub(super) fn on_handed(&mut self, to: WorkerId, answer: PeerConnected) {
        let key = (to, answer.worker);
        let Some(why) = answer.never else {
            self.handed.remove(&key);
            return;
        };
        let is_first = self.handed.values().all(|one| one.lack.is_none());
        let Some(handed) = self.handed.get_mut(&key) else { return };
        handed.is_underway = false;
        if handed.lack.is_none() {
            handed.lack = Some((now(), why));
            if is_first {
                let (_, why) = handed.lack.as_ref().expect("set above");
                let text = format!("process {:016x} waits to be connected to another one: {why}", to.0);
                self.warn(&text);
            }
        }
    }

    /// A process has ended, and with it its connections.
    pub(super) fn forget_handed(&mut self, process: WorkerId) {
        self.handed.retain(|(to, other), _| *to != process && *other != process);
    }

    /// Sends ends again that could not be taken. If one cannot for long, a process of the two is ended: the
    /// one that lacks descriptors, unless it is a driver.
    fn attend_handed(&mut self) {
        if self.handed.is_empty() {
            return;
        }
        let lacking = self.handed.iter().filter(|(_, one)| one.lack.is_some() && !one.is_underway);
        for (to, other) in lacking.map(|(key, _)| *key).collect::<Vec<_>>() {
            let Some(Handed { lack: Some((since, why)), .. }) = self.handed.get(&(to, other)) else {
                continue;
            };
            if now().since(*since) >= START_PATIENCE_NANOS
                && let Some(worker) = [to, other].into_iter().find(|id| self.is_worker(*id))
            {
                self.end_unconnected(
                    worker,
                    format!("was ended because nobody could be connected to it: {why}"),
                );
                self.forget_handed(worker);
                continue;
            }
            let Some(handed) = self.handed.get_mut(&(to, other)) else { continue };
            let Ok(end) = handed.end.try_clone() else { continue };
            handed.is_underway = true;
            self.send(to, &PeerConnected::pair(other).into(), vec![end]);
        }
    }

    fn is_worker(&self, id: WorkerId) -> bool {
        let connection = self.tokens.get(&id).and_then(|token| self.connections.get(token));
        connection.is_some_and(|connection| connection.role == Role::Worker)
    }

    fn end_unconnected(&mut self, worker: WorkerId, reason: String) {
        self.kill_worker(worker);
        self.ends.reasons.insert(worker, reason);
    }

    /// Connects the processes for which there were no descriptors. If there are none for long, one of the two
    /// is ended, and with it what waits for the connection.
    pub(super) fn attend_introductions(&mut self) {
        self.attend_handed();
        for waiting in std::mem::take(&mut self.introductions) {
            let Introduction { a, b, since } = waiting;
            if !self.tokens.contains_key(&a) || !self.tokens.contains_key(&b) {
                continue;
            }
            let Err(error) = self.try_to_introduce(a, b) else { continue };
            if now().since(since) < START_PATIENCE_NANOS {
                self.introductions.push(waiting);
                continue;
            }
            let Some(worker) = [b, a].into_iter().find(|id| self.is_worker(*id)) else { continue };
            self.end_unconnected(
                worker,
                format!("was ended because nobody could be connected to it: {}", told(&error)),
            );
        }
    }

    pub(super) fn introductions_deadline(&self) -> Option<Instant> {
        let is_lacking = |one: &Handed| one.lack.is_some() && !one.is_underway;
        let waits = !self.introductions.is_empty() || self.handed.values().any(is_lacking);
        waits.then(|| now().plus(INTRODUCE_AGAIN_NANOS))
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
            let _ = self.poller.change(&connection.socket, token, Interest::read_and(is_full));
        }
    }
}

/// Sends what the socket takes. True if there is more. A process that leaves more than `unread_max` bytes
/// unread has stopped, or is broken: it is cut off, so that its end is noticed like any other.
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
    use sooner_wire::BlockId;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use sooner_wire::message::LoseBlocks;

    use super::*;

    #[test]
    fn a_process_that_reads_nothing_is_cut_off() {
        let (node, mut process) = UnixStream::pair().expect("sockets");
        node.set_nonblocking(true).expect("a socket");
        let mut outlet = Outlet::default();
        let message = LoseBlocks { blocks: vec![BlockId(u64::MAX >> 1); 10_000] }.into();
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
