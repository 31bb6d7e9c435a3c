//! The doorway: Python in front, the engine behind. Conversion and the GIL.
//!
//! Protocols are decided by the cores. Decided here is what only this side knows: when a submission waits because too many are
//! pending ([`backlog`]), and when a worker that has had its calls retires ([`worker`]).
//!
//! The GIL is taken here only where Python code must run: executing tasks, delivering awaited results, signals,
//! warnings, and showing log lines ([`hooks`]). No lock of the engine is held while it is taken.

// `println!` and `eprintln!` panic where nobody can read them, and a thread that panics takes a node or a program with it.
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod advice;
mod args;
mod backlog;
mod checkpoint;
mod collect;
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
mod object_ref;
mod packing;
mod session;
mod spilling;
mod standing;
mod submit;
mod values;
mod verbs;
mod waiting;
mod worker;

use pyo3::prelude::*;

#[pymodule]
fn _sooner(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<object_ref::ObjectRef>()?;
    module.add_class::<generator::ObjectRefGenerator>()?;
    module.add_class::<values::View>()?;
    module.add_class::<values::Copied>()?;
    module.add_class::<submit::Exported>()?;
    module.add_class::<submit::TaskSubmitter>()?;
    module.add_class::<submit::MethodSubmitter>()?;
    module.add_class::<group::Placing>()?;
    module.add_class::<control::Template>()?;
    module.add_function(wrap_pyfunction!(object_ref::_met, module)?)?;
    module.add_function(wrap_pyfunction!(object_ref::_out_of_band, module)?)?;
    module.add_function(wrap_pyfunction!(session::interpreter_ends, module)?)?;
    module.add_function(wrap_pyfunction!(session::check_not_lost, module)?)?;
    module.add_function(wrap_pyfunction!(verbs::get, module)?)?;
    module.add_function(wrap_pyfunction!(verbs::take, module)?)?;
    module.add_function(wrap_pyfunction!(verbs::free_objects, module)?)?;
    module.add_function(wrap_pyfunction!(verbs::lose_objects, module)?)?;
    module.add_function(wrap_pyfunction!(values::writable, module)?)?;
    module.add_function(wrap_pyfunction!(execute::gives_away, module)?)?;
    module.add_function(wrap_pyfunction!(verbs::object_places, module)?)?;
    module.add_function(wrap_pyfunction!(verbs::is_unheard_of, module)?)?;
    module.add_function(wrap_pyfunction!(verbs::put, module)?)?;
    module.add_function(wrap_pyfunction!(verbs::wait, module)?)?;
    module.add_function(wrap_pyfunction!(verbs::has_failed, module)?)?;
    module.add_function(wrap_pyfunction!(verbs::is_ready, module)?)?;
    module.add_function(wrap_pyfunction!(verbs::is_at_node, module)?)?;
    module.add_function(wrap_pyfunction!(verbs::watch, module)?)?;
    module.add_function(wrap_pyfunction!(verbs::cancel_task, module)?)?;
    module.add_function(wrap_pyfunction!(submit::create_actor, module)?)?;
    module.add_function(wrap_pyfunction!(submit::record_call_sites, module)?)?;
    module.add_function(wrap_pyfunction!(backlog::limit_pending, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::memory_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(control::start, module)?)?;
    module.add_function(wrap_pyfunction!(control::connect, module)?)?;
    module.add_function(wrap_pyfunction!(joining::join, module)?)?;
    module.add_function(wrap_pyfunction!(daemon::node_main, module)?)?;
    module.add_function(wrap_pyfunction!(daemon::read_token, module)?)?;
    module.add_function(wrap_pyfunction!(daemon::change_token, module)?)?;
    module.add_function(wrap_pyfunction!(spilling::check_store_url, module)?)?;
    module.add_function(wrap_pyfunction!(control::stop, module)?)?;
    module.add_function(wrap_pyfunction!(control::remove_session, module)?)?;
    module.add_function(wrap_pyfunction!(control::is_running, module)?)?;
    module.add_function(wrap_pyfunction!(control::forget_after_fork, module)?)?;
    module.add_function(wrap_pyfunction!(control::kill_actor, module)?)?;
    module.add_function(wrap_pyfunction!(control::find_name, module)?)?;
    module.add_function(wrap_pyfunction!(control::is_counted, module)?)?;
    module.add_function(wrap_pyfunction!(control::list_names, module)?)?;
    module.add_function(wrap_pyfunction!(control::resources, module)?)?;
    module.add_function(wrap_pyfunction!(control::worker_pids, module)?)?;
    module.add_function(wrap_pyfunction!(control::node_labels, module)?)?;
    module.add_function(wrap_pyfunction!(control::identity, module)?)?;
    module.add_function(wrap_pyfunction!(control::actor_ref, module)?)?;
    module.add_function(wrap_pyfunction!(control::own, module)?)?;
    module.add_function(wrap_pyfunction!(control::repeat_pins, module)?)?;
    for function in [
        wrap_pyfunction!(group::create_group, module)?,
        wrap_pyfunction!(group::current_group, module)?,
        wrap_pyfunction!(group::find_groups, module)?,
        wrap_pyfunction!(group::group_ready, module)?,
        wrap_pyfunction!(group::remove_group, module)?,
        wrap_pyfunction!(group::settle_group, module)?,
        wrap_pyfunction!(group::wait_for_group, module)?,
        wrap_pyfunction!(inspect::inspect, module)?,
        wrap_pyfunction!(inspect::drain_node, module)?,
        wrap_pyfunction!(inspect::set_stack_file, module)?,
        wrap_pyfunction!(inspect::metric_define, module)?,
        wrap_pyfunction!(inspect::metric_record, module)?,
        wrap_pyfunction!(inspect::metrics_flush, module)?,
    ] {
        module.add_function(function)?;
    }
    module.add_function(wrap_pyfunction!(worker::current_function, module)?)?;
    module.add_function(wrap_pyfunction!(following::program_changed, module)?)?;
    module.add_function(wrap_pyfunction!(worker::retire_worker, module)?)?;
    module.add_function(wrap_pyfunction!(worker::forget_actor, module)?)?;
    module.add_function(wrap_pyfunction!(worker::worker_connect, module)?)?;
    module.add_function(wrap_pyfunction!(worker::worker_fails, module)?)?;
    module.add_function(wrap_pyfunction!(worker::worker_run, module)?)?;
    module.add_function(wrap_pyfunction!(worker::worker_thread, module)?)?;
    module.add_function(wrap_pyfunction!(worker::loop_enter, module)?)?;
    module.add_function(wrap_pyfunction!(worker::loop_waits, module)?)?;
    module.add_function(wrap_pyfunction!(worker::loop_calls, module)?)?;
    module.add_function(wrap_pyfunction!(worker::call_returned, module)?)?;
    module.add_function(wrap_pyfunction!(worker::call_raised, module)?)?;
    module.add_function(wrap_pyfunction!(worker::call_exits, module)?)?;
    module.add_function(wrap_pyfunction!(worker::group_places, module)?)?;
    module.add_function(wrap_pyfunction!(worker::feed_groups, module)?)?;
    module.add_function(wrap_pyfunction!(worker::group_calls, module)?)?;
    module.add_function(wrap_pyfunction!(worker::local_calls, module)?)?;
    module.add_function(wrap_pyfunction!(local::local_actor, module)?)?;
    module.add_function(wrap_pyfunction!(local::serve_watchers, module)?)?;
    module.add_function(wrap_pyfunction!(worker::call_may_yield, module)?)?;
    module.add_function(wrap_pyfunction!(worker::call_yielded, module)?)?;
    module.add_function(wrap_pyfunction!(worker::call_streamed, module)?)?;
    module.add_function(wrap_pyfunction!(worker::should_interrupt, module)?)?;
    module.add_function(wrap_pyfunction!(worker::interrupt_comes, module)?)?;
    module.add_function(wrap_pyfunction!(worker::line_begun, module)?)?;
    module.add_function(wrap_pyfunction!(worker::current_task, module)?)?;
    module.add_function(wrap_pyfunction!(worker::current_name, module)?)?;
    module.add_function(wrap_pyfunction!(standing::title_begins, module)?)?;
    module.add_function(wrap_pyfunction!(following::strangers_at, module)?)?;
    module.add_function(wrap_pyfunction!(standing::set_title, module)?)?;
    module.add_function(wrap_pyfunction!(standing::keep_streams, module)?)?;
    module.add_function(wrap_pyfunction!(standing::mend_streams, module)?)?;
    module.add_function(wrap_pyfunction!(standing::set_flags, module)?)?;
    module.add_function(wrap_pyfunction!(worker::set_current, module)?)?;
    module.add_function(wrap_pyfunction!(worker::is_cancelled, module)?)?;
    module.add_function(wrap_pyfunction!(worker::is_local, module)?)?;
    module.add_function(wrap_pyfunction!(worker::worker_flush, module)?)?;
    Ok(())
}
