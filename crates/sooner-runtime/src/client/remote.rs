//! Lines to processes of other nodes: sessions over encrypted connections, which the node makes for this
//! process.
//!
//! What is sent over them and when it leaves is decided as for local lines ([`super::outbox`]). A process
//! that has no such line pays nothing: no identity is made, and no number is drawn.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use rustls::pki_types::ServerName;
use sooner_protocol::session::Behind;
use sooner_protocol::session::hello::Me;
use sooner_protocol::time::Instant;
use sooner_wire::WorkerId;
use sooner_wire::limits::{LINK_BUFFER_BYTES_MAX, REMOTE_LINES_MAX, SEVERED_NANOS};
use sooner_wire::message::{
    Connect, Credentials, LinkRole, Message, PeerConnected, Sever, Suspect, WorkerDead,
};

use crate::identity::{self, Identity};
use crate::poller::Poller;
use crate::transport::{
    Ended, Failure, Reader, Received, Session, SessionNews, Stream, TlsFailure, TlsStream, Turn,
};

/// The bit of tokens for connections to processes of other nodes. Other tokens are ids of processes, which do
/// not have it.
const REMOTE: u64 = 1 << 63;

/// Whether a token is that of a connection to a process of another node.
pub(super) fn is_remote(token: u64) -> bool {
    token & REMOTE != 0
}

pub(super) struct RemoteLine {
    wire: Session,
    /// The line has frames for the next flush, and is in `Remotes::dirty`.
    is_dirty: bool,
    /// The line retains as much as it may: nothing that can wait is pushed to it.
    is_full: bool,
    /// Bytes that the line retained when they were last counted.
    retained: u64,
    /// The session has ended. The line stays, so that no other session is begun.
    ended: Option<Ending>,
}

struct Ending {
    since: Instant,
    reason: String,
    /// The core has been told that the other process is dead.
    is_told: bool,
    /// There is no route between the nodes of the two processes.
    is_for_ever: bool,
}

/// What was sent until some moment: the lines, and the position of each.
pub(super) type Said = Vec<(WorkerId, u64)>;

/// See the module.
pub(crate) struct Remotes {
    me: Arc<Me>,
    /// `None` once the client is closed.
    poller: Option<Arc<Poller>>,
    credentials: Option<Credentials>,
    identity: Option<Identity>,
    lines: FxHashMap<WorkerId, RemoteLine>,
    tokens: FxHashMap<u64, WorkerId>,
    last_token: u64,
    /// Number of the session that was begun last; zero before the first.
    last_session: u64,
    /// No later than the first deadline of any line.
    due: Option<Instant>,
    /// Messages for the node.
    wants: Vec<Message>,
    /// Messages for the node, each until what was sent before it is acknowledged.
    waits: Behind<Message, (WorkerId, u64)>,
    /// Lines with frames for the next flush.
    dirty: Vec<WorkerId>,
    /// Bytes that all lines retain together.
    retained: u64,
    /// Lines that became full, or have room again, and that the core has not been told of.
    fullness: Vec<(WorkerId, bool)>,
    /// Tokens whose receiving halves are of no use any more.
    closed: Vec<u64>,
}

impl Remotes {
    pub(super) fn new(poller: Arc<Poller>, me: WorkerId, python: &str) -> Self {
        Self {
            me: Arc::new(Me { id: me, is_head: false, python: python.to_owned() }),
            poller: Some(poller),
            credentials: None,
            identity: None,
            lines: FxHashMap::default(),
            tokens: FxHashMap::default(),
            last_token: REMOTE,
            last_session: 0,
            due: None,
            wants: Vec::new(),
            waits: Behind::default(),
            dirty: Vec::new(),
            retained: 0,
            fullness: Vec::new(),
            closed: Vec::new(),
        }
    }

    /// Whether there ever was a line to another node.
    pub(super) fn is_used(&self) -> bool {
        self.last_session != 0
    }

    /// When [`Self::on_timer`] wants to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn record_due(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Takes the messages for the node.
    pub(super) fn take_wants(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.wants)
    }

    pub(super) fn wants_something(&self) -> bool {
        !self.wants.is_empty()
    }

    /// Takes the lines that have something to send by themselves.
    pub(super) fn take_dirty(&mut self) -> Vec<WorkerId> {
        std::mem::take(&mut self.dirty)
    }

    pub(super) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Whether lines became full, or have room again, and the core has not been told.
    #[inline]
    pub(super) fn has_fullness(&self) -> bool {
        !self.fullness.is_empty()
    }

    /// Those lines, and whether they are full.
    pub(super) fn take_fullness(&mut self) -> Vec<(WorkerId, bool)> {
        std::mem::take(&mut self.fullness)
    }

    pub(super) fn take_closed(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.closed)
    }

    /// Sets what the node provides for this process to prove its identity.
    pub(super) fn set_credentials(&mut self, credentials: Credentials) {
        self.credentials = Some(credentials);
        self.identity = None;
    }

    /// The buffer of a line, and whether the line had nothing to send until now.
    pub(super) fn buffer(&mut self, worker: WorkerId, time: Instant) -> (&mut Vec<u8>, bool) {
        if !self.lines.contains_key(&worker) {
            self.begin(worker);
            self.act(worker, time, |wire, turn| wire.connect(turn));
        }
        let line = self.lines.get_mut(&worker).expect("begun above");
        let is_first = !std::mem::replace(&mut line.is_dirty, true);
        (line.wire.buffer(), is_first)
    }

    /// Sends what is queued, as far as the connection takes it.
    pub(super) fn flush(&mut self, worker: WorkerId, time: Instant) {
        let Some(line) = self.lines.get_mut(&worker) else { return };
        line.is_dirty = false;
        if let Some(ending) = line.ended.as_mut().filter(|ending| ending.is_for_ever) {
            // The node will not report the process dead: each new request to it fails again as unreachable.
            ending.is_told = false;
            self.record_due(time);
        }
        self.act(worker, time, |wire, turn| wire.flush(turn));
    }

    /// A connection can take more, or its handshake goes on.
    pub(super) fn after_read(&mut self, token: u64, time: Instant) {
        if let Some(worker) = self.tokens.get(&token).copied() {
            self.act(worker, time, |wire, turn| wire.after_read(token, turn));
        }
    }

    /// A frame has come. A message that is returned counts.
    pub(super) fn receive(
        &mut self,
        worker: WorkerId,
        token: u64,
        received: Received,
        time: Instant,
    ) -> Option<Message> {
        self.act(worker, time, |wire, turn| wire.receive(token, received, turn)).flatten()
    }

    /// A connection has ended. Returns why, if one of its ends did not accept the other's certificate.
    pub(super) fn on_end(
        &mut self,
        token: u64,
        failure: Option<Failure>,
        time: Instant,
    ) -> Option<TlsFailure> {
        let worker = self.tokens.get(&token).copied()?;
        self.act(worker, time, |wire, turn| wire.on_end(token, failure, turn));
        match self.lines.get(&worker)?.wire.failure()? {
            Failure::Ended(Ended::Tls(
                failure @ (TlsFailure::OtherCluster(_) | TlsFailure::NotAccepted(_)),
            )) => Some(failure.clone()),
            _ => None,
        }
    }

    /// The token of the connection that a line uses, if it has one.
    pub(super) fn open_token(&self, worker: WorkerId) -> Option<u64> {
        self.lines.get(&worker).and_then(|line| line.wire.token())
    }

    /// The process is dead: nothing is sent to it, and nothing received from it.
    pub(super) fn forget(&mut self, worker: WorkerId, time: Instant) {
        self.act(worker, time, |wire, turn| wire.close(turn));
        if let Some(line) = self.lines.remove(&worker) {
            self.retained -= line.retained;
        }
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self, worker: WorkerId) -> usize {
        self.lines.get(&worker).map_or(0, |line| line.wire.waiting())
    }

    /// The positions of all that was sent so far and is not acknowledged.
    pub(super) fn said(&mut self) -> Said {
        let positions = self.lines.iter_mut().map(|(worker, line)| (*worker, line.wire.position()));
        let mut said: Said = positions.collect();
        said.retain(|said| !has_reached(&self.lines, said));
        said
    }

    /// Whether all of `said` is acknowledged. Bytes that only have left may be lost when this process ends.
    pub(super) fn has_arrived(&self, said: &Said) -> bool {
        said.iter().all(|said| has_reached(&self.lines, said))
    }

    /// Sends `message` to the node as soon as everything sent so far is acknowledged. Its receivers rely on
    /// that: a process that reads earlier messages only later would be too late.
    pub(super) fn send_after_flush(&mut self, message: Message) {
        let said = self.said();
        self.waits.push(message, said);
        self.release();
    }

    /// Releases the messages that have waited for lines, in order.
    pub(super) fn release(&mut self) {
        self.wants.extend(self.waits.release(|said| has_reached(&self.lines, said)));
    }

    /// The node has a connection for a line, or could not make one; the reason is for people.
    pub(super) fn on_connected(
        &mut self,
        connected: &PeerConnected,
        socket: Result<OwnedFd, String>,
        time: Instant,
    ) -> Option<Reader> {
        let worker = connected.worker;
        if !self.lines.contains_key(&worker) {
            self.begin(worker);
        }
        if let Some(why) = &connected.never {
            self.end_unreachable(worker, time, why);
            return None;
        }
        let dials = connected.link == Some(LinkRole::Dial);
        if dials {
            // It may come unasked, because something is to be said to this process soon.
            self.act_silently(worker, time, |wire, turn| wire.connect(turn));
        }
        let name = connected.name.clone().unwrap_or_default();
        let stream = match socket.and_then(|socket| self.stream(socket, dials, name)) {
            Ok(stream) => stream,
            Err(reason) => {
                if dials {
                    self.act(worker, time, |wire, turn| wire.on_dial_failed(&reason, turn));
                }
                return None;
            }
        };
        self.last_token += 1;
        let token = self.last_token;
        self.tokens.insert(token, worker);
        let begin = if dials { Session::on_dialled } else { Session::on_arrived };
        self.act(worker, time, |wire, turn| begin(wire, stream, token, turn)).flatten()
    }

    /// Time has passed. Returns the processes that this one gives up, although no node reports them dead.
    pub(super) fn on_timer(&mut self, time: Instant) -> Vec<WorkerDead> {
        if self.due.is_none_or(|due| due > time) {
            return Vec::new();
        }
        self.due = None;
        let workers: Vec<WorkerId> = self.lines.keys().copied().collect();
        let mut gone = Vec::new();
        for worker in workers {
            self.act(worker, time, |wire, turn| {
                if wire.next_deadline().is_some_and(|at| at <= turn.time) {
                    wire.on_timer(turn);
                }
            });
            gone.extend(self.given_up(worker, time));
        }
        gone
    }

    /// Closes all connections; what is queued is dropped.
    pub(super) fn close(&mut self) {
        self.poller = None;
        self.lines.clear();
        self.retained = 0;
        self.tokens.clear();
        self.due = None;
    }

    /// The session has ended, and since then the node has not reported what became of the process: it lives
    /// and refuses the session, or its fate cannot be known. Callers have waited long enough.
    fn given_up(&mut self, worker: WorkerId, time: Instant) -> Option<WorkerDead> {
        let ending = self.lines.get_mut(&worker)?.ended.as_mut().filter(|ending| !ending.is_told)?;
        let at = ending.since.plus(SEVERED_NANOS);
        if at > time {
            self.record_due(at);
            return None;
        }
        ending.is_told = true;
        let reason = format!("cannot be reached: {}", ending.reason);
        let unreachable = ending.is_for_ever.then_some(true);
        Some(WorkerDead { worker, reason, all_begun: Some(true), unreachable, ..WorkerDead::default() })
    }

    fn begin(&mut self, worker: WorkerId) {
        if self.last_session == 0 {
            self.last_session = drawn();
        }
        self.last_session = self.last_session.wrapping_add(1).max(1);
        let wins = self.me.id < worker;
        let wire = Session::new(self.me.clone(), worker, self.last_session, wins);
        self.lines
            .insert(worker, RemoteLine { wire, is_dirty: false, is_full: false, retained: 0, ended: None });
    }

    fn stream(&mut self, socket: OwnedFd, dials: bool, name: String) -> Result<Stream, String> {
        let identity = self.identity()?;
        let tls = if dials {
            let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
            TlsStream::dial(socket, identity, name)
        } else {
            TlsStream::accept(socket, identity)
        };
        Ok(Stream::Tls(Box::new(tls)))
    }

    fn identity(&mut self) -> Result<&Identity, String> {
        if self.identity.is_none() {
            let Some(said) = &self.credentials else {
                return Err("the node has given this process no credentials".to_owned());
            };
            let credentials = identity::Credentials {
                node: said.node,
                certificate: said.certificate.as_slice().to_vec(),
                key: said.key.as_slice().to_vec(),
                roots: said.roots.iter().map(|root| root.as_slice().to_vec()).collect(),
            };
            self.identity = Some(Identity::new(&credentials).map_err(|error| error.to_string())?);
        }
        Ok(self.identity.as_ref().expect("made above"))
    }

    /// Lets a line work, and carries out what follows from it.
    fn act<R>(
        &mut self,
        worker: WorkerId,
        time: Instant,
        work: impl FnOnce(&mut Session, Turn<'_>) -> R,
    ) -> Option<R> {
        let poller = self.poller.as_ref()?;
        let line = self.lines.get_mut(&worker)?;
        let result = work(&mut line.wire, Turn { poller, time });
        if !line.is_dirty && line.wire.wants_flush() {
            line.is_dirty = true;
            self.dirty.push(worker);
        }
        let retained = line.wire.retained() as u64;
        self.retained = self.retained - line.retained + retained;
        line.retained = retained;
        // The line has room again when half of its limit is acknowledged: not with each acknowledgement.
        let is_full =
            line.wire.is_full(self.retained) || (line.is_full && retained > LINK_BUFFER_BYTES_MAX as u64 / 2);
        if is_full != line.is_full {
            line.is_full = is_full;
            self.fullness.push((worker, is_full));
        }
        let deadline = line.wire.next_deadline();
        if line.wire.has_news() {
            let news = line.wire.take_news();
            self.on_news(worker, news, time);
        }
        if let Some(deadline) = deadline {
            self.record_due(deadline);
        }
        Some(result)
    }

    /// [`Self::act`], when the node need not be asked for a connection.
    fn act_silently(&mut self, worker: WorkerId, time: Instant, work: impl FnOnce(&mut Session, Turn<'_>)) {
        let wants = self.wants.len();
        self.act(worker, time, work);
        self.wants.truncate(wants);
    }

    fn on_news(&mut self, worker: WorkerId, news: Vec<SessionNews>, time: Instant) {
        for one in news {
            match one {
                SessionNews::Dial if self.open_lines() > REMOTE_LINES_MAX => self.refuse(worker, time),
                SessionNews::Dial => self.wants.push(Connect { worker }.into()),
                SessionNews::Opened => {}
                SessionNews::Closed(token) => {
                    self.tokens.remove(&token);
                    self.closed.push(token);
                }
                SessionNews::Ended(reason) => {
                    // As far as known both processes live, and each will treat the other as dead. The nodes
                    // end one of them, so that this becomes true.
                    self.wants.push(Sever { worker, class: None }.into());
                    self.wants.push(Suspect { node: worker.node(), is_given_up: None }.into());
                    self.end(worker, time, reason);
                }
            }
        }
    }

    fn end(&mut self, worker: WorkerId, since: Instant, reason: String) {
        if let Some(line) = self.lines.get_mut(&worker) {
            line.ended = Some(Ending { since, reason, is_told: false, is_for_ever: false });
        }
        self.record_due(since.plus(SEVERED_NANOS));
    }

    fn open_lines(&self) -> usize {
        self.lines.values().filter(|line| line.ended.is_none()).count()
    }

    /// There is no route between the nodes of the two processes: no caller needs to wait, and neither process
    /// is killed for it.
    fn end_unreachable(&mut self, worker: WorkerId, time: Instant, why: &str) {
        if self.lines.get(&worker).is_none_or(|line| line.ended.is_some()) {
            return;
        }
        self.act_silently(worker, time, |wire, turn| wire.end(why, turn));
        self.end(worker, Instant(time.0.saturating_sub(SEVERED_NANOS)), why.to_owned());
        if let Some(ending) = self.lines.get_mut(&worker).and_then(|line| line.ended.as_mut()) {
            ending.is_for_ever = true;
        }
    }

    /// There are too many lines: this one is refused.
    fn refuse(&mut self, worker: WorkerId, time: Instant) {
        let reason = format!(
            "this process has connections to {REMOTE_LINES_MAX} processes of other nodes already; let several processes share the work"
        );
        self.end(worker, Instant(time.0.saturating_sub(SEVERED_NANOS)), reason);
    }
}

/// Whether a line is acknowledged up to a position, or never will be.
fn has_reached(lines: &FxHashMap<WorkerId, RemoteLine>, (worker, position): &(WorkerId, u64)) -> bool {
    let line = lines.get(worker);
    line.is_none_or(|line| line.ended.is_some() || line.wire.has_reached(*position))
}

/// A random first number for sessions, which no other process draws.
fn drawn() -> u64 {
    let mut bytes = [0; 8];
    let drawn = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match drawn {
        Ok(8) => u64::from_ne_bytes(bytes) >> 1,
        // A kernel without randomness cannot make keys either; the time tells two lives of a process apart.
        _ => crate::clock::now().0,
    }
}
