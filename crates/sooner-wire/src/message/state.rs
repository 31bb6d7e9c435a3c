//! State: questions of tools, and the reports of processes and nodes about themselves. No task needs them to
//! run.
//!
//! A tool asks its node; the node asks every process, forwards each answer as it comes, and closes with its
//! own. The question bounds the sizes of answers; `*_total` fields say how much there was.

use minicbor::{Decode, Encode};

use super::GroupRow;
use crate::{ActorId, Blob, ExecutionAttempt, FunctionId, NodeId, ObjectId, ResourceSet, TaskId, WorkerId};

/// What a question is about; several may be asked at once.
pub mod about {
    /// Tasks that have not ended, and what waits for what.
    pub const TASKS: u32 = 1;
    /// The ownership table.
    pub const OBJECTS: u32 = 2;
    /// Actors that a process calls.
    pub const ACTORS: u32 = 4;
    /// Events of tasks that ended.
    pub const EVENTS: u32 = 8;
    /// Metrics: processes report values that the node does not have yet.
    pub const METRICS: u32 = 16;
    /// Python stacks: processes write them to a file of theirs.
    pub const STACKS: u32 = 32;
    /// Logs and stacks: files in the node's directory, or parts of them.
    pub const FILES: u32 = 64;
}

/// When and how long a task ran, by the clock of its worker. It travels in replies ([`super::Reply`]), so it
/// is encoded as one byte string of three little-endian numbers: three numbered fields cost a reader four
/// times as much (400 instructions). Later versions may append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Timing {
    /// When the worker began (monotonic nanoseconds of its machine).
    pub started: u64,
    /// How long code and arguments took to load (nanoseconds); zero if too short to be measured.
    pub deserialise: u64,
    /// How long the returned values took to encode and store (nanoseconds); zero if too short to be measured.
    pub store: u64,
}

/// Bytes of an encoded [`Timing`].
const TIMING_BYTES: usize = 24;

impl<C> Encode<C> for Timing {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        let mut bytes = [0; TIMING_BYTES];
        bytes[..8].copy_from_slice(&self.started.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.deserialise.to_le_bytes());
        bytes[16..].copy_from_slice(&self.store.to_le_bytes());
        e.bytes(&bytes)?;
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for Timing {
    #[inline]
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        let bytes = d.bytes()?;
        let Some((known, _)) = bytes.split_first_chunk::<TIMING_BYTES>() else {
            return Err(minicbor::decode::Error::message("a timing has 24 bytes"));
        };
        let number = |at: usize| {
            let mut part = [0; 8];
            part.copy_from_slice(&known[at..at + 8]);
            u64::from_le_bytes(part)
        };
        Ok(Self { started: number(0), deserialise: number(8), store: number(16) })
    }
}

/// Tool to node, node to process, and node to node: report your state.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct Inspect {
    #[n(0)]
    pub request: u64,
    /// See [`about`].
    #[n(1)]
    pub about: u32,
    /// Rows per table at most.
    #[n(2)]
    pub rows: u32,
    /// Events at most: the latest.
    #[n(3)]
    pub events: u32,
    /// From a tool: the other nodes of the cluster are asked, too.
    #[n(4)]
    pub everywhere: Option<bool>,
    /// With [`about::FILES`]: which parts of which files. Without any, the logs are listed.
    #[n(5)]
    pub parts: Option<Vec<FilePart>>,
}

row! { 70 Inspect: [process -> node, node -> process, node => node, node => control]; no values; }

/// A requested part of a file.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct FilePart {
    /// The node that has the file.
    #[n(0)]
    pub node: NodeId,
    /// `logs/NAME` or `stacks/NAME`.
    #[n(1)]
    pub file: String,
    /// Where the part begins (bytes).
    #[n(2)]
    pub offset: u64,
}

/// A file in a node's directory, or a part of it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct FileRow {
    /// `logs/NAME` or `stacks/NAME`.
    #[n(0)]
    pub file: String,
    /// How long it is (bytes).
    #[n(1)]
    pub bytes: u64,
    /// Where `text` begins: at the requested offset, or at zero if the file is shorter by now.
    #[n(2)]
    pub offset: u64,
    /// The file's bytes from there, up to a bound.
    #[n(3)]
    pub text: Blob,
}

/// A process's answer, as it gives it to the node and as the node forwards it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Inspected {
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub worker: WorkerId,
    #[n(2)]
    pub report: Box<Report>,
}

row! {
    71 Inspected: [process -> node, node -> process, process => node]; no values;
    only if |answer, ends| answer.worker == ends.from,
        else "it tells of another process than the one that answers";
}

/// Node to tool, and node to node: every process has answered, or is named here.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct InspectEnd {
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub node: Box<NodeReport>,
    /// Processes that did not answer in time.
    #[n(2)]
    pub silent: Vec<WorkerId>,
    /// Why the question was refused.
    #[n(3)]
    pub error: Option<String>,
    /// When the question arrived, and when this was sent (monotonic nanoseconds of the sender); between
    /// nodes.
    #[n(4)]
    pub asked: Option<u64>,
    #[n(5)]
    pub answered: Option<u64>,
    /// Nodes that did not answer in time, or were not asked because there are too many.
    #[n(6)]
    pub silent_nodes: Option<Vec<NodeId>>,
}

row! { 72 InspectEnd: [node -> process, node => node, control => node]; no values; }

/// Node to tool: another node of the cluster has answered, after its processes.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct NodeInspected {
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub node: NodeId,
    /// Its clock minus that of the tool's node (nanoseconds), estimated from the round trip.
    #[n(2)]
    pub ahead: i64,
    #[n(3)]
    pub end: Box<InspectEnd>,
}

row! { 171 NodeInspected: [node -> process]; no values; }

/// A process's report about itself.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct Report {
    #[n(0)]
    pub pid: u32,
    #[n(1)]
    pub tasks: Vec<TaskRow>,
    #[n(2)]
    pub tasks_total: u64,
    /// Tasks of other processes that run here.
    #[n(3)]
    pub running: Vec<RunningRow>,
    /// Tasks of other processes that wait here.
    #[n(4)]
    pub queued: u64,
    #[n(5)]
    pub objects: Vec<ObjectRow>,
    #[n(6)]
    pub objects_total: u64,
    #[n(7)]
    pub actors: Vec<KnownActorRow>,
    #[n(8)]
    pub shapes: Vec<ShapeRow>,
    #[n(9)]
    pub events: Option<Events>,
    /// Where the stacks were written.
    #[n(10)]
    pub stack: Option<Stack>,
    /// Leases held.
    #[n(11)]
    pub leases: u64,
}

/// A task that this process submitted and that has not ended.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct TaskRow {
    #[n(0)]
    pub task: TaskId,
    #[n(1)]
    pub label: LabelRow,
    /// 0: waits for arguments, 1: waits for a lease or its turn, 2: sent to a worker.
    #[n(2)]
    pub state: u8,
    #[n(3)]
    pub worker: Option<WorkerId>,
    /// Monotonic nanoseconds; zero if not recorded.
    #[n(4)]
    pub submitted: u64,
    #[n(5)]
    pub pushed: u64,
    /// Arguments it waits for (the first few).
    #[n(6)]
    pub missing: Vec<ObjectId>,
    #[n(7)]
    pub resources: Option<ResourceSet>,
    #[n(8)]
    pub attempt: ExecutionAttempt,
    #[n(9)]
    pub retries: i32,
    #[n(10)]
    pub cancelled: bool,
}

/// A task that runs in this process for another.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct RunningRow {
    #[n(0)]
    pub task: TaskId,
    /// Monotonic nanoseconds.
    #[n(1)]
    pub since: u64,
    #[n(2)]
    pub cancelled: bool,
}

/// An entry of the ownership table.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ObjectRow {
    #[n(0)]
    pub object: ObjectId,
    /// 0: no value yet, 1: in messages, 2: in shared memory, 3: failed, 4: on disk, without a copy in memory
    /// that this process knows of, 5: dropped for want of room, to be made again when it is wanted, 6: this
    /// process writes it in shared memory, and it is not sealed.
    #[n(1)]
    pub state: u8,
    /// Bytes of the value.
    #[n(2)]
    pub size: u64,
    #[n(3)]
    pub owned: bool,
    /// References and views in Python.
    #[n(4)]
    pub handles: u32,
    /// Tasks that use it, values that contain it, pins.
    #[n(5)]
    pub uses: u32,
    /// Processes that borrow it.
    #[n(6)]
    pub borrowers: Vec<WorkerId>,
    /// References inside its value.
    #[n(7)]
    pub contained: u32,
    /// It is the handle of an actor.
    #[n(8)]
    pub is_actor: bool,
    /// Tasks that wait for it.
    #[n(9)]
    pub dependents: u32,
    /// Why it is kept, one by one.
    #[n(10)]
    pub detail: Option<ObjectDetail>,
}

/// What keeps an object in one process, and where it came from.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct ObjectDetail {
    /// Views of the value in Python: a part of the handles.
    #[n(0)]
    pub views: u32,
    /// The reasons of its uses.
    #[n(1)]
    pub holds: Vec<HoldRow>,
    /// References inside its value: the first few.
    #[n(2)]
    pub inner: Vec<ObjectId>,
    /// Where its task was submitted, or where it was put, if that is recorded.
    #[n(3)]
    pub site: Option<String>,
    /// Function, method or class of the task that makes it, as far as records go back.
    #[n(4)]
    pub maker: Option<String>,
    /// It is borrowed, and its owner was asked for the value.
    #[n(5)]
    pub fetching: bool,
    /// Borrowers that wait for the value.
    #[n(6)]
    pub waiting: Vec<WorkerId>,
    /// Finished tasks, kept because their results may have to be computed again, that take it as an argument.
    #[n(7)]
    pub lineage: Option<u64>,
}

/// Kinds of holds on an object.
pub mod hold {
    /// A task or call that this process submitted, and that has not ended, refers to it.
    pub const TASK: u8 = 0;
    /// A task that runs in this process was given it.
    pub const RUNNING: u8 = 1;
    /// A task that waits in this process was given it.
    pub const QUEUED: u8 = 2;
    /// The value of another object contains it.
    pub const CONTAINED: u8 = 3;
    /// The code of a function or class refers to it.
    pub const FUNCTION: u8 = 4;
    /// The constructor of an actor that lives was given it.
    pub const CONSTRUCTOR: u8 = 5;
    /// It is the handle of a detached actor.
    pub const DETACHED: u8 = 6;
    /// It is an item, or the end, of a generator that is not read to its end.
    pub const GENERATOR: u8 = 7;
    /// A reference to it was pickled outside of the engine.
    pub const PINNED: u8 = 8;
    /// A call that ended refers to it, and is made again if the actor fails before its next checkpoint.
    pub const KEPT_CALL: u8 = 9;
    /// The checkpoint of an actor contains it.
    pub const CHECKPOINT: u8 = 10;
    /// Work of a process that is dead was given it, and that process may have handed it on: until its death
    /// is settled.
    pub const LENT: u8 = 11;
}

/// One reason why a process keeps an object.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct HoldRow {
    /// See [`hold`].
    #[n(0)]
    pub kind: u8,
    /// Uses that it stands for.
    #[n(1)]
    pub count: u32,
    /// The task or actor.
    #[n(2)]
    pub task: Option<TaskId>,
    /// The object that contains it.
    #[n(3)]
    pub object: Option<ObjectId>,
    /// Name of the task or function.
    #[n(4)]
    pub name: Option<String>,
}

/// An actor that this process calls.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct KnownActorRow {
    #[n(0)]
    pub actor: ActorId,
    /// 0: not placed yet, 1: has a process, 2: dead.
    #[n(1)]
    pub place: u8,
    #[n(2)]
    pub queued: u64,
    #[n(3)]
    pub in_flight: u64,
    /// Calls kept until a checkpoint covers them.
    #[n(20)]
    pub kept: Option<u64>,
}

/// A resource shape and the tasks of it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ShapeRow {
    #[n(0)]
    pub resources: ResourceSet,
    #[n(1)]
    pub queued: u64,
    #[n(2)]
    pub leases: u64,
    #[n(3)]
    pub in_flight: u64,
}

/// What many events have in common.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct LabelRow {
    #[n(0)]
    pub name: String,
    /// Name of the function or method.
    #[n(1)]
    pub function: String,
    /// 0: task, 1: creation of an actor, 2: call of an actor.
    #[n(2)]
    pub kind: u8,
    #[n(3)]
    pub actor: Option<ActorId>,
    #[n(4)]
    pub parent: Option<TaskId>,
    /// The function of a task, as nodes know it.
    #[n(5)]
    pub code: Option<FunctionId>,
}

/// What happened to tasks that ended; the layout of a record is that of
/// `sooner_protocol::worker::tasks::Record`.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Events {
    /// Records, oldest first.
    #[n(0)]
    pub records: Blob,
    #[n(1)]
    pub labels: Vec<LabelRow>,
    /// Records that made room for later ones, or that the question has no room for.
    #[n(2)]
    pub lost: u64,
}

/// Where a process writes its Python stacks.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Stack {
    #[n(0)]
    pub path: String,
    /// Where in the file (bytes) this answer begins.
    #[n(1)]
    pub offset: u64,
}

/// A node's report about itself.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct NodeReport {
    #[n(0)]
    pub node: NodeId,
    #[n(1)]
    pub driver: WorkerId,
    #[n(2)]
    pub driver_pid: u32,
    /// Monotonic nanoseconds.
    #[n(3)]
    pub started: u64,
    #[n(4)]
    pub namespace: String,
    #[n(5)]
    pub total: ResourceSet,
    #[n(6)]
    pub free: ResourceSet,
    /// Shared memory (bytes).
    #[n(7)]
    pub store_used: u64,
    #[n(8)]
    pub store_capacity: u64,
    /// Blocks of shared memory that a process holds.
    #[n(9)]
    pub blocks: u64,
    #[n(10)]
    pub workers: Vec<WorkerRow>,
    #[n(11)]
    pub actors: Vec<ActorRow>,
    #[n(12)]
    pub demands: Vec<DemandRow>,
    /// Processes that ended: the latest.
    #[n(13)]
    pub ended: Vec<EndedRow>,
    #[n(14)]
    pub metrics: Vec<Series>,
    #[n(15)]
    pub leases: u64,
    /// Default bound of the events of one process (bytes).
    #[n(16)]
    pub events_bytes: u64,
    /// Placement groups, those that were removed last.
    #[n(17)]
    pub groups: Option<Vec<GroupRow>>,
    /// Labels of the node: keys and values.
    #[n(18)]
    pub labels: Option<Vec<(String, String)>>,
    /// Jobs whose driver, or one of whose detached actors, lives.
    #[n(19)]
    pub jobs: Option<Vec<JobRow>>,
    /// The node's name, if `sooner start` started it.
    #[n(20)]
    pub name: Option<String>,
    /// The node's process; the driver's where a driver hosts the node.
    #[n(21)]
    pub pid: Option<u32>,
    /// The cluster, as the node knows it.
    #[n(22)]
    pub cluster: Option<ClusterRow>,
    /// Files that were asked for.
    #[n(23)]
    pub files: Option<Vec<FileRow>>,
    /// The most memory that workers of the node were seen to hold, by function.
    #[n(24)]
    pub peaks: Option<Vec<PeakRow>>,
    /// What the object store is used for.
    #[n(25)]
    pub memory: Option<MemoryRow>,
}

/// How the bytes of an object store are used, and bytes on disk for want of room in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(array)]
pub struct MemoryRow {
    /// Values that are in memory only, with blocks that processes keep for reuse.
    #[n(0)]
    pub pinned: u64,
    /// Copies of values that are also elsewhere: at other nodes, or on disk.
    #[n(1)]
    pub cached: u64,
    /// Room for values that are being brought to the node, from other nodes or from disk.
    #[n(2)]
    pub incoming: u64,
    /// Values that are being written to disk.
    #[n(3)]
    pub outgoing: u64,
    /// Values on disk.
    #[n(4)]
    pub spilled: u64,
    /// Number of values on disk.
    #[n(5)]
    pub spilled_values: u64,
    /// Bytes of the spill files, dead values included.
    #[n(6)]
    pub spill_files: u64,
    /// Values in the file behind the memory.
    #[n(7)]
    pub fallback: u64,
}

/// The most memory of its own that a worker was seen to hold while it ran tasks of a function.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct PeakRow {
    #[n(0)]
    pub function: FunctionId,
    #[n(1)]
    pub bytes: u64,
}

/// A cluster, as one of its nodes knows it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ClusterRow {
    /// Drawn by its first head.
    #[n(0)]
    pub cluster: u64,
    /// Fingerprint of its certificate authority, for people.
    #[n(1)]
    pub fingerprint: String,
    /// Where the head listens.
    #[n(2)]
    pub head: String,
    #[n(3)]
    pub is_head: bool,
    /// Where this node listens.
    #[n(4)]
    pub address: String,
    /// Why there is no connection to the head, if there is none; the rows date from before.
    #[n(5)]
    pub lost: Option<String>,
    /// All nodes, itself included.
    #[n(6)]
    pub nodes: Vec<super::NodeRow>,
    /// Free resources of the nodes, if sent.
    #[n(7)]
    pub view: Vec<super::ViewRow>,
    /// The latest nodes that have died or left.
    #[n(8)]
    pub gone: Option<Vec<DeadRow>>,
}

/// A node that has died or left.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct DeadRow {
    /// Its last known row.
    #[n(0)]
    pub row: super::NodeRow,
    /// Why it died or left, for people.
    #[n(1)]
    pub reason: String,
}

/// A job: a driver and what it started.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct JobRow {
    /// The driver.
    #[n(0)]
    pub job: WorkerId,
    #[n(1)]
    pub pid: u32,
    #[n(2)]
    pub namespace: String,
    /// Monotonic nanoseconds.
    #[n(3)]
    pub started: u64,
    /// The driver lives; otherwise detached actors do.
    #[n(4)]
    pub has_driver: bool,
    /// The command line of the driver.
    #[n(5)]
    pub entrypoint: Option<String>,
}

/// A worker process.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct WorkerRow {
    #[n(0)]
    pub worker: WorkerId,
    #[n(1)]
    pub pid: u32,
    /// 0: starting, 1: idle, 2: leased, 3: an actor's.
    #[n(2)]
    pub state: u8,
    /// The process that holds the lease.
    #[n(3)]
    pub client: Option<WorkerId>,
    #[n(4)]
    pub actor: Option<ActorId>,
    /// Its task waits, and its CPU is lent.
    #[n(5)]
    pub blocked: bool,
    #[n(6)]
    pub resources: ResourceSet,
    /// The job it belongs to: its driver.
    #[n(7)]
    pub job: Option<WorkerId>,
}

/// An actor, as its node knows it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ActorRow {
    #[n(0)]
    pub actor: ActorId,
    #[n(1)]
    pub owner: WorkerId,
    #[n(2)]
    pub class: String,
    /// Namespace and name.
    #[n(3)]
    pub name: Option<(String, String)>,
    /// 0: not created yet, 1: waits for resources, 2: its constructor runs, 3: alive, 4: dead, 5: it is being
    /// restarted.
    #[n(4)]
    pub phase: u8,
    #[n(5)]
    pub worker: Option<WorkerId>,
    #[n(6)]
    pub pid: u32,
    #[n(7)]
    pub death: Option<String>,
    #[n(8)]
    pub resources: ResourceSet,
    /// It does not end with its owner.
    #[n(9)]
    pub detached: Option<bool>,
    /// Processes that took over so far.
    #[n(20)]
    pub restarts: Option<u32>,
    /// Checkpoints taken so far, of an actor that takes them.
    #[n(21)]
    pub checkpoints: Option<u64>,
    /// The job it belongs to: its driver.
    #[n(22)]
    pub job: Option<WorkerId>,
}

/// Leases that a process waits for.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct DemandRow {
    #[n(0)]
    pub client: WorkerId,
    #[n(1)]
    pub resources: ResourceSet,
    #[n(2)]
    pub count: u32,
    /// Whether this node could ever grant the demand.
    #[n(3)]
    pub feasible: bool,
}

/// A process that ended.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct EndedRow {
    #[n(0)]
    pub worker: WorkerId,
    #[n(1)]
    pub pid: u32,
    #[n(2)]
    pub reason: String,
    /// Monotonic nanoseconds.
    #[n(3)]
    pub at: u64,
}

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum MetricKind {
    /// Goes up; deltas add up.
    #[n(0)]
    Counter,
    /// The last value counts, per process.
    #[n(1)]
    Gauge,
    /// Observations per bucket, and their sum; deltas add up.
    #[n(2)]
    Histogram,
}

/// One metric with one set of tags.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Series {
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub kind: MetricKind,
    #[n(2)]
    pub description: String,
    /// Keys and values, in the order of the metric's keys.
    #[n(3)]
    pub tags: Vec<(String, String)>,
    /// Upper ends of a histogram's buckets.
    #[n(4)]
    pub boundaries: Vec<f64>,
    /// A counter's delta, a gauge's value, or a histogram's counts (one more than boundaries) and sum.
    #[n(5)]
    pub values: Vec<f64>,
}

impl Series {
    /// A counter or gauge of the engine, which has no tags.
    #[must_use]
    pub fn of_engine(kind: MetricKind, name: &str, description: &str, value: u64) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            description: description.to_owned(),
            tags: Vec::new(),
            boundaries: Vec::new(),
            values: vec![value as f64],
        }
    }
}

/// Process to node: values measured since the last message.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Measured {
    #[n(0)]
    pub series: Vec<Series>,
}

row! { 73 Measured: [process -> node]; no values; }
