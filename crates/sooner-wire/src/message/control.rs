//! Questions to the control state: names of actors, resources, nodes.

use minicbor::{Decode, Encode};

use crate::{ActorId, Blob, ResourceSet};

/// Takes a name for an actor that will be created. The answer has an error if the name is taken.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ReserveName {
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub namespace: String,
    #[n(2)]
    pub name: String,
    #[n(3)]
    pub actor: ActorId,
    /// What a front end needs to make a handle; the node never looks into it.
    #[n(4)]
    pub description: Blob,
}

row! { 60 ReserveName: [process -> node, process => directory]; no values; }

/// Looks a name up.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct FindName {
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub namespace: String,
    #[n(2)]
    pub name: String,
}

row! { 61 FindName: [process -> node, process => directory]; no values; }

/// Lists the names of living actors.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ListNames {
    #[n(0)]
    pub request: u64,
    /// `None` for all namespaces.
    #[n(1)]
    pub namespace: Option<String>,
}

row! { 62 ListNames: [process -> node, process => directory]; no values; }

/// What a [`Query`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum QueryKind {
    #[n(0)]
    TotalResources,
    #[n(1)]
    AvailableResources,
    /// Worker process ids: for tests and tools.
    #[n(2)]
    Workers,
    /// What the asking worker holds, and the name of its actor.
    #[n(3)]
    Own,
    /// Labels of the node, as names.
    #[n(4)]
    Labels,
}

/// A question to the node.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Query {
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub what: QueryKind,
}

row! {
    63 Query: [process -> node, process => directory]; no values;
    only if |query, _| query.what == QueryKind::TotalResources, else "it asks what only a node knows";
}

/// The answer to any question; which fields are set follows from the question.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct Answer {
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub error: Option<String>,
    #[n(2)]
    pub actor: Option<ActorId>,
    #[n(3)]
    pub description: Option<Blob>,
    #[n(4)]
    pub resources: Option<ResourceSet>,
    #[n(5)]
    pub names: Option<Vec<(String, String)>>,
    #[n(6)]
    pub numbers: Option<Box<[u64]>>,
    /// The control service is unreachable, for the reason in `error`.
    #[n(7)]
    pub unavailable: Option<bool>,
}

row! { 64 Answer: [node -> process, directory => process]; no values; }
