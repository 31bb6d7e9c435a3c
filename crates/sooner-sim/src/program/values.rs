//! Values: making, storing and reading them, and the references inside them.

use std::sync::Arc;

use sooner_protocol::probes::hit;
use sooner_protocol::worker::ownership::Slot;
use sooner_wire::message::{Location, Outcome, Return};
use sooner_wire::{Blob, BlockId, ObjectId};

use super::{Frame, Reference};
use crate::oracle::{Fact, Kind, Oracle};
use crate::plan::Feature;
use crate::world::{SimNode, World};

/// Bytes of a block.
const LENGTH: u64 = 4096;

impl World {
    /// Makes a value: small, or in shared memory.
    pub(super) fn make_outcome(&mut self, number: u32, payload: u64) -> Outcome {
        if !self.plan.has(Feature::Large) || self.random.chance(2, 3) {
            return Outcome::Inline(Blob::from(&payload.to_le_bytes()[..]));
        }
        let kept = self.process_mut(number).cache.pop();
        let block = kept.unwrap_or_else(|| {
            let worker = self.process(number).id;
            let SimNode { core, blocks, .. } = self.node_mut(number);
            let block = BlockId(blocks.allocate());
            core.on_allocated(block, worker);
            block
        });
        if kept.is_some() {
            hit("a block was used again by its process");
        }
        self.process_mut(number).written.insert(block);
        self.node_mut(number).blocks.write(block.offset(), payload);
        Outcome::Stored(Location::in_memory(block, LENGTH))
    }

    /// The content of a value that a process has; `None` if its block is free.
    #[must_use]
    pub fn read(&self, number: u32, outcome: &Outcome) -> Option<u64> {
        match outcome {
            Outcome::Inline(blob) => Some(u64::from_le_bytes(blob.as_slice().try_into().ok()?)),
            Outcome::Stored(location) => self.node(number).blocks.read(location.offset),
            Outcome::Failed(_) | Outcome::Remote(_) => None,
        }
    }

    /// Makes a handle of an object that the process has met.
    pub(super) fn hold(&self, id: ObjectId, slot: Arc<Slot>) -> Reference {
        slot.acquire();
        let is_actor = id.index == 0 && self.oracle.actors.contains_key(&id.task);
        Reference { id, slot, is_actor, may_wait: true, may_pass: true }
    }

    /// Enters an object in the ownership table, which must know it before its id leaves the process.
    pub(super) fn register(&mut self, number: u32, reference: &Reference) {
        if !reference.slot.is_registered() {
            let (id, slot) = (reference.id, reference.slot.clone());
            self.with_core(number, |core, _| core.ownership_mut().own(id, slot));
        }
    }

    /// Puts a value, which may contain references.
    pub(super) fn put(&mut self, number: u32, frame: &mut Frame) {
        let task = self.process_mut(number).next_task();
        let code = self.random.next_number();
        self.oracle.facts.insert(task, Fact { payload: Some(code), ..Fact::new(Kind::Put, code) });
        let outcome = self.make_outcome(number, Oracle::value(code, 0));
        let contained = self.pick_contained(number, frame);
        let id = task.object(0);
        let is_stored = matches!(outcome, Outcome::Stored(_));
        let slot = Arc::new(Slot::with_outcome(outcome));
        let reference = self.hold(id, slot.clone());
        frame.locals.push(reference);
        if is_stored || !contained.is_empty() {
            self.with_core(number, |core, _| {
                core.ownership_mut().own(id, slot);
                core.ownership_mut().contain(id, &contained);
            });
        }
    }

    /// Picks references that a value contains: copies of some of the frame's.
    pub(super) fn pick_contained(&mut self, number: u32, frame: &Frame) -> Vec<ObjectId> {
        if !self.plan.has(Feature::Contained) {
            return Vec::new();
        }
        let mut contained = Vec::new();
        for reference in frame.locals.iter().filter(|reference| reference.may_pass) {
            if self.random.chance(1, 5) {
                self.register(number, reference);
                contained.push(reference.id);
            }
        }
        contained
    }

    /// Makes a return value of a frame.
    pub(super) fn make_return(&mut self, number: u32, frame: &Frame, index: u32) -> Return {
        let contained = self.pick_contained(number, frame);
        let outcome = self.make_outcome(number, Oracle::value(frame.base, index));
        Return { outcome, contained }
    }

    /// Decodes a value: the references inside it get handles, and the frame keeps some.
    pub(super) fn decode(&mut self, number: u32, frame: &mut Frame, object: ObjectId, may_pass: bool) {
        let met: Vec<(ObjectId, Arc<Slot>)> = self.with_core(number, |core, _| {
            let table = core.ownership_mut();
            table.contained(object).into_iter().map(|id| (id, table.meet(id))).collect()
        });
        for (id, slot) in met {
            let mut reference = self.hold(id, slot);
            reference.may_pass = may_pass;
            if self.random.chance(1, 2) && frame.locals.len() < 16 {
                hit("a reference was found inside a value");
                frame.locals.push(reference);
            } else {
                self.process_mut(number).release(reference);
            }
        }
    }
}
