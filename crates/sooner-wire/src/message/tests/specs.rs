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
    let common = common(kind);
    let (strategy, priority, threads) = (Some(Box::new(Strategy::Spread)), Some(-2), Some(4));
    match kind {
        TaskKind::Task(_) => TaskSpec { concurrency: 10, strategy, priority, threads, ..common },
        TaskKind::Creation => TaskSpec {
            concurrency: 6,
            groups: Some(Box::new([2, 3])),
            checkpoint_every: Some(500),
            strategy,
            priority,
            threads,
            ..common
        },
        TaskKind::Method(_) => TaskSpec {
            function: FunctionId(5),
            title: Some(Name::from("shown")),
            group: Some(1),
            unordered: Some(true),
            kept: Some(false),
            ..common
        },
    }
}

pub(super) fn samples(add: &mut impl FnMut(Message)) {
    for spec in KINDS.map(plain).into_iter().chain(KINDS.map(full)) {
        add(Push { spec: Box::new(spec), dependencies: vec![], gpus: vec![] }.into());
    }
}
