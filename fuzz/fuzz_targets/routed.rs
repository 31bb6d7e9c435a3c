//! Another node that breaks the protocol: whatever comes over its link, this node neither panics nor loses
//! count of its resources, and what that node may not say is refused.
//!
//! The input is a list of frames: words that the other node passes on, and between them what a driver here
//! says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sooner_protocol::node::uplink::Member;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_protocol::time::Instant;
use sooner_wire::frame::{HEAD_BYTES, whole_frame};
use sooner_wire::message::Message;
use sooner_wire::{NodeId, ResourceSet};

const STEP_NANOS: u64 = 10_000_000;
const HERE: NodeId = NodeId(0x0b00_0000);
const THERE: NodeId = NodeId(0x0a00_0000);

fuzz_target!(|bytes: &[u8]| {
    let total = ResourceSet::from_amounts([("CPU".to_owned(), 2.0), ("GPU".to_owned(), 1.0)]);
    let mut node = Member::new(total, HERE.0, 2);
    let driver = node.new_worker_id();
    let mut now = Instant(1);
    node.on_connected(driver, 1, now);
    let mut rest = bytes;
    while let Ok(Some(head)) = whole_frame(rest) {
        let body = &rest[HEAD_BYTES..HEAD_BYTES + head.length];
        rest = &rest[HEAD_BYTES + head.length..];
        let Ok(message) = Message::decode(head.kind, body) else { continue };
        let mut out = NodeActions::new();
        now = now.plus(STEP_NANOS);
        match message {
            Message::Routed(routed) => {
                let (from, to) = (routed.from, routed.to);
                let handled = node.on_routed(THERE, from, to, *routed.message, now, &mut out);
                assert!(handled.is_err() || (from.node(), to.node()) == (THERE, HERE));
            }
            other => drop(node.on_message(driver, other, now, &mut out)),
        }
        node.after_events(now, &mut out);
        node.check();
        start_workers(&mut node, &out, now);
    }
});

/// What the template would do.
fn start_workers(node: &mut Member, out: &NodeActions, now: Instant) {
    let mut more = NodeActions::new();
    for action in out {
        match action {
            NodeAction::StartWorker(worker) => node.on_connected(*worker, 2, now),
            NodeAction::KillWorker(worker) => node.on_dead(*worker, "killed", None, &mut more),
            _ => {}
        }
    }
    node.after_events(now, &mut more);
    node.check();
}
