//! Questions to sessions about themselves. Answers are Python dictionaries, with fields under their own names
//! and ids as hexadecimal text. Also what a process prepares for questions: its stack file and its metrics.

use std::path::PathBuf;

use pyo3::exceptions::{PyOSError, PyTimeoutError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use sooner_runtime::metrics;
use sooner_runtime::wire::message::state::{
    ActorRow, ClusterRow, DeadRow, DemandRow, EndedRow, Events, FilePart, FileRow, HoldRow, Inspect, JobRow,
    KnownActorRow, LabelRow, MemoryRow, MetricKind, NodeReport, ObjectDetail, ObjectRow, PeakRow, Report,
    RunningRow, Series, ShapeRow, Stack, TaskRow, WorkerRow,
};
use sooner_runtime::wire::message::{
    AboutNode, BundleRow, Drain, GroupPhase, GroupRow, GroupStrategy, NodeRow, ViewRow,
};
use sooner_runtime::wire::resources::UNIT;
use sooner_runtime::wire::{
    Blob, ExecutionAttempt, FunctionId, NodeId, ObjectId, ResourceSet, TaskId, WorkerId,
};

use crate::session;

type Any<'py> = Bound<'py, PyAny>;
/// Five things for Python.
type Answers<'py> = (Any<'py>, Any<'py>, Any<'py>, Any<'py>, Any<'py>);

/// The error of a node that was asked and gave no answer.
fn unanswered(py: Python<'_>, error: &std::io::Error) -> PyErr {
    crate::verbs::untrusted(py, error).unwrap_or_else(|| match error.kind() {
        std::io::ErrorKind::TimedOut => PyTimeoutError::new_err(error.to_string()),
        _ => PyOSError::new_err(sooner_runtime::ulimits::told(error)),
    })
}

/// What the session behind a node's socket tells: the node's report, those of processes (id and report), the
/// ids of processes that did not answer; and of the other nodes, if they are asked (`everywhere`): how far
/// their clocks are ahead and their reports, and the ids of those that did not answer. `most`: rows per table
/// and process, and events per process. `parts` of files are named by node, file and offset.
#[pyfunction]
pub fn inspect<'py>(
    py: Python<'py>,
    socket: PathBuf,
    about: u32,
    most: (u32, u32),
    everywhere: bool,
    parts: Vec<(u64, String, u64)>,
    patience_nanos: u64,
) -> PyResult<Answers<'py>> {
    let part = |(node, file, offset)| FilePart { node: NodeId(node), file, offset };
    let parts = Some(parts.into_iter().map(part).collect()).filter(|parts: &Vec<_>| !parts.is_empty());
    let (rows, events) = most;
    let question = Inspect { request: 0, about, rows, events, everywhere: Some(everywhere), parts };
    let answer = py
        .detach(|| sooner_runtime::tool::ask(&socket, question, patience_nanos))
        .map_err(|error| unanswered(py, &error))?;
    let mut silent = answer.end.silent;
    let mut others = Vec::new();
    for other in answer.others {
        silent.extend(other.end.silent);
        others.push((other.ahead, *other.end.node));
    }
    Ok((
        answer.end.node.told(py)?,
        answer.reports.told(py)?,
        silent.told(py)?,
        others.told(py)?,
        answer.end.silent_nodes.unwrap_or_default().told(py)?,
    ))
}

/// Asks the node behind a socket that a node of its cluster leaves, within so many nanoseconds.
#[pyfunction]
pub fn drain_node(
    py: Python<'_>,
    socket: PathBuf,
    node: u64,
    nanos: u64,
    patience_nanos: u64,
) -> PyResult<()> {
    let drain = Drain { node: NodeId(node), nanos };
    py.detach(|| sooner_runtime::tool::drain(&socket, drain, patience_nanos))
        .map_err(|error| unanswered(py, &error))
}

/// The handler of `signal` writes this process's stacks to the end of the file.
#[pyfunction]
pub fn set_stack_file(path: PathBuf, signal: i32) -> PyResult<()> {
    let session = session::current().ok_or_else(session::not_started)?;
    session.client.set_stack_file(path, signal);
    Ok(())
}

/// A new series of metrics; `None` when there are too many.
#[pyfunction]
pub fn metric_define(
    kind: u8,
    name: String,
    description: String,
    tags: Vec<(String, String)>,
    boundaries: Vec<f64>,
) -> Option<usize> {
    let kind = match kind {
        0 => MetricKind::Counter,
        1 => MetricKind::Gauge,
        _ => MetricKind::Histogram,
    };
    metrics::define(Series { name, kind, description, tags, boundaries, values: Vec::new() })
}

/// Adds to a counter, sets a gauge, or observes a value.
#[pyfunction]
pub fn metric_record(number: usize, value: f64) {
    metrics::record(number, value);
    // A sleeping thread must learn that a report to the node is due soon.
    if let Some(session) = session::current() {
        session.client.rouse_for_metrics();
    }
}

/// Tells the node what was measured: this process is about to end.
#[pyfunction]
pub fn metrics_flush() {
    if let Some(session) = session::current() {
        session.client.flush_metrics();
    }
}

/// Conversion to Python values.
pub trait Told {
    /// A value for Python.
    ///
    /// # Errors
    /// When Python has no memory left.
    fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

macro_rules! told_as_is {
    ($($type:ty),*) => {$(
        impl Told for $type {
            fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                Ok(self.into_pyobject(py)?.to_owned().into_any())
            }
        }
    )*};
}

told_as_is!(bool, u8, u32, u64, i32, i64, f64, String);

macro_rules! told_as_hex {
    ($($type:ty => $text:expr),* $(,)?) => {$(
        impl Told for $type {
            fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let text: String = $text(self);
                text.told(py)
            }
        }
    )*};
}

told_as_hex! {
    WorkerId => |id: WorkerId| format!("{:016x}", id.0),
    NodeId => |id: NodeId| format!("{:016x}", id.0),
    TaskId => session::hex,
    ObjectId => |id: ObjectId| format!("{}{:08x}", session::hex(id.task), id.index),
}

impl Told for ExecutionAttempt {
    fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        u32::from(self.0).told(py)
    }
}

impl Told for FunctionId {
    fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.told(py)
    }
}

impl Told for GroupStrategy {
    fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.name().to_owned().told(py)
    }
}

impl Told for GroupPhase {
    fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.name().to_owned().told(py)
    }
}

impl Told for MetricKind {
    fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let name = match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        name.to_owned().told(py)
    }
}

impl Told for Blob {
    fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyBytes::new(py, self.as_slice()).into_any())
    }
}

impl Told for ResourceSet {
    fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let amounts = PyDict::new(py);
        for (name, amount) in self.iter() {
            amounts.set_item(name, amount as f64 / UNIT as f64)?;
        }
        Ok(amounts.into_any())
    }
}

impl<T: Told> Told for Option<T> {
    fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Some(value) => value.told(py),
            None => Ok(py.None().into_bound(py)),
        }
    }
}

impl<T: Told> Told for Vec<T> {
    fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let items = self.into_iter().map(|item| item.told(py)).collect::<PyResult<Vec<_>>>()?;
        Ok(PyList::new(py, items)?.into_any())
    }
}

impl<A: Told, B: Told> Told for (A, B) {
    fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyTuple::new(py, [self.0.told(py)?, self.1.told(py)?])?.into_any())
    }
}

macro_rules! told_as_dict {
    ($($type:ident { $($field:ident),* $(,)? })*) => {$(
        impl Told for $type {
            fn told<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let row = PyDict::new(py);
                $(row.set_item(pyo3::intern!(py, stringify!($field)), self.$field.told(py)?)?;)*
                Ok(row.into_any())
            }
        }
    )*};
}

told_as_dict! {
    Report {
        pid, tasks, tasks_total, running, queued, objects, objects_total, actors, shapes, events, stack, leases,
    }
    TaskRow {
        task, label, state, worker, submitted, pushed, missing, resources, attempt, retries, cancelled,
    }
    LabelRow { name, function, kind, actor, parent, code }
    RunningRow { task, since, cancelled }
    ObjectRow {
        object, state, size, owned, handles, uses, borrowers, contained, is_actor, dependents, detail,
    }
    ObjectDetail { views, holds, inner, site, maker, fetching, waiting, lineage }
    HoldRow { kind, count, task, object, name }
    KnownActorRow { actor, place, queued, in_flight, kept }
    ShapeRow { resources, queued, leases, in_flight }
    Events { records, labels, lost }
    Stack { path, offset }
    NodeReport {
        node, driver, driver_pid, started, namespace, total, free, store_used, store_capacity, blocks, workers,
        actors, demands, ended, metrics, leases, events_bytes, groups, labels, jobs, name,
        pid, cluster, files, peaks, memory,
    }
    PeakRow { function, bytes }
    MemoryRow { pinned, cached, incoming, outgoing, spilled, spilled_values, spill_files, fallback }
    FileRow { file, bytes, offset, text }
    ClusterRow { cluster, fingerprint, head, is_head, address, lost, nodes, view, gone }
    DeadRow { row, reason }
    NodeRow { node, about, state, is_slow }
    AboutNode { kind, name, address, host, boot_id, resources, labels }
    ViewRow { node, version, free, waiting }
    JobRow { job, pid, namespace, started, has_driver, entrypoint }
    WorkerRow { worker, pid, state, client, actor, blocked, resources, job }
    ActorRow {
        actor, owner, class, name, phase, worker, pid, death, resources, detached, restarts, checkpoints, job,
    }
    DemandRow { client, resources, count, feasible }
    GroupRow { group, title, strategy, phase, bundles, reason, detached, attempts }
    BundleRow { resources, node }
    EndedRow { worker, pid, reason, at }
    Series { name, kind, description, tags, boundaries, values }
}

/// Memory of this machine, or of the smallest control group that this process is in (bytes).
#[pyfunction]
pub fn memory_bytes() -> u64 {
    sooner_runtime::machine::Machine::default().total()
}
