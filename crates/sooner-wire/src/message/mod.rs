//! Every message between processes: one struct each, fields numbered, new fields optional.
//!
//! The kind numbers are the schema: they are never reused. A message is decoded from exactly one frame; nothing
//! is decided here about who may send what (the protocol refuses what it does not expect).

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
    AboutNode, BundleFree, Candidate, Candidates, Drain, Drained, Fenced, FindNodes, Heartbeat, NodeGone,
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
    GivenBlocks, Held, HeldFrom, LoseBlocks, ReadersOf, RemoveBorrow, Settled, StillRead, TrimBlocks,
    UnknownBlocks, Value,
};
pub use peer::{PeerHello, PeerWelcome};
pub use place_actor::{
    ActorHere, ActorPlaced, ActorProcessGone, ActorSubscribed, ActorsHere, AlsoHere, EndActor, LetGo,
    PlaceActor, PlaceRefused,
};
pub use promotion::{Promote, Promoted};
pub use routed::Routed;
pub use session::{
    Connect, EndIdle, Exited, Fork, Forked, Hello, LinkRole, MemoryEnd, Needed, NodeLives, PeerConnected,
    Refused, Retired, Shutdown, Welcome, WorkerGone, role,
};
pub use spilling::{Recompute, Relinquish, Relinquished, Relinquishing, SPILLED, is_spilled};
pub use task::{
    CancelTask, Define, Dependency, Failure, FailureCode, Item, ItemsTaken, Location, Missing, Outcome, Push,
    PushRef, Remote, Reply, Return, Returned, Streaming, TaskKind, TaskSpec,
};
pub use transfer::{
    CHUNK_HEAD_BYTES, CHUNK_KIND, ChunkFault, ChunkHead, CopyGone, CopyMade, DropCopy, FetchEnd, FetchEnded,
    Fetching, FreeAt, HandOver, HandedOver, Lent, Locate, Located, LostAt, MemoryHere, MemoryOpen, Priority,
    Pull, Pulled, SenderFailed, Taken,
};

pub use state::{Inspect, InspectEnd, Inspected, Measured, NodeInspected, Timing};

use crate::frame::{self, FrameError};

macro_rules! messages {
    ($($kind:literal $name:ident),* $(,)?) => {
        /// Any message.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Message {
            $(#[allow(missing_docs)] $name($name),)*
        }

        impl Message {
            /// The kind number of this message.
            #[must_use]
            pub fn kind(&self) -> u16 {
                match self { $(Message::$name(_) => $kind,)* }
            }

            /// Appends the message as one frame that owns `descriptors` passed descriptors.
            pub fn append(&self, out: &mut Vec<u8>, descriptors: u16) {
                frame::append(out, self.kind(), descriptors, |out| self.encode_body(out));
            }

            /// Appends what a frame of the message has inside.
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
                    $($kind => minicbor::decode::<$name>(body)
                        .map(Message::$name)
                        .map_err(|error| FrameError::Body { kind, reason: error.to_string() }),)*
                    _ => Err(FrameError::UnknownKind(kind)),
                }
            }
        }

        $(impl From<$name> for Message {
            fn from(message: $name) -> Self { Message::$name(message) }
        })*
    };
}

messages! {
    1 Hello, 2 Welcome, 3 Refused, 4 PeerConnected, 5 Connect, 6 WorkerGone, 7 Shutdown,
    8 Fork, 9 Forked, 49 NodeLives, 17 Retired, 18 Exited, 19 EndIdle, 29 Needed,
    10 RequestLease, 11 LeaseGranted, 12 ReturnLease, 13 ReclaimLease, 14 Blocked, 15 Unblocked,
    16 Infeasible,
    20 Define, 21 Push, 22 Reply, 23 Returned, 24 CancelTask, 25 Item, 26 ItemsTaken,
    30 Fetch, 31 Value, 32 AddBorrow, 33 RemoveBorrow, 34 Allocate, 35 Allocated, 36 FreeBlocks,
    37 GiveBlock, 38 TrimBlocks, 39 ReadersOf, 40 StillRead, 41 LoseBlocks, 42 BlocksLost, 43 ForgetLost,
    45 GivenBlocks, 46 UnknownBlocks, 47 HeldFrom, 48 Settled,
    50 CreateActor, 51 ActorStarted, 52 ActorDead, 53 SubscribeActor, 54 KillActor,
    55 ActorOutOfScope, 56 ActorReady, 57 ExitActor, 58 ActorRestarting,
    59 Suspended, 65 Resumed,
    60 ReserveName, 61 FindName, 62 ListNames, 63 Query, 64 Answer,
    70 Inspect, 71 Inspected, 72 InspectEnd, 73 Measured,
    80 Checkpoint, 81 Checkpointed, 82 Restore, 83 Replayed, 84 KeepObjects,
    90 PeerHello, 91 PeerWelcome, 92 Ack, 93 SessionEnded, 94 Credentials,
    100 Register, 101 Registered, 102 NodesChanged, 103 NodeGone, 104 Heartbeat, 105 Fenced, 106 ResourceReport,
    107 ResourceView, 108 FindNodes, 109 Candidates, 110 Routed, 111 Watch, 112 DialMe, 113 Suspect, 114 Drain, 115 Drained,
    116 Job, 117 Collected, 118 Sever, 119 ProcessLeft,
    120 Pull, 121 Pulled, 122 Locate, 123 Located, 124 CopyMade, 125 CopyGone, 126 SenderFailed, 127 FreeAt,
    128 DropCopy, 129 Fetching, 131 FetchEnded, 132 HandOver, 133 HandedOver, 134 LostAt,
    135 MemoryHere, 136 MemoryOpen, 137 Lent, 138 Taken,
    140 LeaseAt, 141 LeaseGrantedAt, 142 LeaseRefused, 143 ReturnLeaseAt, 144 ReclaimLeaseAt,
    150 PlaceActor, 151 ActorPlaced, 152 PlaceRefused, 153 ActorProcessGone, 154 EndActor, 155 ActorsHere,
    156 ActorSubscribed, 157 LetGo,
    160 CreateGroup, 161 GroupState, 162 RemoveGroup, 163 Prepare, 164 Prepared, 165 Commit, 166 Release,
    167 FindGroup,
    170 LogLines, 171 NodeInspected, 173 LinesTaken,
    180 Relinquish, 181 Relinquished, 182 Promote, 183 Promoted,
}

/// A message is moved a few times on its way between a socket and a core; what would make all of them larger is boxed.
const _: () = assert!(size_of::<Message>() <= 144);

/// Kind of [`Push`], for writers that encode a [`PushRef`] in place.
pub const PUSH_KIND: u16 = 21;

fn encode<T: minicbor::Encode<()>>(out: &mut Vec<u8>, message: &T) {
    minicbor::encode(message, out).expect("writing to memory cannot fail");
}

impl PushRef<'_> {
    /// Appends the push as one frame, without copying the task's description first.
    pub fn append(&self, out: &mut Vec<u8>) {
        frame::append(out, PUSH_KIND, 0, |out| encode(out, self));
    }
}

#[cfg(test)]
mod tests;
