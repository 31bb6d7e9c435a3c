//! What every control store does: one suite for all, and random operations against a model.

mod disk;

use std::collections::BTreeMap;

use disk::Disk;
use proptest::prelude::*;
use sooner_protocol::time::Instant;
use sooner_runtime::control::memory::Local;
use sooner_runtime::control::store::{
    Batch, BatchError, Condition, LeaseNumber, Operation, Outcome, Revision, Store, StoreError, Watch,
};
use sooner_wire::limits::{STORE_BATCH_MAX, STORE_HISTORY_MAX, STORE_KEY_BYTES_MAX, STORE_VALUE_BYTES_MAX};

const NOW: Instant = Instant(1_000);

/// Runs a test on every kind of store.
fn on_each(test: impl Fn(&mut dyn Store)) {
    test(&mut Local::in_memory());
    test(&mut Disk::default().open(NOW).expect("a new store"));
}

fn value(store: &dyn Store, key: &str) -> Option<Vec<u8>> {
    store.get(key).expect("readable").map(|entry| entry.value)
}

fn watch(prefix: &str, seen: u64) -> Watch {
    Watch { prefix: prefix.to_owned(), seen: Revision(seen) }
}

#[test]
fn what_is_put_is_there_with_its_revisions() {
    on_each(|store| {
        assert_eq!(store.get("a").expect("readable"), None);
        assert_eq!(store.put("a", b"1", NOW), Ok(Outcome::Applied(Revision(1))));
        assert_eq!(store.put("a", b"2", NOW), Ok(Outcome::Applied(Revision(2))));
        let entry = store.get("a").expect("readable").expect("there");
        assert_eq!((entry.value, entry.created, entry.changed), (b"2".to_vec(), Revision(1), Revision(2)));
        assert_eq!(store.commit_one(Batch::delete("a"), NOW), Ok(Outcome::Applied(Revision(3))));
        assert_eq!(
            store.commit_one(Batch::delete("a"), NOW),
            Ok(Outcome::Applied(Revision(3))),
            "nothing changed"
        );
        store.put("a", b"3", NOW).expect("writable");
        assert_eq!(store.get("a").expect("readable").expect("there").created, Revision(4));
    });
}

#[test]
fn a_range_is_what_begins_so_in_order() {
    on_each(|store| {
        for key in ["b/2", "a", "b/1", "b", "b0", "c", "b/"] {
            store.put(key, key.as_bytes(), NOW).expect("writable");
        }
        let keys = |prefix: &str| -> Vec<String> {
            store.range(prefix).expect("readable").into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(keys("b/"), ["b/", "b/1", "b/2"]);
        assert_eq!(keys(""), ["a", "b", "b/", "b/1", "b/2", "b0", "c"]);
        assert_eq!(keys("d"), [""; 0]);
    });
}

#[test]
fn compare_and_swap_changes_what_was_seen_only() {
    on_each(|store| {
        assert_eq!(store.compare_and_swap("a", None, b"1", NOW), Ok(Outcome::Applied(Revision(1))));
        assert_eq!(store.compare_and_swap("a", None, b"2", NOW), Ok(Outcome::Refused("a".into())));
        let seen = Some(Revision(1));
        assert_eq!(store.compare_and_swap("a", seen, b"3", NOW), Ok(Outcome::Applied(Revision(2))));
        assert_eq!(store.compare_and_swap("a", seen, b"4", NOW), Ok(Outcome::Refused("a".into())));
        assert_eq!(store.compare_and_swap("b", seen, b"4", NOW), Ok(Outcome::Refused("b".into())));
        assert_eq!((value(store, "a"), value(store, "b")), (Some(b"3".to_vec()), None));
    });
}

#[test]
fn a_batch_is_done_whole_or_not_at_all() {
    on_each(|store| {
        store.put("epoch", b"1", NOW).expect("writable");
        let mine = |epoch: &[u8]| Batch {
            conditions: vec![
                Condition::Equals("epoch".into(), epoch.to_vec()),
                Condition::Missing("name".into()),
            ],
            operations: vec![
                Operation::Put { key: "name".into(), value: b"x".to_vec(), lease: None },
                Operation::Put { key: "actor".into(), value: b"y".to_vec(), lease: None },
            ],
        };
        assert_eq!(store.commit_one(mine(b"2"), NOW), Ok(Outcome::Refused("epoch".into())));
        assert_eq!(value(store, "actor"), None);
        assert_eq!(
            store.commit_one(mine(b"1"), NOW),
            Ok(Outcome::Applied(Revision(2))),
            "one revision for both"
        );
        assert_eq!(store.commit_one(mine(b"1"), NOW), Ok(Outcome::Refused("name".into())));
    });
}

#[test]
fn batches_of_one_commit_see_each_other() {
    on_each(|store| {
        let take = |who: &[u8]| Batch::put("name", who).when(Condition::Missing("name".into()));
        let batches = [take(b"1"), take(b"2"), Batch::delete("name"), take(b"3")];
        let outcomes = store.commit(&batches, NOW).expect("writable");
        let expected = [
            Outcome::Applied(Revision(1)),
            Outcome::Refused("name".into()),
            Outcome::Applied(Revision(2)),
            Outcome::Applied(Revision(3)),
        ];
        assert_eq!(outcomes, expected);
        assert_eq!(value(store, "name"), Some(b"3".to_vec()));
        assert_eq!(store.changes(&mut watch("name", 0)).expect("all").len(), 3, "each change is seen");
    });
}

#[test]
fn what_no_store_takes_is_refused_by_itself() {
    on_each(|store| {
        let twice = Batch {
            conditions: vec![],
            operations: [Batch::put("a", b""), Batch::delete("a")]
                .into_iter()
                .flat_map(|b| b.operations)
                .collect(),
        };
        let many = Batch {
            conditions: vec![Condition::Missing("a".into()); STORE_BATCH_MAX + 1],
            operations: vec![],
        };
        let long = "k".repeat(STORE_KEY_BYTES_MAX + 1);
        let large = vec![0; STORE_VALUE_BYTES_MAX + 1];
        let of_no_lease = Operation::Put { key: "a".into(), value: vec![], lease: Some(LeaseNumber(9)) };
        let cases = [
            (twice, BatchError::Twice("a".into())),
            (many, BatchError::TooMany(STORE_BATCH_MAX + 1)),
            (Batch::put(&long, b""), BatchError::Key(long.len())),
            (Batch::put("", b""), BatchError::Key(0)),
            (Batch::put("a", &large), BatchError::Value { key: "a".into(), bytes: large.len() }),
            (Batch { conditions: vec![], operations: vec![of_no_lease] }, BatchError::NoLease(9)),
        ];
        for (batch, error) in cases {
            let outcomes = store.commit(&[batch, Batch::put("b", b"1")], NOW).expect("writable");
            assert_eq!(outcomes[0], Outcome::Invalid(error));
            assert!(matches!(outcomes[1], Outcome::Applied(_)), "the next one is not held up");
        }
        assert_eq!(value(store, "a"), None);
    });
}

#[test]
fn a_watch_sees_each_change_once_and_only_its_own() {
    on_each(|store| {
        let mut names = watch("names/", 0);
        store.put("names/a", b"1", NOW).expect("writable");
        store.put("jobs/a", b"1", NOW).expect("writable");
        store.commit_one(Batch::delete("names/a"), NOW).expect("writable");
        let seen: Vec<(u64, String, Option<Vec<u8>>)> = store
            .changes(&mut names)
            .expect("all are remembered")
            .into_iter()
            .map(|change| (change.revision.0, change.key, change.value))
            .collect();
        assert_eq!(seen, [(1, "names/a".into(), Some(b"1".to_vec())), (3, "names/a".into(), None)]);
        assert_eq!(store.changes(&mut names).expect("all"), []);
        assert_eq!(names.seen, store.revision());
    });
}

#[test]
fn a_watch_that_is_too_far_behind_is_told() {
    on_each(|store| {
        let batches: Vec<Batch> =
            (0..=STORE_HISTORY_MAX).map(|number| Batch::put("a", &number.to_le_bytes())).collect();
        store.commit(&batches, NOW).expect("writable");
        assert_eq!(store.changes(&mut watch("", 0)), Err(StoreError::Compacted { oldest: Revision(1) }));
        assert_eq!(store.changes(&mut watch("", 1)).expect("remembered").len(), STORE_HISTORY_MAX);
    });
}

#[test]
fn what_hangs_on_a_lease_goes_with_it() {
    on_each(|store| {
        let lease = store.grant(100, NOW).expect("writable");
        let put = |key: &str, lease| Batch {
            conditions: vec![],
            operations: vec![Operation::Put { key: key.into(), value: vec![], lease }],
        };
        for (key, lease) in [("a", Some(lease)), ("b", Some(lease)), ("c", None)] {
            store.commit_one(put(key, lease), NOW).expect("writable");
        }
        // Somebody else's value takes the place of one that had a lease.
        store.put("b", b"mine", NOW).expect("writable");
        assert_eq!(store.next_deadline(), Some(NOW.plus(100)));
        store.renew(lease, NOW.plus(60)).expect("there");
        assert_eq!(store.expire(NOW.plus(159)).expect("writable"), []);
        assert_eq!(store.expire(NOW.plus(160)).expect("writable"), [lease]);
        assert_eq!((value(store, "a"), value(store, "b")), (None, Some(b"mine".to_vec())));
        assert_eq!(value(store, "c"), Some(vec![]));
        assert_eq!(store.next_deadline(), None);
        let gone = Err(StoreError::NoLease(lease.0));
        assert_eq!(store.renew(lease, NOW), gone);
        assert_eq!(store.revoke(lease, NOW), gone);
        let next = store.grant(5, NOW).expect("writable");
        assert_ne!(next, lease, "a number is used once");
        store.commit_one(put("d", Some(next)), NOW).expect("writable");
        store.revoke(next, NOW).expect("there");
        assert_eq!(value(store, "d"), None);
    });
}

#[test]
fn what_is_on_disk_is_there_again() {
    let disk = Disk::default();
    let mut store = disk.open(NOW).expect("a new store");
    store.put("a", b"1", NOW).expect("writable");
    store.put("b", b"1", NOW).expect("writable");
    store.commit_one(Batch::delete("b"), NOW).expect("writable");
    let lease = store.grant(100, NOW).expect("writable");
    let hung = Operation::Put { key: "c".into(), value: b"3".to_vec(), lease: Some(lease) };
    store.commit_one(Batch { conditions: vec![], operations: vec![hung] }, NOW).expect("writable");
    let before = (store.range("").expect("readable"), store.revision());
    drop(store);
    let later = NOW.plus(1_000_000);
    let mut store = disk.open(later).expect("it is whole");
    assert_eq!((store.range("").expect("readable"), store.revision()), before);
    assert_eq!(store.next_deadline(), Some(later.plus(100)), "a lease begins anew");
    assert_eq!(store.changes(&mut watch("", 2)), Err(StoreError::Compacted { oldest: store.revision() }));
    assert_eq!(store.expire(later.plus(100)).expect("writable"), [lease]);
    assert_eq!(value(&store, "c"), None);
}

#[derive(Debug, Clone)]
enum Act {
    Commit(Vec<Batch>),
    Grant,
    /// The lease that was granted as that one, if it is there.
    Revoke(usize),
    Reopen,
}

fn batches() -> impl Strategy<Value = Batch> {
    let key = || prop_oneof![Just("a"), Just("a/1"), Just("a/2"), Just("b")].prop_map(str::to_owned);
    let bytes = || proptest::collection::vec(any::<u8>(), 0..3);
    let condition = prop_oneof![
        key().prop_map(Condition::Missing),
        (key(), 0u64..9).prop_map(|(key, revision)| Condition::ChangedAt(key, Revision(revision))),
        (key(), bytes()).prop_map(|(key, value)| Condition::Equals(key, value)),
    ];
    let operation = prop_oneof![
        3 => (key(), bytes()).prop_map(|(key, value)| Operation::Put { key, value, lease: None }),
        1 => key().prop_map(|key| Operation::Delete { key }),
    ];
    let conditions = proptest::collection::vec(condition, 0..2);
    (conditions, proptest::collection::vec(operation, 0..3))
        .prop_map(|(conditions, operations)| Batch { conditions, operations })
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => proptest::collection::vec(batches(), 0..4).prop_map(Act::Commit),
        1 => Just(Act::Grant),
        1 => (0usize..3).prop_map(Act::Revoke),
        1 => Just(Act::Reopen),
    ]
}

/// The contents as a map, and nothing else: what a store is for those who use it.
#[derive(Debug, Default)]
struct Model {
    values: BTreeMap<String, (Vec<u8>, u64)>,
    revision: u64,
}

impl Model {
    fn apply(&mut self, batch: &Batch) -> bool {
        let is_twice = batch.check().is_err();
        let holds = |condition: &Condition| match condition {
            Condition::Missing(key) => !self.values.contains_key(key),
            Condition::ChangedAt(key, at) => {
                self.values.get(key).is_some_and(|(_, changed)| *changed == at.0)
            }
            Condition::Equals(key, value) => self.values.get(key).is_some_and(|(found, _)| found == value),
        };
        if is_twice || !batch.conditions.iter().all(holds) {
            return false;
        }
        let mut next = self.revision;
        for operation in &batch.operations {
            match operation {
                Operation::Put { key, value, .. } => {
                    next = self.revision + 1;
                    self.values.insert(key.clone(), (value.clone(), next));
                }
                Operation::Delete { key } if self.values.remove(key).is_some() => next = self.revision + 1,
                Operation::Delete { .. } => {}
            }
        }
        self.revision = next;
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_store_is_a_map(run in proptest::collection::vec(acts(), 0..25)) {
        let disk = Disk::default();
        let mut stores: Vec<Box<dyn Store>> =
            vec![Box::new(Local::in_memory()), Box::new(disk.open(NOW).expect("a new store"))];
        let mut model = Model::default();
        let mut leases = Vec::new();
        for act in run {
            match act {
                Act::Commit(batches) => {
                    let applied: Vec<bool> = batches.iter().map(|batch| model.apply(batch)).collect();
                    for store in &mut stores {
                        let outcomes = store.commit(&batches, NOW).expect("writable");
                        let found: Vec<bool> =
                            outcomes.iter().map(|outcome| matches!(outcome, Outcome::Applied(_))).collect();
                        prop_assert_eq!(&found, &applied);
                    }
                }
                Act::Grant => {
                    model.revision += 1;
                    for store in &mut stores {
                        prop_assert_eq!(store.grant(1, NOW), Ok(LeaseNumber(model.revision)));
                    }
                    leases.push(LeaseNumber(model.revision));
                }
                Act::Revoke(which) if which < leases.len() => {
                    let lease = leases.remove(which);
                    for store in &mut stores {
                        prop_assert_eq!(store.revoke(lease, NOW), Ok(()));
                    }
                }
                Act::Revoke(_) => {}
                Act::Reopen => {
                    stores.pop();
                    stores.push(Box::new(disk.open(NOW).expect("it is whole")));
                }
            }
            for store in &stores {
                let found = store.range("").expect("readable").into_iter();
                let found: BTreeMap<String, (Vec<u8>, u64)> =
                    found.map(|(key, entry)| (key, (entry.value, entry.changed.0))).collect();
                prop_assert_eq!(&found, &model.values);
                prop_assert_eq!(store.revision().0, model.revision);
            }
        }
    }
}
