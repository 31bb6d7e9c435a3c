//! Samples of the messages between nodes about actors, leases, jobs and ends, whose bytes stay what they are.

use std::num::NonZeroU32;

use super::*;
use crate::message::MemoryEnd;
use crate::{FetchAttempt, LeaseId, NodeId, Takeover};

const NODE: NodeId = NodeId(1 << 24);
const WORKER: WorkerId = WorkerId((1 << 24) | 5);

fn actor() -> TaskId {
    TaskId { owner: WorkerId(7), number: 9 }
}

fn create() -> CreateActor {
    let cpus = ResourceSet::from_amounts([("CPU".to_owned(), 0.5)]);
    let class = Define {
        function: FunctionId(3),
        name: Name::from("A"),
        code: Blob::from(&b"code"[..]),
        references: vec![],
        place: None,
    };
    CreateActor {
        actor: actor(),
        placement: cpus.clone(),
        lifetime: cpus,
        class: Box::new(class),
        constructor: Box::new(Push { spec: Box::new(spec()), dependencies: vec![], gpus: vec![] }),
        restarts: Some(2),
        detached: None,
        job: Some(WorkerId(7)),
    }
}

fn gone() -> WorkerDead {
    WorkerDead {
        worker: WORKER,
        reason: "r".into(),
        last_started: Some(actor()),
        what: Some("w".into()),
        all_begun: Some(true),
        unreachable: None,
        memory: None,
    }
}

/// With parts that the ones below do not have.
pub(super) fn samples(add: &mut impl FnMut(Message)) {
    let memory =
        MemoryEnd { report: "m".into(), held: 3, reservable: 4, by_kernel: Some(true), limit: Some(5) };
    add(WorkerDead { memory: Some(Box::new(memory)), ..gone() }.into());
    let stored = || Outcome::Stored(Location { offset: 4096, length: 12 });
    let state = || Return { outcome: stored(), contained: vec![actor().object(1)] };
    let with_argument = || {
        let dependency = Dependency { object: actor().object(0), outcome: stored(), contained: vec![] };
        let spec = Box::new(spec());
        CreateActor {
            constructor: Box::new(Push { spec, dependencies: vec![dependency], gpus: vec![] }),
            ..create()
        }
    };
    add(with_argument().into());
    add(PlaceActor {
        takeover: Takeover(0),
        turn: 1,
        name: None,
        restores: false,
        create: Box::new(with_argument()),
        restarts: None,
        description: None,
    }
    .into());
    add(ActorStarted {
        actor: actor(),
        worker: WORKER,
        concurrency: 3,
        replays: Some(true),
        restarts: NonZeroU32::new(2),
    }
    .into());
    add(PlaceRefused {
        actor: actor(),
        takeover: Takeover(1),
        reason: "r".into(),
        create: Some(Box::new(with_argument())),
        no_workers: None,
        for_now: Some(true),
    }
    .into());
    let checkpoint = Checkpoint { actor: actor(), state: state(), calls: vec![actor()] };
    let dead = ActorDead { actor: actor(), failure: Failure::new(FailureCode::ActorDied, "d") };
    let also =
        AlsoHere { checkpoints: vec![(WORKER, checkpoint)], dead: vec![dead], watched: Some(vec![NODE]) };
    add(ActorsHere {
        actors: vec![ActorHere { create: Some(Box::new(with_argument())), ..actor_here() }],
        jobs: vec![],
        subscribers: vec![],
        keepers: Some(vec![(actor(), WORKER)]),
        kept: Some(vec![(actor(), Some(Place::of(64))), (actor(), None)]),
        also: Some(Box::new(also)),
    }
    .into());
    let message = Box::new(with_argument().into());
    add(Routed { from: WORKER, to: WorkerId(0), message }.into());
}

fn value() -> Return {
    Return { outcome: Outcome::Inline(Blob::from(&b"v"[..])), contained: vec![actor().object(1)] }
}

fn actor_here() -> ActorHere {
    ActorHere {
        actor: actor(),
        takeover: Takeover(1),
        worker: Some(WORKER),
        is_ready: true,
        job: WorkerId(7),
        name: Some(("s".into(), "n".into())),
        description: Some(Blob::from(&b"d"[..])),
        class: "A".into(),
        detached: true,
        concurrency: 3,
        restarts: -1,
        create: Some(Box::new(create())),
        checkpoint: Some(value()),
        gone: Some(Box::new(gone())),
        group: Some(actor()),
        covered: None,
    }
}

fn job() -> Job {
    let setup = TemplateSetup {
        path: vec!["/a".into()],
        preload: vec!["m".into()],
        call_sites: true,
        needs_site: false,
        options: vec!["-O".into()],
        flags: vec![("optimize".into(), 1)],
    };
    let config = JobConfig {
        template: vec!["p".into()],
        working_directory: "/".into(),
        namespace: "s".into(),
        inline_bytes: 1,
        events_bytes: 2,
        lineage_bytes: 3,
        setup: Some(Box::new(setup)),
        hashes: Some(Box::new(HashSecret { secret: Blob::from(&b"h"[..]), library: "/l".into() })),
    };
    Job { job: WorkerId(7), state: JobState::Started, config: Some(Box::new(config)) }
}

fn about_actors() -> Vec<(Message, &'static str)> {
    let place = PlaceActor {
        takeover: Takeover(1),
        turn: 4,
        name: Some(("s".into(), "n".into())),
        restores: true,
        create: Box::new(create()),
        restarts: Some(-1),
        description: Some(Blob::from(&b"d"[..])),
    };
    let started =
        ActorStarted { actor: actor(), worker: WORKER, concurrency: 3, replays: None, restarts: None };
    let here = ActorsHere {
        actors: vec![actor_here()],
        jobs: vec![job()],
        subscribers: vec![(actor(), WORKER)],
        keepers: None,
        kept: None,
        also: None,
    };
    vec![
        (
            place.into(),
            "4d00000096000000870104826173616ef5898207098182634350551913888182634350551913888403614144636f646580838b8207098200810103616601436162638182820709008003f401808002f6f607204164",
        ),
        (
            ActorPlaced { actor: actor(), takeover: Takeover(1), worker: WORKER }.into(),
            "0a0000009700000083820709011a01000005",
        ),
        (
            PlaceRefused {
                actor: actor(),
                takeover: Takeover(1),
                reason: "r".into(),
                create: None,
                no_workers: None,
                for_now: None,
            }
            .into(),
            "070000009800000083820709016172",
        ),
        (
            PlaceRefused {
                actor: actor(),
                takeover: Takeover(1),
                reason: "r".into(),
                create: None,
                no_workers: None,
                for_now: Some(true),
            }
            .into(),
            "0a0000009800000086820709016172f6f6f5",
        ),
        (
            PlaceRefused {
                actor: actor(),
                takeover: Takeover(1),
                reason: "r".into(),
                create: None,
                no_workers: Some(true),
                for_now: None,
            }
            .into(),
            "090000009800000085820709016172f6f5",
        ),
        (
            ActorProcessDead { actor: actor(), takeover: Takeover(1), gone: Box::new(gone()) }.into(),
            "13000000990000008382070901851a0100000561728207096177f5",
        ),
        (
            EndActor {
                actor: actor(),
                takeover: Takeover(1),
                finishes: true,
                recalls: None,
                is_succeeded: None,
            }
            .into(),
            "060000009a0000008382070901f5",
        ),
        (
            EndActor {
                actor: actor(),
                takeover: Takeover(1),
                finishes: false,
                recalls: Some(true),
                is_succeeded: None,
            }
            .into(),
            "070000009a0000008482070901f4f5",
        ),
        (
            EndActor {
                actor: actor(),
                takeover: Takeover(1),
                finishes: false,
                recalls: None,
                is_succeeded: Some(true),
            }
            .into(),
            "080000009a0000008582070901f4f6f5",
        ),
        (
            here.into(),
            "b10000009b00000083818f820709011a01000005f507826173616e41646141f50320898207098182634350551913888182634350551913888403614144636f646580838b8207098200810103616601436162638182820709008003f401808002f6f607828200814176818282070901851a0100000561728207096177f58207098183070088816170612f61730102038681622f6181616df5f481622d4f8182686f7074696d697a6501824168622f6c81828207091a01000005",
        ),
        (
            ActorSubscribed { actor: actor(), process: WORKER, started: Some(Box::new(started)) }.into(),
            "130000009c000000838207091a01000005838207091a0100000503",
        ),
        (LetGo { place: Place::of(64) }.into(), "030000009d000000811840"),
        (
            Restore {
                actor: actor(),
                state: Some(value()),
                callers: vec![WORKER],
                takeover: Some(Takeover(1)),
            }
            .into(),
            "170000005200000084820709828200814176818282070901811a0100000501",
        ),
    ]
}

fn about_leases() -> Vec<(Message, &'static str)> {
    let (client, shape, lease) = (WorkerId(7), ShapeId(1), LeaseId(6));
    let resources = ResourceSet::from_amounts([("CPU".to_owned(), 0.5)]);
    let (strategy, priority, raises_memory) = (Some(Box::new(crate::Strategy::Spread)), Some(-4), None);
    vec![
        (
            LeaseAt { client, job: client, shape, resources, demand: 3, strategy, priority, raises_memory }
                .into(),
            "120000008c000000870707018182634350551913880382008023",
        ),
        (
            LeaseGrantedAt { client, shape, lease, worker: WORKER, gpus: vec![0] }.into(),
            "0b0000008d000000850701061a010000058100",
        ),
        (
            LeaseRefused {
                client,
                shape,
                reason: "r".into(),
                infeasible: Some(true),
                no_workers: None,
                for_now: None,
            }
            .into(),
            "060000008e0000008407016172f5",
        ),
        (
            LeaseRefused {
                client,
                shape,
                reason: "r".into(),
                infeasible: None,
                no_workers: Some(true),
                for_now: None,
            }
            .into(),
            "070000008e0000008507016172f6f5",
        ),
        (ReturnLeaseAt { lease }.into(), "020000008f0000008106"),
        (ReclaimLeaseAt { client, lease }.into(), "0300000090000000820706"),
        (ReclaimLease { count: 1, lease: Some(lease) }.into(), "030000000d000000820106"),
        (ReclaimLease { count: 1, lease: None }.into(), "020000000d0000008101"),
    ]
}

fn about_processes() -> Vec<(Message, &'static str)> {
    let held = vec![Held { object: actor().object(1), borrower: WORKER, count: 2, of: Some(WORKER) }];
    let left =
        ProcessLeft { process: WORKER, in_order: false, watchers: vec![NODE], gone: Some(Box::new(gone())) };
    let (certificate, key) = (Blob::from(&b"c"[..]), Blob::from(&b"k"[..]));
    let credentials = Credentials { node: NODE, certificate, key, roots: vec![Blob::from(&b"r"[..])] };
    let watch = Box::new(Watch { worker: WORKER }.into());
    let dialled =
        PeerConnected { worker: WORKER, link: Some(LinkRole::Dial), name: Some("n".into()), never: None };
    let never = Some("n".to_owned());
    let never = PeerConnected { worker: WORKER, link: Some(LinkRole::Dial), name: None, never };
    let lines = LogLines { job: WorkerId(7), is_stderr: true, text: "a\n".into(), more: None };
    vec![
        (
            Routed { from: WorkerId(1 << 24), to: WorkerId(2 << 24), message: watch }.into(),
            "140000006e000000841a010000001a02000000186f46811a01000005",
        ),
        (Watch { worker: WORKER }.into(), "060000006f000000811a01000005"),
        (dial_me(None).into(), "0b00000070000000821a010000051a02000000"),
        (dial_me(Some(true)).into(), "0c00000070000000831a010000051a02000000f5"),
        (Sever { worker: WORKER, class: None }.into(), "0600000076000000811a01000005"),
        (left.into(), "1b00000077000000841a01000005f4811a01000000851a0100000561728207096177f5"),
        (
            Collected { gone: WORKER, held }.into(),
            "1800000075000000821a01000005818482820709011a01000005021a01000005",
        ),
        (gone().into(), "0e00000006000000851a0100000561728207096177f5"),
        (SessionEnded { reason: "r".into() }.into(), "030000005d000000816172"),
        (credentials.into(), "0d0000005e000000841a010000004163416b814172"),
        (dialled.into(), "0900000004000000831a0100000501616e"),
        (never.into(), "0a00000004000000841a0100000501f6616e"),
        (PeerConnected::pair(WORKER).into(), "0600000004000000811a01000005"),
        (
            job().into(),
            "2e0000007400000083070088816170612f61730102038681622f6181616df5f481622d4f8182686f7074696d697a6501824168622f6c",
        ),
        (lines.into(), "06000000aa0000008307f562610a"),
        (
            HandOver { node: NODE, places: vec![BlockId(64).into()] }.into(),
            "0900000084000000821a01000000811840",
        ),
        (
            HandedOver { node: NODE, places: vec![BlockId(64).into()] }.into(),
            "0900000085000000821a01000000811840",
        ),
        (
            Promote { object: actor().object(1), node: NODE, length: 64, generation: 5 }.into(),
            "0e000000b60000008482820709011a01000000184005",
        ),
        (
            Promoted {
                object: actor().object(1),
                node: NODE,
                location: Some(Location { offset: 64, length: 12 }),
            }
            .into(),
            "0f000000b70000008382820709011a010000008218400c",
        ),
        (
            Promoted { object: actor().object(1), node: NODE, location: None }.into(),
            "0b000000b70000008282820709011a01000000",
        ),
        (
            MemoryHere {
                machine: "m".into(),
                process: 1,
                descriptor: 2,
                inode: 3,
                bytes: 64,
                cell: 4,
                lender: 5,
            }
            .into(),
            "0a0000008700000087616d01020318400405",
        ),
        (MemoryOpen { lender: 5 }.into(), "02000000880000008105"),
        (
            Lent { attempt: FetchAttempt(1), begin: 2, end: 3, offset: 64, number: 4, loan: 5 }.into(),
            "08000000890000008601020318400405",
        ),
        (Taken { loan: 5 }.into(), "020000008a0000008105"),
        (LinesTaken { job: WorkerId(7), bytes: 300 }.into(), "05000000ad000000820719012c"),
    ]
}

fn dial_me(values: Option<bool>) -> DialMe {
    DialMe { from: WORKER, to: WorkerId(2 << 24), values }
}

pub(super) fn messages() -> impl Iterator<Item = (Message, &'static str)> {
    about_actors().into_iter().chain(about_leases()).chain(about_processes())
}

/// If one of these changes, nodes of another version do not understand it: add fields at the end.
#[test]
fn the_encoding_stays_what_it_is() {
    for (message, expected) in messages() {
        let mut bytes = Vec::new();
        message.append(&mut bytes, 0);
        let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(written, expected, "{message:?}");
    }
}

#[test]
fn a_secret_is_not_shown() {
    let roots = vec![Blob::from(&b"root"[..])];
    let shown = Credentials { node: NODE, certificate: Blob::default(), key: Blob::from(&b"key"[..]), roots };
    assert_eq!(format!("{shown:?}"), "Credentials(0000000001000000)");
}

pub(super) fn routed(kind: u16, body: &[u8]) -> Result<Message, FrameError> {
    let mut bytes = Vec::new();
    let mut encoder = minicbor::Encoder::new(&mut bytes);
    encoder.array(4).and_then(|e| e.u64(1)).and_then(|e| e.u64(2)).expect("memory");
    encoder.u16(kind).and_then(|e| e.bytes(body)).expect("memory");
    Message::decode(110, &bytes)
}

#[test]
fn only_what_is_passed_on_can_be_inside() {
    let watch = Watch { worker: WorkerId(7) };
    let inside = Routed { from: WorkerId(1), to: WorkerId(2), message: Box::new(watch.into()) };
    assert_eq!(routed(111, &[0x81, 0x07]), Ok(inside.into()));
    for (kind, body) in
        [(110, &[0x84, 0x01, 0x02, 0x18, 0x6e, 0x40][..]), (100, &[]), (9999, &[]), (111, &[0x80])]
    {
        let refused = routed(kind, body);
        assert!(matches!(refused, Err(FrameError::Body { kind: 110, .. })), "{kind}: {refused:?}");
    }
}
