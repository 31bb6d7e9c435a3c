//! Where work runs: strategies as Python objects, and placement groups.
//!
//! A process knows which group its own work runs in. What it submits without a strategy inherits that group,
//! if the group's option says so. Outside of groups this costs reading one byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sooner_runtime::client::{Client, Waited};
use sooner_runtime::protocol::worker::ownership::Slot;
use sooner_runtime::wire::message::{
    ActorCreation, Bundle, CreateGroup, FailureCode, FindGroup, GroupState, GroupStrategy, Message, Outcome,
    Target, TaskSpec,
};
use sooner_runtime::wire::names::check_labels;
use sooner_runtime::wire::strategy::{InGroup, LabelTerm, LabelTest, NodeAffinity, NodeLabels, check_terms};
use sooner_runtime::wire::{Blob, GroupId, NodeId, ResourceSet, Strategy, TaskId, WorkerId};

use crate::inspect::Told;
use crate::object_ref::ObjectRef;
use crate::session;

/// Where tasks or actors run, if not just anywhere.
#[pyclass(frozen, module = "sooner._sooner")]
pub struct Placing(pub Strategy);

/// A condition on a label: key, kind of test, values.
type Term = (String, String, Vec<String>);

fn terms(given: Vec<Term>) -> PyResult<Vec<LabelTerm>> {
    let term = |(key, test, values): Term| {
        let test = match test.as_str() {
            "in" => LabelTest::In(values),
            "not in" => LabelTest::NotIn(values),
            "exists" => LabelTest::Exists,
            _ => LabelTest::DoesNotExist,
        };
        LabelTerm { key, test }
    };
    let terms: Vec<LabelTerm> = given.into_iter().map(term).collect();
    check_terms(&terms).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(terms)
}

fn selector(given: Vec<(String, String)>) -> PyResult<Vec<LabelTerm>> {
    let parse = |(key, text): (String, String)| LabelTerm::parse(&key, &text);
    let terms: Result<Vec<LabelTerm>, _> = given.into_iter().map(parse).collect();
    let terms = terms.and_then(|terms| check_terms(&terms).map(|()| terms));
    terms.map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pymethods]
impl Placing {
    /// On all nodes in turn.
    #[staticmethod]
    fn spread() -> Self {
        Self(Strategy::Spread)
    }

    /// On the node with this id.
    #[staticmethod]
    fn node(node: &str, soft: bool) -> PyResult<Self> {
        let number = u64::from_str_radix(node, 16).ok().filter(|_| node.len() == 16);
        let Some(number) = number else {
            return Err(PyValueError::new_err(format!(
                "node_id={node:?}: give an id of 16 hexadecimal digits, as sooner.nodes() shows it"
            )));
        };
        Ok(Self(Strategy::Node(NodeAffinity { node: NodeId(number), soft })))
    }

    /// On nodes with certain labels: terms that must be met, a selector that must be met, terms that should.
    #[staticmethod]
    fn labels(
        hard: Vec<Term>,
        given: Vec<(String, String)>,
        soft: Vec<Term>,
        spread: bool,
    ) -> PyResult<Self> {
        let mut hard = terms(hard)?;
        hard.extend(selector(given)?);
        Ok(Self(Strategy::Labels(NodeLabels { hard, soft: terms(soft)?, spread })))
    }

    /// In a bundle of a placement group; a negative number: in any.
    #[staticmethod]
    fn group(group: &str, bundle: i64, captures: bool) -> PyResult<Self> {
        let bundle = u32::try_from(bundle).ok();
        Ok(Self(Strategy::Group(InGroup { group: parse(group)?, bundle, captures })))
    }
}

fn parse(text: &str) -> PyResult<GroupId> {
    let number = |part: Option<&str>| part.and_then(|text| u64::from_str_radix(text, 16).ok());
    match (number(text.get(..16)), number(text.get(16..))) {
        (Some(owner), Some(number)) if text.len() == 32 => Ok(TaskId { owner: WorkerId(owner), number }),
        _ => Err(PyValueError::new_err(format!(
            "{text:?} is no id of a placement group: it has 32 hexadecimal digits"
        ))),
    }
}

/// Labels of a node in order, or why they are not allowed.
///
/// # Errors
/// `ValueError` for the first that is not allowed.
pub fn node_labels(mut labels: Vec<(String, String)>) -> PyResult<Vec<(String, String)>> {
    check_labels(&labels).map_err(|error| PyValueError::new_err(format!("labels: {error}")))?;
    labels.sort();
    Ok(labels)
}

/// The group that the work of this process runs in.
static MINE: Mutex<Option<InGroup>> = Mutex::new(None);
static IS_IN_GROUP: AtomicBool = AtomicBool::new(false);

/// Sets the group of this process, and gives the one before.
fn replace(group: Option<InGroup>) -> Option<InGroup> {
    IS_IN_GROUP.store(group.is_some(), Ordering::Relaxed);
    std::mem::replace(&mut *MINE.lock(), group)
}

/// The group that this process works in.
fn mine() -> Option<InGroup> {
    if IS_IN_GROUP.load(Ordering::Relaxed) { *MINE.lock() } else { None }
}

/// The strategy of a submission that names none, if this process works in a group that wants it.
pub fn inherited() -> Option<Strategy> {
    let mine = mine()?;
    mine.captures.then_some(Strategy::Group(InGroup { bundle: None, ..mine }))
}

/// Puts this process in a task's group while it lives; an actor stays in its own.
pub struct Membership(Option<Option<InGroup>>);

impl Membership {
    /// The work of `spec` begins.
    pub fn begin(spec: &TaskSpec) -> Self {
        match &spec.target {
            Target::Function(call) => {
                let group = call.scheduling.strategy.as_deref().and_then(Strategy::group);
                let changes = group.is_some() || IS_IN_GROUP.load(Ordering::Relaxed);
                Self(changes.then(|| replace(group)))
            }
            Target::Class(_) | Target::Method(_) => Self(None),
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            replace(before);
        }
    }
}

/// Puts the process of an actor in the actor's group.
pub fn stay(creation: &ActorCreation) {
    if let Some(group) = creation.scheduling.strategy.as_deref().and_then(Strategy::group) {
        replace(Some(group));
    }
}

/// The group this process works in, and whether what it submits runs there, too.
#[pyfunction]
pub fn current_group() -> Option<(String, bool)> {
    mine().map(|mine| (session::hex(mine.group), mine.captures))
}

/// A bundle: amounts, and a selector of labels.
type PyBundle = (Vec<(String, f64)>, Vec<(String, String)>);

/// Asks for a placement group and gives its id. Waits only if it has a name, which may be taken.
#[pyfunction]
pub fn create_group(
    py: Python<'_>,
    name: Option<(String, String)>,
    strategy: &str,
    bundles: Vec<PyBundle>,
    detached: bool,
) -> PyResult<String> {
    let _inside = session::Inside::enter(py);
    let client = session::client(py)?;
    let group = client.next_task();
    let bundle = |(resources, labels)| {
        Ok(Bundle { resources: ResourceSet::from_amounts(resources), labels: selector(labels)? })
    };
    let bundles = bundles.into_iter().map(bundle).collect::<PyResult<Vec<_>>>()?;
    let driver = (!detached).then_some(client.welcome.driver);
    let is_named = name.is_some();
    let Some(strategy) = GroupStrategy::from_name(strategy) else {
        return Err(PyValueError::new_err(format!("there is no strategy {strategy:?} for placement groups")));
    };
    let create = CreateGroup { request: 0, group, title: name, strategy, bundles, driver };
    if !is_named {
        client.step(|core, out| core.create_group(create, out));
        return Ok(session::hex(group));
    }
    client.step(|core, _| core.expect_group(group));
    let state = ask(py, &client, |request| CreateGroup { request, ..create }.into())?;
    match state.error {
        None => Ok(session::hex(group)),
        Some(error) => {
            client.step(|core, _| core.forget_group(group));
            Err(PyValueError::new_err(error))
        }
    }
}

fn ask(
    py: Python<'_>,
    client: &Arc<Client>,
    question: impl FnOnce(u64) -> Message + Send,
) -> PyResult<GroupState> {
    match session::detached(py, || client.ask_with(question, true)) {
        Err(Waited::Interrupted) => Err(crate::waiting::interruption()),
        Ok(Message::GroupState(state)) => Ok(state),
        Ok(_) | Err(_) => Err(crate::verbs::system_error(py, FailureCode::System, "the session ended")),
    }
}

/// Ends a group with all that runs in it. Does not wait.
#[pyfunction]
pub fn remove_group(py: Python<'_>, group: &str) -> PyResult<()> {
    let group = parse(group)?;
    let client = session::client(py)?;
    client.step(|core, out| core.remove_group(group, out));
    Ok(())
}

/// A reference that becomes `value` when a group is created.
#[pyfunction]
pub fn group_ready(py: Python<'_>, group: &str, value: &Bound<'_, PyAny>) -> PyResult<ObjectRef> {
    let _inside = session::Inside::enter(py);
    let group = parse(group)?;
    let client = session::client(py)?;
    let value = crate::values::encode(value, &mut Vec::new())?.store(py, &client)?;
    Ok(await_group(&client, group, value).0)
}

fn await_group(client: &Arc<Client>, group: GroupId, value: Outcome) -> (ObjectRef, Arc<Slot>) {
    let slot = Arc::new(Slot::default());
    let object = client.next_task().object(0);
    let reference = ObjectRef::new(object, slot.clone(), client.clone());
    let filled = slot.clone();
    client.step(|core, out| core.await_group(group, object, filled, value, out));
    (reference, slot)
}

/// Waits until a group is created, for so many seconds or for ever. False if it is not by then, or was
/// removed.
#[pyfunction]
pub fn wait_for_group(py: Python<'_>, group: &str, seconds: Option<f64>) -> PyResult<bool> {
    let _inside = session::Inside::enter(py);
    let group = parse(group)?;
    let client = session::client(py)?;
    let (_reference, slot) = await_group(&client, group, Outcome::Inline(Blob::default()));
    let deadline = crate::waiting::deadline(seconds)?;
    if !slot.has_outcome() {
        crate::waiting::wait_for(py, &client, || slot.has_outcome(), deadline)?;
    }
    Ok(matches!(slot.outcome().as_deref(), Some(Outcome::Inline(_))))
}

/// Makes sure that other processes may be told of a group: waits until the control service knows it.
#[pyfunction]
pub fn confirm_group(py: Python<'_>, group: &str) -> PyResult<()> {
    let group = parse(group)?;
    let client = session::client(py)?;
    if !client.step(|core, _| core.is_group_known(group)) {
        ask(py, &client, move |request| find(request, Some(group), None))?;
    }
    Ok(())
}

fn find(request: u64, group: Option<GroupId>, title: Option<(String, String)>) -> Message {
    FindGroup { request, group, title, attempt: None }.into()
}

/// What is known of a group, by id or by namespace and name; of all without either.
#[pyfunction]
pub fn find_groups<'py>(
    py: Python<'py>,
    group: Option<&str>,
    name: Option<(String, String)>,
) -> PyResult<Bound<'py, PyAny>> {
    let group = group.map(parse).transpose()?;
    let client = session::client(py)?;
    let state = ask(py, &client, move |request| find(request, group, name))?;
    if let Some(error) = state.error {
        return Err(PyValueError::new_err(error));
    }
    state.groups.told(py)
}
