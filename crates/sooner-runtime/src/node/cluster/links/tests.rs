//! Links between two nodes of one process, over the loopback interface: cut, ended, and begun by either side.

use sooner_wire::BlockId;
use std::net::SocketAddr;

use sooner_protocol::time::Instant;
use sooner_wire::message::{Connect, FreeBlocks};

use super::*;
use crate::clock::now;
use crate::identity::testing::member;
use crate::node::cluster::dials::{Caller, Dials};
use crate::node::cluster::door::{Door, Knock};
use crate::node::cluster::{DOOR, FIRST_DIAL};
use crate::node::notes::Notes;
use crate::poller::{Events, Poller};

const A: NodeId = NodeId(0x0a00_0000);
const B: NodeId = NodeId(0x0b00_0000);
const CLUSTER: u8 = 0x11;
const PATIENCE_NANOS: u64 = 30_000_000_000;

/// What a node has for its links, and nothing else.
struct Node {
    id: NodeId,
    links: Links,
    door: Door,
    dials: Dials,
    poller: Poller,
    notes: Notes,
    heard: Vec<u64>,
    ended: Vec<NodeId>,
    connections: usize,
    /// It does not dial, but has others asked to.
    asks: bool,
    asked: Vec<NodeId>,
}

impl Node {
    fn new(id: NodeId) -> Self {
        let poller = Poller::new().expect("a descriptor");
        let identity = member(id, CLUSTER);
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let door = Door::open(listen, id, false, identity.clone(), &poller).expect("a port");
        let me = Me { id: WorkerId(id.0), is_head: false, python: "3.11".to_owned() };
        Self {
            id,
            links: Links::new(me, identity),
            door,
            dials: Dials::default(),
            poller,
            notes: Notes::new(&std::env::temp_dir()),
            heard: Vec::new(),
            ended: Vec::new(),
            connections: 0,
            asks: false,
            asked: Vec::new(),
        }
    }

    fn send(&mut self, to: NodeId, number: u64) {
        let message = Box::new(FreeBlocks { places: vec![BlockId(number).into()] }.into());
        let routed = Routed { from: WorkerId(self.id.0), to: WorkerId(to.0), message };
        self.links.send(to, &routed.into());
    }

    fn turn(&mut self, address_of_other: SocketAddr) {
        let mut events = Events::with_capacity(16);
        let _ = self.poller.wait(&mut events, Some(1_000_000));
        for event in &events {
            match event.token {
                DOOR => drop(self.door.on_knock(&self.poller, &mut self.notes)),
                token @ FIRST_DIAL.. => {
                    if let Some((Caller::Link(node), made)) = self.dials.on_ready(token, &self.poller) {
                        self.connections += 1;
                        self.links.on_dialled(node, made, Turn { poller: &self.poller, time: now() });
                    }
                }
                FIRST_OF_NODES.. => {
                    let turn = Turn { poller: &self.poller, time: now() };
                    self.links.on_ready(event, turn);
                }
                _ => {
                    if let Some(Knock::Node(node, framed, hello)) =
                        self.door.on_remote_job(event, &self.poller)
                    {
                        self.dials.has_come(Caller::Link(node));
                        let turn = Turn { poller: &self.poller, time: now() };
                        self.links.accept(node, *framed, hello, turn);
                    }
                }
            }
        }
        self.links.on_timer(Turn { poller: &self.poller, time: now() });
        self.links.flush(Turn { poller: &self.poller, time: now() });
        for news in self.links.take_news() {
            match news {
                LinkNews::Dial(node) if self.asks => {
                    self.asked.push(node);
                    self.dials.expect(Caller::Link(node), now()).expect("there is room");
                }
                LinkNews::Dial(node) => self
                    .dials
                    .begin(Caller::Link(node), address_of_other, &self.poller, now())
                    .expect("it can be begun"),
                LinkNews::Said(from, routed) => {
                    assert_eq!((routed.from, routed.to), (WorkerId(from.0), WorkerId(self.id.0)));
                    let Message::FreeBlocks(free) = *routed.message else { panic!("not said") };
                    self.heard.extend(free.places.iter().map(|place| place.offset()));
                }
                LinkNews::Ended(node, _) => {
                    self.links.forget(node, Turn { poller: &self.poller, time: now() });
                    self.ended.push(node);
                }
            }
        }
    }

    /// Ends whatever connection there is, as a network does.
    fn cut(&mut self, other: NodeId) {
        let turn = Turn { poller: &self.poller, time: now() };
        self.links.line(other).cut("it was cut", turn);
        self.links.after(other);
    }
}

struct Pair([Node; 2]);

impl Pair {
    fn new() -> Self {
        Self([Node::new(A), Node::new(B)])
    }

    fn run_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let until: Instant = now().plus(PATIENCE_NANOS);
        while !is_so(self) {
            assert!(now() < until, "never: {what}");
            let [a, b] = &mut self.0;
            let (at_a, at_b) = (a.door.address().expect("open"), b.door.address().expect("open"));
            a.turn(at_b);
            b.turn(at_a);
        }
    }
}

#[test]
fn what_nodes_say_arrives_in_order_however_often_they_are_cut() {
    let mut pair = Pair::new();
    let count = 20_000;
    let mut said = 0;
    pair.run_until("all is heard", |pair| {
        let [a, b] = &mut pair.0;
        for number in said..(said + 500).min(count) {
            a.send(B, number);
            b.send(A, number);
        }
        said = (said + 500).min(count);
        if said % 5_000 == 0 && said < count {
            a.cut(B);
        }
        [a, b].iter().all(|node| node.heard.len() as u64 == count)
    });
    for node in &pair.0 {
        assert!(node.heard.iter().copied().eq(0..count), "in order, once");
        assert!(node.ended.is_empty());
    }
}

#[test]
fn a_link_is_made_when_there_is_something_to_say_and_both_use_it() {
    let mut pair = Pair::new();
    pair.0[0].send(B, 1);
    pair.run_until("it is heard", |pair| pair.0[1].heard == [1]);
    pair.0[1].send(A, 2);
    pair.run_until("the answer is heard", |pair| pair.0[0].heard == [2]);
    assert_eq!((pair.0[0].connections, pair.0[1].connections), (1, 0));
}

#[test]
fn the_end_of_a_link_is_heard_at_both_ends_and_the_next_word_begins_another() {
    let mut pair = Pair::new();
    pair.0[0].send(B, 1);
    pair.run_until("it is heard", |pair| pair.0[1].heard == [1]);
    let [a, _] = &mut pair.0;
    a.links.end(B, "it says nonsense", Turn { poller: &a.poller, time: now() });
    pair.run_until("both know", |pair| pair.0[0].ended == [B] && pair.0[1].ended == [A]);
    pair.0[1].send(A, 2);
    pair.run_until("another one is there", |pair| pair.0[0].heard == [2]);
}

#[test]
fn what_no_node_passes_on_is_not_heard() {
    let mut pair = Pair::new();
    pair.0[0].links.send(B, &Connect { worker: WorkerId(1) }.into());
    pair.0[0].send(B, 1);
    pair.run_until("the rest is heard", |pair| pair.0[1].heard == [1]);
}

#[test]
fn much_that_waits_for_a_connection_is_noticed() {
    let mut pair = Pair::new();
    assert!(!pair.0[0].links.is_backed_up(B), "nothing was said");
    let message = Box::new(FreeBlocks { places: vec![BlockId(u64::MAX >> 1).into(); 20_000] }.into());
    let large = Routed { from: WorkerId(A.0), to: WorkerId(B.0), message }.into();
    let mut times = 0;
    while !pair.0[0].links.is_backed_up(B) {
        pair.0[0].links.send(B, &large);
        times += 1;
        assert!(times < 100, "of 180 KB each");
    }
    assert!(times > 4, "a little may wait");
    pair.run_until("all has arrived", |pair| pair.0[1].heard.len() == times * 20_000);
    assert!(!pair.0[0].links.is_backed_up(B), "there is a connection");
}

#[test]
fn a_node_that_cannot_be_dialled_comes_when_it_is_asked() {
    let mut pair = Pair::new();
    pair.0[0].asks = true;
    pair.0[0].send(B, 1);
    pair.run_until("it is asked", |pair| pair.0[0].asked == [B]);
    assert!(pair.0[0].dials.next_deadline().is_some(), "it is not waited for without end");
    let [a, b] = &mut pair.0;
    b.links.connect(a.id, Turn { poller: &b.poller, time: now() });
    pair.run_until("it is heard", |pair| pair.0[1].heard == [1]);
    assert!(pair.0[0].dials.next_deadline().is_none(), "it has come");
    // From now on it comes by itself.
    pair.0[0].cut(B);
    pair.0[0].send(B, 2);
    pair.run_until("the rest is heard", |pair| pair.0[1].heard == [1, 2]);
    assert_eq!((pair.0[0].asked.len(), pair.0[0].connections, pair.0[1].connections), (1, 0, 2));
}

#[test]
fn who_is_asked_in_vain_is_asked_again() {
    let mut dials = Dials::default();
    let (caller, begun) = (Caller::Link(B), Instant(5));
    dials.expect(caller, begun).expect("there is room");
    let deadline = dials.next_deadline().expect("it is waited for");
    assert!(dials.expire(Instant(deadline.0 - 1)).is_empty());
    let late = dials.expire(deadline);
    let [(of, Err(reason))] = &late[..] else { panic!("{late:?}") };
    assert!(*of == caller && reason.contains("asked to dial"), "{reason}");
    assert_eq!(dials.next_deadline(), None);
}
