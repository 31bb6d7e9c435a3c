//! Values that this process writes in place in shared memory and has not sealed yet (Plasma's create and
//! seal).
//!
//! Until it is sealed, such an object is pending: whoever wants it waits, as for the result of a task. Its
//! block is this process's own meanwhile, and cannot go to disk. When no handle is left in this process,
//! neither the array nor a reference, nobody can seal the value any more, and whoever waits learns that.
//!
//! It keeps blocks only: the objects are in the ownership table.

use sooner_wire::ObjectId;
use sooner_wire::message::{Failure, FailureCode, Location};

use crate::table::{Map, Set};

/// See the module.
#[derive(Debug, Default)]
pub struct Unsealed {
    blocks: Map<ObjectId, Location>,
    /// Those that a task has returned while they could still be written to.
    returned: Set<ObjectId>,
}

impl Unsealed {
    /// A value is written at this place from now on.
    pub fn insert(&mut self, object: ObjectId, block: Location) {
        self.blocks.insert(object, block);
    }

    /// The value is not written here any more. Gives its block; `None` if the object is sealed, or another.
    pub fn remove(&mut self, object: ObjectId) -> Option<Location> {
        self.returned.swap_remove(&object);
        self.blocks.swap_remove(&object)
    }

    /// A task has returned the value, which may still be written to.
    pub fn record_returned(&mut self, object: ObjectId) {
        if self.contains(object) {
            self.returned.insert(object);
        }
    }

    /// Whether a task has returned the value: it is what it should be.
    #[must_use]
    pub fn is_returned(&self, object: ObjectId) -> bool {
        self.returned.contains(&object)
    }

    /// Whether this object is written here.
    #[must_use]
    pub fn contains(&self, object: ObjectId) -> bool {
        self.blocks.contains_key(&object)
    }

    /// Where this object is written.
    #[must_use]
    pub fn block(&self, object: ObjectId) -> Option<Location> {
        self.blocks.get(&object).copied()
    }

    /// Whether nothing is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

/// What readers learn of a value that nobody can seal any more.
pub fn abandoned_failure() -> Failure {
    let text = "the array of sooner.empty() was dropped before it was sealed: call seal() on its reference when it \
         is written, or return the array or the reference from the task that wrote it";
    Failure::new(FailureCode::ObjectLost, text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sooner_wire::message::{Outcome, Value};
    use sooner_wire::{ShapeId, TaskId};

    use super::*;
    use crate::worker::WorkerCore;
    use crate::worker::action::{Action, Actions, Peer, send};
    use crate::worker::ownership::Slot;
    use crate::worker::testing::{self, ME, THERE, submit};

    const BLOCK: Location = Location { offset: 64, length: 10 };

    /// A process that writes one value, of which there are an array and a reference.
    struct Writer {
        core: WorkerCore,
        shape: ShapeId,
        object: ObjectId,
        slot: Arc<Slot>,
    }

    impl Writer {
        fn new() -> Self {
            let (mut core, shape) = testing::core();
            let object = TaskId { owner: ME, number: 1 }.object(0);
            let slot = Arc::new(Slot::default());
            slot.acquire();
            slot.acquire();
            slot.add_view();
            core.create(object, slot.clone(), BLOCK);
            Self { core, shape, object, slot }
        }

        fn drop_array(&mut self) -> Actions {
            self.slot.drop_view();
            self.drop_handle()
        }

        fn drop_handle(&mut self) -> Actions {
            let mut out = Actions::new();
            if self.slot.release() {
                self.core.on_handles_dropped(&[self.object], &mut out);
            }
            out
        }

        fn outcome(&self) -> Option<Outcome> {
            self.slot.outcome().map(std::borrow::Cow::into_owned)
        }

        /// What another process is sent that asked for the value.
        fn fetched(&mut self) -> Actions {
            let mut out = Actions::new();
            self.core.ownership_mut().on_fetch(self.object, THERE, &mut out);
            out
        }
    }

    fn failed() -> Option<Outcome> {
        Some(Outcome::Failed(Box::new(abandoned_failure())))
    }

    #[test]
    fn who_waits_for_a_value_gets_it_when_it_is_sealed() {
        let mut writer = Writer::new();
        let waiting = submit(&mut writer.core, writer.shape, 2, vec![writer.object]);
        assert_eq!((waiting.len(), writer.fetched().len()), (0, 0), "both wait");
        let mut out = Actions::new();
        assert!(writer.core.seal(writer.object, &mut out));
        let mut sent = Actions::new();
        let value = Value { object: writer.object, outcome: Outcome::Stored(BLOCK), contained: vec![] };
        send(&mut sent, Peer::Worker(THERE), value);
        assert_eq!(out[..1], sent[..]);
        assert!(out.len() > 1, "the task asks for a worker: {out:?}");
        assert_eq!(writer.outcome(), Some(Outcome::Stored(BLOCK)));
        assert!(!writer.core.seal(writer.object, &mut out), "once");
    }

    #[test]
    fn a_value_that_nobody_can_seal_fails_and_its_block_is_free() {
        let mut writer = Writer::new();
        assert_eq!(
            (writer.drop_array(), writer.fetched()),
            (vec![], vec![]),
            "the reference can still seal it"
        );
        let out = writer.drop_handle();
        assert_eq!(out[0], Action::FreeBlock(BLOCK));
        assert!(matches!(&out[1], Action::Send { to: Peer::Worker(to), .. } if *to == THERE), "{out:?}");
        assert_eq!(writer.outcome(), failed());
        assert!(writer.core.unsealed().is_empty());
    }

    #[test]
    fn a_sealed_value_goes_with_its_last_handle() {
        let mut writer = Writer::new();
        writer.core.seal(writer.object, &mut Actions::new());
        assert_eq!(writer.drop_array(), []);
        assert_eq!(writer.drop_handle(), [Action::FreeBlock(BLOCK)]);
        assert!(writer.core.ownership().is_empty());
    }

    #[test]
    fn a_returned_array_gives_its_block_to_the_returned_value() {
        let mut writer = Writer::new();
        assert_eq!(writer.drop_array(), []);
        let mut out = Actions::new();
        assert_eq!(writer.core.on_written_returned(writer.object, &mut out), Some(BLOCK));
        assert_eq!((out, writer.drop_handle()), (vec![], vec![]), "the block is not freed here");
        assert!(writer.core.ownership().is_empty() && writer.core.unsealed().is_empty());
    }

    #[test]
    fn a_returned_array_that_is_still_held_is_copied_and_written_on() {
        let mut writer = Writer::new();
        assert_eq!(writer.core.on_written_returned(writer.object, &mut Actions::new()), None);
        assert_eq!(writer.outcome(), None);
        let waiting = submit(&mut writer.core, writer.shape, 2, vec![writer.object]);
        assert_eq!((waiting, writer.drop_array(), writer.drop_handle().len()), (vec![], vec![], 1));
        assert_eq!(writer.outcome(), Some(Outcome::Stored(BLOCK)), "nobody writes any more");
    }

    #[test]
    fn a_returned_array_that_others_wait_for_is_sealed_for_them() {
        let mut writer = Writer::new();
        let waiting = submit(&mut writer.core, writer.shape, 2, vec![writer.object]);
        assert_eq!((waiting, writer.drop_array()), (vec![], vec![]));
        let mut out = Actions::new();
        assert_eq!(writer.core.on_written_returned(writer.object, &mut out), None, "it is copied");
        assert_eq!(writer.outcome(), Some(Outcome::Stored(BLOCK)));
        assert_eq!(writer.drop_handle(), [], "the task has it");
    }
}
