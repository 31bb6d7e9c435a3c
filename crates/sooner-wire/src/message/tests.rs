//! What is written is read, the list of all messages is what it was, and random bytes never do harm.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::frame::{HEAD_BYTES, whole_frame};
use crate::{
    Blob, BlockId, DialAttempt, FetchAttempt, FunctionId, Name, NodeId, ResourceSet, ShapeId, Takeover,
    TaskId, TransferAttempt, WorkerId,
};

fn round_trip(message: Message) {
    let mut bytes = Vec::new();
    message.append(&mut bytes, 2);
    let head = whole_frame(&bytes).expect("fits").expect("is whole");
    assert_eq!(head.flags, 2);
    assert_eq!(head.length, bytes.len() - HEAD_BYTES);
    assert_eq!(Message::decode(head.kind, &bytes[HEAD_BYTES..]), Ok(message));
    keep_as_seed(head.kind, &bytes);
}

/// The fuzz targets begin with these messages: `tools/fuzz.sh` says where it wants them.
fn keep_as_seed(kind: u16, bytes: &[u8]) {
    use std::hash::{DefaultHasher, Hasher};
    let Some(directory) = std::env::var_os("SOONER_SEEDS") else { return };
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    let name = format!("{kind}-{:016x}", hasher.finish());
    std::fs::write(std::path::Path::new(&directory).join(name), bytes).expect("the directory is there");
}

/// Samples of all kinds; [`golden`] names those that have none.
fn samples() -> Vec<Message> {
    let mut all = Vec::new();
    let add = &mut |message| all.push(message);
    mixed(add);
    specs::samples(add);
    within_node::samples(add);
    between_nodes::samples(add);
    groups::samples(add);
    between_nodes::messages().for_each(|(message, _)| add(message));
    cluster_messages::messages().into_iter().for_each(|(message, _)| add(message));
    all
}

#[test]
fn what_is_written_is_read() {
    samples().into_iter().for_each(round_trip);
}

fn call() -> FunctionCall {
    FunctionCall { max_calls: NonZeroU32::new(1), ..FunctionCall::new(ShapeId(1), FunctionId(3)) }
}

fn spec() -> TaskSpec {
    let task = TaskId { owner: WorkerId(7), number: 9 };
    TaskSpec {
        dependencies: Box::new([task.object(0)]),
        retries: 3,
        ..TaskSpec::of(task, Target::Function(call()), Name::from("f"), Blob::from(&b"abc"[..]))
    }
}

/// Of several of those modules, and of none.
fn mixed(add: &mut impl FnMut(Message)) {
    let task = TaskId { owner: WorkerId(7), number: 9 };
    let resources = ResourceSet::from_amounts([("CPU".to_owned(), 0.5)]);
    add(Retired {}.into());
    add(Suspended { actor: task, is_ready: true }.into());
    add(Resumed { actor: task, gpus: vec![1, 3] }.into());
    add(RequestLease {
        shape: ShapeId(1),
        resources,
        demand: 3,
        strategy: None,
        prefer: None,
        priority: None,
        raises_memory: None,
    }
    .into());
    add(Push {
        spec: Box::new(spec()),
        dependencies: vec![Dependency {
            object: task.object(0),
            outcome: Outcome::Stored(Location { offset: 4096, length: 12 }),
            contained: vec![task.object(1)],
        }],
        gpus: vec![0, 1],
    }
    .into());
    let failure = Failure::new(FailureCode::ActorDied, "gone");
    add(Reply {
        task,
        returns: vec![Return { outcome: Outcome::Failed(Box::new(failure)), contained: vec![] }],
        held: vec![],
        nanos: 5,
        retry: false,
        timing: Some(Timing { started: 1 << 40, deserialise: 0, store: 7 }),
        not_run: Some(true),
    }
    .into());
    let streaming = TaskSpec { stream: Some(Streaming { backpressure: 4, dynamic: false }), ..spec() };
    add(Push { spec: Box::new(streaming), dependencies: vec![], gpus: vec![] }.into());
    let value =
        Return { outcome: Outcome::Inline(Blob::from(&b"item"[..])), contained: vec![task.object(3)] };
    add(Item { task, index: 7, value: value.clone() }.into());
    add(Checkpoint { actor: task, state: value.clone(), calls: vec![task] }.into());
    add(Restore { actor: task, state: Some(value), callers: vec![WorkerId(7)], takeover: Some(Takeover(1)) }
        .into());
    let scheduling = Scheduling { threads: Some(4), ..Scheduling::default() };
    let target = Target::Function(FunctionCall { scheduling, ..call() });
    let threaded = TaskSpec { target, ..spec() };
    add(Push { spec: Box::new(threaded), dependencies: vec![], gpus: vec![] }.into());
    add(ItemsTaken { task, taken: 6, stop: true }.into());
    add(Blocked {}.into());
    add(Ack { received: 1 << 40 }.into());
    let remote = Remote { node: WorkerId(7 << 24 | 1).node(), location: Location { offset: 64, length: 12 } };
    let outcome = Outcome::Remote(Box::new(remote));
    add(Value { object: task.object(1), outcome, contained: vec![] }.into());
    add(Pull { object: task.object(1), remote, priority: Priority::Argument }.into());
    let failure = Some(Box::new(Failure::new(FailureCode::StoreFull, "full")));
    add(Pulled { object: task.object(1), location: Some(remote.location), failure: None, tried: None }.into());
    add(Pulled { object: task.object(1), location: None, failure, tried: None }.into());
    let tried = Some(remote);
    add(Pulled { object: task.object(1), location: None, failure: None, tried }.into());
    add(Fetch { object: task.object(1), missing_at: Some(remote) }.into());
    let location = remote.location;
    for generation in [None, Some(7)] {
        let object = task.object(1);
        add(Fetching { object, location, begin: 3, end: 9, attempt: FetchAttempt(2), generation }.into());
    }
    let (object, node) = (task.object(1), remote.node);
    add(Locate { object, node }.into());
    for sender in [None, Some(remote)] {
        add(Located {
            object,
            node,
            sender,
            generation: 3,
            attempt: Some(TransferAttempt(4)),
            is_copy: true,
        }
        .into());
    }
    add(CopyMade { object, node, attempt: TransferAttempt(4) }.into());
    add(CopyLeaving { object, node }.into());
    add(SenderFailed { object, node, attempt: TransferAttempt(4) }.into());
    add(DropCopy { object, node }.into());
    let reason = FetchEnd::Unwanted;
    add(FetchEnded { object: task.object(1), attempt: FetchAttempt(2), reason }.into());
    add(FreeAt { node: remote.node, places: vec![BlockId(64).into(), BlockId(128).into()] }.into());
    add(LostAt { node: remote.node, blocks: vec![BlockId(64)] }.into());
    add(GiveBlock { block: BlockId(64), owner: WorkerId(7), object: Some(task.object(1)) }.into());
    let job =
        JobConfig { template: vec!["python".into(), "-c".into()], inline_bytes: 7, ..Default::default() };
    let hello = Hello {
        major: 1,
        minor: 0,
        features: 0,
        role: role::DRIVER,
        pid: 5,
        python: "3.11".into(),
        worker: WorkerId::default(),
        job: Some(Box::new(job)),
    };
    add(Hello { job: None, ..hello.clone() }.into());
    add(hello.into());
    let end = InspectEnd { asked: Some(5), answered: Some(7), ..InspectEnd::default() };
    add(NodeInspected { request: 1, node: NodeId(9), ahead: -5, end: Box::new(end) }.into());
    add(LogLines { job: WorkerId(3), is_stderr: true, text: "a line\n".into(), more: None }.into());
    add(PeerHello {
        major: 1,
        minor: 0,
        features: 0,
        python: "3.11".into(),
        from: WorkerId(7),
        to: WorkerId(9),
        session: 3,
        received: Some(1 << 40),
        attempt: Some(DialAttempt(3)),
    }
    .into());
    add(PeerWelcome { minor: 0, features: 0, session: 3, received: 0 }.into());
    let (error, unavailable) = (Some("away".into()), Some(true));
    add(Answer { request: 4, error, unavailable, ..Default::default() }.into());
    add(Answer { request: 4, names: Some(vec![("n".into(), "a".into())]), ..Default::default() }.into());
}

#[test]
fn a_refusal_of_a_block_reads_in_both_versions() {
    let old: &[u8] = &[0x84, 0x04, 0xf6, 0x01, 0x02];
    let refused = within_node::allocated();
    assert_eq!(Message::decode(35, old), Ok(refused.into()));
    let holder =
        BlockHolder { process: WorkerId(1), pid: 2, title: "worker".into(), bytes: 1 << 20, objects: 3 };
    assert_eq!(
        BlockHolder::list(std::slice::from_ref(&holder)),
        ". Largest holders: worker (process 2): 1.00 MiB in 3 objects"
    );
    assert_eq!(BlockHolder::list(&[]), "");
}

#[test]
fn a_borrowed_push_is_the_same_bytes() {
    let push = Push { spec: Box::new(spec()), dependencies: vec![], gpus: vec![] };
    let (mut owned, mut borrowed) = (Vec::new(), Vec::new());
    Message::from(push.clone()).append(&mut owned, 0);
    PushRef { spec: &push.spec, dependencies: &[], gpus: &[] }.append(&mut borrowed);
    assert_eq!(owned, borrowed);
}

/// The bytes of messages that every pair of versions exchanges. If one changes, other versions cannot read
/// it: add a field at the end, or raise `PROTOCOL_MAJOR`.
#[test]
fn the_encoding_stays_what_it_is() {
    let task = TaskId { owner: WorkerId(7), number: 9 };
    let resources = ResourceSet::from_amounts([("CPU".to_owned(), 0.5)]);
    let push = Push {
        spec: Box::new(spec()),
        dependencies: vec![Dependency {
            object: task.object(0),
            outcome: Outcome::Stored(Location { offset: 4096, length: 12 }),
            contained: vec![task.object(1)],
        }],
        gpus: vec![1],
    };
    let reply = Reply {
        task,
        returns: vec![Return { outcome: Outcome::Inline(Blob::from(&b"value"[..])), contained: vec![] }],
        held: vec![],
        nanos: 5,
        retry: false,
        timing: None,
        not_run: None,
    };
    let golden: [(Message, &str); 4] = [
        (
            RequestLease {
                shape: ShapeId(1),
                resources,
                demand: 3,
                strategy: None,
                prefer: None,
                priority: None,
                raises_memory: None,
            }
            .into(),
            "0c0000000a000000830181826343505519138803",
        ),
        (
            push.into(),
            "3200000015000000838b8207098200810103616601436162638182820709008003f40181838282070900820181821910000c8182820709018101",
        ),
        (reply.into(), "13000000160000008582070981828200814576616c7565808005f4"),
        (Connect { worker: WorkerId(7) }.into(), "02000000050000008107"),
    ];
    for (message, expected) in golden {
        let mut bytes = Vec::new();
        message.append(&mut bytes, 0);
        let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(written, expected, "{message:?}");
    }
}

#[test]
fn unknown_kinds_are_named() {
    assert_eq!(Message::decode(9999, &[]), Err(FrameError::UnknownKind(9999)));
}

#[test]
fn unknown_trailing_fields_are_skipped() {
    // A newer peer's Connect with one more field.
    let newer = [0x82, 0x07, 0x63, b'n', b'e', b'w'];
    assert_eq!(Message::decode(5, &newer), Ok(Connect { worker: WorkerId(7) }.into()));
}

proptest! {
    #[test]
    fn garbage_is_refused_without_a_panic(
        row in proptest::sample::select(Message::ROWS),
        body in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = Message::decode(row.kind, &body);
    }
}

mod between_nodes;
mod cluster_messages;
mod golden;
mod groups;
mod specs;
mod within_node;
