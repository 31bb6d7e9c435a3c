//! Leases of workers of other nodes: between the asker's node and the worker's node (`docs/adr/0031`).
//!
//! A client asks its own node only ([`super::RequestLease`]); that node asks other nodes for what it has no
//! room for.

use minicbor::{Decode, Encode};

use crate::{LeaseId, ResourceSet, ShapeId, Strategy, WorkerId};

/// How many leases of a shape on this node a process of the sender's node could use. Replaces earlier
/// messages about this process and shape.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct LeaseAt {
    /// The process that wants the leases.
    #[n(0)]
    pub client: WorkerId,
    /// The job whose workers they must be: its driver.
    #[n(1)]
    pub job: WorkerId,
    #[n(2)]
    pub shape: ShapeId,
    #[n(3)]
    pub resources: ResourceSet,
    /// Zero withdraws the request.
    #[n(4)]
    pub demand: u32,
    /// Where the workers must be, if not just anywhere.
    #[n(5)]
    pub strategy: Option<Box<Strategy>>,
    /// The highest priority among the tasks that wait; zero if absent.
    #[n(6)]
    pub priority: Option<i32>,
    /// As in [`super::RequestLease`].
    #[n(7)]
    pub raises_memory: Option<bool>,
}

row! {
    140 LeaseAt: [node => node]; no values;
    only if |ask, ends| ends.speaks_for(ask.client), else "it asks for a process that is not its own";
}

/// One lease. The worker will be reached by its node's address.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct LeaseGrantedAt {
    #[n(0)]
    pub client: WorkerId,
    #[n(1)]
    pub shape: ShapeId,
    /// As the worker's node numbers it.
    #[n(2)]
    pub lease: LeaseId,
    #[n(3)]
    pub worker: WorkerId,
    /// Indices of the GPUs that belong to the lease.
    #[n(4)]
    pub gpus: Vec<u32>,
}

row! {
    141 LeaseGrantedAt: [node => node]; no values;
    only if |granted, ends| ends.speaks_for(granted.worker), else "it grants a process that is not its own";
}

/// The node grants no more of this demand: ask other nodes.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct LeaseRefused {
    #[n(0)]
    pub client: WorkerId,
    #[n(1)]
    pub shape: ShapeId,
    /// For people.
    #[n(2)]
    pub reason: String,
    /// This node can never grant the shape.
    #[n(3)]
    pub infeasible: Option<bool>,
    /// The node can start no workers for the client's job: do not ask it again for that job.
    #[n(4)]
    pub no_workers: Option<bool>,
    /// A resource of the machine is used up, and no worker could be started for long: another node meets this
    /// demand, or it fails.
    #[n(5)]
    pub for_now: Option<bool>,
}

row! { 142 LeaseRefused: [node => node]; no values; }

/// To the worker's node: the lease is not needed any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct ReturnLeaseAt {
    /// As the worker's node numbers it.
    #[n(0)]
    pub lease: LeaseId,
}

row! { 143 ReturnLeaseAt: [node => node]; no values; }

/// From the worker's node: other processes wait, give this lease back soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct ReclaimLeaseAt {
    /// The process that holds the lease.
    #[n(0)]
    pub client: WorkerId,
    /// As the worker's node numbers it.
    #[n(1)]
    pub lease: LeaseId,
}

row! { 144 ReclaimLeaseAt: [node => node]; no values; }
