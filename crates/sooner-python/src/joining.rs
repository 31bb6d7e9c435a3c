//! Programs on machines without a node: they join a cluster themselves.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::exceptions::{PyConnectionError, PyRuntimeError};
use pyo3::prelude::*;
use sooner_runtime::client::Client;
use sooner_runtime::daemon::{GivenToken, Renewal, of_program};
use sooner_runtime::identity::{Identity, OtherCluster};
use sooner_runtime::node::cluster::fate::{Fate, JoinFailure, Joined, Kind};
use sooner_runtime::node::{HostJob, NodeHandle};
use sooner_runtime::transport::TlsFailure;

use crate::control::{JobTraits, NodeTraits, python_version, terminal};
use crate::daemon::shares_memory;
use crate::hooks::PythonHooks;
use crate::session::{self, Session};
use crate::spilling;
use crate::verbs::untrusted;

/// How long joining may take in all: longer than each address of the head is given.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often joining checks for an interrupt by the user.
const LOOK: Duration = Duration::from_millis(100);

/// Starts a node in this process that is a part of a cluster and runs nothing, and connects to it. Gives its
/// directory, the head's address, and the cluster's fingerprint.
#[pyfunction]
pub fn join(
    py: Python<'_>,
    head: String,
    token: Option<String>,
    token_file: String,
    job: JobTraits,
    node: NodeTraits,
) -> PyResult<(String, String, String)> {
    if session::current().is_some() {
        return Err(PyRuntimeError::new_err("sooner is started already"));
    }
    let refused = |why: &dyn std::fmt::Display| {
        PyConnectionError::new_err(format!("address={head:?}: this program cannot join the cluster: {why}"))
    };
    let python = python_version(py);
    let token = token.map(GivenToken);
    let (cluster, renewal) = py
        .detach(|| of_program(node.node(), &head, token.as_ref(), token_file.as_ref(), shares_memory()))
        .map_err(|error| refused(&error))?;
    let (fate, identity) = (cluster.fate.clone(), cluster.identity.clone());
    let sink = terminal(job.log_to_driver);
    let mut options = node.options(&python)?;
    options.host = Some(HostJob { config: job.config(), sink });
    options.cluster = Some(cluster);
    let handle = py.detach(|| NodeHandle::start(options)).map_err(|error| {
        spilling::store_error(&error).or_else(|| untrusted(py, &error)).unwrap_or_else(|| error.into())
    })?;
    let begun = wait(py, &fate).and_then(|outcome| {
        let joined = outcome.map_err(|error| refused(&error))?;
        let client = py.detach(|| connect(&handle, &python)).map_err(|error| refused(&error))?;
        Ok((joined, client))
    });
    let (joined, client) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            // Without the GIL: threads of the node may be waiting for it.
            py.detach(|| drop(handle));
            return Err(error);
        }
    };
    let directory = handle.directory().to_string_lossy().into_owned();
    let session = Session {
        client,
        node: Mutex::new(Some(handle)),
        lines: Mutex::new(None),
        is_worker: false,
        leaves: true,
    };
    let session = Arc::new(session);
    *TOKEN.lock() = Some(Shown { session: Arc::downgrade(&session), identity, renewal, is_told: false });
    session::replace(Some(session));
    Ok((directory, joined.head.to_string(), joined.fingerprint))
}

/// Identity and token of a program that has joined.
struct Shown {
    session: Weak<Session>,
    identity: Identity,
    /// `None`: its token is in no file.
    renewal: Option<Renewal>,
    /// The user was told that the token is no longer valid.
    is_told: bool,
}

static TOKEN: Mutex<Option<Shown>> = Mutex::new(None);

/// This program and a process of the cluster reject each other's certificates: the token was changed. Takes
/// the token in its file, or returns, once, what the user must do.
pub fn follow(failure: &TlsFailure) -> Option<String> {
    let mut token = TOKEN.lock();
    let shown = token.as_mut()?;
    let session = shown.session.upgrade()?;
    let followed = match &mut shown.renewal {
        Some(renewal) => renewal.follow(failure, &shown.identity),
        None => Err("SOONER_TOKEN had its token, so it has no file to read again".to_owned()),
    };
    let why = match followed {
        Ok(credentials) => {
            // If it is locked, the node is being ended.
            if let Some(node) = session.node.try_lock().as_deref().and_then(Option::as_ref) {
                node.renew(credentials);
            }
            return None;
        }
        Err(why) => why,
    };
    if std::mem::replace(&mut shown.is_told, true) {
        return None;
    }
    let ours = shown.identity.cluster();
    let seen = match failure {
        TlsFailure::OtherCluster(OtherCluster { theirs: Some(theirs), .. }) => {
            format!("it has that of {ours}, and what it dials has that of {theirs}")
        }
        _ => format!("it has that of {ours}, and what it dials has another one"),
    };
    Some(format!(
        "the cluster's token was changed, and this program does not have the new one: {seen}. Calls of processes that it \
         has no connection with wait in vain: start it again with the new token. ({why}.)"
    ))
}

fn connect(node: &NodeHandle, python: &str) -> std::io::Result<Arc<Client>> {
    let client = Client::connect(&node.socket_path(), python, None)?;
    client.start(Box::new(PythonHooks { is_worker: false }))?;
    Ok(client)
}

/// Waits until it is known whether the node may join. The error is that of the user's signal handler.
fn wait(py: Python<'_>, fate: &Arc<Fate>) -> PyResult<Result<Joined, JoinFailure>> {
    let begun = Instant::now();
    loop {
        if let Some(outcome) = py.detach(|| fate.wait(LOOK)) {
            return Ok(outcome);
        }
        py.check_signals()?;
        if begun.elapsed() >= PATIENCE {
            let text = format!("no answer within {} s", PATIENCE.as_secs());
            return Ok(Err(JoinFailure::new(Kind::NoAnswer, text)));
        }
    }
}
