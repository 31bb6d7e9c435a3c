//! What happens with what was read: messages go to their receivers, ends and new lines are recorded.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustc_hash::{FxHashMap, FxHashSet};
use sooner_protocol::time::Instant;
use sooner_protocol::worker::action::Peer;
use sooner_wire::WorkerId;
use sooner_wire::frame::FrameError;
use sooner_wire::message::{Message, PeerConnected, Refused};

use super::holding::Held;
use super::remote::is_remote;
use super::shared::Shared;
use super::{Client, NODE_TOKEN};
use crate::clock::now;
use crate::poller::{Events, Interest, Poller};
use crate::transport::{Ended, Failure, Inlet, ReadResult, Reader, Received};
use crate::ulimits::told;
use crate::wait::Spinner;

/// One receiving half.
pub(super) struct Inbound {
    peer: Peer,
    half: Half,
}

enum Half {
    /// A process of this machine, or the node.
    Local(Arc<OwnedFd>, Inlet),
    /// A process of another node.
    Remote(Reader),
}

/// Everything the leader holds.
pub(crate) struct Lead {
    /// `None` once the client is closed.
    pub(super) poller: Option<Arc<Poller>>,
    /// What the last look found.
    pub(super) events: Events,
    pub(super) inbound: FxHashMap<u64, Inbound>,
    pub(super) spinner: Spinner,
    /// The token of the socket that was readable last: looked at first.
    pub(super) last: u64,
    /// Messages that were read and go to the core next; empty between looks.
    pub(super) batch: Batch,
    /// When something was read last.
    pub(super) read_at: Instant,
    /// Messages of the node that are held back.
    pub(super) held: Option<Held>,
    /// Processes to which a connection came without a descriptor, because this process had no room for one.
    pub(super) lacking: FxHashSet<WorkerId>,
}

/// Messages, their senders, and the tokens under which they came.
pub(super) type Batch = Vec<(Peer, u64, Received)>;

/// Messages that are read before the core gets them. They are read without the core's lock, and are few
/// enough to stay in the processor's cache.
const BATCH_MESSAGES: usize = 128;

impl Client {
    /// Passes what came with the node's welcome through the core.
    pub(super) fn receive_greeting(&self, lead: &mut Lead) {
        self.receive(lead, &[(NODE_TOKEN, ReadResult::Some)]);
    }

    /// Passes what was read through the core and sends what follows.
    pub(super) fn receive(&self, lead: &mut Lead, reads: &[(u64, ReadResult)]) {
        let time = now();
        lead.read_at = time;
        let mut batch = std::mem::take(&mut lead.batch);
        let mut ended = Vec::new();
        // The node last: when it announces the death of a process, what that process sent before counts.
        let workers = reads.iter().filter(|(token, _)| *token != NODE_TOKEN);
        let node = reads.iter().filter(|(token, _)| *token == NODE_TOKEN);
        for (token, result) in workers.chain(node) {
            if is_remote(*token) {
                self.shared.lock().outbox.remotes.after_read(*token, time);
            }
            while let Some(inbound) = lead.inbound.get_mut(token) {
                match inbound.fill(*token, &mut batch) {
                    Ok(true) => self.carry(lead, &mut self.shared.lock(), &mut batch, time),
                    Ok(false) => break,
                    Err(error) => {
                        ended.push((*token, Some(Failure::Ended(Ended::Frame(error.to_string())))));
                        break;
                    }
                }
            }
            if *result == ReadResult::End {
                ended.push((*token, None));
            }
        }
        let mut shared = self.shared.lock();
        self.carry(lead, &mut shared, &mut batch, time);
        lead.batch = batch;
        for (token, failure) in ended {
            self.end_inbound(lead, &mut shared, token, failure, time);
        }
        if shared.outbox.remotes.is_used() {
            self.attend_remotes(lead, &mut shared, time);
        }
        self.step_locked(&mut shared, |core, out| core.on_timer(time, out));
        shared.outbox.flush();
        let aftermath = self.take_aftermath(&mut shared);
        drop(shared);
        self.attention.fetch_add(1, Ordering::Release);
        self.finish(aftermath);
        self.wake_followers();
    }

    fn carry(&self, lead: &mut Lead, shared: &mut Shared, batch: &mut Batch, time: Instant) {
        for (peer, token, received) in batch.drain(..) {
            match peer {
                Peer::Worker(worker) if is_remote(token) => {
                    self.receive_remote(shared, worker, token, received, time);
                }
                Peer::Node if lead.held.is_some() => lead.hold_back(received),
                _ => self.on_received(lead, shared, peer, received, time),
            }
        }
    }

    /// A message of a process of another node. Only frames of the session's current connection count, and
    /// such a process cannot speak for the node.
    pub(super) fn receive_remote(
        &self,
        shared: &mut Shared,
        worker: WorkerId,
        token: u64,
        received: Received,
        time: Instant,
    ) {
        let Some(mut message) = shared.outbox.remotes.receive(worker, token, received, time) else { return };
        message.localise_from(worker, self.me.node());
        self.step_locked(shared, |core, out| core.on_message(Peer::Worker(worker), message, time, out));
    }

    pub(super) fn on_received(
        &self,
        lead: &mut Lead,
        shared: &mut Shared,
        peer: Peer,
        mut received: Received,
        time: Instant,
    ) {
        match &mut received.message {
            Message::PeerConnected(connected) => {
                let socket = received.descriptors.pop();
                if socket.is_none() && connected.link.is_none() {
                    return lead.go_without(shared, connected.worker);
                }
                let socket =
                    socket.ok_or_else(|| lead.why_without(connected.worker, received.lacks_descriptors));
                return Self::on_peer_connected(lead, shared, connected, socket, time);
            }
            Message::WorkerDead(gone) if gone.worker.node() == self.me.node() => {
                if lead.lacking.remove(&gone.worker) {
                    // Nothing has reached the worker, but the next one may not be reachable either. So this
                    // counts as a failed attempt, of which there are only so many.
                    gone.all_begun = Some(true);
                }
                // Replies that were sent before the death count: read them first.
                self.drain_peer(lead, shared, gone.worker.0, time);
                shared.outbox.forget(gone.worker);
            }
            Message::WorkerDead(gone) => {
                let worker = gone.worker;
                if lead.lacking.remove(&worker) {
                    // As above. The worker counts as dead because it was not reached.
                    gone.all_begun = Some(true);
                    gone.reason = format!("{}: {}", gone.reason, without_descriptors());
                }
                if self.must_hold(lead, shared, worker, time) {
                    return lead.hold_back(received);
                }
                shared.outbox.remotes.forget(worker, time);
            }
            Message::Credentials(credentials) => {
                return shared.outbox.remotes.set_credentials(credentials.clone());
            }
            Message::Inspect(question) => return self.inspect(shared, question),
            Message::TrimBlocks(trim) => {
                let back = shared.cache.clear();
                shared.outbox.free_blocks(back);
                let is_full = Some(trim.moves != Some(true));
                shared.aftermath.memory_pressure = shared.aftermath.memory_pressure.max(is_full);
                return;
            }
            Message::Shutdown(shutdown) => {
                return self.end(shared, &shutdown.reason);
            }
            Message::ExitActor(_) => {
                return self.end(shared, "actor exit");
            }
            _ => {}
        }
        let is_loss = matches!(received.message, Message::BlocksLost(_));
        let other = self.step_locked(shared, |core, out| core.on_message(peer, received.message, time, out));
        if is_loss {
            // A lost block may be in the cache for reuse, also since a handle that was dropped just now.
            let kept = shared.cache.clear();
            shared.outbox.free_blocks(kept);
        }
        if let Some(other) = other {
            self.on_not_for_the_core(shared, other);
        }
    }

    /// What the core hands back: answers that a thread waits for, and questions about blocks without a value.
    fn on_not_for_the_core(&self, shared: &mut Shared, message: Message) {
        let (request, answer) = match message {
            Message::EndIdle(_) => return self.end(shared, "idle"),
            Message::Allocated(answer) => (answer.request, answer.into()),
            Message::Answer(answer) => (answer.request, answer.into()),
            Message::GroupState(answer) => (answer.request, answer.into()),
            Message::GivenBlocks(question) => return shared.disown_unknown(question),
            Message::ReadersOf(question) => {
                let kept = shared.without_value(&question.places);
                return self.step_locked(shared, |core, out| {
                    core.on_readers_of(question, |b| kept.contains(&b), out)
                });
            }
            _ => return,
        };
        if let Some(waiting) = shared.answers.get_mut(&request) {
            *waiting = Some(answer);
        }
    }

    /// Reports to the node why this process is about to end.
    pub fn complain(&self, reason: &str) {
        complain(&mut self.shared.lock(), reason);
    }

    fn on_peer_connected(
        lead: &mut Lead,
        shared: &mut Shared,
        connected: &PeerConnected,
        socket: Result<OwnedFd, String>,
        time: Instant,
    ) {
        let peer = Peer::Worker(connected.worker);
        if socket.is_ok() {
            lead.lacking.remove(&connected.worker);
        }
        if connected.link.is_some() {
            if let Some(reader) = shared.outbox.remotes.on_connected(connected, socket, time) {
                lead.inbound.insert(reader.token(), Inbound { peer, half: Half::Remote(reader) });
            }
            return;
        }
        let Ok(socket) = socket else { return };
        shared.outbox.push(Peer::Node, &PeerConnected::pair(connected.worker).into());
        let socket = Arc::new(socket);
        let token = connected.worker.0;
        if let Some(poller) = &lead.poller {
            let _ = poller.add(&*socket, token, Interest::Read);
        }
        lead.inbound.insert(token, Inbound::local(peer, socket.clone(), Inlet::default()));
        shared.outbox.connected(connected.worker, socket);
    }

    fn drain_peer(&self, lead: &mut Lead, shared: &mut Shared, token: u64, time: Instant) {
        let Some(mut inbound) = lead.inbound.remove(&token) else { return };
        while inbound.read() == ReadResult::Some {}
        while let Ok(Some(received)) = inbound.next_message() {
            let peer = inbound.peer;
            self.step_locked(shared, |core, out| core.on_message(peer, received.message, time, out));
        }
        lead.unwatch(&inbound);
    }

    pub(super) fn end_inbound(
        &self,
        lead: &mut Lead,
        shared: &mut Shared,
        token: u64,
        failure: Option<Failure>,
        time: Instant,
    ) {
        let Some(inbound) = lead.inbound.remove(&token) else { return };
        lead.unwatch(&inbound);
        if is_remote(token) {
            let mistrust = shared.outbox.remotes.on_end(token, failure, time);
            shared.aftermath.mistrust = mistrust.or(shared.aftermath.mistrust.take());
        }
        if token == NODE_TOKEN {
            self.end(shared, "the node is gone");
        }
    }

    /// The session is over for this process, which did not end it itself.
    fn end(&self, shared: &mut Shared, reason: &str) {
        shared.aftermath.end = Some(reason.to_owned());
        let _ = self.end_reason.set(reason.to_owned());
        self.closed.store(true, Ordering::Release);
    }
}

/// The reason if a connection did not come: the limit on descriptors, and whose it is.
fn without_descriptors() -> String {
    told(&rustix::io::Errno::MFILE.into())
}

fn complain(shared: &mut Shared, reason: &str) {
    shared.outbox.push(Peer::Node, &Refused { reason: reason.to_owned() }.into());
    shared.outbox.flush();
}

impl Lead {
    /// Why there is no connection to a process: that node cannot be reached, or this process lacks a
    /// descriptor for it.
    fn why_without(&mut self, worker: WorkerId, lacks_descriptors: bool) -> String {
        if lacks_descriptors {
            self.lacking.insert(worker);
            return without_descriptors();
        }
        "the other node cannot be reached".to_owned()
    }

    /// The kernel leaves out a connection for which this process has no descriptor. The node still has it: it
    /// is told so, and tries again.
    fn go_without(&mut self, shared: &mut Shared, worker: WorkerId) {
        self.lacking.insert(worker);
        let answer = PeerConnected { never: Some(without_descriptors()), ..PeerConnected::pair(worker) };
        shared.outbox.push(Peer::Node, &answer.into());
    }

    fn unwatch(&self, inbound: &Inbound) {
        if let (Some(poller), Half::Local(socket, _)) = (&self.poller, &inbound.half) {
            let _ = poller.remove(&**socket);
        }
    }
}

impl Inbound {
    pub(super) fn local(peer: Peer, socket: Arc<OwnedFd>, inlet: Inlet) -> Self {
        Self { peer, half: Half::Local(socket, inlet) }
    }

    pub(super) fn read(&mut self) -> ReadResult {
        match (&mut self.half, self.peer) {
            (Half::Local(socket, inlet), Peer::Worker(_)) => inlet.read_plain(&**socket),
            (Half::Local(socket, inlet), Peer::Node) => inlet.read(&**socket),
            (Half::Remote(reader), _) => reader.read(),
        }
    }

    pub(super) fn next_message(&mut self) -> Result<Option<Received>, FrameError> {
        match &mut self.half {
            Half::Local(_, inlet) => inlet.next_message(),
            Half::Remote(reader) => reader.next_message(),
        }
    }

    /// Takes messages from what was read until the batch is full. False if there are no more.
    fn fill(&mut self, token: u64, batch: &mut Batch) -> Result<bool, FrameError> {
        while batch.len() < BATCH_MESSAGES {
            let Some(received) = self.next_message()? else { return Ok(false) };
            batch.push((self.peer, token, received));
        }
        Ok(true)
    }
}
