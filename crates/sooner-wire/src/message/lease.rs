//! Leases of workers (Ownership, section 4.1; Oakes, chapter 4).

use minicbor::{Decode, Encode};

use super::Failure;
use crate::{LeaseId, NodeId, ResourceSet, ShapeId, Strategy, WorkerId};

/// How many leases of a shape the caller could use now. Replaces what it said before.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct RequestLease {
    #[n(0)]
    pub shape: ShapeId,
    #[n(1)]
    pub resources: ResourceSet,
    /// Zero withdraws the request.
    #[n(2)]
    pub demand: u32,
    /// Where the workers must be, if not just anywhere.
    #[n(3)]
    pub strategy: Option<Box<Strategy>>,
    /// The node that holds most bytes of the waiting tasks' arguments, if that is another one.
    #[n(4)]
    pub prefer: Option<NodeId>,
    /// The highest priority among the tasks that wait; zero if absent.
    #[n(5)]
    pub priority: Option<i32>,
    /// Tasks of this shape that end for want of memory are executed again with a larger reservation: a limit
    /// on their memory costs them time, and nothing else.
    #[n(6)]
    pub raises_memory: Option<bool>,
}

row! { 10 RequestLease: [process -> node]; no values; }

/// One lease. The connection to the worker has been announced before.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct LeaseGranted {
    #[n(0)]
    pub shape: ShapeId,
    #[n(1)]
    pub lease: LeaseId,
    #[n(2)]
    pub worker: WorkerId,
    /// Indices of the GPUs that belong to the lease.
    #[n(3)]
    pub gpus: Vec<u32>,
}

row! { 11 LeaseGranted: [node -> process]; no values; }

/// The caller does not need the worker any more.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ReturnLease {
    #[n(0)]
    pub lease: LeaseId,
}

row! { 12 ReturnLease: [process -> node]; no values; }

/// Other processes wait: give leases back soon.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ReclaimLease {
    #[n(0)]
    pub count: u32,
    /// The lease to give back; `None`: any.
    #[n(1)]
    pub lease: Option<LeaseId>,
}

row! { 13 ReclaimLease: [node -> process]; no values; }

/// The worker's task waits in `get` or `wait`: its CPU may serve others.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Blocked {}

row! { 14 Blocked: [process -> node]; no values; }

/// The worker's task goes on.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Unblocked {}

row! { 15 Unblocked: [process -> node]; no values; }

/// The node can never grant this shape as it is now.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Infeasible {
    #[n(0)]
    pub asked: ResourceSet,
    #[n(1)]
    pub total: ResourceSet,
    /// No worker will ever be granted for this shape, and why: its tasks fail.
    #[n(2)]
    pub closed: Option<Box<Closed>>,
    /// What is missing, for people, if it is not an amount.
    #[n(3)]
    pub reason: Option<String>,
}

row! { 16 Infeasible: [node -> process, directory => process]; no values; }

/// A shape that is of no use any more.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Closed {
    #[n(0)]
    pub shape: ShapeId,
    /// The failure of its tasks.
    #[n(1)]
    pub failure: Failure,
    /// Only tasks that wait now fail: later requests are looked at anew.
    #[n(2)]
    pub for_now: Option<bool>,
}
