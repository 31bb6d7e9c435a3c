//! Tasks of each kind: with nothing of note, and with every field set.

use super::*;
use crate::Strategy;

const TASK: TaskId = TaskId { owner: WorkerId(7), number: 9 };
const ACTOR: TaskId = TaskId { owner: WorkerId(8), number: 2 };

const KINDS: [TaskKind; 3] = [TaskKind::Task(ShapeId(1)), TaskKind::Creation, TaskKind::Method(ACTOR)];

fn plain(kind: TaskKind) -> TaskSpec {
    let function = if matches!(kind, TaskKind::Method(_)) { FunctionId(0) } else { FunctionId(3) };
    TaskSpec::new(TASK, kind, function, Name::from("f"), Blob::from(&b"abc"[..]))
}

/// Every field that all kinds have is set.
fn common(kind: TaskKind) -> TaskSpec {
    TaskSpec {
        returns: 2,
        dependencies: Box::new([ACTOR.object(0)]),
        references: Box::new([ACTOR.object(1)]),
        retries: -1,
        retry_exceptions: true,
        stream: Some(Streaming { backpressure: 4, dynamic: true }),
        site: Some(Name::from("a.py:1")),
        recovers: Some(true),
        spared: Some(true),
        ..plain(kind)
    }
}

/// Every field of the kind is set.
fn full(kind: TaskKind) -> TaskSpec {
    let scheduling =
        Scheduling { strategy: Some(Box::new(Strategy::Spread)), priority: Some(-2), threads: Some(4) };
    let target = match kind {
        TaskKind::Task(shape) => Target::Function(FunctionCall {
            shape,
            function: FunctionId(3),
            max_calls: NonZeroU32::new(10),
            scheduling,
        }),
        TaskKind::Creation => Target::Class(ActorCreation {
            class: FunctionId(3),
            concurrency: 6,
            groups: Some(Box::new([2, 3])),
            checkpoint_every: Some(500),
            scheduling,
        }),
        TaskKind::Method(actor) => Target::Method(MethodCall {
            actor,
            retry_on: Some(FunctionId(5)),
            title: Some(Name::from("shown")),
            group: Some(1),
            unordered: true,
            kept: Some(false),
        }),
    };
    TaskSpec { target, ..common(kind) }
}

pub(super) fn samples(add: &mut impl FnMut(Message)) {
    for spec in KINDS.map(plain).into_iter().chain(KINDS.map(full)) {
        add(Push { spec: Box::new(spec), dependencies: vec![], gpus: vec![] }.into());
    }
}
