//! Checkpoints of the actor in this process: taking one between two calls, and beginning with the last one.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyType;
use sooner_runtime::client::Client;
use sooner_runtime::wire::TaskId;
use sooner_runtime::wire::limits::CHECKPOINT_FLUSH_NANOS;
use sooner_runtime::wire::message::{ActorCreation, Failure, FailureCode, Outcome, Return};

use crate::args::Call;
use crate::execute::Ended;
use crate::object_ref::ObjectRef;
use crate::packing::pack_one;
use crate::python_side;
use crate::values::{Access, Source};
use crate::verbs::failure_error;
use crate::worker::{finish, wait_for_end};

/// Whether the actor in this process takes checkpoints.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// Records whether the constructed actor takes checkpoints.
pub fn begin(creation: &ActorCreation) {
    IS_KEPT.store(creation.checkpoint_every.is_some(), Ordering::Relaxed);
}

/// After a call of the actor: takes a checkpoint if one is due. Returns the call unless it was reported.
pub fn after_call(
    py: Python<'_>,
    client: &Arc<Client>,
    instance: &Bound<'_, PyAny>,
    actor: TaskId,
    ended: Ended,
) -> Option<Ended> {
    if !IS_KEPT.load(Ordering::Relaxed) {
        return Some(ended);
    }
    finish(client, ended);
    if client.step(|core, _| core.checkpoint_is_due()) {
        take(py, client, instance, actor);
    }
    None
}

fn take(py: Python<'_>, client: &Arc<Client>, instance: &Bound<'_, PyAny>, actor: TaskId) {
    // A call that a checkpoint covers is never run again: its caller must have the reply, whatever happens
    // next.
    if !py.detach(|| client.flush_all(CHECKPOINT_FLUSH_NANOS)) {
        return client.step(|core, _| core.postpone_checkpoint());
    }
    let mut handles: Vec<Py<ObjectRef>> = Vec::new();
    match state_of(py, client, instance, &mut handles) {
        Ok(state) => client.step(|core, out| core.on_checkpoint(actor, state, out)),
        Err(error) if is_store_full(py, &error) => {
            // The store may get room again. Until then the last checkpoint stands.
            error.print(py);
            client.step(|core, _| core.postpone_checkpoint());
        }
        Err(error) => {
            let failure = failure(py, &error, instance, "__sooner_checkpoint__");
            client.step(|core, out| core.on_constructed(actor, Some(failure), out));
            client.flush_now();
            wait_for_end(py, client);
        }
    }
}

fn state_of(
    py: Python<'_>,
    client: &Arc<Client>,
    instance: &Bound<'_, PyAny>,
    handles: &mut Vec<Py<ObjectRef>>,
) -> PyResult<Return> {
    let state = instance.call_method0("__sooner_checkpoint__")?;
    pack_one(py, client, state, "the state that __sooner_checkpoint__ returned", handles)
}

fn is_store_full(py: Python<'_>, error: &PyErr) -> bool {
    let kind = python_side::OBJECT_STORE_FULL_ERROR.get(py);
    kind.is_ok_and(|kind| error.is_instance(py, &kind))
}

/// Why an actor ends whose hook raised.
fn failure(py: Python<'_>, error: &PyErr, instance: &Bound<'_, PyAny>, hook: &str) -> Failure {
    let text = python_side::HOOK_FAILED
        .call(py, (instance.get_type(), hook, error.value(py)))
        .and_then(|text| text.extract::<String>());
    Failure::new(FailureCode::ActorDied, text.unwrap_or_else(|error| error.to_string()))
}

/// The instance to begin with: from the last checkpoint if there is one, else as its constructor makes it.
///
/// # Errors
/// What the constructor or `__sooner_restore__` raised.
pub fn construct<'py>(
    py: Python<'py>,
    client: &Arc<Client>,
    (class, maker): (&Bound<'py, PyAny>, &Bound<'py, PyAny>),
    (args, kwargs): Call<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let Some(restored) = client.step(|core, _| core.take_restored()) else {
        return maker.call(args, kwargs.as_ref());
    };
    if let Outcome::Failed(failure) = &restored.outcome {
        client.step(|core, out| core.on_restored(&restored, out));
        return Err(failure_error(py, failure));
    }
    let source = Source {
        client,
        object: restored.object,
        slot: restored.slot.as_ref(),
        outcome: &restored.outcome,
        met: Rc::new(restored.contained.clone()),
        // The actor may change its state in place; the checkpoint must stay as it is.
        access: Access::Private,
    };
    let made = source.decode(py).and_then(|state| {
        let class = class.cast::<PyType>()?;
        python_side::RESTORE.call(py, (class, args, kwargs, state))
    });
    client.step(|core, out| core.on_restored(&restored, out));
    made
}
