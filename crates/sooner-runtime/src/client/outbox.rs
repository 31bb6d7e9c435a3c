//! Messages to be sent, per peer, and when they leave.
//!
//! A message leaves at once when nothing was sent for 50 us: a single call has no delay. While messages come
//! faster than that they are collected and leave together: when the sender waits, when 32 KiB have gathered,
//! when 50 us have passed and another comes, or when the background thread looks, within a millisecond.
//! Batches form from what has queued up, never by waiting for more.
//!
//! Which peer is sent to first, and which message waits for others, is not decided here
//! ([`sooner_protocol::session::flush_order`], [`sooner_protocol::session::behind`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use sooner_protocol::session::{Behind, FlushOrder, Turn};
use sooner_protocol::time::Instant;
use sooner_protocol::worker::action::Peer;
use sooner_wire::message::{Connect, FreeBlocks, Message, Place};
use sooner_wire::{BlockId, NodeId, WorkerId};

use super::remote::{Remotes, Said, is_remote};
use crate::clock::now;
use crate::poller::{Interest, Poller};
use crate::transport::{Flush, Outlet};

const GATHER_NANOS: u64 = 50_000;
const GATHER_BYTES: usize = 32 << 10;

struct Line {
    token: u64,
    /// `None` until the node has connected us.
    socket: Option<Arc<OwnedFd>>,
    outlet: Outlet,
    /// Bytes that have left so far.
    sent: u64,
    is_full: bool,
    /// The line has a turn with the next flush. Unused for the node's line, of which there is one.
    is_dirty: bool,
}

/// See the module.
pub(crate) struct Outbox {
    /// `None` once the client is closed.
    poller: Option<Arc<Poller>>,
    node: Line,
    workers: FxHashMap<WorkerId, Line>,
    /// Lines to processes of other nodes.
    pub(super) remotes: Remotes,
    here: NodeId,
    order: FlushOrder<WorkerId>,
    /// Messages to the node, each waiting until lines to local processes have sent so many bytes.
    behind: Behind<Message, (WorkerId, u64)>,
    last_flush: Instant,
}

impl Outbox {
    /// `me` is this process, and `python` the version that it runs.
    pub(super) fn new(poller: Arc<Poller>, node: Arc<OwnedFd>, me: WorkerId, python: &str) -> Self {
        Self {
            remotes: Remotes::new(poller.clone(), me, python),
            here: me.node(),
            poller: Some(poller),
            node: Line::new(super::NODE_TOKEN, Some(node)),
            workers: FxHashMap::default(),
            order: FlushOrder::default(),
            behind: Behind::default(),
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
            Peer::Node => {
                self.order.mark_node();
                &mut self.node
            }
            Peer::Worker(worker) => {
                let line = self.workers.get_mut(&worker).expect("inserted above");
                line.mark(worker, &mut self.order);
                line
            }
        };
        line.outlet.buffer()
    }

    fn begin(&mut self, worker: WorkerId) {
        self.workers.insert(worker, Line::new(worker.0, None));
        self.push(Peer::Node, &Connect { worker }.into());
    }

    fn remote_buffer(&mut self, worker: WorkerId) -> &mut Vec<u8> {
        let (buffer, is_first) = self.remotes.buffer(worker, now());
        if is_first {
            self.order.mark(worker);
        }
        buffer
    }

    pub(super) fn push(&mut self, to: Peer, message: &Message) {
        message.append(self.buffer(to), 0);
    }

    pub(super) fn free_blocks(&mut self, blocks: Vec<BlockId>) {
        if !blocks.is_empty() {
            let places = blocks.into_iter().map(Place::from).collect();
            self.push(Peer::Node, &FreeBlocks { places }.into());
        }
    }

    /// The node connected this process with a worker.
    pub(super) fn connected(&mut self, worker: WorkerId, socket: Arc<OwnedFd>) {
        let line = self.workers.entry(worker).or_insert_with(|| Line::new(worker.0, None));
        line.socket = Some(socket);
        if line.outlet.waiting() > 0 {
            line.mark(worker, &mut self.order);
        }
    }

    /// The worker is dead: nothing is sent to it any more.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
        self.let_go();
    }

    /// Sends `message` to the node after all messages queued so far: flushed for local peers, acknowledged
    /// for remote ones. A local process reads what has left for it before anything that the node sends it
    /// afterwards.
    pub(super) fn send_after_flush(&mut self, message: Message) {
        self.flush();
        let waiting = self.workers.iter().filter(|(_, line)| line.outlet.waiting() > 0);
        let owed = waiting.map(|(worker, line)| (*worker, line.sent + line.outlet.waiting() as u64));
        self.behind.push(message, owed.collect());
        self.let_go();
    }

    /// Releases messages for which bytes have left for a local process, or never will.
    fn let_go(&mut self) {
        if self.behind.is_empty() {
            return;
        }
        let Self { behind, workers, .. } = self;
        for message in
            behind.release(|(to, position)| workers.get(to).is_none_or(|line| line.sent >= *position))
        {
            self.remotes.send_after_flush(message);
        }
        self.take_from_remotes();
    }

    /// Whether messages wait and should leave now. `time` is the current time, if it is known.
    pub(super) fn should_flush(&self, time: Option<Instant>) -> bool {
        if self.order.is_empty() {
            return false;
        }
        self.gathered() >= GATHER_BYTES || time.unwrap_or_else(now).since(self.last_flush) >= GATHER_NANOS
    }

    /// Bytes that wait.
    pub(super) fn gathered(&self) -> usize {
        self.node.outlet.waiting() + self.order.others().map(|worker| self.waiting(worker)).sum::<usize>()
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.order.is_empty()
    }

    /// Whether everything has left, except to peers that are not connected yet, and `said` has arrived at
    /// processes of other nodes.
    pub(super) fn is_empty(&self, said: &Said) -> bool {
        let has_left = |line: &Line| line.socket.is_none() || line.outlet.waiting() == 0;
        has_left(&self.node) && self.workers.values().all(has_left) && self.remotes.has_arrived(said)
    }

    fn waiting(&self, worker: WorkerId) -> usize {
        if worker.node() == self.here {
            self.workers.get(&worker).map_or(0, |line| line.outlet.waiting())
        } else {
            self.remotes.waiting(worker)
        }
    }

    /// Closes the sockets; what waits is dropped.
    pub(super) fn close(&mut self) {
        self.poller = None;
        self.node.socket = None;
        self.workers.clear();
        self.remotes.close();
    }

    /// Sends what is queued, the node's messages first. Returns the time of the last message that left.
    pub(super) fn flush(&mut self) -> Instant {
        self.take_from_remotes();
        if !self.order.is_empty() {
            self.order.begin();
            self.take_turns();
            if self.order.is_held_up() {
                return self.last_flush;
            }
            self.last_flush = now();
            self.take_from_remotes();
            self.take_turns();
        }
        self.last_flush
    }

    fn take_turns(&mut self) {
        while let Some(turn) = self.order.take_turn() {
            match turn {
                Turn::Node => self.flush_to_node(),
                Turn::Other(worker) => self.flush_to(worker),
            }
        }
    }

    /// Takes what lines to other nodes want to send by themselves.
    #[inline]
    fn take_from_remotes(&mut self) {
        if self.remotes.wants_something() {
            for message in self.remotes.take_wants() {
                self.push(Peer::Node, &message);
            }
        }
        if self.remotes.has_dirty() {
            self.remotes.take_dirty().into_iter().for_each(|worker| self.order.mark(worker));
        }
    }

    /// The socket behind a token can take more.
    pub(super) fn on_writable(&mut self, token: u64, time: Instant) {
        if token == super::NODE_TOKEN {
            self.flush();
        } else if is_remote(token) {
            // What it may send was released before: the node has received what comes first.
            self.remotes.after_read(token, time);
        } else if self.flush_node() {
            self.flush_to(WorkerId(token));
            self.flush_node();
        } else if let Some(line) = self.workers.get_mut(&WorkerId(token)) {
            // The worker's turn comes with the node's.
            line.set_full(false, self.poller.as_ref());
            line.mark(WorkerId(token), &mut self.order);
        }
    }

    /// Sends what is queued for the node. False while the socket cannot take all of it.
    fn flush_node(&mut self) -> bool {
        self.order.retry_node();
        if self.order.take_node() {
            self.flush_to_node();
        }
        !self.order.is_held_up()
    }

    fn flush_to_node(&mut self) {
        self.node.flush(self.poller.as_ref());
        self.order.on_node_flushed(self.node.is_full);
    }

    fn flush_to(&mut self, worker: WorkerId) {
        if worker.node() != self.here {
            return self.remotes.flush(worker, now());
        }
        let Some(line) = self.workers.get_mut(&worker) else { return };
        line.is_dirty = false;
        line.flush(self.poller.as_ref());
        self.let_go();
    }
}

impl Line {
    fn new(token: u64, socket: Option<Arc<OwnedFd>>) -> Self {
        Self { token, socket, outlet: Outlet::default(), sent: 0, is_full: false, is_dirty: false }
    }

    /// Marks that bytes wait for the process at the other end, which is local.
    fn mark(&mut self, worker: WorkerId, order: &mut FlushOrder<WorkerId>) {
        if !self.is_dirty {
            self.is_dirty = true;
            order.mark(worker);
        }
    }

    /// Sends what the socket takes.
    fn flush(&mut self, poller: Option<&Arc<Poller>>) {
        let Some(socket) = &self.socket else { return };
        let before = self.outlet.waiting();
        // The node announces that a peer is dead; what is queued for it is dropped then.
        let is_full = self.outlet.flush(&**socket) == Flush::Full;
        self.sent += (before - self.outlet.waiting()) as u64;
        self.set_full(is_full, poller);
    }

    /// Records whether the socket is full. While it is, the leader watches for it to become writable.
    fn set_full(&mut self, is_full: bool, poller: Option<&Arc<Poller>>) {
        if is_full == self.is_full {
            return;
        }
        self.is_full = is_full;
        if let (Some(poller), Some(socket)) = (poller, &self.socket) {
            let _ = poller.change(&**socket, self.token, Interest::read_and(is_full));
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
        let poller = Arc::new(Poller::new().expect("a descriptor"));
        let mut outbox = Outbox::new(poller, Arc::new(node), ME, "3.11");
        outbox.connected(RECEIVER, Arc::new(worker));
        // The receiver's line waits first; and the node's takes more than its socket.
        outbox.push(Peer::Worker(RECEIVER), &Connect { worker: RECEIVER }.into());
        let blocks: usize = 400_000;
        for offset in 0..blocks as u64 {
            outbox.push(
                Peer::Node,
                &GiveBlock { block: BlockId(offset), owner: RECEIVER, object: None }.into(),
            );
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
        let poller = Arc::new(Poller::new().expect("a descriptor"));
        let mut outbox = Outbox::new(poller, Arc::new(node), ME, "3.11");
        let mut at_node = Inlet::default();
        let answer = |number| Message::from(HeldFrom { gone: WorkerId(number), held: Vec::new() });
        let other = WorkerId(8);
        // Neither is connected yet; and one takes more than a socket does.
        let words = 400_000;
        for offset in 0..words as u64 {
            outbox.push(
                Peer::Worker(RECEIVER),
                &GiveBlock { block: BlockId(offset), owner: RECEIVER, object: None }.into(),
            );
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
