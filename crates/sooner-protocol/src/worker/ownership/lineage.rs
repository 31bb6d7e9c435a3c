//! Lineage (Ownership, section 4.2 and table 2): descriptions of tasks that have ended and whose results may
//! have to be computed again.
//!
//! A task is kept from its reply until the records of all its results are gone; those records stay as long as
//! a kept task takes one of them as an argument. Only tasks with a result in shared memory are kept: values
//! that travel in messages live in the owner's table and share its fate. Kept tasks are bounded in bytes; the
//! oldest goes first.
//!
//! It decides nothing about objects: the caller ends the uses of a returned task's arguments.

use std::collections::BTreeMap;
use std::sync::Arc;

use sooner_wire::limits::LINEAGE_BYTES;
use sooner_wire::message::TaskSpec;
use sooner_wire::{ObjectId, TaskId};

/// A task that can be executed again.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Its description.
    pub spec: Arc<TaskSpec>,
    /// Executions still allowed; -1 for ever.
    pub retries: i32,
    /// The task that submitted it.
    pub parent: Option<TaskId>,
    /// Arguments whose records count this task.
    pub arguments: Box<[ObjectId]>,
    /// Results of the task whose records are left.
    pub records: u32,
    /// Items received, of a generator.
    pub items: u32,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Lineage {
    /// By number, which is the order of submission.
    tasks: BTreeMap<u64, Finished>,
    bytes: usize,
    limit: usize,
}

/// Bytes of a kept task besides its arguments: the description, its entry, the records it holds.
const TASK_BYTES: usize = size_of::<TaskSpec>() + size_of::<Finished>() + 64;
/// Bytes per argument reference: the record that it keeps.
const REFERENCE_BYTES: usize = 200;

fn bytes_of(spec: &TaskSpec) -> usize {
    let references = spec.dependencies.len() + spec.references.len();
    TASK_BYTES + spec.arguments.len() + references * REFERENCE_BYTES
}

impl Default for Lineage {
    fn default() -> Self {
        Self { tasks: BTreeMap::new(), bytes: 0, limit: LINEAGE_BYTES }
    }
}

impl Lineage {
    /// Bounds the kept tasks to `bytes`.
    pub fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// A task ended, and records of its results are left.
    pub fn keep(&mut self, finished: Finished) {
        self.bytes += bytes_of(&finished.spec);
        self.tasks.insert(finished.spec.task.number, finished);
    }

    /// Takes out the oldest task if the kept tasks exceed the limit.
    pub fn evict(&mut self) -> Option<Finished> {
        if self.bytes <= self.limit {
            return None;
        }
        let (_, finished) = self.tasks.pop_first()?;
        self.bytes -= bytes_of(&finished.spec);
        Some(finished)
    }

    /// Takes a task out, to execute it again.
    pub fn take(&mut self, number: u64) -> Option<Finished> {
        let finished = self.tasks.remove(&number)?;
        self.bytes -= bytes_of(&finished.spec);
        Some(finished)
    }

    /// The record of a result was removed. Gives the task if that was its last one.
    pub fn on_record_dropped(&mut self, number: u64) -> Option<Finished> {
        let finished = self.tasks.get_mut(&number)?;
        finished.records -= 1;
        if finished.records > 0 {
            return None;
        }
        self.take(number)
    }

    /// A kept task.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&Finished> {
        self.tasks.get(&number)
    }

    /// Tasks kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether no task is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Bytes kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::message::TaskKind;
    use sooner_wire::{Blob, FunctionId, Name, ShapeId, WorkerId};

    use super::*;

    fn finished(number: u64, argument_bytes: usize, records: u32) -> Finished {
        let task = TaskId { owner: WorkerId(1), number };
        let arguments = Blob::from(&vec![0; argument_bytes][..]);
        let kind = TaskKind::Task(ShapeId(0));
        let spec = Arc::new(TaskSpec::new(task, kind, FunctionId(1), Name::from("f"), arguments));
        Finished { spec, retries: 3, parent: None, arguments: Box::default(), records, items: 0 }
    }

    #[test]
    fn a_task_goes_with_the_last_record_of_its_results() {
        let mut lineage = Lineage::default();
        lineage.keep(finished(1, 10, 2));
        assert!(lineage.on_record_dropped(1).is_none());
        assert!(lineage.on_record_dropped(1).is_some());
        assert!(lineage.on_record_dropped(1).is_none());
        assert!(lineage.is_empty());
        assert_eq!(lineage.bytes(), 0);
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many_bytes() {
        let mut lineage = Lineage::default();
        lineage.set_limit(2 * bytes_of(&finished(1, 1000, 1).spec));
        for number in [3, 1, 2] {
            lineage.keep(finished(number, 1000, 1));
        }
        assert_eq!(lineage.evict().map(|evicted| evicted.spec.task.number), Some(1));
        assert!(lineage.evict().is_none());
        assert!(lineage.take(2).is_some() && lineage.take(3).is_some());
        assert_eq!(lineage.bytes(), 0);
    }
}
