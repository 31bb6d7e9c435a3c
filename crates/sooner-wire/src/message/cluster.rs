//! Nodes and the control service: joining, liveness, leaving, and the view of resources (`docs/adr/0022`).
//!
//! The sender of each of these is known from its connection, so no message says who sends it.

use minicbor::{Decode, Encode};

use crate::{GroupId, NodeId, ResourceSet, Strategy};

/// Kinds of nodes.
pub mod kind {
    /// A daemon: it has an address, and tasks run on it.
    pub const DAEMON: u8 = 0;
    /// The node inside a driver without a daemon on its machine: no task runs on it, and it cannot be
    /// dialled.
    pub const DRIVER: u8 = 1;
}

/// A node's description of itself.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct AboutNode {
    /// See [`kind`].
    #[n(0)]
    pub kind: u8,
    /// Unique among the living nodes.
    #[n(1)]
    pub name: String,
    /// "10.0.0.1:6380": where a daemon listens.
    #[n(2)]
    pub address: Option<String>,
    /// The name of its machine, for people.
    #[n(3)]
    pub host: String,
    /// Nodes with the same boot id share a kernel, and may share memory.
    #[n(4)]
    pub boot_id: String,
    #[n(5)]
    pub resources: ResourceSet,
    #[n(6)]
    pub labels: Vec<(String, String)>,
}

/// First message of a node to the control service.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Register {
    #[n(0)]
    pub about: Box<AboutNode>,
    /// Version of sooner, for people.
    #[n(1)]
    pub version: String,
    /// "3.11": pickled code only works between equal minor versions.
    #[n(2)]
    pub python: String,
    /// The cluster that this node, under its present id, has been registered with before.
    #[n(3)]
    pub rejoins: Option<u64>,
}

row! { 100 Register: [node -> control]; no values; }

/// Settings of all nodes of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Settings {
    /// Between two heartbeats (nanoseconds).
    #[n(0)]
    pub heartbeat: u64,
    /// Silence after which a node is declared dead (nanoseconds).
    #[n(1)]
    pub health_timeout: u64,
}

/// The node has joined.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Registered {
    #[n(0)]
    pub cluster: u64,
    /// All nodes, itself included.
    #[n(1)]
    pub nodes: Vec<NodeRow>,
    #[n(2)]
    pub settings: Settings,
}

row! { 101 Registered: [control -> node]; no values; }

/// States of a node.
pub mod state {
    /// The node works.
    pub const ALIVE: u8 = 0;
    /// The node leaves: nothing new is placed there.
    pub const DRAINING: u8 = 1;
}

/// A node, as the others know it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct NodeRow {
    #[n(0)]
    pub node: NodeId,
    #[n(1)]
    pub about: AboutNode,
    /// See [`state`].
    #[n(2)]
    pub state: u8,
    /// By its own heartbeats the node lags behind.
    #[n(3)]
    pub is_slow: bool,
}

/// Nodes that joined or changed.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct NodesChanged {
    #[n(0)]
    pub rows: Vec<NodeRow>,
}

row! { 102 NodesChanged: [control -> node]; no values; }

/// A node has died or left for good, with every process whose id begins with its own. It returns as another
/// node.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct NodeDead {
    #[n(0)]
    pub node: NodeId,
    /// For people: "no heartbeat for 5.0 s".
    #[n(1)]
    pub reason: String,
}

row! { 103 NodeDead: [control -> node, node -> process]; no values; }

/// The node lives. Sent by a thread that nothing else can delay, over a connection of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Heartbeat {
    /// Counts up from 1.
    #[n(0)]
    pub number: u64,
    /// How far the node's thread is behind (nanoseconds).
    #[n(1)]
    pub node_lag: u64,
    /// How far the thread that moves data is behind (nanoseconds).
    #[n(2)]
    pub data_lag: u64,
}

row! { 104 Heartbeat: [node -> control]; no values; }

/// The receiver was declared dead, or belongs elsewhere: it must end.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Fenced {
    #[n(0)]
    pub reason: String,
}

row! { 105 Fenced: [control -> node]; no values; }

/// A node's free resources and waiting demand. Replaces its earlier report.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ResourceReport {
    /// Counts up from 1.
    #[n(0)]
    pub version: u64,
    #[n(1)]
    pub free: ResourceSet,
    #[n(2)]
    pub demand: Vec<ShapeDemand>,
    /// Free resources of the node's bundles of placement groups, if it has any.
    #[n(3)]
    pub bundles: Option<Vec<BundleFree>>,
}

row! { 106 ResourceReport: [node -> control]; no values; }

/// Free resources of a bundle of a placement group.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct BundleFree {
    #[n(0)]
    pub group: GroupId,
    /// Its place among the group's bundles.
    #[n(1)]
    pub bundle: u32,
    #[n(2)]
    pub free: ResourceSet,
}

/// Waiting demand of one shape.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct ShapeDemand {
    #[n(0)]
    pub resources: ResourceSet,
    #[n(1)]
    pub count: u32,
}

/// Free resources of nodes, in clusters that are small enough to send them to every node.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ResourceView {
    /// Replace earlier rows of these nodes.
    #[n(0)]
    pub rows: Vec<ViewRow>,
    /// There are too many nodes: forget all rows and ask with [`FindNodes`].
    #[n(1)]
    pub must_ask: bool,
}

row! { 107 ResourceView: [control -> node]; no values; }

/// Free resources of one node.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ViewRow {
    #[n(0)]
    pub node: NodeId,
    /// Version of its report.
    #[n(1)]
    pub version: u64,
    #[n(2)]
    pub free: ResourceSet,
    /// How many requests wait there.
    #[n(3)]
    pub waiting: u32,
}

/// Node to control: where could this run?
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct FindNodes {
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub resources: ResourceSet,
    /// How many nodes are of use at most.
    #[n(2)]
    pub count: u32,
    /// Where it must run, if not just anywhere.
    #[n(3)]
    pub strategy: Option<Box<Strategy>>,
    /// The node that holds most bytes of its arguments.
    #[n(4)]
    pub prefer: Option<NodeId>,
}

row! { 108 FindNodes: [node -> control]; no values; }

/// The answer, the best node first. If empty, no node of the cluster has so much in total.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Candidates {
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub nodes: Vec<Candidate>,
    /// Free resources of the nodes, so that each is asked for as much as it has.
    #[n(2)]
    pub rows: Option<Vec<ViewRow>>,
}

row! { 109 Candidates: [control -> node]; no values; }

/// A node that could serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Candidate {
    #[n(0)]
    pub node: NodeId,
    /// By its last report it could serve now.
    #[n(1)]
    pub is_free: bool,
}

/// Node to control: my connection to that node has ended. See whether it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Suspect {
    #[n(0)]
    pub node: NodeId,
    /// There was no head to ask, and the sender's processes treat those of that node as dead: that node must
    /// not go on.
    #[n(1)]
    pub is_given_up: Option<bool>,
}

row! { 113 Suspect: [process -> node, node -> control]; no values; }

/// A node shall leave: place nothing there, hand on what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Drain {
    #[n(0)]
    pub node: NodeId,
    /// How long it may take (nanoseconds from now): no two machines share a clock.
    #[n(1)]
    pub nanos: u64,
}

row! { 114 Drain: [process -> node, node -> control, control -> node]; no values; }

/// Node to control: that node has handed on what it had, and leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Drained {
    #[n(0)]
    pub node: NodeId,
}

row! { 115 Drained: [node -> process, node -> control]; no values; }
