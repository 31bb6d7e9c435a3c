//! Two ends of a session with somebody in between who passes on bytes and cuts connections. Time is made up.

use std::collections::VecDeque;
use std::sync::Arc;

use sooner_protocol::session::hello::{HEAD, Me, hello};
use sooner_protocol::time::Instant;
use sooner_wire::limits::{HANDSHAKE_NANOS, LINK_BUFFER_BYTES_MAX, LINK_PATIENCE_NANOS};
use sooner_wire::message::{Connect, Message, Refused, SessionEnded};
use sooner_wire::{DialAttempt, WorkerId};

use super::*;
use crate::poller::{Events, Poller};

const MILLI: u64 = 1_000_000;

fn process(node: NodeId, number: u64) -> Arc<Me> {
    Arc::new(Me { id: WorkerId(node.0 + number), is_head: number == 0, python: "3.11".into() })
}

/// A frame with a number in it.
fn numbered(number: u64) -> Message {
    Connect { worker: WorkerId(number) }.into()
}

struct Peer {
    line: EpollSession,
    identity: Option<Identity>,
    poller: Poller,
    heard: Vec<Message>,
    news: Vec<SessionNews>,
    wants_dial: bool,
}

impl Peer {
    fn new(me: Arc<Me>, peer: WorkerId, session: u64, identity: Option<Identity>) -> Self {
        let wins = me.id < peer;
        let line = EpollSession::new(me, peer, session, wins);
        let poller = Poller::new().expect("a descriptor");
        Self { line, identity, poller, heard: Vec::new(), news: Vec::new(), wants_dial: false }
    }

    fn act<R>(&mut self, time: Instant, work: impl FnOnce(&mut EpollSession, Turn<'_>) -> R) -> R {
        let result = work(&mut self.line, Turn { poller: &self.poller, time });
        let news = self.line.take_news();
        self.wants_dial |= news.contains(&SessionNews::Dial);
        self.news.extend(news.into_iter().filter(|one| *one != SessionNews::Dial));
        result
    }

    /// Reads and writes what is possible now.
    fn turn(&mut self, time: Instant) -> bool {
        let mut events = Events::with_capacity(8);
        let _ = self.poller.wait(&mut events, Some(0));
        for event in &events {
            let mut heard = Vec::new();
            self.act(time, |line, turn| line.on_ready(event, turn, &mut heard));
            self.heard.extend(heard);
        }
        self.act(time, |line, turn| line.flush(turn));
        !events.is_empty()
    }

    fn numbers(&self) -> Vec<u64> {
        let number = |message: &Message| match message {
            Message::Connect(connect) => connect.worker.0,
            other => panic!("{other:?}"),
        };
        self.heard.iter().map(number).collect()
    }

    fn has_ended(&self) -> Option<&str> {
        self.news
            .iter()
            .find_map(|one| if let SessionNews::Ended(reason) = one { Some(&**reason) } else { None })
    }

    fn times_opened(&self) -> usize {
        self.news.iter().filter(|one| matches!(one, SessionNews::Opened)).count()
    }
}

/// A connection, seen from its middle.
struct Passage {
    middle: [OwnedFd; 2],
    /// Bytes that each end may still send before the connection is cut.
    left: [usize; 2],
    waiting: [VecDeque<u8>; 2],
}

struct Pair {
    peers: [Peer; 2],
    passages: Vec<Passage>,
    /// Of connections to come.
    limits: VecDeque<[usize; 2]>,
    tokens: u64,
    time: Instant,
    /// Dials fail.
    is_parted: bool,
}

impl Pair {
    fn new(peers: [Peer; 2]) -> Self {
        let (passages, limits) = (Vec::new(), VecDeque::new());
        Self { peers, passages, limits, tokens: 10, time: Instant(1 << 40), is_parted: false }
    }

    fn plain() -> Self {
        let (a, b) = (process(A, 1), process(B, 2));
        Self::new([Peer::new(a.clone(), b.id, 71, None), Peer::new(b, a.id, 72, None)])
    }

    fn encrypted() -> Self {
        let (a, b) = (process(A, 1), process(B, 2));
        let at_a = Peer::new(a.clone(), b.id, 71, Some(member(A, CLUSTER)));
        Self::new([at_a, Peer::new(b, a.id, 72, Some(member(B, CLUSTER)))])
    }

    fn send(&mut self, from: usize, message: &Message) {
        let time = self.time;
        self.peers[from].act(time, |line, turn| {
            line.push(message);
            line.flush(turn);
        });
    }

    fn dial(&mut self, from: usize) {
        self.peers[from].wants_dial = false;
        let time = self.time;
        if self.is_parted {
            return self.peers[from]
                .act(time, |line, turn| line.on_dial_failed("nobody listens there", turn));
        }
        let ((at_dialler, first), (second, at_dialled)) =
            (pair().expect("sockets"), pair().expect("sockets"));
        let middle = if from == 0 { [first, second] } else { [second, first] };
        let left = self.limits.pop_front().unwrap_or([usize::MAX; 2]);
        self.passages.push(Passage { middle, left, waiting: Default::default() });
        self.tokens += 1;
        let token = self.tokens;
        let [a, b] = &mut self.peers;
        let (dialler, dialled) = if from == 0 { (a, b) } else { (b, a) };
        let name = Destination::Node.server_name(dialler.line.peer().node());
        let stream = match &dialled.identity {
            None => Stream::Unix(at_dialled),
            Some(identity) => Stream::Tls(Box::new(TlsStream::accept(at_dialled, identity))),
        };
        dialled.act(time, |line, turn| line.on_arrived(stream, token, turn));
        let stream = match &dialler.identity {
            None => Stream::Unix(at_dialler),
            Some(identity) => Stream::Tls(Box::new(TlsStream::dial(at_dialler, identity, name))),
        };
        dialler.act(time, |line, turn| line.on_dialled(stream, token, turn));
    }

    /// One round of everything. False if nothing moved.
    fn turn(&mut self) -> bool {
        let mut moved = false;
        for from in 0..2 {
            if self.peers[from].wants_dial {
                self.dial(from);
                moved = true;
            }
            moved |= self.peers[from].turn(self.time);
        }
        for passage in &mut self.passages {
            moved |= passage.pass();
        }
        moved
    }

    fn settle(&mut self) {
        while self.turn() {}
    }

    /// Goes on until `done`, however long that takes.
    fn run(&mut self, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..100_000 {
            self.settle();
            if done(self) {
                return;
            }
            let next = self.peers.iter().filter_map(|peer| peer.line.next_deadline()).min();
            let next = next.unwrap_or_else(|| panic!("nothing is to come: {:?}", self.news()));
            self.time = self.time.max(next);
            let time = self.time;
            for peer in &mut self.peers {
                peer.act(time, |line, turn| line.on_timer(turn));
            }
        }
        panic!("no end: {:?}", self.news());
    }

    fn news(&self) -> [&[SessionNews]; 2] {
        [&self.peers[0].news, &self.peers[1].news]
    }

    fn cut_all(&mut self) {
        self.passages.clear();
    }
}

impl Passage {
    fn pass(&mut self) -> bool {
        let mut moved = false;
        for from in 0..2 {
            let mut bytes = vec![0; 64 << 10];
            if let Ok(count @ 1..) = rustix::io::read(&self.middle[from], &mut bytes) {
                let taken = count.min(self.left[from]);
                self.waiting[from].extend(&bytes[..taken]);
                if self.left[from] != usize::MAX {
                    self.left[from] -= taken;
                }
                moved = true;
            }
            while !self.waiting[from].is_empty() {
                let (front, _) = self.waiting[from].as_slices();
                let Ok(written) = rustix::io::write(&self.middle[1 - from], front) else { break };
                self.waiting[from].drain(..written);
                moved = true;
            }
        }
        if self.left.contains(&0) && self.waiting.iter().all(VecDeque::is_empty) {
            self.left = [usize::MAX; 2];
            for socket in &self.middle {
                let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
            }
            moved = true;
        }
        moved
    }
}

const FRAMES: u64 = 12;

/// Both say some frames; the first connection is cut behind so many bytes of each end.
fn all_arrive_although_cut(mut pair: Pair, limits: [usize; 2]) {
    pair.limits.push_back(limits);
    for number in 0..FRAMES {
        pair.send(0, &numbered(number));
    }
    pair.run(|pair| !pair.peers[1].heard.is_empty());
    for number in 0..FRAMES {
        pair.send(1, &numbered(1000 + number));
    }
    pair.run(|pair| pair.peers.iter().all(|peer| peer.line.is_acknowledged()));
    assert_eq!(pair.peers[1].numbers(), Vec::from_iter(0..FRAMES), "cut behind {limits:?}");
    assert_eq!(pair.peers[0].numbers(), Vec::from_iter(1000..1000 + FRAMES), "cut behind {limits:?}");
    assert!(pair.peers.iter().all(|peer| peer.has_ended().is_none()));
}

#[test]
fn all_arrives_once_and_in_order_wherever_the_connection_is_cut() {
    for cut in 1..2000 {
        all_arrive_although_cut(Pair::plain(), [cut, usize::MAX]);
        all_arrive_although_cut(Pair::plain(), [usize::MAX, cut]);
    }
}

#[test]
fn and_so_it_does_when_it_is_encrypted() {
    for cut in (1..4000).step_by(173) {
        all_arrive_although_cut(Pair::encrypted(), [cut, usize::MAX]);
        all_arrive_although_cut(Pair::encrypted(), [usize::MAX, cut]);
    }
}

#[test]
fn many_bytes_arrive_over_connections_that_are_cut_again_and_again() {
    let mut pair = Pair::plain();
    let (mut said, count) = (0, 2000);
    let body = |number: u64| Refused { reason: format!("{number:08}").repeat(1 << 10) };
    pair.limits = (0..1000).map(|turn| [(1 << 20) + 4097 * turn, usize::MAX]).collect();
    while pair.peers[1].heard.len() < count {
        while said < count as u64 && !pair.peers[0].line.is_full(0) {
            pair.send(0, &body(said).into());
            said += 1;
        }
        let before = pair.peers[1].heard.len();
        pair.run(|pair| pair.peers[1].heard.len() > before);
        assert!(pair.peers[0].line.retained() <= LINK_BUFFER_BYTES_MAX + 10_000);
    }
    for (number, message) in pair.peers[1].heard.iter().enumerate() {
        assert!(*message == body(number as u64).into(), "frame {number}");
    }
    assert!(pair.passages.len() > 8, "it was cut {} times", pair.passages.len());
}

#[test]
fn what_the_other_end_has_not_taken_is_retained_and_bounded() {
    let mut pair = Pair::plain();
    pair.is_parted = true;
    let big: Message = Refused { reason: "x".repeat(100_000) }.into();
    let mut count = 0;
    while !pair.peers[0].line.is_full(0) {
        pair.send(0, &big);
        count += 1;
    }
    let retained = pair.peers[0].line.retained();
    assert!((LINK_BUFFER_BYTES_MAX..LINK_BUFFER_BYTES_MAX + 200_000).contains(&retained), "{retained}");
    assert!(!pair.peers[0].line.is_acknowledged());
    pair.is_parted = false;
    pair.run(|pair| pair.peers[0].line.is_acknowledged());
    assert_eq!(pair.peers[1].heard.len(), count);
    assert!(!pair.peers[0].line.is_full(u64::MAX));
    assert!(pair.peers[0].line.retained() < 100);
}

#[test]
fn both_dial_and_one_connection_is_used() {
    for make in [Pair::plain, Pair::encrypted] {
        let mut pair = make();
        pair.send(0, &numbered(1));
        pair.send(1, &numbered(2));
        assert!(pair.peers.iter().all(|peer| peer.wants_dial));
        pair.run(|pair| pair.peers.iter().all(|peer| peer.line.is_acknowledged()));
        assert_eq!((pair.peers[0].numbers(), pair.peers[1].numbers()), (vec![2], vec![1]));
        pair.send(0, &numbered(3));
        pair.send(1, &numbered(4));
        pair.run(|pair| pair.peers.iter().all(|peer| peer.heard.len() == 2));
        assert!(pair.peers.iter().all(|peer| peer.times_opened() == 1), "{:?}", pair.news());
    }
}

#[test]
fn an_idle_line_is_silent() {
    let mut pair = Pair::encrypted();
    pair.send(0, &numbered(1));
    pair.run(|pair| pair.peers[0].line.is_acknowledged());
    pair.settle();
    assert!(pair.peers.iter().all(|peer| peer.line.next_deadline().is_none()));
}

#[test]
fn an_end_is_heard_behind_everything_that_was_begun() {
    let mut pair = Pair::plain();
    pair.send(0, &numbered(1));
    pair.run(|pair| pair.peers[0].line.is_acknowledged());
    // More than the sockets take: the connection has a part of it.
    let big: Message = Refused { reason: "x".repeat(5_000_000) }.into();
    pair.send(0, &big);
    assert!(pair.peers[0].line.retained() > 5_000_000);
    let time = pair.time;
    pair.peers[0].act(time, |line, turn| line.end("enough", turn));
    assert_eq!(pair.peers[0].has_ended(), Some("enough"));
    pair.settle();
    assert_eq!(pair.peers[1].has_ended(), Some("enough"));
    assert!(pair.peers[1].heard[1] == big);
    pair.send(0, &numbered(2));
    pair.settle();
    assert_eq!((pair.peers[1].heard.len(), pair.peers[0].line.retained()), (2, 0));
}

#[test]
fn an_end_is_heard_by_whoever_comes_back() {
    let mut pair = Pair::encrypted();
    pair.send(0, &numbered(1));
    pair.run(|pair| pair.peers[0].line.is_acknowledged());
    pair.cut_all();
    let time = pair.time;
    pair.peers[1].act(time, |line, turn| line.end("it is over", turn));
    pair.run(|pair| pair.peers[0].has_ended().is_some());
    assert_eq!(pair.peers[0].has_ended(), Some("it is over"));
}

#[test]
fn without_a_connection_a_session_ends_in_time_and_says_why() {
    let mut pair = Pair::plain();
    pair.send(0, &numbered(1));
    pair.run(|pair| pair.peers[0].line.is_acknowledged());
    let begin = pair.time;
    pair.is_parted = true;
    pair.cut_all();
    pair.run(|pair| pair.peers.iter().all(|peer| peer.has_ended().is_some()));
    assert!((LINK_PATIENCE_NANOS..LINK_PATIENCE_NANOS + 2_000 * MILLI).contains(&pair.time.since(begin)));
    let why = pair.peers[0].has_ended().expect("ended");
    assert!(why.contains("25 s") && why.contains("nobody listens there"), "{why}");
}

#[test]
fn a_patient_session_outlives_any_absence_and_a_connection_that_is_given_up() {
    let mut pair = Pair::plain();
    for peer in &mut pair.peers {
        let line = EpollSession::new(process(C, 1), WorkerId(1), 1, true);
        peer.line = std::mem::replace(&mut peer.line, line).patient();
    }
    pair.send(0, &numbered(1));
    pair.run(|pair| pair.peers[0].line.is_acknowledged());
    pair.is_parted = true;
    pair.cut_all();
    pair.send(0, &numbered(2));
    let begin = pair.time;
    pair.run(|pair| pair.time.since(begin) > 10 * LINK_PATIENCE_NANOS);
    pair.is_parted = false;
    pair.run(|pair| pair.peers[0].line.is_acknowledged());
    let time = pair.time;
    pair.peers[0].act(time, |line, turn| line.cut("no answer", turn));
    assert_eq!(pair.peers[0].line.failure(), Some(&Failure::GivenUp("no answer".to_owned())));
    pair.send(1, &numbered(3));
    pair.run(|pair| pair.peers[1].line.is_acknowledged());
    assert_eq!((pair.peers[0].numbers(), pair.peers[1].numbers()), (vec![3], vec![1, 2]));
    assert!(pair.peers.iter().all(|peer| peer.times_opened() == 3 && peer.has_ended().is_none()));
}

#[test]
fn another_process_than_expected_is_refused_and_both_know() {
    let (a, b) = (process(A, 1), process(B, 2));
    for wrong in [process(A, 3).id, process(C, 1).id] {
        let at_a = Peer::new(a.clone(), b.id, 71, Some(member(A, CLUSTER)));
        let mut pair = Pair::new([at_a, Peer::new(b.clone(), wrong, 72, Some(member(B, CLUSTER)))]);
        pair.send(0, &numbered(1));
        pair.run(|pair| pair.peers[0].has_ended().is_some());
        let why = pair.peers[0].has_ended().expect("ended");
        assert!(why.contains(&format!("{:016x}", wrong.0)), "{why}");
        assert!(pair.peers[1].heard.is_empty() && pair.peers[1].has_ended().is_none());
        assert!(pair.peers[1].line.failure().is_some());
    }
}

#[test]
fn a_node_that_is_not_of_the_cluster_ends_nothing_but_its_connection() {
    let (a, b) = (process(A, 1), process(B, 2));
    let at_a = Peer::new(a.clone(), b.id, 71, Some(member(A, OTHER)));
    let mut pair = Pair::new([at_a, Peer::new(b, a.id, 72, Some(member(B, CLUSTER)))]);
    pair.send(0, &numbered(1));
    pair.run(|pair| pair.peers[0].line.failure().is_some());
    let why = pair.peers[0].line.failure().expect("refused").to_string();
    assert!(why.contains("another cluster"), "{why}");
    pair.settle();
    assert!(matches!(pair.peers[1].line.failure(), Some(Failure::Ended(Ended::Tls(_)))));
    assert!(pair.peers.iter().all(|peer| peer.has_ended().is_none()));
}

#[test]
fn a_guest_that_says_nothing_is_sent_away() {
    let mut pair = Pair::plain();
    let (silent, at_b) = pair_of_sockets();
    let time = pair.time;
    pair.peers[1].act(time, |line, turn| line.on_arrived(Stream::Unix(at_b), 5, turn));
    let deadline = pair.peers[1].line.next_deadline().expect("it is not waited for for ever");
    assert_eq!(deadline.since(time), HANDSHAKE_NANOS);
    pair.peers[1].act(deadline, |line, turn| line.on_timer(turn));
    assert_eq!(pair.peers[1].news, [SessionNews::Closed(5)]);
    assert_eq!(rustix::io::read(&silent, &mut [0; 1]), Ok(0));
    assert_eq!(pair.peers[1].line.next_deadline(), None);
}

#[test]
fn a_host_that_says_nothing_was_silent_and_has_not_ended_the_connection() {
    let mut pair = Pair::plain();
    let (_silent, at_a) = pair_of_sockets();
    let time = pair.time;
    pair.send(0, &numbered(1));
    pair.peers[0].act(time, |line, turn| line.flush(turn));
    pair.peers[0].act(time, |line, turn| line.on_dialled(Stream::Unix(at_a), 5, turn));
    pair.peers[0].act(time.plus(HANDSHAKE_NANOS), |line, turn| line.on_timer(turn));
    assert_eq!(pair.peers[0].news, [SessionNews::Closed(5)]);
    let failure = pair.peers[0].line.failure();
    assert!(matches!(failure, Some(Failure::Silent)), "{failure:?}");
}

fn pair_of_sockets() -> (OwnedFd, OwnedFd) {
    pair().expect("sockets")
}

/// The head reads the hello before it knows whose it is; and one that was started again does not know the
/// session.
#[test]
fn a_node_knows_the_head_by_its_answer_and_hears_when_it_is_another() {
    let (node, head) = (process(A, 0), process(B, 0));
    let mut at_node = Peer::new(node.clone(), HEAD, 71, Some(member(A, CLUSTER)));
    let authority = authority(CLUSTER);
    let of_head = identity(&Credentials::issue(B, Bearer::Head, &authority, &[&authority]));
    let time = Instant(1 << 40);
    for life in 0..2 {
        let (to_head, from_node) = pair_of_sockets();
        at_node.act(time, |line, turn| {
            if life == 0 {
                line.push(&numbered(1));
                line.flush(turn);
            }
        });
        let stream =
            TlsStream::dial(to_head, at_node.identity.as_ref().expect("set"), Destination::head_name());
        at_node.act(time, |line, turn| line.on_dialled(Stream::Tls(Box::new(stream)), 3 + life, turn));
        let mut at_head = Peer::new(head.clone(), node.id, 0, None);
        let guest = Stream::Tls(Box::new(TlsStream::accept(from_node, &of_head)));
        let mut framed = Conn::add(guest, &at_head.poller, 9).expect("added");
        let said = loop {
            at_node.turn(time);
            framed.read(&at_head.poller);
            framed.flush(&at_head.poller);
            if let Some(message) = framed.next_message() {
                break message;
            }
        };
        let (stream, inlet) = framed.into_parts(&at_head.poller);
        at_head.act(time, |line, turn| line.accept(stream, inlet, said, 9, turn));
        while at_head.turn(time) | at_node.turn(time) {}
        if life == 0 {
            assert_eq!(at_head.numbers(), [1]);
            assert_eq!(at_node.line.peer(), head.id);
            at_head.line.close(Turn { poller: &at_head.poller, time });
            drop(at_head);
            while at_node.turn(time) {}
            assert!(!at_node.line.is_open() && at_node.wants_dial);
        }
    }
    assert!(at_node.has_ended().is_some_and(|why| why.contains("does not know the session")));
}

/// What strangers say where a hello is expected, and what comes in place of an answer.
#[test]
fn what_is_no_greeting_ends_the_connection() {
    for said in [
        numbered(1),
        SessionEnded { reason: "gone".into() }.into(),
        hello(&process(A, 9), process(B, 2).id, 1, DialAttempt(1), None).into(),
    ] {
        let mut pair = Pair::plain();
        let (stranger, at_b) = pair_of_sockets();
        let time = pair.time;
        pair.peers[1].act(time, |line, turn| line.on_arrived(Stream::Unix(at_b), 5, turn));
        let mut bytes = Vec::new();
        said.append(&mut bytes, 0);
        rustix::io::write(&stranger, &bytes).expect("room");
        pair.peers[1].turn(time);
        assert_eq!(pair.peers[1].news, [SessionNews::Closed(5)]);
        // As an answer it ends the session: the other end would say it again.
        let (at_a, stranger) = pair_of_sockets();
        pair.peers[0].act(time, |line, turn| {
            line.connect(turn);
            line.on_dialled(Stream::Unix(at_a), 6, turn);
        });
        rustix::io::write(&stranger, &bytes).expect("room");
        pair.peers[0].turn(time);
        assert!(pair.peers[0].has_ended().is_some(), "{said:?}");
    }
}
