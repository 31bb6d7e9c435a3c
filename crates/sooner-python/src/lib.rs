//! The boundary between Python and the engine: conversion of values, and the GIL.
//!
//! It never decides protocols: the cores do. It decides only what this side alone knows: when a submission
//! waits because too many tasks are pending ([`backlog`]), and when a worker that has had its calls retires
//! ([`worker`]).
//!
//! It takes the GIL only where Python code must run: executing tasks, delivering awaited results, signals,
//! warnings, and showing log lines ([`hooks`]). It never holds a lock meanwhile, of the engine or of its own:
//! Python lets other threads run wherever it likes, also while an object ends or a name is interned, and who
//! waits for a lock with the GIL stops them all. So values are taken out under the lock and dropped after it.

// `println!` and `eprintln!` panic if their output has no reader, and a panicking thread ends a node or a
// program.
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod advice;
mod args;
mod backlog;
mod checkpoint;
mod collect;
mod combining;
mod control;
mod daemon;
mod execute;
mod following;
mod generator;
mod group;
mod hashes;
mod hooks;
mod inspect;
mod joining;
mod lending;
mod local;
mod mode;
mod object_ref;
mod packing;
mod python_side;
mod session;
mod spilling;
mod standing;
mod submit;
mod tables;
mod unsealed;
mod values;
mod verbs;
mod waiting;
mod worker;

/// All that Python sees. `python/sooner/_sooner.pyi` has its types.
#[pyo3::pymodule]
mod _sooner {
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::tables::add_to(module)
    }

    #[pymodule_export]
    use crate::backlog::limit_pending;
    #[pymodule_export]
    use crate::combining::{divide, fold};
    #[pymodule_export]
    use crate::control::{
        Template, actor_ref, actor_restarts, connect, end_of_actor, find_name, forget_after_fork, identity,
        is_counted, is_running, kill_actor, list_names, node_labels, own, remove_session, repeat_pins,
        resources, start, stop, worker_pids,
    };
    #[pymodule_export]
    use crate::daemon::{change_token, node_main, read_token};
    #[pymodule_export]
    use crate::execute::gives_away;
    #[pymodule_export]
    use crate::following::{program_changed, strangers_at};
    #[pymodule_export]
    use crate::generator::ObjectRefGenerator;
    #[pymodule_export]
    use crate::group::{
        Placing, confirm_group, create_group, current_group, find_groups, group_ready, remove_group,
        wait_for_group,
    };
    #[pymodule_export]
    use crate::inspect::{
        drain_node, inspect, memory_bytes, metric_define, metric_record, metrics_flush, set_stack_file,
    };
    #[pymodule_export]
    use crate::joining::join;
    #[pymodule_export]
    use crate::local::{local_actor, serve_watchers};
    #[pymodule_export]
    use crate::object_ref::{_met, _out_of_band, ObjectRef};
    #[pymodule_export]
    use crate::python_side::python_side;
    #[pymodule_export]
    use crate::session::{check_not_lost, interpreter_ends};
    #[pymodule_export]
    use crate::spilling::check_store_url;
    #[pymodule_export]
    use crate::standing::{keep_streams, mend_streams, set_flags, set_title, title_begins};
    #[pymodule_export]
    use crate::submit::{Exported, MethodSubmitter, TaskSubmitter, create_actor, record_call_sites};
    #[pymodule_export]
    use crate::unsealed::create;
    #[pymodule_export]
    use crate::values::{Copied, View, writable};
    #[pymodule_export]
    use crate::verbs::{
        cancel_task, free_objects, get, has_failed, is_at_node, is_ready, is_unheard_of, lose_objects,
        object_places, put, take, wait, watch,
    };
    #[pymodule_export]
    use crate::worker::{
        call_exits, call_may_yield, call_raised, call_returned, call_streamed, call_yielded,
        current_function, current_name, current_task, feed_groups, forget_actor, group_calls, group_places,
        is_cancelled, is_local, line_begun, local_calls, loop_calls, loop_enter, loop_waits, retire_worker,
        send_interrupt, set_current, should_interrupt, worker_connect, worker_fails, worker_flush,
        worker_run, worker_thread,
    };
}
