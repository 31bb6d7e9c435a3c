//! A node as a process of its own: what `sooner start` runs.
//!
//! It says through a pipe that it is ready, or in one sentence why it is not, and then obeys signals: the first one drains
//! the node, the second one ends it at once. Nothing of it survives it: workers and templates see the end of their sockets,
//! and the last template removes the directory.
//!
//! It is ready when it is a part of its cluster ([`Membership`]).

mod membership;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FlockOperation;

use crate::node::cluster::fate::{Fate, JoinFailure, Joined, Kind};
use crate::node::notes::tell;
use crate::node::{NodeHandle, NodeOptions};
use crate::session::runtime_directory;
pub use membership::{GivenToken, Membership, StartError, of_program};
use sooner_wire::ResourceSet;

/// The node ended as it was told.
pub const ENDED: i32 = 0;
/// The node could not start, failed, or was told by its cluster to end. Statuses above 2 say why it could not join.
pub const FAILED: i32 = 1;
/// How long joining may take in all: each address of the head is given its time, and this is longer.
const JOIN_PATIENCE: Duration = Duration::from_secs(60);
/// In the node's directory: where it belongs, for commands on this machine.
const MEMBERSHIP: &str = "cluster";
/// The resource that stands for a node, as long as its address is not known.
const LOCAL_NODE: &str = "node:127.0.0.1";

/// What a daemon needs besides its node.
#[derive(Debug)]
pub struct Surroundings {
    /// Whether this node is the head: there is one below each runtime directory.
    pub is_head: bool,
    /// Where it says that it is ready. Without it the process is in the foreground, and says so on standard output.
    pub ready: Option<OwnedFd>,
    /// A byte comes for each signal that asks the node to end.
    pub signals: OwnedFd,
    /// To which cluster the node belongs.
    pub membership: Membership,
}

/// Runs a node until it is told to end. Gives the exit status.
#[must_use]
pub fn run(node: NodeOptions, surroundings: Surroundings) -> i32 {
    let Surroundings { is_head, ready, signals, membership } = surroundings;
    let _ = rustix::thread::set_name(c"sooner-node");
    let mut started = match start(node, is_head, &membership) {
        Ok(started) => started,
        Err(error) => {
            let status = match &error {
                StartError::Join(failure) => failure.exit_status(),
                StartError::Io(_) => FAILED,
            };
            say(ready, Err(&error.to_string()));
            return status;
        }
    };
    if ready.is_some() {
        redirect_output(started.handle.directory());
    }
    say(ready, Ok(started.handle.directory()));
    wait_for_end(&started.handle, &signals, &started.over);
    let has_ended = started.handle.stop();
    match started.fate.reason() {
        Some(reason) => {
            tell(&format!("this node must end: {reason}"));
            FAILED
        }
        None if has_ended => ENDED,
        None => FAILED,
    }
}

struct Started {
    handle: NodeHandle,
    /// Ends with the node.
    over: OwnedFd,
    fate: Arc<Fate>,
    _lock: Option<HeadLock>,
}

fn start(mut node: NodeOptions, is_head: bool, membership: &Membership) -> Result<Started, StartError> {
    let parent = runtime_directory(&node.base_directory)?;
    let mut lock = if is_head { Some(HeadLock::take(&parent)?) } else { None };
    let cluster = membership.options(node.node)?;
    let fate = cluster.fate.clone();
    if let Some(listen) = cluster.listen {
        name_by_address(&mut node.resources, listen.ip());
    }
    node.cluster = Some(cluster);
    let (over, end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    let handle = NodeHandle::start_then(node, Box::new(move || drop(end)))?;
    let joined = fate.wait(JOIN_PATIENCE).unwrap_or_else(|| {
        let text = format!("no answer within {} s", JOIN_PATIENCE.as_secs());
        Err(JoinFailure::new(Kind::NoAnswer, text))
    })?;
    write_membership(handle.directory(), &joined, &membership.token_file())?;
    if let Some(lock) = &mut lock {
        lock.name(handle.directory())?;
    }
    Ok(Started { handle, over, fate, _lock: lock })
}

/// The resource that stands for a node is named after its address: work can ask for it by that.
fn name_by_address(resources: &mut ResourceSet, address: IpAddr) {
    let local = resources.only(LOCAL_NODE);
    let amount = local.amount(LOCAL_NODE);
    // All of it is there.
    let _ = resources.subtract(&local);
    resources.add_one(&format!("node:{address}"), amount);
}

fn write_membership(directory: &Path, joined: &Joined, token_file: &Path) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(directory.join(MEMBERSHIP))?;
    let Joined { address, head, fingerprint } = joined;
    let token_file = token_file.display();
    if let Some(address) = address {
        writeln!(file, "address {address}")?;
    }
    write!(file, "head {head}\nfingerprint {fingerprint}\ntoken_file {token_file}\n")
}

fn say(ready: Option<OwnedFd>, word: Result<&Path, &str>) {
    match (ready, word) {
        // Whoever started this node may have gone; that is no reason not to run.
        (Some(pipe), word) => {
            let line = match word {
                Ok(directory) => format!("ready {}\n", directory.display()),
                Err(error) => format!("error {error}\n"),
            };
            let _ = File::from(pipe).write_all(line.as_bytes());
        }
        (None, Ok(directory)) => {
            let _ = writeln!(io::stdout(), "ready {}", directory.display());
        }
        (None, Err(error)) => {
            let _ = writeln!(io::stderr(), "sooner start: {error}");
        }
    }
}

/// A daemon has no terminal. What libraries and panics print is worth keeping.
fn redirect_output(directory: &Path) {
    let path = directory.join("logs").join("node.err");
    if let Ok(file) = OpenOptions::new().append(true).create(true).mode(0o600).open(path) {
        let _ = rustix::stdio::dup2_stdout(&file);
        let _ = rustix::stdio::dup2_stderr(&file);
    }
}

fn wait_for_end(handle: &NodeHandle, signals: &OwnedFd, over: &OwnedFd) {
    let mut asked = 0;
    while asked < 2 {
        let mut events = [PollFd::new(signals, PollFlags::IN), PollFd::new(over, PollFlags::IN)];
        // An error is a signal, whose byte is there at the next look.
        let _ = poll(&mut events, None);
        if !events[1].revents().is_empty() {
            return;
        }
        if events[0].revents().contains(PollFlags::IN) {
            let mut bytes = [0; 16];
            asked += rustix::io::read(signals, &mut bytes).unwrap_or(0);
            handle.drain();
        }
    }
}

/// The right to be the head below a runtime directory. The kernel takes it back with the process, however that ends.
#[derive(Debug)]
struct HeadLock {
    path: PathBuf,
    file: File,
}

impl HeadLock {
    fn take(parent: &Path) -> io::Result<Self> {
        let path = parent.join("head.lock");
        loop {
            let mut options = OpenOptions::new();
            let mut file =
                options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let holder = if holder.is_empty() { "one that is starting" } else { holder.trim() };
                return Err(io::Error::other(format!(
                    "a head runs already below {}: {holder}. End it with `sooner stop`, or set SOONER_TMPDIR to another directory for a second one",
                    parent.display()
                )));
            }
            // The one before may have removed the file between our opening and our lock.
            let is_there = std::fs::metadata(&path)
                .is_ok_and(|there| file.metadata().is_ok_and(|ours| ours.ino() == there.ino()));
            if is_there {
                file.set_len(0)?;
                return Ok(Self { path, file });
            }
        }
    }

    /// Says who has it.
    fn name(&mut self, directory: &Path) -> io::Result<()> {
        write!(self.file, "process {} in {}", std::process::id(), directory.display())
    }
}

impl Drop for HeadLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_head_below_a_directory() {
        let parent = std::env::temp_dir().join(format!("sooner-test-head-{}", std::process::id()));
        std::fs::create_dir_all(&parent).expect("directory");
        let mut first = HeadLock::take(&parent).expect("free");
        first.name(Path::new("/x/node-1")).expect("written");
        let text = HeadLock::take(&parent).expect_err("taken").to_string();
        assert!(text.contains("in /x/node-1. End it with `sooner stop`"), "{text}");
        drop(first);
        drop(HeadLock::take(&parent).expect("free again"));
        assert_eq!(std::fs::read_dir(&parent).expect("directory").count(), 0);
        std::fs::remove_dir_all(&parent).expect("clean");
    }
}
