//! Converts Python's settings for spilling, and the errors of places that cannot be used.

use pyo3::exceptions::{PyConnectionError, PyFileNotFoundError, PyOSError, PyPermissionError, PyValueError};
use pyo3::prelude::*;
use sooner_runtime::node::{Eviction, SpillOptions, StoreError, StoreUrl};

/// Looks whether a URL names a place in an object store. Nobody is asked.
#[pyfunction]
pub fn check_store_url(url: &str) -> PyResult<()> {
    StoreUrl::parse(url).map(drop).map_err(|error| of_store(&error))
}

/// Spilling to these places (`None` without any), with a limit (bytes). A URL among them comes first;
/// directories beside it are for values that cannot be stored there.
pub fn options((places, max_bytes): (Vec<String>, Option<u64>)) -> Option<SpillOptions> {
    let (mut urls, directories): (Vec<_>, Vec<_>) =
        places.into_iter().partition(|place| StoreUrl::is_meant(place));
    let directories: Vec<_> = directories.into_iter().map(Into::into).collect();
    let store = urls.pop();
    (store.is_some() || !directories.is_empty()).then_some(SpillOptions { directories, store, max_bytes })
}

/// How the store frees memory.
pub fn eviction(word: &str) -> PyResult<Eviction> {
    match word {
        "spill" => Ok(Eviction::Spill),
        "recompute" => Ok(Eviction::Recompute),
        "unpin" => Ok(Eviction::Unpin),
        _ => Err(PyValueError::new_err(format!("no way to make room: {word}"))),
    }
}

/// The error of a node that cannot start, if that is because of the object store.
pub fn store_error(error: &std::io::Error) -> Option<PyErr> {
    error.get_ref()?.downcast_ref::<StoreError>().map(of_store)
}

fn of_store(error: &StoreError) -> PyErr {
    let text = format!("spill_directories: {error}");
    match error {
        StoreError::BadUrl { .. } | StoreError::Settings { .. } => PyValueError::new_err(text),
        StoreError::Refused { .. } => PyPermissionError::new_err(text),
        StoreError::NoBucket { .. } => PyFileNotFoundError::new_err(text),
        StoreError::Unreachable { .. } => PyConnectionError::new_err(text),
        StoreError::Failed { .. }
        | StoreError::Gone { .. }
        | StoreError::Corrupt { .. }
        | StoreError::OutOfRange { .. }
        | StoreError::Ending
        | StoreError::NoExecutor { .. } => PyOSError::new_err(text),
    }
}
