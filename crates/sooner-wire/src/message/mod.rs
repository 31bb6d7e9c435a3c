//! Every message between processes: one struct each, fields numbered, new fields optional.
//!
//! Below each struct stands its row ([`Row`]): number, routes, whether it carries values, and what its sender
//! may claim. A message is decoded from exactly one frame; the receiver checks by the row whether the message
//! may come that way.

#[macro_use]
mod row;

mod actor;
mod checkpoint;
mod cluster;
mod control;
mod ending;
mod group;
mod job;
mod lease;
mod lending;
mod link;
mod object;
mod peer;
mod place_actor;
mod promotion;
mod routed;
mod session;
mod spec;
mod spilling;
pub mod state;
mod task;
mod transfer;

pub use actor::{
    ActorDead, ActorOutOfScope, ActorReady, ActorRestarting, ActorStarted, CreateActor, ExitActor, KillActor,
    Resumed, SubscribeActor, Suspended,
};
pub use checkpoint::{Checkpoint, Checkpointed, KeepObjects, Replayed, Restore};
pub use cluster::{
    AboutNode, BundleFree, Candidate, Candidates, Drain, Drained, Fenced, FindNodes, Heartbeat, NodeDead,
    NodeRow, NodesChanged, Register, Registered, ResourceReport, ResourceView, Settings, ShapeDemand,
    Suspect, ViewRow, kind, state as node_state,
};
pub use control::{Answer, FindName, ListNames, Query, QueryKind, ReserveName};
pub use ending::{Collected, DialMe, ProcessLeft, Sever, Watch};
pub use group::{
    Bundle, BundleRow, BundleStep, Commit, CreateGroup, FindGroup, GroupPhase, GroupRow, GroupState,
    GroupStrategy, Prepare, Prepared, Release, RemoveGroup,
};
pub use job::{HashSecret, Job, JobConfig, JobState, LinesTaken, LogLines, TemplateSetup};
pub use lease::{
    Blocked, Closed, Infeasible, LeaseGranted, ReclaimLease, RequestLease, ReturnLease, Unblocked,
};
pub use lending::{LeaseAt, LeaseGrantedAt, LeaseRefused, ReclaimLeaseAt, ReturnLeaseAt};
pub use link::{Ack, Credentials, SessionEnded};
pub use object::{
    AddBorrow, Allocate, Allocated, BlockHolder, BlocksLost, Fetch, ForgetLost, FreeBlocks, GiveBlock,
    GivenBlocks, Held, HeldFrom, LoseBlocks, ReadersOf, RemoveBorrow, Round, Settled, StillRead, TrimBlocks,
    UnknownBlocks, Value,
};
pub use peer::{PeerHello, PeerWelcome};
pub use place_actor::{
    ActorHere, ActorPlaced, ActorProcessDead, ActorSubscribed, ActorsHere, AlsoHere, EndActor, LetGo,
    PlaceActor, PlaceRefused,
};
pub use promotion::{Promote, Promoted};
pub use routed::Routed;
pub use row::{Ends, Route, RouteError, Routes, Row, RowOf};
pub use session::{
    Connect, EndIdle, Exited, Fork, Forked, Hello, LinkRole, MemoryEnd, Needed, NodeLives, PeerConnected,
    Refused, Retired, Shutdown, Welcome, WorkerDead, role,
};
pub use spec::{ActorCreation, FunctionCall, MethodCall, Scheduling, Streaming, Target, TaskKind, TaskSpec};
pub use spilling::{Place, Recompute, Relinquish, Relinquished, Relinquishing, SpillId};
pub use task::{
    CancelTask, Define, Dependency, Failure, FailureCode, Item, ItemsTaken, Location, Missing, Outcome, Push,
    PushRef, Remote, Reply, Return, TasksReturned,
};
pub use transfer::{
    CHUNK_HEAD_BYTES, CHUNK_KIND, ChunkFault, ChunkHead, CopyLeaving, CopyMade, DropCopy, FetchEnd,
    FetchEnded, Fetching, FreeAt, HandOver, HandedOver, Lent, Locate, Located, LostAt, MemoryHere,
    MemoryOpen, Priority, Pull, Pulled, SenderFailed, Taken,
};

pub use state::{Inspect, InspectEnd, Inspected, Measured, NodeInspected, Timing};

use crate::frame::{self, FrameError};
pub(crate) use row::Change;
use row::Checked;

macro_rules! messages {
    ($($name:ident),* $(,)?) => {
        /// Any message.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Message {
            $(#[allow(missing_docs)] $name($name),)*
        }

        impl Message {
            /// The rows of all kinds.
            pub const ROWS: &[RowOf] = &[$(RowOf::new::<$name>(),)*];

            /// The row of this message.
            #[must_use]
            pub const fn row(&self) -> RowOf {
                match self { $(Message::$name(_) => const { RowOf::new::<$name>() },)* }
            }

            /// The kind number of this message.
            #[must_use]
            pub const fn kind(&self) -> u16 {
                match self { $(Message::$name(_) => <$name as Row>::KIND,)* }
            }

            /// The routes of messages of a kind; none if there is no such kind.
            #[must_use]
            pub const fn routes_of(kind: u16) -> Routes {
                match kind {
                    $(<$name as Row>::KIND => <$name as Row>::ROUTES,)*
                    _ => Routes::of(&[]),
                }
            }

            /// Appends the message as one frame that owns `descriptors` passed descriptors.
            pub fn append(&self, out: &mut Vec<u8>, descriptors: u16) {
                frame::append(out, self.kind(), descriptors, |out| self.encode_body(out));
            }

            /// Appends the body of the message's frame.
            fn encode_body(&self, out: &mut Vec<u8>) {
                match self {
                    $(Message::$name(message) => encode(out, message),)*
                }
            }

            /// Reads the body of a frame of this kind.
            ///
            /// # Errors
            /// [`FrameError`] when the kind is unknown or the body does not fit it.
            pub fn decode(kind: u16, body: &[u8]) -> Result<Self, FrameError> {
                match kind {
                    $(<$name as Row>::KIND => minicbor::decode::<$name>(body)
                        .map(Message::$name)
                        .map_err(|error| FrameError::Body { kind, reason: error.to_string() }),)*
                    _ => Err(FrameError::UnknownKind(kind)),
                }
            }

            /// Checks the message's claims by its row, for this sender and receiver.
            fn check_claims(&self, ends: &Ends) -> Result<(), &'static str> {
                match self { $(Message::$name(message) => message.check(ends),)* }
            }

            /// Hands every outcome in the message to `change`, with its object.
            pub(crate) fn for_each_outcome(&mut self, change: Change<'_>) {
                match self { $(Message::$name(message) => message.for_each_outcome(change),)* }
            }
        }

        $(impl From<$name> for Message {
            fn from(message: $name) -> Self { Message::$name(message) }
        })*
    };
}

messages! {
    Hello, Welcome, Refused, PeerConnected, Connect, WorkerDead, Shutdown, Fork, Forked, NodeLives,
    Retired, Exited, EndIdle, Needed, RequestLease, LeaseGranted, ReturnLease, ReclaimLease, Blocked,
    Unblocked, Infeasible, Define, Push, Reply, TasksReturned, CancelTask, Item, ItemsTaken, Fetch, Value,
    AddBorrow, RemoveBorrow, Allocate, Allocated, FreeBlocks, GiveBlock, TrimBlocks, ReadersOf,
    StillRead, LoseBlocks, BlocksLost, ForgetLost, GivenBlocks, UnknownBlocks, HeldFrom, Settled,
    CreateActor, ActorStarted, ActorDead, SubscribeActor, KillActor, ActorOutOfScope, ActorReady,
    ExitActor, ActorRestarting, Suspended, Resumed, ReserveName, FindName, ListNames, Query, Answer,
    Inspect, Inspected, InspectEnd, Measured, Checkpoint, Checkpointed, Restore, Replayed, KeepObjects,
    PeerHello, PeerWelcome, Ack, SessionEnded, Credentials, Register, Registered, NodesChanged,
    NodeDead, Heartbeat, Fenced, ResourceReport, ResourceView, FindNodes, Candidates, Routed, Watch,
    DialMe, Suspect, Drain, Drained, Job, Collected, Sever, ProcessLeft, Pull, Pulled, Locate, Located,
    CopyMade, CopyLeaving, SenderFailed, FreeAt, DropCopy, Fetching, FetchEnded, HandOver, HandedOver,
    LostAt, MemoryHere, MemoryOpen, Lent, Taken, LeaseAt, LeaseGrantedAt, LeaseRefused, ReturnLeaseAt,
    ReclaimLeaseAt, PlaceActor, ActorPlaced, PlaceRefused, ActorProcessDead, EndActor, ActorsHere,
    ActorSubscribed, LetGo, CreateGroup, GroupState, RemoveGroup, Prepare, Prepared, Commit, Release,
    FindGroup, LogLines, NodeInspected, LinesTaken, Relinquish, Relinquished, Promote, Promoted,
}

const _: () = assert!(
    RowOf::are_unique(Message::ROWS, CHUNK_KIND),
    "two messages have the same number, or one has that of chunks"
);

/// A message is moved a few times on its way between a socket and a core; what would make all of them larger
/// is boxed.
const _: () = assert!(size_of::<Message>() <= 144);

fn encode<T: minicbor::Encode<()>>(out: &mut Vec<u8>, message: &T) {
    minicbor::encode(message, out).expect("writing to memory cannot fail");
}

impl PushRef<'_> {
    /// Appends the push as one frame, without copying the task's description first.
    pub fn append(&self, out: &mut Vec<u8>) {
        frame::append(out, Push::KIND, 0, |out| encode(out, self));
    }
}

#[cfg(test)]
mod tests;
