//! Peers that break the protocol: whatever they send, a driver or worker neither panics nor loses count of
//! its leases.
//!
//! The input is a list of steps: one byte that says who sends, then a frame. Some tasks wait for their
//! results meanwhile.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use sooner_protocol::worker::action::{Actions, Peer};
use sooner_protocol::worker::ownership::Slot;
use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_wire::frame::{HEAD_BYTES, whole_frame};
use sooner_wire::message::{Define, Message, TaskKind, TaskSpec};
use sooner_wire::{Blob, FunctionId, Name, ResourceSet, ShapeId, TaskId, WorkerId};

const ME: WorkerId = WorkerId(1);
const STEP_NANOS: u64 = 10_000_000;
const TASKS: u64 = 4;
const FUNCTION: FunctionId = FunctionId(1);

fuzz_target!(|bytes: &[u8]| {
    let mut core = WorkerCore::new(ME);
    let mut now = Instant(1);
    let mut out = Actions::new();
    let shape = core.shape(&ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]));
    let (function, name) = (FUNCTION, Name::from("f"));
    core.define(Define { function, name, code: Blob::default(), references: vec![], place: None });
    for number in 1..=TASKS {
        core.submit(Arc::new(task(number, shape)), [Arc::new(Slot::default())], None, &mut out);
    }
    let mut rest = bytes;
    while let Some((who, frame)) = rest.split_first() {
        let Ok(Some(head)) = whole_frame(frame) else { return };
        rest = &frame[HEAD_BYTES + head.length..];
        let Ok(message) = Message::decode(head.kind, &frame[HEAD_BYTES..HEAD_BYTES + head.length]) else {
            continue;
        };
        let from = if who % 4 == 0 { Peer::Node } else { Peer::Worker(WorkerId(u64::from(who % 4) + 1)) };
        now = now.plus(STEP_NANOS);
        core.on_message(from, message, now, &mut out);
        core.on_timer(now, &mut out);
        core.check();
        out.clear();
    }
});

fn task(number: u64, shape: ShapeId) -> TaskSpec {
    let id = TaskId { owner: ME, number };
    let spec = TaskSpec::new(id, TaskKind::Task(shape), FUNCTION, Name::from("f"), Blob::default());
    TaskSpec { retries: 1, ..spec }
}
