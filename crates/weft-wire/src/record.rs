//! What the control service writes to disk: the layout of keys, and records (`docs/adr/0021`).
//!
//! Keys are text, `<table>/<name>`, in the order of which a table is one range. Numbers in keys are hexadecimal with all
//! their digits. A record is CBOR with numbered fields, as messages are, and outlives the process that wrote it: a field
//! is added at the end and is optional, never changed. What cannot be read so comes with a new [`FORMAT`]. There is no
//! time in any record: no clock is the same after a restart.

use minicbor::{Decode, Encode};

use crate::NodeId;

/// Version of keys and records together. Raised when an older weft could misread what is written.
pub const FORMAT: u32 = 1;

/// The oldest version that can still be read.
pub const FORMAT_OLDEST: u32 = 1;

/// What the cluster is.
pub const CLUSTER: &str = "cluster";
/// Which head there was last.
pub const HEAD: &str = "head";
/// Nodes that have joined and are not gone.
pub const NODES: &str = "nodes/";
/// Jobs that have not ended.
pub const JOBS: &str = "jobs/";
/// Names of actors.
pub const NAMES: &str = "names/";
/// Actors with a name, and detached ones.
pub const ACTORS: &str = "actors/";
/// Placement groups.
pub const GROUPS: &str = "groups/";

/// Where a node's record is.
#[must_use]
pub fn node_key(node: NodeId) -> String {
    format!("{NODES}{:016x}", node.0)
}

/// Where the record of a name is. Both parts are escaped, so that no two pairs share a key.
#[must_use]
pub fn name_key(namespace: &str, name: &str) -> String {
    format!("{NAMES}{}/{}", escape(namespace), escape(name))
}

fn escape(text: &str) -> String {
    text.replace('%', "%25").replace('/', "%2f")
}

/// Bytes that are no record of the kind they should be.
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
            /// [`RecordError`] when they are something else.
            pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
                minicbor::decode(bytes).map_err(|error| RecordError(error.to_string()))
            }
        }
    )*};
}

records! { ClusterRecord, HeadRecord, NodeRecord }

/// What a cluster is: written once, by its first head.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct ClusterRecord {
    /// Drawn at random.
    #[n(0)]
    pub cluster: u64,
}

/// Which head there was last: the next one takes its place.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct HeadRecord {
    /// It was part of that process, and ended with it.
    #[n(0)]
    pub node: NodeId,
    /// Where the other nodes look for the next one.
    #[n(1)]
    pub address: String,
}

/// A node that has joined. Enough to see whether it lives, and to know it again.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Bytes that stand on somebody's disk. If one of these changes, raise [`FORMAT`] and read the old form too.
    #[test]
    fn what_is_written_stays_readable() {
        assert_eq!(FORMAT, 1);
        assert_eq!(hex(&ClusterRecord { cluster: 7 }.to_bytes()), "8107");
        let node =
            NodeRecord { node: NodeId(1 << 24), kind: 0, name: "a".into(), address: Some("b:1".into()) };
        assert_eq!(hex(&node.to_bytes()), "841a0100000000616163623a31");
        assert_eq!(NodeRecord::from_bytes(&node.to_bytes()), Ok(node.clone()));
        let head = HeadRecord { node: NodeId(1 << 24), address: "b:1".into() };
        assert_eq!(hex(&head.to_bytes()), "821a0100000063623a31");
        // A later version has one more field.
        let mut later = node.to_bytes();
        later[0] += 1;
        later.push(0xf5);
        assert_eq!(NodeRecord::from_bytes(&later), Ok(node));
        assert!(NodeRecord::from_bytes(&[0x81, 0x07]).is_err());
        assert_eq!(node_key(NodeId(1 << 24)), "nodes/0000000001000000");
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
        }
    }
}
