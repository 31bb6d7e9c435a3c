//! Connecting, leaving, and making worker processes.

use minicbor::{Decode, Encode};

use super::JobConfig;
use crate::{NodeId, TaskId, WorkerId};

/// Roles of clients.
pub mod role {
    /// A program that called `init`.
    pub const DRIVER: u8 = 0;
    /// A process forked by the template.
    pub const WORKER: u8 = 1;
    /// Something that asks and then leaves: never a worker, never a driver.
    pub const TOOL: u8 = 2;
    /// A driver's second connection, for its workers' output. It ends when the workers have ended.
    pub const LOGS: u8 = 3;
}

/// First message of a client to its node.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Hello {
    #[n(0)]
    pub major: u16,
    #[n(1)]
    pub minor: u16,
    /// Feature bits; unknown ones are ignored.
    #[n(2)]
    pub features: u64,
    /// See [`role`].
    #[n(3)]
    pub role: u8,
    #[n(4)]
    pub pid: u32,
    /// "3.11": pickled code only works between equal minor versions.
    #[n(5)]
    pub python: String,
    /// The id under which a worker was forked, or that of the driver whose logs are wanted; zero for a
    /// driver.
    #[n(6)]
    pub worker: WorkerId,
    /// The driver's configuration. The driver that hosts the node need not send it.
    #[n(7)]
    pub job: Option<Box<JobConfig>>,
}

row! { 1 Hello: [process -> node]; no values; }

/// The node's answer; carries the descriptor of the arena, and that of the file behind it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Welcome {
    #[n(0)]
    pub worker: WorkerId,
    #[n(1)]
    pub node: NodeId,
    /// Size of the shared memory (bytes).
    #[n(2)]
    pub arena_bytes: u64,
    /// Values up to this size (bytes) travel in messages.
    #[n(3)]
    pub inline_bytes: u64,
    /// The client's progress cell in the arena.
    #[n(4)]
    pub cell: u32,
    /// The driver whose job this is.
    #[n(5)]
    pub driver: WorkerId,
    /// Default namespace of actor names.
    #[n(6)]
    pub namespace: String,
    /// Memory for events of tasks (bytes); without it nothing is recorded.
    #[n(7)]
    pub events_bytes: Option<u64>,
    /// Memory for descriptions of tasks whose results may have to be computed again (bytes).
    #[n(8)]
    pub lineage_bytes: Option<u64>,
    /// Length of the file behind the memory (bytes), whose descriptor follows that of the arena.
    #[n(9)]
    pub fallback_bytes: Option<u64>,
    /// Other nodes are not told when values of this client are out of reference: their copies go when room is
    /// needed.
    #[n(10)]
    pub unpins_lazily: Option<bool>,
}

row! { 2 Welcome: [node -> process]; no values; }

/// The node does not want this client.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Refused {
    #[n(0)]
    pub reason: String,
}

row! {
    3 Refused: [process -> node, node -> process, process -> process, node -> node, control -> node]; no values;
}

/// What the receiver of a connection over TCP does first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum LinkRole {
    /// The receiver says hello. Without a descriptor: the other process could not be dialled.
    #[n(1)]
    Dial,
    /// The receiver waits for the peer's hello.
    #[n(2)]
    Accept,
}

/// A direct connection to another process; carries its descriptor.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct PeerConnected {
    #[n(0)]
    pub worker: WorkerId,
    /// For a connection over TCP, which is not encrypted yet; `None` for a pair of sockets on this machine.
    #[n(1)]
    pub link: Option<LinkRole>,
    /// The name that the other process must prove, where this one dials.
    #[n(2)]
    pub name: Option<String>,
    /// Why the two nodes can never connect, for people. Only without a descriptor.
    #[n(3)]
    pub never: Option<String>,
}

row! { 4 PeerConnected: [node -> process, process -> node]; no values; }

impl PeerConnected {
    /// Over a pair of sockets on this machine.
    #[must_use]
    pub fn pair(worker: WorkerId) -> Self {
        Self { worker, link: None, name: None, never: None }
    }
}

/// Asks the node for a direct connection.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Connect {
    #[n(0)]
    pub worker: WorkerId,
}

row! { 5 Connect: [process -> node]; no values; }

/// A process is dead, or has ended, and all that it owned with it.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct WorkerDead {
    #[n(0)]
    pub worker: WorkerId,
    /// For people: "killed by signal 9", "exited with status 1".
    #[n(1)]
    pub reason: String,
    /// The last task it began, if it began one: later pushes were not executed.
    #[n(2)]
    pub last_started: Option<TaskId>,
    /// For people: "actor Counter (pid 123)".
    #[n(3)]
    pub what: Option<String>,
    /// It is unknown what the process began: every push to it may have been executed, whatever `last_started`
    /// says.
    #[n(4)]
    pub all_begun: Option<bool>,
    /// The process may live, but can never be reached from this node.
    #[n(5)]
    pub unreachable: Option<bool>,
    /// Its node stopped it because memory ran out.
    #[n(6)]
    pub memory: Option<Box<MemoryEnd>>,
}

row! { 6 WorkerDead: [node -> process, directory -> node]; no values; }

/// The memory of a node when it stopped a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(array)]
pub struct MemoryEnd {
    /// For people: how full the memory was, and a table of its holders.
    #[n(0)]
    pub report: String,
    /// What the worker held (bytes).
    #[n(1)]
    pub held: u64,
    /// The most that a task can reserve there (bytes); zero where memory is no resource.
    #[n(2)]
    pub reservable: u64,
    /// The kernel ended the worker: it takes the largest process. `held` is an estimate.
    #[n(3)]
    pub by_kernel: Option<bool>,
    /// The worker was ended at a limit of its own (bytes), whatever the machine had left.
    #[n(4)]
    pub limit: Option<u64>,
}

/// End now.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Shutdown {
    #[n(0)]
    pub reason: String,
}

row! { 7 Shutdown: [process -> node, node -> process, node -> template]; no values; }

/// Node to an idle worker: end, unless other processes need what you own.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct EndIdle {}

row! { 19 EndIdle: [node -> process]; no values; }

/// The worker's answer if it is needed; otherwise it ends. Sent once more, with `false`, when no process
/// needs it any more.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Needed {
    #[n(0)]
    pub is_needed: bool,
}

row! { 29 Needed: [process -> node]; no values; }

/// A worker to the holder of its lease, and to its node: it takes no more tasks, and lives only as long as
/// other processes need what it owns.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Retired {}

row! { 17 Retired: [process -> node, process -> process]; no values; }

/// Node to template: fork a worker. Carries its node socket and its two output pipes.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Fork {
    #[n(0)]
    pub worker: WorkerId,
}

row! { 8 Fork: [node -> template]; no values; }

/// Node to template, repeatedly where a head may declare the node dead: without such a message for
/// `patience`, stop the workers until the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct NodeLives {
    /// Nanoseconds.
    #[n(0)]
    pub patience: u64,
}

row! { 49 NodeLives: [node -> template]; no values; }

/// Template to node: the worker's process id.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Forked {
    #[n(0)]
    pub worker: WorkerId,
    /// Zero when the fork failed.
    #[n(1)]
    pub pid: u32,
    #[n(2)]
    pub error: Option<String>,
}

row! { 9 Forked: [template -> node]; no values; }

/// Template to node: a worker ended.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Exited {
    #[n(0)]
    pub worker: WorkerId,
    /// For people.
    #[n(1)]
    pub reason: String,
    /// By SIGKILL.
    #[n(2)]
    pub killed: Option<bool>,
}

row! { 18 Exited: [template -> node]; no values; }
