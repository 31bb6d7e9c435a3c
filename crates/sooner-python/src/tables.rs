//! Tables that engine and Python share: what the numbers in messages mean. Python reads them and has no
//! copies.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sooner_runtime::protocol::worker::tasks::{RECORD_BYTES, Record};
use sooner_runtime::wire::ExecutionAttempt;
use sooner_runtime::wire::message::FailureCode;
use sooner_runtime::wire::message::state::{about, hold};

/// A table of all kinds of a Rust enum or of constants, in the order of their numbers. It does not compile in
/// another order, or without one of the enum's kinds.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident of $enum:ident { $($kind:ident $name:literal,)* }) => {
        const _: fn($enum) = |kind| match kind { $($enum::$kind => (),)* };
        table! { $(#[$doc])* $table in $enum { $($kind $name,)* } }
    };
    ($(#[$doc:meta])* $table:ident in $module:ident { $($kind:ident $name:literal,)* }) => {
        $(#[$doc])*
        pub const $table: &[&str] = {
            let kinds = [$($module::$kind),*];
            let mut at = 0;
            while at < kinds.len() {
                assert!(kinds[at] as usize == at);
                at += 1;
            }
            &[$($name),*]
        };
    };
}

table! {
    /// How executions fail, in Ray's words where it has some.
    FAILURES of FailureCode {
        Task "TASK_EXECUTION_EXCEPTION",
        WorkerCrashed "WORKER_DIED",
        ActorDied "ACTOR_DIED",
        ActorUnavailable "ACTOR_UNAVAILABLE",
        Cancelled "TASK_CANCELLED",
        OwnerDied "OWNER_DIED",
        ObjectLost "OBJECT_LOST",
        ObjectFreed "OBJECT_FREED",
        StoreFull "OBJECT_STORE_FULL",
        OutOfMemory "OUT_OF_MEMORY",
        TaskUnschedulable "TASK_UNSCHEDULABLE_ERROR",
        ActorUnschedulable "ACTOR_UNSCHEDULABLE_ERROR",
        System "SYSTEM_ERROR",
        NodeDied "NODE_DIED",
        PendingCallsLimit "PENDING_CALLS_LIMIT",
        RuntimeEnvironment "RUNTIME_ENV_SETUP_FAILED",
        GetTimeout "GET_TIMEOUT",
        ActorNameTaken "ACTOR_NAME_TAKEN",
        ActorInit "ACTOR_INIT_FAILED",
        EndOfStream "END_OF_STREAM",
        ReconstructionFailed "OBJECT_RECONSTRUCTION_FAILED",
        LineageEvicted "OBJECT_RECONSTRUCTION_FAILED_LINEAGE_EVICTED",
        TaskGroupRemoved "TASK_PLACEMENT_GROUP_REMOVED",
        ActorGroupRemoved "ACTOR_PLACEMENT_GROUP_REMOVED",
        PeerUnreachable "PEER_UNREACHABLE",
        OutOfDisk "OUT_OF_DISK",
    }
}

table! {
    /// Why a process keeps an object (`HoldRow::kind`).
    HOLDS in hold {
        TASK "TASK",
        RUNNING "RUNNING_TASK",
        QUEUED "QUEUED_TASK",
        CONTAINED "CONTAINED_IN",
        FUNCTION "FUNCTION",
        CONSTRUCTOR "ACTOR_CONSTRUCTOR",
        DETACHED "DETACHED_ACTOR",
        GENERATOR "GENERATOR",
        PINNED "PINNED",
        KEPT_CALL "KEPT_CALL",
        CHECKPOINT "CHECKPOINT",
        LENT "LENT",
    }
}

/// The kind of a task (`LabelRow::kind`), in Ray's words.
const TASK_KINDS: &[&str] = &["NORMAL_TASK", "ACTOR_CREATION_TASK", "ACTOR_TASK"];
/// The state of a task that has not begun (`TaskRow::state`), in Ray's words.
const TASK_STATES: &[&str] = &["PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "SUBMITTED_TO_WORKER"];
/// The state of a worker (`WorkerRow::state`).
const WORKER_STATES: &[&str] = &["starting", "idle", "leased", "actor"];
/// The state of an actor (`ActorRow::phase`).
const ACTOR_PHASES: &[&str] = &["reserved", "pending", "starting", "alive", "dead", "restarting"];

/// What a snapshot may be about.
const ABOUT: &[(&str, u32)] = &[
    ("TASKS", about::TASKS),
    ("OBJECTS", about::OBJECTS),
    ("ACTORS", about::ACTORS),
    ("EVENTS", about::EVENTS),
    ("METRICS", about::METRICS),
    ("STACKS", about::STACKS),
    ("FILES", about::FILES),
];

/// The fields of a [`Record`] in the order in which they are sent, each with the letter of its type in
/// Python's `struct`.
macro_rules! record {
    ($($field:ident $letter:literal $type:ty,)*) => {
        const RECORD: &[(&str, &str)] = &[$((stringify!($field), $letter)),*];

        const _: () = assert!(0 $(+ size_of::<$type>())* == RECORD_BYTES);
        const _: fn(Record) -> ($($type,)*) = |record| ($(record.$field,)*);
    };
}

record! {
    number "Q" u64,
    submitted "Q" u64,
    started "Q" u64,
    worker "Q" u64,
    ready "f" f32,
    pushed "f" f32,
    deserialise "f" f32,
    run "f" f32,
    store "f" f32,
    ended "f" f32,
    label "I" u32,
    outcome "B" u8,
    again "B" u8,
    attempt "H" ExecutionAttempt,
}

/// Adds the tables to the module.
///
/// # Errors
/// When Python has no memory left.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    for (name, table) in [
        ("FAILURES", FAILURES),
        ("HOLDS", HOLDS),
        ("TASK_KINDS", TASK_KINDS),
        ("TASK_STATES", TASK_STATES),
        ("WORKER_STATES", WORKER_STATES),
        ("ACTOR_PHASES", ACTOR_PHASES),
    ] {
        module.add(name, PyTuple::new(py, table)?)?;
    }
    let kinds = PyDict::new(py);
    for (name, bit) in ABOUT {
        kinds.set_item(name, bit)?;
    }
    module.add("ABOUT", kinds)?;
    module.add("RECORD", PyTuple::new(py, RECORD)?)
}
