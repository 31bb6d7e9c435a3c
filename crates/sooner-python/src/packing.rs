//! Returned values on their way to their owner: small ones in the reply, large ones in shared memory.

use std::collections::VecDeque;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use sooner_runtime::client::Client;
use sooner_runtime::wire::message::{Outcome, Return};
use sooner_runtime::wire::{Blob, limits};

use crate::object_ref::{ObjectRef, ids};
use crate::unsealed::{Returned, seal_returned};
use crate::values::{Encoded, encode, encode_plain};

/// Packs what a task returned, as `count` values.
///
/// # Errors
/// A `ValueError` for any other number of values, and as [`pack_one`].
pub fn pack(
    py: Python<'_>,
    client: &Arc<Client>,
    count: u32,
    value: Bound<'_, PyAny>,
    handles: &mut Vec<Py<ObjectRef>>,
) -> PyResult<Vec<Return>> {
    match count {
        0 => Ok(Vec::new()),
        1 => Ok(vec![pack_one(py, client, value, "the returned value", handles)?]),
        _ => {
            let wrong = |found: String| {
                PyValueError::new_err(format!(
                    "the task has num_returns={count} and must return that many values in a tuple or list, not {found}"
                ))
            };
            let kind = value.get_type();
            let values: Vec<Bound<'_, PyAny>> =
                value.try_iter().map_err(|_| wrong(format!("a single {kind}")))?.collect::<PyResult<_>>()?;
            if values.len() != count as usize {
                return Err(wrong(format!("{} values", values.len())));
            }
            drop(value);
            pack_several(py, client, values, handles)
        }
    }
}

/// Packs several values. They are one message, and inline ones lie in the memory of their owner: their sum is
/// limited. Stored ones are encoded in batches, so that the node is asked for the memory of many at a time.
fn pack_several(
    py: Python<'_>,
    client: &Arc<Client>,
    values: Vec<Bound<'_, PyAny>>,
    handles: &mut Vec<Py<ObjectRef>>,
) -> PyResult<Vec<Return>> {
    let mut packing = Packing { found: Vec::with_capacity(values.len()), batch: VecDeque::new() };
    match packing.pack(py, client, values, handles) {
        Ok(()) => Ok(packing.found),
        Err(error) => {
            packing.free(client);
            Err(error)
        }
    }
}

/// Several values on their way, in order.
struct Packing {
    found: Vec<Return>,
    /// Those that are encoded and follow.
    batch: VecDeque<Packed>,
}

impl Packing {
    fn pack(
        &mut self,
        py: Python<'_>,
        client: &Arc<Client>,
        values: Vec<Bound<'_, PyAny>>,
        handles: &mut Vec<Py<ObjectRef>>,
    ) -> PyResult<()> {
        let mut bytes = 0;
        let mut rest = limits::REPLY_INLINE_BYTES_MAX;
        for (index, value) in values.into_iter().enumerate() {
            let most = rest.max(limits::SMALL_INLINE_BYTES);
            let packed = encode_within(py, client, value, &format!("returned value {index}"), most)?;
            match &packed.place {
                Place::Inline(inline) => rest = rest.saturating_sub(inline.len() as u64),
                Place::Stored(encoded) => bytes += encoded.size() as u64,
                Place::Written(_) => {}
            }
            self.batch.push_back(packed);
            if bytes >= limits::ALLOCATE_AHEAD_BYTES || self.batch.len() > limits::ALLOCATE_AHEAD_MAX {
                self.store_batch(py, client, handles)?;
                bytes = 0;
            }
        }
        self.store_batch(py, client, handles)
    }

    fn store_batch(
        &mut self,
        py: Python<'_>,
        client: &Arc<Client>,
        handles: &mut Vec<Py<ObjectRef>>,
    ) -> PyResult<()> {
        let size_of = |packed: &Packed| match &packed.place {
            Place::Inline(_) | Place::Written(_) => None,
            Place::Stored(encoded) => Some(encoded.size() as u64),
        };
        let sizes: Vec<u64> = self.batch.iter().filter_map(size_of).collect();
        let mut ahead = &sizes[..];
        while let Some(packed) = self.batch.pop_front() {
            if matches!(packed.place, Place::Stored(_)) {
                ahead = &ahead[1..];
            }
            self.found.push(packed.store(py, client, ahead, handles)?);
        }
        Ok(())
    }

    /// One of them failed, so nobody learns of the others.
    fn free(self, client: &Client) {
        let written = self.batch.into_iter().filter_map(|packed| match packed.place {
            Place::Written(outcome) => Some(outcome),
            Place::Inline(_) | Place::Stored(_) => None,
        });
        let stored = self.found.into_iter().map(|value| value.outcome);
        for outcome in written.chain(stored) {
            if let Outcome::Stored(location) = outcome {
                client.free(location);
            }
        }
    }
}

/// One value for its owner: encoded, and stored if it is large.
///
/// # Errors
/// A `TypeError` when it cannot be pickled.
pub fn pack_one(
    py: Python<'_>,
    client: &Arc<Client>,
    value: Bound<'_, PyAny>,
    what: &str,
    handles: &mut Vec<Py<ObjectRef>>,
) -> PyResult<Return> {
    encode_within(py, client, value, what, u64::MAX)?.store(py, client, &[], handles)
}

/// A value that is encoded.
struct Packed {
    place: Place,
    inner: Vec<Py<ObjectRef>>,
}

enum Place {
    Inline(Blob),
    /// It is to be stored.
    Stored(Encoded),
    /// It is stored.
    Written(Outcome),
}

impl Packed {
    fn store(
        self,
        py: Python<'_>,
        client: &Arc<Client>,
        ahead: &[u64],
        handles: &mut Vec<Py<ObjectRef>>,
    ) -> PyResult<Return> {
        seal_returned(py, &self.inner)?;
        let outcome = match self.place {
            Place::Inline(inline) => Outcome::Inline(inline),
            Place::Stored(encoded) => encoded.place(py, client, ahead)?,
            Place::Written(outcome) => outcome,
        };
        let contained = ids(&self.inner);
        handles.extend(self.inner);
        Ok(Return { outcome, contained })
    }
}

/// Encodes a value for its owner. One of more than `most` bytes is stored, even if it is small.
fn encode_within(
    py: Python<'_>,
    client: &Arc<Client>,
    value: Bound<'_, PyAny>,
    what: &str,
    most: u64,
) -> PyResult<Packed> {
    let mut bytes = Vec::with_capacity(16);
    if encode_plain(&value, &mut bytes) && bytes.len() as u64 <= most {
        return Ok(Packed { place: Place::Inline(Blob::from(bytes.as_slice())), inner: Vec::new() });
    }
    if value.hasattr("__await__").unwrap_or(false) && value.get_type().name()? == "coroutine" {
        return Err(PyTypeError::new_err(
            "a task returned a coroutine: async functions run in actors (async def methods), or call asyncio.run() in the task",
        ));
    }
    let mut inner = Vec::new();
    let encoded =
        encode(&value, &mut inner).map_err(|error| crate::args::explain(py, &value, &error, what))?;
    let most = client.welcome.inline_bytes.min(most);
    let place = match Returned::of(py, client, encoded) {
        Ok(returned) => {
            // If nobody else has the array, its memory is the returned value's.
            drop(value);
            Place::Written(returned.store(py)?)
        }
        Err(encoded) if encoded.size() as u64 <= most => Place::Inline(Blob::from(encoded.into_bytes(py))),
        Err(encoded) => Place::Stored(encoded),
    };
    Ok(Packed { place, inner })
}
