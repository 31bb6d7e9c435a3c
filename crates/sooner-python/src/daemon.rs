//! A node as a process of its own.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use sooner_runtime::daemon::{self, GivenToken, Membership, Surroundings};
use sooner_runtime::node::interpreter::Interpreter;

use crate::control::{NodeTraits, python_version};

/// Properties of a node's process besides those of the node. `ProcessTraits` of `sooner._options.traits` has
/// the names of both.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ProcessTraits {
    /// How it runs templates of drivers elsewhere: see [`Interpreter`].
    interpreter: (String, String, Vec<String>, Vec<String>, bool),
    is_head: bool,
    cluster_directory: String,
    head: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    token_file: Option<String>,
    /// Seconds.
    health_timeout: f64,
}

/// Runs a node in this process until it is told to end; gives the exit status. Python does not run meanwhile.
#[pyfunction]
pub fn node_main(
    py: Python<'_>,
    traits: &Bound<'_, PyAny>,
    token: Option<String>,
    signals: i32,
    ready: Option<i32>,
) -> PyResult<i32> {
    let mut node = traits.extract::<NodeTraits>()?.options(&python_version(py))?;
    let traits: ProcessTraits = traits.extract()?;
    let (executable, code, standard, path, needs_site) = traits.interpreter;
    let library = crate::hashes::library();
    node.interpreter = Some(Interpreter { executable, code, standard, path, needs_site, library });
    // SAFETY: the process was started with these descriptors for this purpose, and passes them once.
    let own = |descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) };
    let membership = Membership {
        directory: traits.cluster_directory.into(),
        head: traits.head,
        host: traits.host,
        port: traits.port,
        token: token.map(GivenToken),
        token_file: traits.token_file.map(Into::into),
        shares_memory: shares_memory(),
        health_timeout: std::time::Duration::from_secs_f64(traits.health_timeout).as_nanos() as u64,
    };
    let surroundings =
        Surroundings { is_head: traits.is_head, ready: ready.map(own), signals: own(signals), membership };
    Ok(py.detach(|| daemon::run(node, surroundings)))
}

/// Whether nodes of this machine copy values from memory to memory. SOONER_SHARE_MEMORY=0 makes them send
/// values as between machines.
pub fn shares_memory() -> bool {
    std::env::var("SOONER_SHARE_MEMORY").map_or(true, |value| value != "0")
}

/// The token in a file, as `sooner token` prints it.
#[pyfunction]
pub fn read_token(path: std::path::PathBuf) -> PyResult<String> {
    let token = sooner_runtime::identity::Token::read(&path);
    token.map(|token| token.reveal()).map_err(|error| PyOSError::new_err(error.to_string()))
}

/// Does one step of changing the token in a file: "rotate" puts a new one behind it, the given one or one
/// that is made; "switch" changes their order; "finish" drops the second; "renew" leaves all as it is. Gives
/// the new one, the fingerprints of all, of which the first is shown, and descriptors: nobody else does a
/// step until they are closed.
#[pyfunction]
pub fn change_token(
    path: std::path::PathBuf,
    step: &str,
    given: Option<String>,
) -> PyResult<(String, Vec<String>, Vec<i32>)> {
    use sooner_runtime::identity::{Authority, Token};

    let failed = |error: &dyn std::fmt::Display| PyOSError::new_err(error.to_string());
    let (mut tokens, file) = Token::hold(&path).map_err(|error| failed(&error))?;
    match (step, tokens.len()) {
        ("renew", _) => {}
        ("rotate", 1) => {
            let new = match given {
                Some(text) => {
                    Token::parse(text.trim()).map_err(|_| failed(&"SOONER_TOKEN does not contain a token"))?
                }
                None => Token::generate().map_err(|error| failed(&error))?,
            };
            if tokens.contains(&new) {
                return Err(failed(
                    &"SOONER_TOKEN is the token that is used already: unset it to have a new one made, or give that",
                ));
            }
            tokens.push(new);
        }
        ("switch", 2) => tokens.swap(0, 1),
        ("finish", 2) => drop(tokens.pop()),
        (_, 2) => {
            return Err(failed(
                &"the token is being changed already: `sooner token switch` and `sooner token finish` go on",
            ));
        }
        _ => return Err(failed(&"the token is not being changed: begin with `sooner token rotate`")),
    }
    let mut held = vec![file];
    if step != "renew" {
        held.push(Token::replace(&tokens, &path).map_err(|error| failed(&error))?);
    }
    let new = if step == "rotate" { tokens.last() } else { tokens.first() };
    let fingerprints = tokens.iter().map(|token| Authority::new(token).fingerprint().to_string()).collect();
    let descriptors = held.into_iter().map(IntoRawFd::into_raw_fd).collect();
    Ok((new.map(Token::reveal).unwrap_or_default(), fingerprints, descriptors))
}
