//! Arrays of Python that are combined element by element, without the GIL: see
//! [`sooner_runtime::store::combine`].

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sooner_runtime::store::combine::{self, Element, Op};

use crate::session::detached;

fn op_of(name: &str) -> PyResult<Op> {
    Ok(match name {
        "sum" => Op::Sum,
        "prod" => Op::Prod,
        "min" => Op::Min,
        "max" => Op::Max,
        _ => return Err(PyValueError::new_err(format!("op must be sum, prod, min or max, not {name:?}"))),
    })
}

fn element_of(name: &str) -> PyResult<Element> {
    Ok(match name {
        "float16" => Element::F16,
        "bfloat16" => Element::Bf16,
        "float32" => Element::F32,
        "float64" => Element::F64,
        "int32" => Element::I32,
        "int64" => Element::I64,
        _ => return Err(PyValueError::new_err(format!("no elements of {name} are combined"))),
    })
}

/// Folds the bytes of arrays into those of `into`, from the first to the last. `keeps`: `into` has a value,
/// and they are added to it.
///
/// # Errors
/// When the arrays differ in length or share memory, or `into` is read-only.
#[pyfunction]
pub fn fold(
    py: Python<'_>,
    op: &str,
    element: &str,
    into: &Bound<'_, PyAny>,
    keeps: bool,
    sources: Vec<Bound<'_, PyAny>>,
) -> PyResult<()> {
    let (op, element) = (op_of(op)?, element_of(element)?);
    let into = Written::of(into, element)?;
    let sources = sources.iter().map(PyBuffer::<u8>::get).collect::<PyResult<Vec<_>>>()?;
    if !keeps && sources.is_empty() {
        return Err(PyValueError::new_err("nothing to fold"));
    }
    let sources = sources.iter().map(|source| read(source, &into)).collect::<PyResult<Vec<_>>>()?;
    let into = into.bytes();
    detached(py, || combine::fold(op, element, into, keeps, &sources));
    Ok(())
}

/// Divides every element of an array of floats.
///
/// # Errors
/// When they are no floats, or the array is read-only.
#[pyfunction]
pub fn divide(py: Python<'_>, element: &str, into: &Bound<'_, PyAny>, by: f64) -> PyResult<()> {
    let element = element_of(element)?;
    if matches!(element, Element::I32 | Element::I64) {
        return Err(PyValueError::new_err("whole numbers are not divided"));
    }
    let into = Written::of(into, element)?;
    let into = into.bytes();
    detached(py, || combine::divide(element, into, by));
    Ok(())
}

/// An array that is written to.
struct Written(PyBuffer<u8>);

impl Written {
    fn of(array: &Bound<'_, PyAny>, element: Element) -> PyResult<Self> {
        let buffer = PyBuffer::<u8>::get(array)?;
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err("into must be contiguous and writable"));
        }
        if !buffer.len_bytes().is_multiple_of(element.bytes()) {
            return Err(PyValueError::new_err("into must have whole elements"));
        }
        Ok(Self(buffer))
    }

    #[allow(clippy::mut_from_ref)] // the memory is Python's, and the buffer is asked for once
    fn bytes(&self) -> &mut [u8] {
        if self.0.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: contiguous and writable, and held for as long as `self`. Sources do not overlap with it.
        // Another thread of the program may write to it meanwhile, as with any array of NumPy.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast::<u8>(), self.0.len_bytes()) }
    }
}

fn read<'a>(source: &'a PyBuffer<u8>, into: &Written) -> PyResult<&'a [u8]> {
    let length = source.len_bytes();
    if length != into.0.len_bytes() || !source.is_c_contiguous() {
        return Err(PyValueError::new_err("sources must be contiguous, and as long as into"));
    }
    if length == 0 {
        return Ok(&[]);
    }
    if (source.buf_ptr() as usize).abs_diff(into.0.buf_ptr() as usize) < length {
        return Err(PyValueError::new_err("a source must not share memory with into"));
    }
    // SAFETY: contiguous, and held by the buffer. As above.
    Ok(unsafe { std::slice::from_raw_parts(source.buf_ptr().cast::<u8>(), length) })
}
