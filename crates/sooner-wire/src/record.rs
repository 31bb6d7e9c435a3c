//! What the control service writes to disk: the layout of keys, and records (`docs/adr/0021`).
//!
//! Keys are text, `<table>/<name>`, so that a table is one range of the sorted keys. Numbers in keys are
//! hexadecimal with all their digits. A record is CBOR with numbered fields, like a message, and outlives the
//! process that wrote it: new fields are optional and go at the end, and existing fields never change. A
//! change that needs more gets a new [`FORMAT`]. No record holds a time: no clock is the same after a
//! restart.

use minicbor::{Decode, Encode};

use crate::limits::{CREATION_PIECES_MAX, STORE_VALUE_BYTES_MAX};
use crate::message::{Bundle, CreateActor, GroupStrategy, JobConfig};
use crate::{ActorId, Blob, GroupId, NodeId, PlacementAttempt, Takeover, WorkerId};

/// Version of keys and records together. Raised when an older sooner could misread what is written.
///
/// | format | what came with it |
/// |---|---|
/// | 1 | the cluster, the head, nodes |
/// | 2 | jobs, names, actors, groups: a head that passes them over would give their names away |
pub const FORMAT: u32 = 2;

/// The oldest version that can still be read.
pub const FORMAT_OLDEST: u32 = 1;

/// The cluster's identity.
pub const CLUSTER: &str = "cluster";
/// The latest head.
pub const HEAD: &str = "head";
/// Nodes that have joined and have neither died nor left.
pub const NODES: &str = "nodes/";
/// Jobs with an actor in [`ACTORS`].
pub const JOBS: &str = "jobs/";
/// Names of actors.
pub const NAMES: &str = "names/";
/// Actors with a name, and detached ones.
pub const ACTORS: &str = "actors/";
/// The creation message of each such actor, in pieces. It stays the same when the actor's record changes.
pub const CREATIONS: &str = "creations/";
/// Placement groups.
pub const GROUPS: &str = "groups/";

/// The key of a node's record.
#[must_use]
pub fn node_key(node: NodeId) -> String {
    format!("{NODES}{:016x}", node.0)
}

/// The key of a name's record. Both parts are escaped, so that no two pairs share a key.
#[must_use]
pub fn name_key(namespace: &str, name: &str) -> String {
    format!("{NAMES}{}/{}", escape(namespace), escape(name))
}

/// The key of an actor's record.
#[must_use]
pub fn actor_key(actor: ActorId) -> String {
    format!("{ACTORS}{}", of_actor(actor))
}

/// The key of one piece of an actor's creation message. Pieces count from zero.
#[must_use]
pub fn creation_key(actor: ActorId, piece: u32) -> String {
    format!("{CREATIONS}{}/{piece:04x}", of_actor(actor))
}

fn of_actor(actor: ActorId) -> String {
    format!("{:016x}-{:016x}", actor.owner.0, actor.number)
}

/// The key of a job's record.
#[must_use]
pub fn job_key(job: WorkerId) -> String {
    format!("{JOBS}{:016x}", job.0)
}

/// The key of a placement group's record.
#[must_use]
pub fn group_key(group: GroupId) -> String {
    format!("{GROUPS}{:016x}-{:016x}", group.owner.0, group.number)
}

fn escape(text: &str) -> String {
    text.replace('%', "%25").replace('/', "%2f")
}

/// The bytes are not a record of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a record cannot be read: {0}")]
pub struct RecordError(String);

macro_rules! records {
    ($($name:ident),* $(,)?) => {$(
        impl $name {
            /// As bytes.
            #[must_use]
            pub fn to_bytes(&self) -> Vec<u8> {
                let mut bytes = Vec::new();
                minicbor::encode(self, &mut bytes).expect("writing to memory cannot fail");
                bytes
            }

            /// From bytes.
            ///
            /// # Errors
            /// [`RecordError`] when the bytes are something else.
            pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
                minicbor::decode(bytes).map_err(|error| RecordError(error.to_string()))
            }
        }
    )*};
}

records! { ClusterRecord, HeadRecord, NodeRecord, JobRecord, NameRecord, ActorRecord, GroupRecord }

/// What a cluster is: written once, by its first head.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct ClusterRecord {
    /// Drawn at random.
    #[n(0)]
    pub cluster: u64,
}

/// The latest head: the next one takes its place.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct HeadRecord {
    /// The node that the head was part of, and ended with.
    #[n(0)]
    pub node: NodeId,
    /// Where the other nodes look for the next head.
    #[n(1)]
    pub address: String,
    /// Number of heads before this one; absent in format 1.
    #[n(2)]
    pub incarnation: Option<u32>,
}

/// A node that has joined: enough to see whether it lives, and to recognise it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct NodeRecord {
    #[n(0)]
    pub node: NodeId,
    /// See [`crate::message::kind`].
    #[n(1)]
    pub kind: u8,
    #[n(2)]
    pub name: String,
    #[n(3)]
    pub address: Option<String>,
}

/// A job with an actor that has a record: what its workers need, on whichever node that actor's next process
/// is.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct JobRecord {
    /// Its driver.
    #[n(0)]
    pub job: WorkerId,
    #[n(1)]
    pub config: Box<JobConfig>,
    /// Its driver is dead, or has ended.
    #[n(2)]
    pub is_dead: bool,
}

/// An actor's name. Its record exists from before the actor is created.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct NameRecord {
    #[n(0)]
    pub namespace: String,
    #[n(1)]
    pub name: String,
    #[n(2)]
    pub actor: ActorId,
    /// What a front end needs to make a handle.
    #[n(3)]
    pub description: Blob,
}

/// An actor with a name, or a detached one: where its process is, or may be. Written before a node is asked
/// for a process.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct ActorRecord {
    #[n(0)]
    pub actor: ActorId,
    /// How many processes took over so far.
    #[n(1)]
    pub takeover: Takeover,
    /// The node that was asked for this process; `None` while it waits for one.
    #[n(2)]
    pub node: Option<NodeId>,
    /// How often a new process may still take over; -1 for ever.
    #[n(3)]
    pub restarts: i32,
    /// The job whose workers may be its process.
    #[n(4)]
    pub job: WorkerId,
    /// Namespace and name.
    #[n(5)]
    pub name: Option<(String, String)>,
    /// Pieces of its creation: see [`creation_key`].
    #[n(6)]
    pub pieces: u32,
    /// It does not end with its owner or its handles.
    #[n(7)]
    pub detached: bool,
}

/// A bundle of a placement group, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct BundleRecord {
    #[n(0)]
    pub bundle: Bundle,
    /// The bundle's node, and the attempt that placed it there.
    #[n(1)]
    pub place: Option<(NodeId, PlacementAttempt)>,
}

/// A placement group. The places of its bundles are written before the first bundle may be used.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct GroupRecord {
    #[n(0)]
    pub group: GroupId,
    /// Namespace and name.
    #[n(1)]
    pub title: Option<(String, String)>,
    #[n(2)]
    pub strategy: GroupStrategy,
    /// The driver that the group ends with; `None`: it is detached.
    #[n(3)]
    pub driver: Option<WorkerId>,
    #[n(4)]
    pub bundles: Vec<BundleRecord>,
}

/// An actor's creation message, in pieces that fit the store.
///
/// # Errors
/// The message's size in bytes, when it is larger than [`CREATION_PIECES_MAX`] pieces.
pub fn creation_pieces(create: &CreateActor) -> Result<Vec<Vec<u8>>, usize> {
    let mut bytes = Vec::new();
    minicbor::encode(create, &mut bytes).expect("writing to memory cannot fail");
    let pieces = bytes.chunks(STORE_VALUE_BYTES_MAX);
    if pieces.len() > CREATION_PIECES_MAX as usize {
        return Err(bytes.len());
    }
    Ok(pieces.map(<[u8]>::to_vec).collect())
}

/// Joins the pieces of [`creation_pieces`], in order.
///
/// # Errors
/// [`RecordError`] when the bytes are something else.
pub fn creation_from<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<CreateActor, RecordError> {
    let bytes: Vec<u8> = pieces.flatten().copied().collect();
    minicbor::decode(&bytes).map_err(|error| RecordError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResourceSet;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Bytes that stand on somebody's disk. If one of these changes, raise [`FORMAT`] and read the old form
    /// too.
    #[test]
    fn what_is_written_stays_readable() {
        assert_eq!(FORMAT, 2);
        assert_eq!(hex(&ClusterRecord { cluster: 7 }.to_bytes()), "8107");
        let node =
            NodeRecord { node: NodeId(1 << 24), kind: 0, name: "a".into(), address: Some("b:1".into()) };
        assert_eq!(hex(&node.to_bytes()), "841a0100000000616163623a31");
        assert_eq!(NodeRecord::from_bytes(&node.to_bytes()), Ok(node.clone()));
        let head = HeadRecord { node: NodeId(1 << 24), address: "b:1".into(), incarnation: None };
        assert_eq!(hex(&head.to_bytes()), "821a0100000063623a31");
        let later = HeadRecord { incarnation: Some(3), ..head };
        assert_eq!(hex(&later.to_bytes()), "831a0100000063623a3103");
        // A later version has one more field.
        let mut later = node.to_bytes();
        later[0] += 1;
        later.push(0xf5);
        assert_eq!(NodeRecord::from_bytes(&later), Ok(node));
        assert!(NodeRecord::from_bytes(&[0x81, 0x07]).is_err());
        assert_eq!(node_key(NodeId(1 << 24)), "nodes/0000000001000000");
    }

    const DRIVER: WorkerId = WorkerId((1 << 24) + 1);
    const ACTOR: ActorId = ActorId { owner: DRIVER, number: 2 };

    fn actor() -> ActorRecord {
        let name = Some(("space".to_owned(), "it".to_owned()));
        ActorRecord {
            actor: ACTOR,
            takeover: Takeover(3),
            node: None,
            restarts: -1,
            job: DRIVER,
            name,
            pieces: 1,
            detached: true,
        }
    }

    fn group() -> GroupRecord {
        let resources = ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]);
        let bundle =
            |place| BundleRecord { bundle: Bundle { resources: resources.clone(), labels: vec![] }, place };
        let bundles = vec![bundle(Some((NodeId(1 << 24), PlacementAttempt(1 << 32)))), bundle(None)];
        let group = GroupId { owner: DRIVER, number: 5 };
        GroupRecord { group, title: None, strategy: GroupStrategy::Spread, driver: Some(DRIVER), bundles }
    }

    /// As above, of format 2.
    #[test]
    fn what_the_directory_writes_stays_readable() {
        let config = JobConfig { template: vec!["python".into()], inline_bytes: 9, ..JobConfig::default() };
        let job = JobRecord { job: DRIVER, config: Box::new(config), is_dead: false };
        assert_eq!(hex(&job.to_bytes()), "831a01000001868166707974686f6e6060090000f4");
        assert_eq!(JobRecord::from_bytes(&job.to_bytes()), Ok(job));
        let name = NameRecord {
            namespace: "space".into(),
            name: "it".into(),
            actor: ACTOR,
            description: Blob::from(&b"how"[..]),
        };
        assert_eq!(hex(&name.to_bytes()), "84657370616365626974821a010000010243686f77");
        assert_eq!(NameRecord::from_bytes(&name.to_bytes()), Ok(name));
        assert_eq!(hex(&actor().to_bytes()), "88821a010000010203f6201a010000018265737061636562697401f5");
        assert_eq!(ActorRecord::from_bytes(&actor().to_bytes()), Ok(actor()));
        assert_eq!(GroupRecord::from_bytes(&group().to_bytes()), Ok(group()));
        assert_eq!(actor_key(ACTOR), "actors/0000000001000001-0000000000000002");
        assert_eq!(creation_key(ACTOR, 17), "creations/0000000001000001-0000000000000002/0011");
        assert_eq!(job_key(DRIVER), "jobs/0000000001000001");
        assert_eq!(group_key(group().group), "groups/0000000001000001-0000000000000005");
    }

    proptest! {
        #[test]
        fn no_two_names_share_a_key(a in "[a/%]{0,4}", b in "[a/%]{0,4}", c in "[a/%]{0,4}", d in "[a/%]{0,4}") {
            prop_assert_eq!(name_key(&a, &b) == name_key(&c, &d), (a, b) == (c, d));
        }

        #[test]
        fn garbage_is_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = ClusterRecord::from_bytes(&bytes);
            let _ = HeadRecord::from_bytes(&bytes);
            let _ = NodeRecord::from_bytes(&bytes);
            let _ = JobRecord::from_bytes(&bytes);
            let _ = NameRecord::from_bytes(&bytes);
            let _ = ActorRecord::from_bytes(&bytes);
            let _ = GroupRecord::from_bytes(&bytes);
            let _ = creation_from(bytes.chunks(7));
        }
    }
}
