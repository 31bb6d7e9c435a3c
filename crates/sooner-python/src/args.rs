//! Encodes the arguments of a call as bytes, and decodes them.
//!
//! `u16` positional count, `u16` keyword count, then per argument (keywords begin with `u16` length and name)
//! either `0`, `u32` length and an encoded value, or `1` and the `u16` number of a dependency: a reference
//! given directly, or a value too large for a message, which becomes an object of its own. Arguments that are
//! encoded together, so that objects that they share stay shared, begin with `2` and one such entry, for a
//! tuple of all of them; each further one is `3`.

use std::rc::Rc;
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use sooner_runtime::client::Client;
use sooner_runtime::protocol::worker::execution::Incoming;
use sooner_runtime::wire::message::Outcome;
use sooner_runtime::wire::{Blob, ObjectId, limits};

use crate::object_ref::{ObjectRef, ids, serialising};
use crate::python_side;
use crate::values::{Access, Encoded, Source, decode_inline, encode, encode_plain, is_alone};

/// First bytes of entries.
const VALUE: u8 = 0;
const DEPENDENCY: u8 = 1;
const FIRST: u8 = 2;
const NEXT: u8 = 3;

/// Encoded arguments.
pub struct Arguments {
    pub block: Blob,
    pub dependencies: Box<[ObjectId]>,
    pub references: Box<[ObjectId]>,
    /// Handles that must outlive the submission.
    _handles: Vec<Py<ObjectRef>>,
}

struct Writer<'a, 'py> {
    client: &'a Arc<Client>,
    out: Vec<u8>,
    dependencies: Vec<ObjectId>,
    references: Vec<Py<ObjectRef>>,
    handles: Vec<Py<ObjectRef>>,
    /// Bytes of values that may still travel inside the message.
    rest: u64,
    together: Together<'py>,
}

/// Arguments that are encoded as one value.
enum Together<'py> {
    /// Each is encoded by itself.
    None,
    /// All but scalars and references; none of them is written yet.
    All(Bound<'py, PyTuple>),
    Begun,
}

impl<'py> Together<'py> {
    /// The arguments that the standard library's pools and executors would pickle as one: objects that
    /// several of them share stay shared.
    fn of(args: &Bound<'py, PyTuple>, kwargs: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        let named = kwargs.into_iter().flat_map(|kwargs| kwargs.iter().map(|(_, value)| value));
        let parts: Vec<_> = args.iter().chain(named).filter(|value| !is_alone(value)).collect();
        if parts.len() < 2 || !is_passed_as_by_the_standard_library(args.py())? {
            return Ok(Self::None);
        }
        Ok(Self::All(PyTuple::new(args.py(), parts)?))
    }
}

fn is_passed_as_by_the_standard_library(py: Python<'_>) -> PyResult<bool> {
    python_side::PASSING.get(py)?.getattr(intern!(py, "by_file"))?.is_truthy()
}

/// Encodes the arguments of a call.
///
/// # Errors
/// A `TypeError` that names the argument and the path to what cannot be pickled.
pub fn encode_arguments(
    client: &Arc<Client>,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<Arguments> {
    let keywords = kwargs.map_or(0, |kwargs| kwargs.len());
    let mut writer = Writer {
        client,
        out: Vec::with_capacity(32),
        dependencies: Vec::new(),
        references: Vec::new(),
        handles: Vec::new(),
        rest: limits::CALL_INLINE_BYTES_MAX,
        together: Together::of(args, kwargs)?,
    };
    let too_many = |_| pyo3::exceptions::PyTypeError::new_err("a call takes at most 65535 arguments");
    writer.out.extend_from_slice(&u16::try_from(args.len()).map_err(too_many)?.to_le_bytes());
    writer.out.extend_from_slice(&u16::try_from(keywords).map_err(too_many)?.to_le_bytes());
    for (index, value) in args.iter_borrowed().enumerate() {
        writer.argument(&value, || format!("argument {index}"))?;
    }
    for (name, value) in kwargs.into_iter().flatten() {
        let name = name.cast_into::<PyString>()?;
        let name = name.to_str()?;
        let length = u16::try_from(name.len()).map_err(too_many)?;
        writer.out.extend_from_slice(&length.to_le_bytes());
        writer.out.extend_from_slice(name.as_bytes());
        writer.argument(&value, || format!("argument {name:?}"))?;
    }
    Ok(Arguments {
        block: Blob::from(writer.out.as_slice()),
        dependencies: writer.dependencies.into(),
        references: ids(&writer.references).into(),
        _handles: {
            writer.handles.extend(writer.references);
            writer.handles
        },
    })
}

impl Writer<'_, '_> {
    fn argument(&mut self, value: &Bound<'_, PyAny>, what: impl FnOnce() -> String) -> PyResult<()> {
        if matches!(self.together, Together::None) || is_alone(value) {
            return self.alone(value, what);
        }
        let Together::All(all) = std::mem::replace(&mut self.together, Together::Begun) else {
            self.out.push(NEXT);
            return Ok(());
        };
        let start = (self.out.len(), self.dependencies.len(), self.references.len(), self.handles.len());
        self.out.push(FIRST);
        let Err(error) = self.alone(&all, || "an argument".to_owned()) else { return Ok(()) };
        self.out.truncate(start.0);
        self.dependencies.truncate(start.1);
        self.references.truncate(start.2);
        self.handles.truncate(start.3);
        if !error.is_instance_of::<pyo3::exceptions::PyTypeError>(value.py()) {
            return Err(error);
        }
        // Each by itself, so that the error names the one that cannot be pickled.
        self.together = Together::None;
        self.alone(value, what)
    }

    fn alone(&mut self, value: &Bound<'_, PyAny>, what: impl FnOnce() -> String) -> PyResult<()> {
        if let Ok(reference) = value.cast_exact::<ObjectRef>() {
            let given = reference.get();
            if given.slot.is_freed() && !given.client.is_closed() {
                // The call is submitted, and fails as with any other lost argument.
                let (id, slot) = self.client.put_inline(Outcome::Failed(Box::new(given.freed())));
                let lost = ObjectRef::new(id, slot, self.client.clone());
                lost.register();
                return self.dependency(Py::new(value.py(), lost)?);
            }
            given.check_in(self.client)?;
            given.register();
            return self.dependency(reference.clone().unbind());
        }
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 5]);
        let most = self.rest.max(limits::SMALL_INLINE_BYTES);
        if encode_plain(value, &mut self.out) && (self.out.len() - start - 5) as u64 <= most {
            self.end_value(start);
            return Ok(());
        }
        self.out.truncate(start);
        let py = value.py();
        let before = self.references.len();
        let encoded =
            encode(value, &mut self.references).map_err(|error| explain(py, value, &error, &what()))?;
        if encoded.size() as u64 <= self.client.welcome.inline_bytes.min(most) {
            self.out.extend_from_slice(&[VALUE, 0, 0, 0, 0]);
            self.out.extend_from_slice(&encoded.into_bytes(py));
            self.end_value(start);
            return Ok(());
        }
        let inner = self.references.split_off(before);
        let reference = put_encoded(py, self.client, encoded, inner, 0)?;
        self.dependency(Py::new(py, reference)?)
    }

    fn end_value(&mut self, start: usize) {
        let length = u32::try_from(self.out.len() - start - 5).expect("inline values are small");
        self.rest = self.rest.saturating_sub(u64::from(length));
        self.out[start + 1..start + 5].copy_from_slice(&length.to_le_bytes());
    }

    fn dependency(&mut self, reference: Py<ObjectRef>) -> PyResult<()> {
        let number = u16::try_from(self.dependencies.len())
            .map_err(|_| pyo3::exceptions::PyTypeError::new_err("too many references"))?;
        self.out.push(DEPENDENCY);
        self.out.extend_from_slice(&number.to_le_bytes());
        self.dependencies.push(reference.get().id);
        self.handles.push(reference);
        Ok(())
    }
}

/// Names the part of a value that could not be pickled. Interrupts pass unchanged: Ctrl-C, the end of a
/// cancelled task, and what a signal handler raised.
pub fn explain(py: Python<'_>, value: &Bound<'_, PyAny>, error: &PyErr, what: &str) -> PyErr {
    if !error.is_instance_of::<pyo3::exceptions::PyException>(py) {
        return error.clone_ref(py);
    }
    // The search pickles parts of the value. References among them must not count as given away.
    let explained = serialising(&mut Vec::new(), || {
        python_side::EXPLAIN_PICKLE_FAILURE.call(py, (value, error.value(py), what))
    });
    match explained {
        Ok(explained) if explained.is(error.value(py)) => error.clone_ref(py),
        Ok(explained) => {
            let explained = PyErr::from_value(explained);
            explained.set_cause(py, Some(error.clone_ref(py)));
            explained
        }
        Err(failure) => failure,
    }
}

/// Stores an encoded value as an object of ours: in shared memory if it is larger than `most` or than inline
/// values.
pub fn put_encoded(
    py: Python<'_>,
    client: &Arc<Client>,
    encoded: Encoded,
    inner: Vec<Py<ObjectRef>>,
    most: u64,
) -> PyResult<ObjectRef> {
    let outcome = encoded.store_above(py, client, most)?;
    let is_stored = matches!(outcome, Outcome::Stored(_));
    let (id, slot) = client.put_inline(outcome);
    let reference = ObjectRef::new(id, slot.clone(), client.clone());
    if is_stored || !inner.is_empty() {
        let contained = ids(&inner);
        client.step(|core, _| {
            core.ownership_mut().own(id, slot);
            core.ownership_mut().contain(id, &contained);
        });
    }
    Ok(reference)
}

/// Arguments as Python takes them.
pub type Call<'py> = (Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>);

/// Reads the arguments of a task that was pushed here. `access`: whose memory the arrays among them are.
///
/// # Errors
/// What unpickling raised.
pub fn decode_arguments<'py>(
    py: Python<'py>,
    client: &Arc<Client>,
    incoming: &Incoming,
    access: Access,
) -> PyResult<Call<'py>> {
    let block = incoming.push.spec.arguments.as_slice();
    let mut reader = Block { bytes: block, together: None };
    let positional = reader.u16()?;
    let keywords = reader.u16()?;
    if positional == 0 && keywords == 0 {
        return Ok((PyTuple::empty(py), None));
    }
    let mut args = Vec::with_capacity(usize::from(positional));
    for _ in 0..positional {
        args.push(reader.argument(py, client, incoming, access)?);
    }
    let kwargs = (keywords > 0).then(|| PyDict::new(py));
    for _ in 0..keywords {
        let length = usize::from(reader.u16()?);
        let name = String::from_utf8_lossy(reader.take(length)?).into_owned();
        let value = reader.argument(py, client, incoming, access)?;
        kwargs.as_ref().expect("there are keywords").set_item(name, value)?;
    }
    Ok((PyTuple::new(py, args)?, kwargs))
}

/// The sizes of a call's arguments (bytes), by position or name.
///
/// # Errors
/// When the arguments are garbled.
pub fn argument_sizes(incoming: &Incoming) -> PyResult<Vec<(String, u64)>> {
    let mut reader = Block { bytes: incoming.push.spec.arguments.as_slice(), together: None };
    let (positional, keywords) = (reader.u16()?, reader.u16()?);
    let mut sizes = Vec::new();
    for index in 0..positional {
        sizes.push((index.to_string(), reader.skip_argument(incoming)?));
    }
    for _ in 0..keywords {
        let length = usize::from(reader.u16()?);
        let name = String::from_utf8_lossy(reader.take(length)?).into_owned();
        sizes.push((name, reader.skip_argument(incoming)?));
    }
    Ok(sizes)
}

fn garbled() -> PyErr {
    pyo3::exceptions::PyValueError::new_err("the arguments are garbled")
}

struct Block<'a, 'py> {
    bytes: &'a [u8],
    /// Arguments that were encoded together, and which of them is next.
    together: Option<(Bound<'py, PyTuple>, usize)>,
}

impl<'a, 'py> Block<'a, 'py> {
    fn take(&mut self, count: usize) -> PyResult<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(count).ok_or_else(garbled)?;
        self.bytes = rest;
        Ok(head)
    }

    fn u16(&mut self) -> PyResult<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    /// The size of the next argument, which is not read.
    fn skip_argument(&mut self, incoming: &Incoming) -> PyResult<u64> {
        let mut begin = self.take(1)?[0];
        if begin == NEXT {
            // It is counted with the first of them.
            return Ok(0);
        }
        if begin == FIRST {
            begin = self.take(1)?[0];
        }
        if begin == VALUE {
            let length = self.take(4)?;
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
            self.take(length as usize)?;
            return Ok(u64::from(length));
        }
        let number = usize::from(self.u16()?);
        Ok(match incoming.push.dependencies.get(number).map(|dependency| &dependency.outcome) {
            Some(Outcome::Inline(blob)) => blob.as_slice().len() as u64,
            Some(Outcome::Stored(at)) => at.length,
            Some(Outcome::Remote(remote)) => remote.location.length,
            Some(Outcome::Failed(_)) | None => 0,
        })
    }

    fn argument(
        &mut self,
        py: Python<'py>,
        client: &Arc<Client>,
        incoming: &Incoming,
        access: Access,
    ) -> PyResult<Bound<'py, PyAny>> {
        let begin = self.take(1)?[0];
        if begin == FIRST {
            let all = self.argument(py, client, incoming, access)?;
            self.together = Some((all.cast_into::<PyTuple>()?, 0));
        }
        if begin == FIRST || begin == NEXT {
            let (all, next) = self.together.as_mut().ok_or_else(garbled)?;
            let item = all.get_item(*next)?;
            *next += 1;
            return Ok(item);
        }
        if begin == VALUE {
            let length = self.take(4)?;
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
            let bytes = self.take(length as usize)?;
            return decode_inline(py, client, bytes, &incoming.references, access);
        }
        let number = usize::from(self.u16()?);
        let dependency = &incoming.push.dependencies[number];
        let met = &incoming.dependencies[number];
        Source {
            client,
            object: dependency.object,
            slot: met.stored.as_ref(),
            outcome: &dependency.outcome,
            met: Rc::new(met.contained.clone()),
            access,
        }
        .decode(py)
    }
}
