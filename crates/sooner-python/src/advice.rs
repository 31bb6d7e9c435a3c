//! Noticing that a program waits for each task before it submits the next one.
//!
//! The count is kept per thread and only touched when a `get` has to wait, so it costs nothing where it would
//! matter.

use std::cell::Cell;
use std::sync::Arc;

use pyo3::prelude::*;
use sooner_runtime::client::Client;
use sooner_runtime::wire::TaskId;

use crate::python_side;

/// How many tasks in a row, that took how long together (nanoseconds), are worth a hint.
const TASKS_MIN: u32 = 20;
const NANOS_MIN: u64 = 2_000_000_000;

thread_local! {
    /// Tasks in a row that were waited for at once, the time that took, and the number of the last one.
    static IN_A_ROW: Cell<(u32, u64, u64)> = const { Cell::new((0, 0, 0)) };
}

/// A `get` of one task has waited for so long (nanoseconds). `is_call`: it was a call of an actor.
pub fn on_waited(py: Python<'_>, client: &Arc<Client>, task: TaskId, is_call: bool, nanos: u64) {
    let (count, total, last) = IN_A_ROW.get();
    // No other task was submitted after it, or between the one before and it.
    let is_next = task.number == last + 1 || count == 0;
    if is_call || task.owner != client.me() || !client.is_latest(task) || !is_next {
        let count = u32::from(!is_call && client.is_latest(task));
        return IN_A_ROW.set((count, nanos, task.number));
    }
    if count + 1 < TASKS_MIN || total + nanos < NANOS_MIN {
        return IN_A_ROW.set((count + 1, total + nanos, task.number));
    }
    IN_A_ROW.set((0, 0, 0));
    let told = python_side::GET_IN_LOOP.call(py, (count + 1,));
    if let Err(error) = told {
        error.write_unraisable(py, None);
    }
}
