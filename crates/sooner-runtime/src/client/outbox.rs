//! What is to be sent, per peer, and when it leaves.
//!
//! A message leaves at once when nothing was sent for 50 us: a single call has no delay. While messages come
//! faster than that they are collected and leave together: when the sender waits, when 32 KiB have gathered,
//! when 50 us have passed and another comes, or when the background thread looks, within a millisecond.
//! Batches form from what has queued up, never by waiting for more.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use rustix::event::epoll;
use sooner_protocol::time::Instant;
use sooner_protocol::worker::action::Peer;
use sooner_wire::message::{Connect, FreeBlocks, Message};
use sooner_wire::{NodeId, WorkerId};

use super::remote::{Remotes, Said, is_remote};
use crate::clock::now;
use crate::transport::{Flush, Outlet};

const GATHER_NANOS: u64 = 50_000;
const GATHER_BYTES: usize = 32 << 10;

struct Line {
    token: u64,
    /// `None` until the node has connected us.
    socket: Option<Arc<OwnedFd>>,
    outlet: Outlet,
    is_full: bool,
    is_dirty: bool,
}

/// See the module.
pub(crate) struct Outbox {
    /// `None` once the client is closed.
    epoll: Option<Arc<OwnedFd>>,
    node: Line,
    workers: FxHashMap<WorkerId, Line>,
    /// Lines to processes of other nodes.
    pub(super) remotes: Remotes,
    here: NodeId,
    dirty: Vec<Peer>,
    /// Words to the node that wait for others, in order.
    behind: VecDeque<Behind>,
    last_flush: Instant,
}

/// A word to the node that must not be heard before what was said to these processes of this node: so many
/// bytes of that have not left yet.
struct Behind {
    message: Message,
    owed: Vec<(WorkerId, usize)>,
}

impl Outbox {
    /// `me` is this process, and `python` the version that it runs.
    pub(super) fn new(epoll: Arc<OwnedFd>, node: Arc<OwnedFd>, me: WorkerId, python: &str) -> Self {
        Self {
            remotes: Remotes::new(epoll.clone(), me, python),
            here: me.node(),
            epoll: Some(epoll),
            node: Line::new(super::NODE_TOKEN, Some(node)),
            workers: FxHashMap::default(),
            dirty: Vec::new(),
            behind: VecDeque::new(),
            last_flush: Instant(0),
        }
    }

    /// The buffer of a peer; asks the node for a connection when there is none.
    pub(super) fn buffer(&mut self, to: Peer) -> &mut Vec<u8> {
        if let Peer::Worker(worker) = to {
            if worker.node() != self.here {
                return self.remote_buffer(worker);
            }
            if !self.workers.contains_key(&worker) {
                self.begin(worker);
            }
        }
        let line = match to {
            Peer::Node => &mut self.node,
            Peer::Worker(worker) => self.workers.get_mut(&worker).expect("inserted above"),
        };
        if !line.is_dirty {
            line.is_dirty = true;
            self.dirty.push(to);
        }
        line.outlet.buffer()
    }

    fn begin(&mut self, worker: WorkerId) {
        self.workers.insert(worker, Line::new(worker.0, None));
        self.push(Peer::Node, &Connect { worker }.into());
    }

    fn remote_buffer(&mut self, worker: WorkerId) -> &mut Vec<u8> {
        let (buffer, is_first) = self.remotes.buffer(worker, now());
        if is_first {
            self.dirty.push(Peer::Worker(worker));
        }
        buffer
    }

    pub(super) fn push(&mut self, to: Peer, message: &Message) {
        message.append(self.buffer(to), 0);
    }

    pub(super) fn free_blocks(&mut self, offsets: Vec<u64>) {
        if !offsets.is_empty() {
            self.push(Peer::Node, &FreeBlocks { offsets }.into());
        }
    }

    /// The node connected us with a worker.
    pub(super) fn connected(&mut self, worker: WorkerId, socket: Arc<OwnedFd>) {
        let line = self.workers.entry(worker).or_insert_with(|| Line::new(worker.0, None));
        line.socket = Some(socket);
        if line.outlet.waiting() > 0 && !line.is_dirty {
            line.is_dirty = true;
            self.dirty.push(Peer::Worker(worker));
        }
    }

    /// The worker is gone: nothing is sent to it any more.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
        self.pay(worker, usize::MAX);
    }

    /// Says something to the node as soon as everything that was said to others so far has left, and has
    /// arrived where they are at other nodes. What has left for a process of this node is read before
    /// anything that the node says after it.
    pub(super) fn send_after_flush(&mut self, message: Message) {
        self.flush();
        let waiting = self.workers.iter().map(|(worker, line)| (*worker, line.outlet.waiting()));
        let owed = waiting.filter(|(_, bytes)| *bytes > 0).collect();
        self.behind.push_back(Behind { message, owed });
        self.let_go();
    }

    /// So many bytes have left for a process of this node, or never will.
    fn pay(&mut self, worker: WorkerId, bytes: usize) {
        if self.behind.is_empty() {
            return;
        }
        for (_, left) in self.behind.iter_mut().flat_map(|one| &mut one.owed).filter(|(to, _)| *to == worker)
        {
            *left = left.saturating_sub(bytes);
        }
        self.let_go();
    }

    fn let_go(&mut self) {
        while let Some(first) = self.behind.front()
            && first.owed.iter().all(|(_, left)| *left == 0)
        {
            let message = self.behind.pop_front().expect("it is there").message;
            self.remotes.send_after_flush(message);
        }
        self.take_from_remotes();
    }

    /// Whether messages wait, and whether they should leave now; `time` is the time, if it is known.
    pub(super) fn should_flush(&self, time: Option<Instant>) -> bool {
        if self.dirty.is_empty() {
            return false;
        }
        self.gathered() >= GATHER_BYTES || time.unwrap_or_else(now).since(self.last_flush) >= GATHER_NANOS
    }

    /// Bytes that wait.
    pub(super) fn gathered(&self) -> usize {
        self.dirty.iter().map(|peer| self.waiting(*peer)).sum()
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Whether everything has left, but for peers that are not connected yet; and `said` to processes of
    /// other nodes has arrived.
    pub(super) fn is_empty(&self, said: &Said) -> bool {
        let has_left = |line: &Line| line.socket.is_none() || line.outlet.waiting() == 0;
        has_left(&self.node) && self.workers.values().all(has_left) && self.remotes.has_arrived(said)
    }

    fn waiting(&self, peer: Peer) -> usize {
        match peer {
            Peer::Node => self.node.outlet.waiting(),
            Peer::Worker(worker) if worker.node() == self.here => {
                self.workers.get(&worker).map_or(0, |l| l.outlet.waiting())
            }
            Peer::Worker(worker) => self.remotes.waiting(worker),
        }
    }

    /// Closes the sockets; what waits is dropped.
    pub(super) fn close(&mut self) {
        self.epoll = None;
        self.node.socket = None;
        self.workers.clear();
        self.remotes.close();
    }

    /// Sends what waits, the node's first: it must hear that a block is another process's before that one
    /// hears of the value in it. If this process ended in between, the node would give the block to someone
    /// else while it is read. The time of the last message that left.
    pub(super) fn flush(&mut self) -> Instant {
        self.take_from_remotes();
        if !self.dirty.is_empty() {
            if !self.flush_node() {
                return self.last_flush;
            }
            for peer in std::mem::take(&mut self.dirty) {
                self.flush_peer(peer);
            }
            self.last_flush = now();
            self.take_from_remotes();
            self.flush_node();
        }
        self.last_flush
    }

    /// What lines to other nodes want to say by themselves.
    #[inline]
    fn take_from_remotes(&mut self) {
        if self.remotes.wants_something() {
            for message in self.remotes.take_wants() {
                self.push(Peer::Node, &message);
            }
        }
        if self.remotes.has_dirty() {
            self.dirty.extend(self.remotes.take_dirty().into_iter().map(Peer::Worker));
        }
    }

    /// The socket behind a token can take more.
    pub(super) fn on_writable(&mut self, token: u64, time: Instant) {
        if token == super::NODE_TOKEN {
            self.flush();
        } else if is_remote(token) {
            // What it may send has been let go before: the node has heard what comes first.
            self.remotes.after_read(token, time);
        } else if self.flush_node() {
            self.flush_peer(Peer::Worker(WorkerId(token)));
            self.flush_node();
        } else if let Some(line) = self.workers.get_mut(&WorkerId(token)) {
            // Its turn comes with the node's.
            line.set_full(false, self.epoll.as_ref());
            if !line.is_dirty {
                line.is_dirty = true;
                self.dirty.push(Peer::Worker(WorkerId(token)));
            }
        }
    }

    /// Sends what waits for the node. False while it cannot take all of it; it reads always, so that is not
    /// for long.
    fn flush_node(&mut self) -> bool {
        if self.node.is_dirty || self.node.is_full {
            self.flush_peer(Peer::Node);
        }
        !self.node.is_full
    }

    fn flush_peer(&mut self, peer: Peer) {
        let line = match peer {
            Peer::Node => &mut self.node,
            Peer::Worker(worker) if worker.node() != self.here => return self.remotes.flush(worker, now()),
            Peer::Worker(worker) => match self.workers.get_mut(&worker) {
                Some(line) => line,
                None => return,
            },
        };
        line.is_dirty = false;
        let Some(socket) = &line.socket else { return };
        let before = line.outlet.waiting();
        // A peer that is gone is announced by the node; what waits for it is dropped then.
        let is_full = line.outlet.flush(&**socket) == Flush::Full;
        line.set_full(is_full, self.epoll.as_ref());
        let left = before - line.outlet.waiting();
        if let Peer::Worker(worker) = peer {
            self.pay(worker, left);
        }
    }
}

impl Line {
    fn new(token: u64, socket: Option<Arc<OwnedFd>>) -> Self {
        Self { token, socket, outlet: Outlet::default(), is_full: false, is_dirty: false }
    }

    /// The socket takes no more for now, or does again: then the leader hears when that changes.
    fn set_full(&mut self, is_full: bool, epoll: Option<&Arc<OwnedFd>>) {
        if is_full == self.is_full {
            return;
        }
        self.is_full = is_full;
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, is_full);
        let data = epoll::EventData::new_u64(self.token);
        if let (Some(epoll), Some(socket)) = (epoll, &self.socket) {
            let _ = epoll::modify(&**epoll, &**socket, data, flags);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{Inlet, pair};
    use sooner_wire::message::{GiveBlock, HeldFrom};

    const ME: WorkerId = WorkerId(5);
    const RECEIVER: WorkerId = WorkerId(7);

    fn messages(inlet: &mut Inlet, socket: &OwnedFd) -> Vec<Message> {
        inlet.read_plain(socket);
        std::iter::from_fn(|| inlet.next_message().expect("frames"))
            .map(|received| received.message)
            .collect()
    }

    /// The message about a block and the message with the value in it take different ways.
    #[test]
    fn a_receiver_hears_nothing_before_the_node_has_heard_all() {
        let (node, node_end) = pair().expect("sockets");
        let (worker, worker_end) = pair().expect("sockets");
        let flags = epoll::CreateFlags::CLOEXEC;
        let epoll = Arc::new(epoll::create(flags).expect("a descriptor"));
        let mut outbox = Outbox::new(epoll, Arc::new(node), ME, "3.11");
        outbox.connected(RECEIVER, Arc::new(worker));
        // The receiver's line waits first; and the node's takes more than its socket.
        outbox.push(Peer::Worker(RECEIVER), &Connect { worker: RECEIVER }.into());
        let blocks: usize = 400_000;
        for offset in 0..blocks as u64 {
            outbox.push(Peer::Node, &GiveBlock { offset, owner: RECEIVER, object: None }.into());
        }
        let (mut at_node, mut at_worker) = (Inlet::default(), Inlet::default());
        let mut heard = 0;
        outbox.flush();
        let told = loop {
            outbox.on_writable(RECEIVER.0, Instant(0));
            let told = messages(&mut at_worker, &worker_end);
            if !told.is_empty() {
                break told;
            }
            heard += messages(&mut at_node, &node_end).len();
            outbox.on_writable(crate::client::NODE_TOKEN, Instant(0));
        };
        assert_eq!(told, [Connect { worker: RECEIVER }.into()]);
        assert!(heard > 0, "the node's socket was full");
        // Nothing is sent from here on: what the node did not read had left.
        while heard < blocks {
            let more = messages(&mut at_node, &node_end).len();
            assert!(more > 0, "{heard} of {blocks}");
            heard += more;
        }
    }

    /// Everybody is told that a death is settled when all have answered.
    #[test]
    fn the_node_hears_what_is_held_when_all_else_has_left() {
        let (node, node_end) = pair().expect("sockets");
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor"));
        let mut outbox = Outbox::new(epoll, Arc::new(node), ME, "3.11");
        let mut at_node = Inlet::default();
        let answer = |number| Message::from(HeldFrom { gone: WorkerId(number), held: Vec::new() });
        let other = WorkerId(8);
        // Neither is connected yet; and one takes more than a socket does.
        let words = 400_000;
        for offset in 0..words as u64 {
            outbox.push(Peer::Worker(RECEIVER), &GiveBlock { offset, owner: RECEIVER, object: None }.into());
        }
        outbox.push(Peer::Worker(other), &Connect { worker: other }.into());
        outbox.send_after_flush(answer(1));
        outbox.push(Peer::Worker(other), &Connect { worker: other }.into());
        outbox.send_after_flush(answer(2));
        let connects = [RECEIVER, other].map(|worker| Connect { worker }.into());
        assert_eq!(messages(&mut at_node, &node_end), connects);
        outbox.forget(other);
        let (worker, worker_end) = pair().expect("sockets");
        outbox.connected(RECEIVER, Arc::new(worker));
        outbox.flush();
        let (mut at_worker, mut heard) = (Inlet::default(), 0);
        while heard < words {
            assert_eq!(messages(&mut at_node, &node_end), []);
            // What had left before it was read here, or is in the socket.
            heard += messages(&mut at_worker, &worker_end).len();
            outbox.on_writable(RECEIVER.0, Instant(0));
            if outbox.behind.is_empty() {
                break;
            }
        }
        assert_eq!(messages(&mut at_node, &node_end), [answer(1), answer(2)]);
        while heard < words {
            let more = messages(&mut at_worker, &worker_end).len();
            assert!(more > 0, "{heard} of {words}: it had not left");
            heard += more;
        }
        // Nobody is waited for: at once.
        outbox.send_after_flush(answer(3));
        outbox.flush();
        assert_eq!(messages(&mut at_node, &node_end), [answer(3)]);
    }
}
