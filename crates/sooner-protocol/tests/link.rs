//! Two ends of a session over a wire of bytes that is cut anywhere: whatever is said arrives once and in
//! order.
//!
//! The shell here is the smallest that could speak TCP: it retains bytes, writes as many as the wire takes,
//! and hands whole frames up.

use proptest::prelude::*;
use sooner_protocol::session::{Connection, Link, LinkAction, Resume, Resumed};
use sooner_protocol::time::Instant;
use sooner_wire::frame::{self, HEAD_BYTES, whole_frame};
use sooner_wire::limits::{ACK_NANOS, LINK_PATIENCE_NANOS};
use sooner_wire::message::Ack;
use sooner_wire::{DialAttempt, Message};

const HELLO: u16 = 90;
const WELCOME: u16 = 91;
const ACK: u16 = 92;
const ENDED: u16 = 93;
const SAID: u16 = 1;

/// One end's side of a connection.
#[derive(Default)]
struct Half {
    number: u32,
    /// Greeting and end: not part of the session.
    greeting: Vec<u8>,
    /// Position in the session of the next byte to write; `None`: only the greeting leaves.
    at: Option<u64>,
    arrived: Vec<u8>,
}

struct End {
    link: Link,
    retained: Vec<u8>,
    /// Position of its first byte.
    begin: u64,
    halves: Vec<Half>,
    wants_dial: bool,
    said: u64,
    heard: u64,
    ended: Option<String>,
}

/// Bytes on their way to each end, by connection; `None` once it is cut.
type Wires = Vec<Option<[Vec<u8>; 2]>>;

struct World {
    ends: [End; 2],
    wires: Wires,
    now: Instant,
}

fn numbers(kind: u16, numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::append(&mut bytes, kind, 0, |out| {
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    });
    bytes
}

fn read(body: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(body[at * 8..at * 8 + 8].try_into().expect("long enough"))
}

impl World {
    fn new() -> Self {
        let end = |index: u64| End {
            link: Link::new(50 + index, index == 0),
            retained: Vec::new(),
            begin: 0,
            halves: Vec::new(),
            wants_dial: false,
            said: 0,
            heard: 0,
            ended: None,
        };
        Self { ends: [end(0), end(1)], wires: Vec::new(), now: Instant(0) }
    }

    fn send(&mut self, index: usize, length: usize) {
        let end = &mut self.ends[index];
        if end.ended.is_some() || end.link.is_full(0) {
            return;
        }
        let before = end.retained.len();
        let number = end.said;
        end.said += 1;
        frame::append(&mut end.retained, SAID, 0, |out| {
            out.extend_from_slice(&number.to_le_bytes());
            out.resize(out.len() + length, 0);
        });
        let mut out = Vec::new();
        end.link.took((end.retained.len() - before) as u64);
        end.link.connect(self.now, &mut out);
        self.perform(index, out);
    }

    fn dialled(&mut self, index: usize) {
        if !std::mem::take(&mut self.ends[index].wants_dial) {
            return;
        }
        let number = u32::try_from(self.wires.len()).expect("few");
        self.wires.push(Some([Vec::new(), Vec::new()]));
        for end in &mut self.ends {
            end.halves.push(Half { number, ..Half::default() });
        }
        let mut out = Vec::new();
        self.ends[index].link.on_dialled(Connection(number), self.now, &mut out);
        self.perform(index, out);
    }

    /// Moves up to so many bytes from an end to the wire.
    fn write(&mut self, index: usize, mut bytes: usize) {
        let end = &mut self.ends[index];
        for half in &mut end.halves {
            let Some(wire) = &mut self.wires[half.number as usize] else { continue };
            let greeting: Vec<u8> = half.greeting.drain(..half.greeting.len().min(bytes)).collect();
            bytes -= greeting.len();
            wire[1 - index].extend(greeting);
            if let Some(at) = &mut half.at {
                let from = usize::try_from(*at - end.begin).expect("retained");
                let some = &end.retained[from..end.retained.len().min(from.saturating_add(bytes))];
                bytes -= some.len();
                wire[1 - index].extend_from_slice(some);
                *at += some.len() as u64;
            }
        }
    }

    /// Up to so many bytes of the wires arrive at an end.
    fn carry(&mut self, index: usize, mut bytes: usize) {
        for number in 0..self.wires.len() {
            let Some(wire) = &mut self.wires[number] else { continue };
            let some: Vec<u8> = wire[index].drain(..wire[index].len().min(bytes)).collect();
            bytes -= some.len();
            self.arrive(index, number, &some);
        }
    }

    fn arrive(&mut self, index: usize, number: usize, bytes: &[u8]) {
        let number = u32::try_from(number).expect("few");
        let Some(half) = self.ends[index].halves.iter_mut().find(|half| half.number == number) else {
            return;
        };
        half.arrived.extend_from_slice(bytes);
        let mut arrived = std::mem::take(&mut half.arrived);
        let mut at = 0;
        while let Some(head) = whole_frame(&arrived[at..]).expect("frames") {
            let body = at + HEAD_BYTES..at + HEAD_BYTES + head.length;
            at = body.end;
            self.handle(index, Connection(number), head.kind, &arrived[body]);
        }
        arrived.drain(..at);
        if let Some(half) = self.ends[index].halves.iter_mut().find(|half| half.number == number) {
            half.arrived = arrived;
        }
    }

    fn handle(&mut self, index: usize, on: Connection, kind: u16, body: &[u8]) {
        let (now, end) = (self.now, &mut self.ends[index]);
        let bytes = (HEAD_BYTES + body.len()) as u64;
        let mut out = Vec::new();
        match kind {
            HELLO => {
                let received = read(body, 2).checked_sub(1);
                let attempt = u32::try_from(read(body, 1)).expect("few");
                let hello = Resume { session: read(body, 0), attempt: DialAttempt(attempt), received };
                end.link.on_hello(on, hello, now, &mut out);
            }
            WELCOME => {
                let welcome = Resumed { session: read(body, 0), received: read(body, 1) };
                end.link.on_welcome(on, welcome, now, &mut out);
            }
            ACK => {
                let Ok(Message::Ack(ack)) = Message::decode(kind, body) else { panic!("an acknowledgement") };
                if end.link.on_frame(on, bytes, true, now, &mut out) {
                    end.link.on_ack(ack.received, &mut out);
                }
            }
            ENDED => end.link.on_ended(on, "the other end says so", &mut out),
            _ => {
                if end.link.on_frame(on, bytes, false, now, &mut out) {
                    assert_eq!(read(body, 0), end.heard, "SE3");
                    assert!(end.ended.is_none(), "SE4");
                    end.heard += 1;
                }
            }
        }
        self.perform(index, out);
    }

    fn cut(&mut self, number: usize, left: [usize; 2]) {
        let Some(wire) = self.wires.get_mut(number).and_then(Option::take) else { return };
        for (index, left) in left.into_iter().enumerate() {
            let some = wire[index].len().min(left);
            self.arrive(index, number, &wire[index][..some]);
            self.closed(index, number);
        }
    }

    fn closed(&mut self, index: usize, number: usize) {
        let number = u32::try_from(number).expect("few");
        let end = &mut self.ends[index];
        end.halves.retain(|half| half.number != number);
        let mut out = Vec::new();
        end.link.on_cut(Connection(number), self.now, &mut out);
        self.perform(index, out);
    }

    fn pass(&mut self, nanos: u64) {
        self.now = self.now.plus(nanos);
        for index in 0..2 {
            let mut out = Vec::new();
            self.ends[index].link.on_timer(self.now, &mut out);
            self.perform(index, out);
        }
    }

    fn half(&mut self, index: usize, on: Connection) -> Option<&mut Half> {
        self.ends[index].halves.iter_mut().find(|half| half.number == on.0)
    }

    fn greet(&mut self, index: usize, on: Connection, bytes: &[u8]) {
        if let Some(half) = self.half(index, on) {
            half.greeting.extend_from_slice(bytes);
        }
    }

    fn perform(&mut self, index: usize, out: Vec<LinkAction>) {
        for action in out {
            match action {
                LinkAction::Dial => self.ends[index].wants_dial = true,
                LinkAction::Hello(on, hello) => {
                    let received = hello.received.map_or(0, |received| received + 1);
                    let bytes = numbers(HELLO, &[hello.session, u64::from(hello.attempt.0), received]);
                    self.greet(index, on, &bytes);
                }
                LinkAction::Welcome(on, welcome) => {
                    self.greet(index, on, &numbers(WELCOME, &[welcome.session, welcome.received]));
                }
                LinkAction::SendFrom(on, position) => {
                    let end = &self.ends[index];
                    assert!(
                        position >= end.begin && position <= end.begin + end.retained.len() as u64,
                        "SE2"
                    );
                    self.half(index, on).expect("it was just used").at = Some(position);
                }
                LinkAction::Release(position) => {
                    let end = &mut self.ends[index];
                    let count = usize::try_from(position - end.begin).expect("SE1");
                    end.retained.drain(..count);
                    end.begin = position;
                }
                LinkAction::Ack(received) => {
                    let end = &mut self.ends[index];
                    let before = end.retained.len();
                    Message::from(Ack { received }).append(&mut end.retained, 0);
                    end.link.took_ack((end.retained.len() - before) as u64);
                }
                LinkAction::SendEnded(on, _) => {
                    self.greet(index, on, &numbers(ENDED, &[]));
                    self.write(index, usize::MAX);
                    self.close(index, on);
                }
                LinkAction::Close(on) => self.close(index, on),
                LinkAction::End(reason) => {
                    let ended = self.ends[index].ended.replace(reason);
                    assert_eq!(ended, None, "SE4");
                }
            }
        }
        let end = &self.ends[index];
        assert_eq!(end.link.retained(), end.retained.len() as u64, "SE2");
    }

    /// An end closes its side; what it wrote still arrives.
    fn close(&mut self, index: usize, on: Connection) {
        self.write(index, usize::MAX);
        self.ends[index].halves.retain(|half| half.number != on.0);
        let Some(wire) = self.wires[on.0 as usize].take() else { return };
        self.arrive(1 - index, on.0 as usize, &wire[1 - index]);
        self.closed(1 - index, on.0 as usize);
    }

    /// No cuts any more: everything arrives.
    fn finish(&mut self) {
        for _ in 0..400 {
            for index in 0..2 {
                self.dialled(index);
                self.write(index, usize::MAX);
                self.carry(index, usize::MAX);
            }
            self.pass(ACK_NANOS);
        }
        for index in 0..2 {
            let (end, other) = (&self.ends[index], &self.ends[1 - index]);
            assert_eq!((&end.ended, &other.ended), (&None, &None));
            assert_eq!(end.said, other.heard);
            assert!(end.link.is_acknowledged(end.link.position()));
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Say(usize, usize),
    Dialled(usize),
    DialFails(usize),
    Write(usize, usize),
    Carry(usize, usize),
    Cut(usize, [usize; 2]),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let end = 0usize..2;
    prop_oneof![
        4 => (end.clone(), 0usize..300).prop_map(|(end, length)| Step::Say(end, length)),
        1 => (end.clone(), 100_000usize..400_000).prop_map(|(end, length)| Step::Say(end, length)),
        3 => end.clone().prop_map(Step::Dialled),
        1 => end.clone().prop_map(Step::DialFails),
        4 => (end.clone(), 0usize..2000).prop_map(|(end, bytes)| Step::Write(end, bytes)),
        2 => (end.clone(), 0usize..500_000).prop_map(|(end, bytes)| Step::Write(end, bytes)),
        4 => (end.clone(), 0usize..2000).prop_map(|(end, bytes)| Step::Carry(end, bytes)),
        2 => (end, 0usize..500_000).prop_map(|(end, bytes)| Step::Carry(end, bytes)),
        2 => (0usize..12, [0usize..3000, 0usize..3000]).prop_map(|(number, left)| Step::Cut(number, left)),
        2 => (0u64..ACK_NANOS * 2).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_arrives_once_and_in_order(steps in proptest::collection::vec(step(), 0..200)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Say(end, length) => world.send(end, length),
                Step::Dialled(end) => world.dialled(end),
                Step::DialFails(end) => {
                    if std::mem::take(&mut world.ends[end].wants_dial) {
                        world.ends[end].link.on_dial_failed(world.now);
                    }
                }
                Step::Write(end, bytes) => world.write(end, bytes),
                Step::Carry(end, bytes) => world.carry(end, bytes),
                // The latest connections are cut, not those that are gone.
                Step::Cut(back, left) => {
                    if let Some(number) = world.wires.len().checked_sub(1 + back % 2) {
                        world.cut(number, left);
                    }
                }
                Step::Pass(nanos) => world.pass(nanos),
            }
        }
        world.finish();
    }
}

/// A link that has been open, in the words of its actions.
fn opened(wins: bool) -> Link {
    let mut link = Link::new(5, wins);
    let mut out = Vec::new();
    link.connect(Instant(0), &mut out);
    link.on_dialled(Connection(0), Instant(0), &mut out);
    link.on_welcome(Connection(0), Resumed { session: 5, received: 0 }, Instant(0), &mut out);
    let hello = Resume { session: 5, attempt: DialAttempt(1), received: None };
    assert_eq!(
        out,
        [LinkAction::Dial, LinkAction::Hello(Connection(0), hello), LinkAction::SendFrom(Connection(0), 0)]
    );
    link
}

#[test]
fn a_resume_goes_on_from_what_the_other_end_has() {
    let mut link = opened(true);
    let mut out = Vec::new();
    assert_eq!(link.took(10), 10);
    assert_eq!(link.took(20), 30);
    assert!(link.on_frame(Connection(0), 7, false, Instant(0), &mut out));
    link.on_cut(Connection(0), Instant(5), &mut out);
    assert!(!link.on_frame(Connection(0), 7, false, Instant(5), &mut out), "it will come again");
    link.on_dialled(Connection(1), Instant(5), &mut out);
    link.on_welcome(Connection(1), Resumed { session: 5, received: 10 }, Instant(5), &mut out);
    let hello = Resume { session: 5, attempt: DialAttempt(2), received: Some(7) };
    assert_eq!(
        out,
        [
            LinkAction::Dial,
            LinkAction::Hello(Connection(1), hello),
            LinkAction::SendFrom(Connection(1), 10),
            LinkAction::Release(10),
        ]
    );
    assert!(link.is_acknowledged(10) && !link.is_acknowledged(link.position()));
}

#[test]
fn what_was_received_is_acknowledged_in_time() {
    let mut link = opened(true);
    let mut out = Vec::new();
    link.on_frame(Connection(0), 100, false, Instant(3), &mut out);
    assert_eq!(link.next_deadline(), Some(Instant(3 + ACK_NANOS)));
    link.on_timer(Instant(2 + ACK_NANOS), &mut out);
    assert_eq!(out, []);
    link.on_timer(Instant(3 + ACK_NANOS), &mut out);
    assert_eq!(out, [LinkAction::Ack(100)]);
    link.on_frame(Connection(0), 13, true, Instant(0), &mut out);
    assert_eq!(link.next_deadline(), None, "an acknowledgement asks for none");
    link.on_frame(Connection(0), 1 << 20, false, Instant(0), &mut out);
    assert_eq!(out[1..], [LinkAction::Ack(113 + (1 << 20))]);
}

#[test]
fn acknowledgements_at_the_end_are_not_waited_for() {
    let mut link = opened(true);
    let mut out = Vec::new();
    link.took(10);
    link.took_ack(13);
    assert_eq!((link.position(), link.retained()), (10, 23));
    link.on_ack(10, &mut out);
    assert!(link.is_acknowledged(link.position()));
    link.on_ack(5, &mut out);
    assert_eq!(out, [LinkAction::Release(10)], "an older one says nothing");
    link.on_ack(24, &mut out);
    assert!(link.ended().is_some_and(|reason| reason.contains("never sent")));
}

#[test]
fn an_ended_session_is_never_resumed() {
    let mut link = opened(false);
    let mut out = Vec::new();
    link.on_cut(Connection(0), Instant(0), &mut out);
    out.clear();
    link.on_timer(Instant(LINK_PATIENCE_NANOS), &mut out);
    assert!(matches!(&out[..], [LinkAction::End(reason)] if reason.contains("25 s")), "{out:?}");
    out.clear();
    link.on_dialled(Connection(1), Instant(0), &mut out);
    link.on_hello(
        Connection(2),
        Resume { session: 5, attempt: DialAttempt(9), received: None },
        Instant(0),
        &mut out,
    );
    assert!(
        matches!(
            &out[..],
            [LinkAction::Close(Connection(1)), LinkAction::SendEnded(Connection(2), reason)]
                if reason.contains("25 s")
        ),
        "{out:?}"
    );
}

#[test]
fn a_session_that_nobody_uses_waits_for_nothing() {
    let mut link = Link::new(5, true);
    let mut out = Vec::new();
    link.on_timer(Instant(LINK_PATIENCE_NANOS), &mut out);
    assert_eq!((out.pop(), link.next_deadline()), (None, None));
    link.connect(Instant(LINK_PATIENCE_NANOS), &mut out);
    assert_eq!(out, [LinkAction::Dial]);
    assert_eq!(link.next_deadline(), Some(Instant(2 * LINK_PATIENCE_NANOS)));
}

#[test]
fn a_session_that_nobody_knows_is_refused() {
    let mut link = Link::new(5, true);
    let mut out = Vec::new();
    let hello = Resume { session: 77, attempt: DialAttempt(4), received: Some(1000) };
    link.on_hello(Connection(0), hello, Instant(0), &mut out);
    assert!(matches!(&out[..], [LinkAction::SendEnded(Connection(0), _)]), "{out:?}");
    // A new one is welcome.
    out.clear();
    link.on_hello(
        Connection(1),
        Resume { session: 78, attempt: DialAttempt(1), received: None },
        Instant(0),
        &mut out,
    );
    assert_eq!(link.connection(), Some(Connection(1)));
    assert_eq!(link.session(), 78);
}

#[test]
fn a_hello_that_is_too_late_changes_nothing() {
    let mut link = Link::new(5, true);
    let mut out = Vec::new();
    let hello = |attempt| Resume { session: 9, attempt, received: None };
    link.on_hello(Connection(0), hello(DialAttempt(1)), Instant(0), &mut out);
    link.on_hello(Connection(2), hello(DialAttempt(3)), Instant(0), &mut out);
    out.clear();
    link.on_hello(Connection(1), hello(DialAttempt(2)), Instant(0), &mut out);
    assert_eq!(out, [LinkAction::Close(Connection(1))]);
    assert_eq!(link.connection(), Some(Connection(2)));
}

#[test]
fn of_two_connections_the_one_of_the_winner_is_used() {
    let greeting = |wins| {
        let mut link = Link::new(5, wins);
        let mut out = Vec::new();
        link.connect(Instant(0), &mut out);
        link.on_dialled(Connection(0), Instant(0), &mut out);
        out.clear();
        let hello = Resume { session: 6, attempt: DialAttempt(1), received: None };
        link.on_hello(Connection(1), hello, Instant(0), &mut out);
        (link, out)
    };
    let (winner, out) = greeting(true);
    let not_this_one = Resumed { session: 5, received: 0 };
    assert_eq!(out, [LinkAction::Welcome(Connection(1), not_this_one), LinkAction::Close(Connection(1))]);
    assert_eq!((winner.connection(), winner.session()), (None, 5));
    let (mut loser, mut out) = greeting(false);
    assert_eq!(out[0], LinkAction::Close(Connection(0)));
    assert_eq!((loser.connection(), loser.session()), (Some(Connection(1)), 6));
    // It waits from now on.
    out.clear();
    loser.on_cut(Connection(1), Instant(1), &mut out);
    assert_eq!(out, []);
    assert_eq!(loser.next_deadline(), Some(Instant(1 + LINK_PATIENCE_NANOS)));
}

#[test]
fn a_line_is_full_alone_or_with_all_others() {
    let mut link = opened(true);
    assert!(!link.is_full(u64::MAX), "each has its share");
    link.took(64 << 10);
    assert!(!link.is_full((256 << 20) - 1) && link.is_full(256 << 20));
    link.took(4 << 20);
    assert!(link.is_full(0));
}

#[test]
fn a_dial_that_fails_is_tried_again_ever_later() {
    let mut link = Link::new(5, true);
    let mut out = Vec::new();
    link.connect(Instant(0), &mut out);
    let mut pauses = Vec::new();
    let mut now = Instant(0);
    for _ in 0..9 {
        link.on_dial_failed(now);
        let due = link.next_deadline().expect("it dials again");
        pauses.push(due.since(now) / 1_000_000);
        now = due;
        link.on_timer(now, &mut out);
        assert_eq!(out.pop(), Some(LinkAction::Dial));
    }
    assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
}

#[test]
fn a_side_that_cannot_dial_takes_the_connection_that_it_has_asked_for() {
    // It wins: that is about connections that both have dialled.
    let mut link = Link::new(50, true);
    let mut out = Vec::new();
    link.connect(Instant(0), &mut out);
    assert_eq!(out, [LinkAction::Dial]);
    out.clear();
    let hello = Resume { session: 51, attempt: DialAttempt(1), received: None };
    link.on_hello(Connection(1), hello, Instant(5), &mut out);
    let welcome = LinkAction::Welcome(Connection(1), Resumed { session: 51, received: 0 });
    assert_eq!(out, [welcome, LinkAction::SendFrom(Connection(1), 0)]);
    // It has come: that it did not come in time is no news any more.
    link.on_dial_failed(Instant(9));
    assert_eq!(link.connection(), Some(Connection(1)));
    out.clear();
    link.on_cut(Connection(1), Instant(10), &mut out);
    assert_eq!(out, [], "the other side dials again");
}
