//! Nodes that say anything about themselves and others: the head's list of nodes and its view of what they
//! have neither panic nor disagree with themselves, and what one node asks is never answered with what does
//! not exist.
//!
//! The input is a list of steps: one byte that says who speaks, then a frame; or something that happens.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use sooner_fuzz::{HERE, THERE};
use sooner_protocol::control::Probed;
use sooner_protocol::control::membership::{Nodes, NodesAction, NodesOptions};
use sooner_protocol::control::persist::BatchId;
use sooner_protocol::control::view::View;
use sooner_protocol::time::Instant;
use sooner_wire::NodeId;
use sooner_wire::frame::{HEAD_BYTES, whole_frame};
use sooner_wire::limits::{CANDIDATES_MAX, HEALTH_TIMEOUT_NANOS};
use sooner_wire::message::{AboutNode, Message, Register, kind};

const STEP_NANOS: u64 = 100_000_000;
const PYTHON: &str = "3.11";
const SPEAKERS: [NodeId; 3] = [HERE, THERE, NodeId(0x0c00_0000)];

struct World {
    nodes: Nodes,
    view: View,
    now: Instant,
    written: Vec<BatchId>,
    /// Who joined and was not said to be gone.
    joined: BTreeSet<NodeId>,
}

impl World {
    fn new() -> Self {
        let options =
            NodesOptions { cluster: 7, python: PYTHON.into(), health_timeout: HEALTH_TIMEOUT_NANOS };
        let nodes = Nodes::new(options, Vec::new(), Instant(1));
        let mut world = Self {
            nodes,
            view: View::default(),
            now: Instant(1),
            written: Vec::new(),
            joined: BTreeSet::new(),
        };
        // Two have joined; the third is known by what the input says.
        for (node, name) in [(HERE, "here"), (THERE, "there")] {
            let about = AboutNode {
                kind: kind::DAEMON,
                name: name.into(),
                address: Some(format!("10.0.0.{}:1", node.0 >> 24)),
                host: "h".into(),
                boot_id: "b".into(),
                resources: sooner_wire::ResourceSet::from_amounts([("CPU".to_owned(), 2.0)]),
                labels: Vec::new(),
            };
            let register = Register {
                about: Box::new(about),
                version: "0.1".into(),
                python: PYTHON.into(),
                rejoins: None,
            };
            world.send(node, register.into());
            world.happen(0);
        }
        assert_eq!(world.nodes.rows().count(), 2);
        world
    }

    fn send(&mut self, node: NodeId, message: Message) {
        let mut out = Vec::new();
        match message {
            Message::Register(register) => {
                if let Err(refusal) = self.nodes.on_register(node, register, self.now, &mut out) {
                    drop(refusal.into_message());
                }
            }
            Message::Heartbeat(beat) => self.nodes.on_heartbeat(node, beat, self.now, &mut out),
            Message::ResourceReport(report) => drop(self.view.on_report(node, report)),
            Message::FindNodes(find) => {
                if let Ok(found) = self.view.find(&find, node, 7) {
                    assert!(found.nodes.len() <= CANDIDATES_MAX);
                    assert!(found.nodes.iter().all(|one| self.may_be_named(one.node)));
                }
            }
            Message::Suspect(suspect) => self.nodes.on_suspect(node, suspect, self.now, &mut out),
            Message::Drain(drain) => drop(self.nodes.on_drain(drain, self.now, &mut out)),
            Message::Drained(drained) if drained.node == node => {
                self.nodes.on_drained(node, self.now, &mut out)
            }
            _ => {}
        }
        self.follow(out);
    }

    /// That a node is gone is said once it is written. Until then the view may name it, and the list has the
    /// reason already.
    fn may_be_named(&self, node: NodeId) -> bool {
        self.joined.contains(&node) && (self.nodes.is_known(node) || self.nodes.why_dead(node).is_some())
    }

    /// Something without a frame.
    fn happen(&mut self, what: u8) {
        let mut out = Vec::new();
        let node = SPEAKERS[usize::from(what / 8) % SPEAKERS.len()];
        match what % 8 {
            0 | 1 => {
                for batch in std::mem::take(&mut self.written) {
                    let outcome = if what % 8 == 0 { Ok(()) } else { Err("the disk is full".to_owned()) };
                    self.nodes.on_persisted(batch, outcome, &mut out);
                }
            }
            2 => self.nodes.on_disconnected(node, self.now, &mut out),
            3 => self.nodes.on_connected(node, self.now),
            4 => self.nodes.on_probed(node, 1, Probed::Refused, self.now, &mut out),
            5 => self.nodes.on_probed(node, 1, Probed::Answered(THERE), self.now, &mut out),
            6 => self.nodes.on_probed(node, 1, Probed::Silent, self.now, &mut out),
            _ => self.nodes.on_timer(self.now, &mut out),
        }
        self.follow(out);
    }

    fn follow(&mut self, mut out: Vec<NodesAction>) {
        self.nodes.after_events(self.now, &mut out);
        for action in out {
            match action {
                NodesAction::Persist(batch, _) => self.written.push(batch),
                NodesAction::Joined(node) => {
                    let row = self.nodes.row(node).expect("has joined");
                    self.view.on_joined(row);
                    self.joined.insert(node);
                }
                NodesAction::Dead(node, _) => {
                    self.view.on_dead(node);
                    self.joined.remove(&node);
                }
                NodesAction::Send(..)
                | NodesAction::Probe { .. }
                | NodesAction::AskedAfter { .. }
                | NodesAction::Warn(_) => {}
            }
        }
        self.nodes.check();
        self.view.after_events(self.now, &mut Vec::new());
        let _ = (self.view.demand(), self.view.sums());
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut world = World::new();
    let mut rest = bytes;
    while let Some((who, frame)) = rest.split_first() {
        world.now = world.now.plus(STEP_NANOS);
        rest = frame;
        if *who >= 0x80 {
            world.happen(*who - 0x80);
            continue;
        }
        let Ok(Some(head)) = whole_frame(frame) else { return };
        rest = &frame[HEAD_BYTES + head.length..];
        if let Ok(message) = Message::decode(head.kind, &frame[HEAD_BYTES..HEAD_BYTES + head.length]) {
            world.send(SPEAKERS[usize::from(*who) % SPEAKERS.len()], message);
        }
    }
});
