//! Waiting for a condition, with signals and lent CPUs; and for objects, which are asked for and brought to
//! this node.

use std::sync::Arc;

use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use sooner_runtime::client::{Client, Waited, time};
use sooner_runtime::protocol::time::Instant;
use sooner_runtime::protocol::worker::ownership::{Place, Slot};
use sooner_runtime::wire::ObjectId;
use sooner_runtime::wire::message::{FailureCode, Priority};

use crate::hooks;
use crate::lending;
use crate::mode::Mode;
use crate::object_ref::ObjectRef;
use crate::session;
use crate::verbs::system_error;

/// A wait inside a task that lasts longer than this (nanoseconds) lends the task's CPU to others.
const BLOCKED_AFTER_NANOS: u64 = 1_000_000;

/// When a wait of `timeout` seconds ends.
///
/// # Errors
/// A `ValueError` for NaN.
pub fn deadline(timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout else { return Ok(None) };
    if seconds.is_nan() {
        return Err(PyValueError::new_err("timeout must be a number of seconds or None, not NaN"));
    }
    // Negative means "do not wait", as in the standard library; a very long one never ends in practice.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let nanos = (seconds.clamp(0.0, 1e9) * 1e9) as u64;
    Ok(Some(time().plus(nanos)))
}

/// Waits until `is_done`, with signals, and lending the CPU when this is inside a task.
///
/// # Errors
/// What a signal handler raised, or that the session ended.
pub fn wait_for(
    py: Python<'_>,
    client: &Arc<Client>,
    is_done: impl FnMut() -> bool + Send,
    deadline: Option<Instant>,
) -> PyResult<bool> {
    Mode::of(client).wait(py, client, is_done, deadline)
}

/// A wait for what other processes execute.
pub fn wait_for_workers(
    py: Python<'_>,
    client: &Arc<Client>,
    mut is_done: impl FnMut() -> bool + Send,
    deadline: Option<Instant>,
) -> PyResult<bool> {
    let lends = hooks::lends_cpu();
    let waited = session::detached(py, || {
        if lends {
            let soon = time().plus(BLOCKED_AFTER_NANOS);
            let first = deadline.map_or(soon, |at| at.min(soon));
            let waited = client.wait_until(&mut is_done, Some(first), true);
            if waited != Waited::TimedOut {
                return waited;
            }
            if deadline.is_some_and(|at| at <= soon) {
                lending::asked_in_vain();
                return waited;
            }
            return lending::lend(client, || client.wait_until(&mut is_done, deadline, true));
        }
        let _waiting = hooks::is_worker().then(lending::Waiting::begin);
        client.wait_until(&mut is_done, deadline, true)
    });
    waited_as(py, client, waited)
}

/// A wait in local mode: this process itself advances its generators. Another thread may be running one and
/// suspend it again, so this thread takes it up whenever it can.
pub fn wait_locally(
    py: Python<'_>,
    client: &Arc<Client>,
    mut is_done: impl FnMut() -> bool + Send,
    deadline: Option<Instant>,
) -> PyResult<bool> {
    loop {
        let mut is_late = false;
        while !is_done() && !is_late && crate::local::advance_stream(py, client, None) {
            py.check_signals()?;
            is_late = deadline.is_some_and(|at| time() >= at);
        }
        let waited = session::detached(py, || {
            client.wait_until(|| is_done() || crate::local::can_advance(client), deadline, true)
        });
        if !waited_as(py, client, waited)? || is_late || is_done() {
            return Ok(is_done());
        }
    }
}

/// The exception of a wait that a signal handler has ended.
pub fn interruption() -> PyErr {
    hooks::take_interrupt().unwrap_or_else(|| PyKeyboardInterrupt::new_err("interrupted"))
}

fn waited_as(py: Python<'_>, client: &Client, waited: Waited) -> PyResult<bool> {
    if let Some(interrupt) = hooks::take_interrupt() {
        return Err(interrupt);
    }
    match waited {
        Waited::Done => Ok(true),
        Waited::TimedOut => Ok(false),
        Waited::Interrupted => Err(interruption()),
        Waited::Closed => Err(client.end_reason().map_or_else(
            || system_error(py, FailureCode::System, "the session ended while this call waited"),
            |reason| session::lost(py, reason),
        )),
    }
}

/// An object that a call waits for.
pub struct Wanted {
    pub object: ObjectId,
    pub slot: Arc<Slot>,
    pub near: Near,
}

/// How near a value has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Near {
    /// In this node's memory: it is to be read.
    Here,
    /// In this node's memory or on its disk. From disk it comes when it is read, since not all may fit in
    /// memory.
    Node,
    /// At any node.
    Anywhere,
}

impl Near {
    /// How near `sooner.wait` needs values.
    #[must_use]
    pub fn of_wait(fetch_local: bool) -> Self {
        if fetch_local { Self::Node } else { Self::Anywhere }
    }

    /// Whether a value may stay where it is.
    #[must_use]
    pub fn stays(self, slot: &Slot) -> bool {
        match self {
            Self::Here => false,
            Self::Node => slot.is_on_disk(),
            Self::Anywhere => true,
        }
    }

    /// Whether a call need not wait for the value.
    #[must_use]
    pub fn is_ready(self, slot: &Slot) -> bool {
        match slot.place() {
            Place::Here | Place::OutOfReach => true,
            Place::Elsewhere | Place::OnItsWay => self.stays(slot),
            Place::Nowhere => false,
        }
    }
}

impl Wanted {
    /// An object to be read on this node.
    #[must_use]
    pub fn here(reference: &ObjectRef) -> Self {
        Self { object: reference.id, slot: reference.slot.clone(), near: Near::Here }
    }

    /// Whether the call need not wait for the object.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.near.is_ready(&self.slot)
    }

    fn stays(&self) -> bool {
        self.near.stays(&self.slot)
    }
}

/// Asks owners for the values of borrowed references, the core for own values that were lost, and the node
/// for values of other nodes that are wanted on this one.
pub fn need(client: &Arc<Client>, wanted: &[Wanted], priority: Priority) {
    let me = client.me();
    let must_ask = |one: &&Wanted| match one.slot.place() {
        Place::Nowhere => one.object.owner() != me || one.slot.was_lost(),
        Place::Elsewhere | Place::OutOfReach => !one.stays(),
        Place::OnItsWay | Place::Here => false,
    };
    if wanted.iter().any(|one| must_ask(&one)) {
        client.step(|core, out| {
            for Wanted { object, .. } in wanted.iter().filter(must_ask) {
                if !core.ownership_mut().bring(*object, priority, out) {
                    core.need(*object, out);
                }
            }
        });
    }
}

/// Waits until any `count` of the objects are ready. `asks`: an owner or the node must be asked for one of
/// them.
///
/// # Errors
/// What a signal handler raised, or that the session ended.
pub fn wait_for_some(
    py: Python<'_>,
    client: &Arc<Client>,
    wanted: &[Wanted],
    count: usize,
    end: Option<Instant>,
    mut asks: bool,
) -> PyResult<()> {
    // A value that was reported at another node during the wait must be asked for.
    let is_new = |one: &Wanted| one.slot.place() == Place::Elsewhere && !one.stays();
    let is_done = || {
        let mut ready = 0;
        for one in wanted {
            ready += usize::from(one.is_ready());
            if ready == count || is_new(one) {
                return true;
            }
        }
        false
    };
    loop {
        if asks {
            need(client, wanted, Priority::Wait);
        }
        asks = wait_for(py, client, is_done, end)?;
        if !asks || wanted.iter().filter(|one| one.is_ready()).take(count).count() == count {
            return Ok(());
        }
    }
}
