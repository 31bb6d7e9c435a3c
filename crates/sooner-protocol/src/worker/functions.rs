//! Functions and classes that this process knows, and to which processes it has sent them.
//!
//! A process gets a function once, before the first task that needs it: messages to one process stay in
//! order. The code of a function is opaque bytes here.

use std::sync::Arc;

use sooner_wire::message::Define;
use sooner_wire::{FunctionId, WorkerId};

use crate::table::{Map, Set};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Functions {
    known: Map<FunctionId, Arc<Define>>,
    /// Per other process, the functions that it has got from this one.
    sent: Map<WorkerId, Set<FunctionId>>,
}

impl Functions {
    pub(super) fn contains(&self, function: FunctionId) -> bool {
        self.known.contains_key(&function)
    }

    pub(super) fn insert(&mut self, define: Define) {
        self.known.insert(define.function, Arc::new(define));
    }

    pub(super) fn get(&self, function: FunctionId) -> Option<&Arc<Define>> {
        self.known.get(&function)
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Define> {
        self.known.values().map(|define| &**define)
    }

    /// The function that a process must get before a task that needs it. `None`: the process has it, or it is
    /// `FunctionId(0)`, with which models call functions that have no code.
    #[inline]
    pub(super) fn first_for(&mut self, worker: WorkerId, function: FunctionId) -> Option<&Define> {
        let knows = |sent: &Set<FunctionId>| sent.contains(&function);
        if function == FunctionId(0) || self.sent.get(&worker).is_some_and(knows) {
            return None;
        }
        self.sent.entry(worker).or_default().insert(function);
        Some(self.known.get(&function).expect("defined before it is submitted"))
    }

    /// A process is dead.
    pub(super) fn forget_process(&mut self, worker: WorkerId) {
        self.sent.swap_remove(&worker);
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::{Blob, Name};

    use super::*;

    #[test]
    fn each_process_gets_a_function_once() {
        let (function, [one, other]) = (FunctionId(3), [WorkerId(5), WorkerId(6)]);
        let mut functions = Functions::default();
        functions.insert(Define {
            function,
            name: Name::from("f"),
            code: Blob::default(),
            references: Vec::new(),
            place: None,
        });
        let mut is_sent = |worker, function| functions.first_for(worker, function).is_some();
        assert!(is_sent(one, function) && !is_sent(one, function));
        assert!(is_sent(other, function) && !is_sent(other, FunctionId(0)));
        functions.forget_process(one);
        assert!(functions.first_for(one, function).is_some(), "another one has the same id");
        assert!(functions.first_for(other, function).is_none());
    }
}
