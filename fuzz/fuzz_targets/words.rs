//! Nodes that break the protocol: whatever one says to the control service, to another node, or the control
//! service to a node, nobody panics, and no node loses count of its resources.
//!
//! The input is a list of steps: one byte that says who hears it from whom, then a frame; or the end of
//! something.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sooner_protocol::control::{Directory, DirectoryActions};
use sooner_protocol::uplink::{ToControl, ToNode};
use sooner_protocol::node::uplink::Member;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_protocol::time::Instant;
use sooner_wire::frame::{HEAD_BYTES, whole_frame};
use sooner_wire::message::Message;
use sooner_wire::{NodeId, ResourceSet, WorkerId};

const STEP_NANOS: u64 = 100_000_000;
const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);

struct World {
    control: Directory,
    member: Member,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let total = ResourceSet::from_amounts([("CPU".to_owned(), 2.0)]);
        let mut member = Member::new(total.clone(), HERE.0, 1);
        let driver = member.new_worker_id();
        member.on_connected(driver, 1, Instant(0));
        let mut control = Directory::default();
        for node in [HERE, THERE] {
            control.on_node_joined(Member::new(total.clone(), node.0, 0).row());
        }
        Self { control, member, now: Instant(1) }
    }

    /// What the control service hears. It may go on to the node here.
    fn notify_control(&mut self, from: NodeId, message: Message) {
        let Ok(word) = ToControl::parse(message, from) else { return };
        let mut out = DirectoryActions::new();
        self.control.on_node(from, word, self.now, &mut out);
        self.control.after_events(self.now, &mut out);
    }

    fn with_member(&mut self, work: impl FnOnce(&mut Member, Instant, &mut NodeActions)) {
        let mut out = NodeActions::new();
        work(&mut self.member, self.now, &mut out);
        self.member.after_events(self.now, &mut out);
        self.member.check();
        for action in out {
            match action {
                NodeAction::StartWorker(worker) => self.member.on_connected(worker, 2, self.now),
                NodeAction::KillWorker(worker) => {
                    self.member.on_dead(worker, "killed", None, &mut NodeActions::new());
                }
                NodeAction::Control(word) => self.notify_control(HERE, word.into_message(HERE)),
                _ => {}
            }
        }
    }

    /// Something without a frame.
    fn end(&mut self, what: u8) {
        let mut out = DirectoryActions::new();
        match what % 6 {
            0 => self.control.expect_nodes(self.now.plus(STEP_NANOS * 20)),
            1 => self.control.on_all_here(self.now, &mut out),
            2 => self.control.on_node_dead(THERE, "silent", &mut out),
            3 => self.with_member(|member, now, _| member.on_control_down(now)),
            4 => self.with_member(|member, now, out| member.on_control_up(true, now, out)),
            _ => {
                let process = WorkerId(HERE.0 + 1 + u64::from(what) / 6 % 4);
                self.with_member(|member, _, out| member.on_dead(process, "killed", None, out));
            }
        }
        self.control.after_events(self.now, &mut out);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut world = World::new();
    let mut rest = bytes;
    while let Some((who, frame)) = rest.split_first() {
        world.now = world.now.plus(STEP_NANOS);
        rest = frame;
        if *who >= 0x80 {
            world.end(*who);
            continue;
        }
        let Ok(Some(head)) = whole_frame(frame) else { return };
        rest = &frame[HEAD_BYTES + head.length..];
        let Ok(message) = Message::decode(head.kind, &frame[HEAD_BYTES..HEAD_BYTES + head.length]) else {
            continue;
        };
        match (who % 4, message) {
            (0, message) => world.notify_control(HERE, message),
            (1, message) => world.notify_control(THERE, message),
            (2, message) => {
                let Ok(word) = ToNode::parse(message, HERE) else { continue };
                world.with_member(|member, now, out| member.on_control(word, now, out));
            }
            (_, Message::Routed(routed)) => world.with_member(|member, now, out| {
                let _ = member.on_routed(THERE, routed.from, routed.to, *routed.message, now, out);
            }),
            (_, _) => {}
        }
    }
});
