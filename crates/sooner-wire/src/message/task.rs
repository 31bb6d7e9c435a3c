//! Tasks and actor calls: what is pushed to a worker and what it replies.

use minicbor::decode::Error as DecodeError;
use minicbor::{Decode, Decoder, Encode};

use super::{TaskSpec, Timing};
use crate::{Blob, FunctionId, Name, NodeId, ObjectId, TaskId};

/// A task on its way to a worker.
#[derive(Debug, Clone, PartialEq, Decode)]
#[cbor(array)]
pub struct Push {
    /// Apart from the rest: it is large, and a push is handed on a few times until it runs.
    #[n(0)]
    pub spec: Box<TaskSpec>,
    /// Values of the dependencies, in order.
    #[n(1)]
    pub dependencies: Vec<Dependency>,
    /// GPUs of the lease.
    #[n(2)]
    pub gpus: Vec<u32>,
}

row! { 21 Push: [process -> process, node -> process]; values; }

/// A [`Push`] that borrows its parts.
#[derive(Debug, Clone, Copy, Encode)]
#[cbor(array)]
pub struct PushRef<'a> {
    #[n(0)]
    pub spec: &'a TaskSpec,
    #[n(1)]
    pub dependencies: &'a [Dependency],
    #[n(2)]
    pub gpus: &'a [u32],
}

impl<C> Encode<C> for Push {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        ctx: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        PushRef { spec: &self.spec, dependencies: &self.dependencies, gpus: &self.gpus }.encode(e, ctx)
    }
}

/// Where a value lies in the arena of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(array)]
pub struct Location {
    /// Bytes from the start of the arena.
    #[n(0)]
    pub offset: u64,
    /// Bytes of the value.
    #[n(1)]
    pub length: u64,
}

/// An object's value, its place, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Outcome {
    /// A small value.
    #[n(0)]
    Inline(#[n(0)] Blob),
    /// A value in the shared memory of this node, which can be read now.
    #[n(1)]
    Stored(#[n(0)] Location),
    /// There is no value, and why.
    #[n(2)]
    Failed(#[n(0)] Box<Failure>),
    /// A value in the shared memory of another node: the outcome is there, and a process that needs the bytes
    /// pulls them.
    #[n(3)]
    Remote(#[n(0)] Box<Remote>),
}

impl Outcome {
    /// Whether it is a value in the shared memory of this node or another one.
    #[inline]
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        matches!(self, Self::Stored(_) | Self::Remote(_))
    }

    /// Where the value is, if that is in the memory of this node.
    #[must_use]
    pub fn place_here(&self) -> Option<Location> {
        if let Self::Stored(location) = self { Some(*location) } else { None }
    }

    /// Where the value is, if that is in the memory of another node.
    #[must_use]
    pub fn place_elsewhere(&self) -> Option<Remote> {
        if let Self::Remote(remote) = self { Some(**remote) } else { None }
    }
}

/// One per task, in many places: what would make it larger is boxed.
const _: () = assert!(size_of::<Outcome>() == 24);

/// Where a value lies, as all nodes understand it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(array)]
pub struct Remote {
    #[n(0)]
    pub node: NodeId,
    #[n(1)]
    pub location: Location,
}

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(array)]
pub struct Failure {
    #[n(0)]
    pub code: FailureCode,
    /// For people: what happened, what was expected, what to do.
    #[n(1)]
    pub message: String,
    /// The packed exception of user code.
    #[n(2)]
    pub payload: Option<Blob>,
}

impl Failure {
    /// A failure of the system.
    #[must_use]
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), payload: None }
    }

    /// The same failure for a task that had the failed object as an argument. For a lost value it names that
    /// task, so that the error is one of the task, too.
    #[must_use]
    pub fn of_argument(&self, task: &str) -> Self {
        let is_lost = matches!(
            self.code,
            FailureCode::OwnerDied
                | FailureCode::ObjectLost
                | FailureCode::ObjectFreed
                | FailureCode::ReconstructionFailed
                | FailureCode::LineageEvicted
        );
        let payload = if is_lost && self.payload.is_none() {
            Some(Blob::from(task.as_bytes()))
        } else {
            self.payload.clone()
        };
        Self { code: self.code, message: self.message.clone(), payload }
    }
}

/// Kinds of failure. The numbers are shared with `python/sooner/_errors/packing.py`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum FailureCode {
    /// User code raised; the payload has the exception.
    #[n(0)]
    Task,
    #[n(1)]
    WorkerCrashed,
    #[n(2)]
    ActorDied,
    #[n(3)]
    ActorUnavailable,
    #[n(4)]
    Cancelled,
    #[n(5)]
    OwnerDied,
    #[n(6)]
    ObjectLost,
    #[n(7)]
    ObjectFreed,
    #[n(8)]
    StoreFull,
    #[n(9)]
    OutOfMemory,
    #[n(10)]
    TaskUnschedulable,
    #[n(11)]
    ActorUnschedulable,
    #[n(12)]
    System,
    #[n(13)]
    NodeDied,
    #[n(14)]
    PendingCallsLimit,
    #[n(15)]
    RuntimeEnvironment,
    #[n(16)]
    GetTimeout,
    #[n(17)]
    ActorNameTaken,
    /// The constructor raised; the payload has the exception.
    #[n(18)]
    ActorInit,
    /// A streaming task has no further items.
    #[n(19)]
    EndOfStream,
    /// The value is lost, and what would compute it again failed or may not be repeated.
    #[n(20)]
    ReconstructionFailed,
    /// The value is lost, and the description of the task that made it was given up to save memory.
    #[n(21)]
    LineageEvicted,
    /// The placement group of the task was removed.
    #[n(22)]
    TaskGroupRemoved,
    /// The placement group of the actor was removed.
    #[n(23)]
    ActorGroupRemoved,
    /// The object is there, but no connection can be made to the process that owns it.
    #[n(24)]
    PeerUnreachable,
    /// Like [`Self::StoreFull`], because nothing more can be written to disk.
    #[n(25)]
    OutOfDisk,
}

/// The value of one dependency.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Dependency {
    #[n(0)]
    pub object: ObjectId,
    #[n(1)]
    pub outcome: Outcome,
    /// References inside the value.
    #[n(2)]
    pub contained: Vec<ObjectId>,
}

impl Dependency {
    /// Whether it is a value in the memory of another node.
    #[inline]
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.outcome, Outcome::Remote(_))
    }
}

/// One return value.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Return {
    #[n(0)]
    pub outcome: Outcome,
    /// References inside the value; the receiver borrows them from now on.
    #[n(1)]
    pub contained: Vec<ObjectId>,
}

/// A task has ended.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Reply {
    #[n(0)]
    pub task: TaskId,
    /// One per return value; a single failure stands for all.
    #[n(1)]
    #[cbor(decode_with = "decode_few")]
    pub returns: Vec<Return>,
    /// Argument references that the worker goes on holding (Ownership, appendix A).
    #[n(2)]
    pub held: Vec<ObjectId>,
    /// How long it ran (nanoseconds).
    #[n(3)]
    pub nanos: u64,
    /// The exception is one that the task's options want retried.
    #[n(4)]
    pub retry: bool,
    /// When and how long it ran, if that was measured.
    #[n(5)]
    pub timing: Option<Timing>,
    /// It was cancelled before it began: nothing of it was executed.
    #[n(8)]
    pub not_run: Option<bool>,
}

row! { 22 Reply: [process -> process]; values; }

/// Reads a list that usually has one element, without the room for four that a growing list has from the
/// start.
fn decode_few<'b, C, T: Decode<'b, C>>(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Vec<T>, DecodeError> {
    let mut elements = d.array_iter_with(ctx)?;
    let Some(first) = elements.next() else { return Ok(Vec::new()) };
    let mut list = vec![first?];
    for element in elements {
        list.push(element?);
    }
    Ok(list)
}

/// A streaming task has yielded. Items of one execution come in order, before the reply.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Item {
    #[n(0)]
    pub task: TaskId,
    /// 1, 2, ...
    #[n(1)]
    pub index: u32,
    #[n(2)]
    pub value: Return,
}

row! { 25 Item: [process -> process]; values; }

/// Owner to worker: how far the items of a streaming task have been read.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ItemsTaken {
    #[n(0)]
    pub task: TaskId,
    #[n(1)]
    pub taken: u32,
    /// The owner reads no further: end the task at its next item.
    #[n(2)]
    pub stop: bool,
}

row! { 26 ItemsTaken: [process -> process]; no values; }

/// Pushed tasks that the worker, which is busy, has not begun and will not begin. Not executed.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct TasksReturned {
    #[n(0)]
    pub tasks: Vec<TaskId>,
    /// The tasks waited for arguments for which there is no room: the caller sends them again after a pause,
    /// in which other tasks may go.
    #[n(1)]
    pub lacks_room: Option<bool>,
    /// Arguments that are certainly not where the caller said: it sends the tasks again when these have
    /// another value.
    #[n(2)]
    pub missing: Option<Vec<Missing>>,
}

row! { 23 TasksReturned: [process -> process]; no values; }

/// A value that is no longer in the memory, or on the disk, of another node.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Missing {
    #[n(0)]
    pub object: ObjectId,
    #[n(1)]
    pub place: Remote,
}

/// A function or class, once per connection and before its first push.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Define {
    #[n(0)]
    pub function: FunctionId,
    #[n(1)]
    pub name: Name,
    #[n(2)]
    pub code: Blob,
    /// References captured in the code; pinned for the job.
    #[n(3)]
    pub references: Vec<ObjectId>,
    /// File and line of the code, for advice.
    #[n(4)]
    pub place: Option<Name>,
}

row! { 20 Define: [process -> process, node -> process]; no values; }

/// Stop a task.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct CancelTask {
    #[n(0)]
    pub task: TaskId,
    /// Kill the worker if the task is running.
    #[n(1)]
    pub force: bool,
    /// Cancel what the task submitted, too.
    #[n(2)]
    pub recursive: bool,
}

row! { 24 CancelTask: [process -> process]; no values; }
