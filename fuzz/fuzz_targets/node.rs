//! Clients that break the protocol: whatever they send, the node neither panics nor loses count of its
//! resources.
//!
//! The input is a list of steps: one byte that says who sends, then a frame; or a client's end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_protocol::engine::Solo;
use sooner_protocol::time::Instant;
use sooner_wire::frame::{HEAD_BYTES, whole_frame};
use sooner_wire::message::Message;
use sooner_wire::{ResourceSet, WorkerId};

const STEP_NANOS: u64 = 10_000_000;
const ENDS: u8 = 0x80;

fuzz_target!(|bytes: &[u8]| {
    let total = ResourceSet::from_amounts([("CPU".to_owned(), 2.0), ("GPU".to_owned(), 1.0)]);
    let mut node = Solo::new(total, 0, 2);
    let mut clients = vec![node.new_worker_id()];
    let mut now = Instant(1);
    node.on_connected(clients[0], 1, now);
    let mut rest = bytes;
    while let Some((who, frame)) = rest.split_first() {
        let from = clients[usize::from(who & !ENDS) % clients.len()];
        let mut out = NodeActions::new();
        now = now.plus(STEP_NANOS);
        rest = frame;
        if who & ENDS != 0 {
            node.on_dead(from, "killed", None, &mut out);
            clients.retain(|client| *client != from);
        } else {
            let Ok(Some(head)) = whole_frame(frame) else { return };
            rest = &frame[HEAD_BYTES + head.length..];
            let Ok(message) = Message::decode(head.kind, &frame[HEAD_BYTES..HEAD_BYTES + head.length]) else {
                continue;
            };
            node.on_message(from, message, now, &mut out);
        }
        node.after_events(now, &mut out);
        node.check();
        start_workers(&mut node, &out, &mut clients, now);
        if clients.is_empty() {
            return;
        }
    }
});

/// What the template would do.
fn start_workers(node: &mut Solo, out: &NodeActions, clients: &mut Vec<WorkerId>, now: Instant) {
    let mut more = NodeActions::new();
    for action in out {
        match action {
            NodeAction::StartWorker(worker) => {
                node.on_connected(*worker, 2, now);
                clients.push(*worker);
            }
            NodeAction::KillWorker(worker) => {
                node.on_dead(*worker, "killed", None, &mut more);
                clients.retain(|client| client != worker);
            }
            _ => {}
        }
    }
    node.after_events(now, &mut more);
    node.check();
}
