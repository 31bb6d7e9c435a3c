//! Records in a store: what a head reads when it starts, and how the writes of state machines become batches.

use sooner_protocol::control::Found;
use sooner_protocol::control::persist::Write;
use sooner_protocol::time::Instant;
use sooner_wire::record::{CLUSTER, ClusterRecord, HEAD, HeadRecord, NODES, NodeRecord, RecordError};

use super::store::{Batch, Operation, Store, StoreError};

/// Returns the cluster's record. The first head writes it, with the id that it has `drawn` at random.
///
/// # Errors
/// [`StoreError`] when it cannot be written or read.
pub fn cluster(store: &mut dyn Store, drawn: u64, now: Instant) -> Result<ClusterRecord, StoreError> {
    let new = ClusterRecord { cluster: drawn };
    store.compare_and_swap(CLUSTER, None, &new.to_bytes(), now)?;
    let entry = store.get(CLUSTER)?.expect("it is there, or was just written");
    ClusterRecord::from_bytes(&entry.value).map_err(|error| unreadable(CLUSTER, error))
}

/// The nodes that an earlier head knew.
///
/// # Errors
/// [`StoreError::Record`] when one cannot be read.
pub fn nodes(store: &dyn Store) -> Result<Vec<NodeRecord>, StoreError> {
    let rows = store.range(NODES)?.into_iter();
    rows.map(|(key, entry)| NodeRecord::from_bytes(&entry.value).map_err(|error| unreadable(&key, error)))
        .collect()
}

/// The records of earlier heads that outlive them.
///
/// # Errors
/// [`StoreError::Record`] when one cannot be read.
pub fn found(store: &dyn Store) -> Result<Found, StoreError> {
    let rows = store.range("")?.into_iter().map(|(key, entry)| (key, entry.value));
    Found::read(rows).map_err(|(key, error)| unreadable(&key, error))
}

/// The last head, if there was one.
///
/// # Errors
/// [`StoreError::Record`] when it cannot be read.
pub fn head(store: &dyn Store) -> Result<Option<HeadRecord>, StoreError> {
    let entry = store.get(HEAD)?;
    entry
        .map(|entry| HeadRecord::from_bytes(&entry.value).map_err(|error| unreadable(HEAD, error)))
        .transpose()
}

fn unreadable(key: &str, error: RecordError) -> StoreError {
    StoreError::Record { key: key.to_owned(), error }
}

/// The batch for the writes of a state machine.
#[must_use]
pub fn batch(writes: Vec<Write>) -> Batch {
    let operation = |Write { key, value }| match value {
        Some(value) => Operation::Put { key, value, lease: None },
        None => Operation::Delete { key },
    };
    Batch { conditions: Vec::new(), operations: writes.into_iter().map(operation).collect() }
}

#[cfg(test)]
mod tests {
    use sooner_wire::NodeId;
    use sooner_wire::record::node_key;

    use super::*;
    use crate::control::memory::Local;

    const NOW: Instant = Instant(1);

    #[test]
    fn the_first_head_says_what_the_cluster_is() {
        let mut store = Local::in_memory();
        assert_eq!(cluster(&mut store, 7, NOW), Ok(ClusterRecord { cluster: 7 }));
        assert_eq!(cluster(&mut store, 8, NOW), Ok(ClusterRecord { cluster: 7 }));
        store.put(CLUSTER, b"?", NOW).expect("writable");
        let error = cluster(&mut store, 8, NOW).expect_err("no record").to_string();
        assert!(error.starts_with("the control store has something else at \"cluster\": "), "{error}");
    }

    #[test]
    fn what_machines_write_is_found_again() {
        let mut store = Local::in_memory();
        let record = |id| NodeRecord { node: NodeId(id), kind: 0, name: format!("n{id}"), address: None };
        let put = |id| Write::put(node_key(NodeId(id)), record(id).to_bytes());
        store.commit_one(batch(vec![put(2), put(1)]), NOW).expect("writable");
        assert_eq!(nodes(&store), Ok(vec![record(1), record(2)]));
        store.commit_one(batch(vec![Write::delete(node_key(NodeId(1)))]), NOW).expect("writable");
        assert_eq!(nodes(&store), Ok(vec![record(2)]));
        store.put("nodes/x", b"", NOW).expect("writable");
        assert!(matches!(nodes(&store), Err(StoreError::Record { key, .. }) if key == "nodes/x"));
    }
}
