//! The fate of a node in its cluster, for the process that carries it: whether the node may join, and whether
//! it must end.

use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Why a node could not join. Each has an exit status of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nobody answers at that address.
    NoAnswer,
    /// Nobody listens at that port.
    NobodyListens,
    /// The peer is no head of a cluster.
    SomethingElse,
    /// Another version of sooner or of Python.
    OtherVersion,
    /// The token is missing, open to others, or that of another cluster.
    Token,
    /// The head refused the node.
    NotWanted,
}

/// See [`Kind`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct JoinFailure {
    kind: Kind,
    text: String,
}

impl JoinFailure {
    /// `text` is one sentence that says what to do.
    #[must_use]
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Why the node could not join.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The exit status of a process that could not join.
    #[must_use]
    pub fn exit_status(&self) -> i32 {
        match self.kind {
            Kind::NoAnswer => 3,
            Kind::NobodyListens => 4,
            Kind::SomethingElse => 5,
            Kind::OtherVersion => 6,
            Kind::Token => 7,
            Kind::NotWanted => 8,
        }
    }
}

/// What a node learns when it joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Where it listens, unless it is a part of a program.
    pub address: Option<SocketAddr>,
    /// Where the head listens.
    pub head: SocketAddr,
    /// Names the cluster, for people.
    pub fingerprint: String,
}

#[derive(Debug, Default)]
struct State {
    joined: Option<Result<Joined, JoinFailure>>,
    end: Option<String>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Fate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Fate {
    /// The node has joined, or may not. The first outcome counts.
    pub fn on_joined(&self, outcome: Result<Joined, JoinFailure>) {
        self.state.lock().joined.get_or_insert(outcome);
        self.changed.notify_all();
    }

    /// The node must end, for this reason.
    pub fn end(&self, reason: &str) {
        self.state.lock().end.get_or_insert_with(|| reason.to_owned());
        self.changed.notify_all();
    }

    /// Waits until it is known whether the node may join; `None` when that took too long.
    pub fn wait(&self, patience: Duration) -> Option<Result<Joined, JoinFailure>> {
        let deadline = std::time::Instant::now() + patience;
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = &state.joined {
                return Some(outcome.clone());
            }
            if let Some(reason) = &state.end {
                return Some(Err(JoinFailure::new(Kind::NotWanted, reason.clone())));
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return None;
            }
        }
    }

    /// Whether the node must end.
    #[must_use]
    pub fn must_end(&self) -> bool {
        self.state.lock().end.is_some()
    }

    /// Why the node must end, if it must.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.state.lock().end.clone()
    }
}
