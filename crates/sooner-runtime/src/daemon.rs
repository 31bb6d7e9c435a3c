//! A node as a process of its own: what `sooner start` runs.
//!
//! It reports through a pipe that it is ready, or in one sentence why it is not. Then it obeys signals: the
//! first one drains the node, the second one ends it at once. None of its processes survive it: workers and
//! templates see the end of their sockets, and the last template removes the directory.
//!
//! It is ready when it has joined its cluster ([`Membership`]).

mod membership;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::held;
use crate::identity::Identity;
use crate::node::cluster::fate::{Fate, JoinFailure, Joined, Kind};
use crate::node::notes::tell;
use crate::node::{NodeHandle, NodeOptions};
use crate::owned::{Directory, Fault};
use crate::session::{SessionDirectory, runtime_directory};
use crate::ulimits::told;
pub use membership::{GivenToken, Membership, Renewal, StartError, of_program};
use sooner_wire::ResourceSet;
use sooner_wire::resources::UNIT;

/// Exit status: the node ended as it was told.
pub const ENDED: i32 = 0;
/// Exit status: the node could not start, failed, or was told by its cluster to end. Statuses above 2 are
/// reasons why it could not join.
pub const FAILED: i32 = 1;
/// The longest time for joining in all; each address of the head has a shorter limit of its own.
const JOIN_PATIENCE: Duration = Duration::from_secs(60);
/// The signal on which a node reads its token file again: SIGUSR1.
const RENEW: i32 = rustix::process::Signal::USR1.as_raw();
/// A file in the directory of all nodes, locked by the head.
const HEAD_LOCK: &str = "head.lock";
/// A file in the node's directory that names its cluster, for commands on this machine.
const MEMBERSHIP: &str = "cluster";
/// The resource that names a node while its address is not known.
const LOCAL_NODE: &str = "node:127.0.0.1";

/// What a daemon needs besides its node.
#[derive(Debug)]
pub struct Surroundings {
    /// Whether this node is the head: each runtime directory has at most one.
    pub is_head: bool,
    /// Where the node reports that it is ready. `None`: the process is in the foreground, and reports on
    /// standard output.
    pub ready: Option<OwnedFd>,
    /// For each signal a byte comes, its number: on SIGUSR1 the node reads its token file again, all others
    /// ask it to end.
    pub signals: OwnedFd,
    /// The cluster to which the node belongs.
    pub membership: Membership,
}

/// Runs a node until it is told to end. Returns the exit status.
#[must_use]
pub fn run(node: NodeOptions, surroundings: Surroundings) -> i32 {
    let Surroundings { is_head, ready, signals, membership } = surroundings;
    let _ = rustix::thread::set_name(c"sooner-node");
    let place = node.base_directory.clone();
    let mut started = match start(node, is_head, &membership) {
        Ok(started) => started,
        Err(error) => {
            let status = match &error {
                StartError::Join(failure) => failure.exit_status(),
                StartError::Io(_) => FAILED,
            };
            send(ready, Err(&told_with_place(&error, &place)));
            return status;
        }
    };
    if ready.is_some() {
        redirect_output(started.handle.directory());
    }
    send(ready, Ok(started.handle.directory()));
    wait_for_end(&mut started, &signals);
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

/// Why a node does not start, for people. It names the directory, because the kernel does not say which one
/// is full or not writable.
fn told_with_place(error: &StartError, place: &Path) -> String {
    match error {
        StartError::Io(io) if Errno::from_io_error(io).is_some_and(|errno| OF_PLACES.contains(&errno)) => {
            format!(
                "a node cannot start in {} (set SOONER_TMPDIR to another directory): {error}",
                place.display()
            )
        }
        StartError::Io(io) => told(io),
        StartError::Join(_) => error.to_string(),
    }
}

struct Started {
    handle: NodeHandle,
    /// Ends when the node does.
    over: OwnedFd,
    fate: Arc<Fate>,
    identity: Identity,
    renewal: Renewal,
    joined: Joined,
    token_file: PathBuf,
    /// This node's part of the machine's memory: logical memory, and the object store (bytes). Nodes that
    /// start on the machine later offer what is left.
    offers: [u64; 2],
    _lock: Option<HeadLock>,
}

impl Started {
    /// Reads the token file again. The command that asked for it finds the result in the node's directory.
    fn renew(&mut self) {
        let refused = match self.renewal.renew(&self.identity) {
            Ok(workers) => {
                self.handle.renew(workers);
                None
            }
            Err(why) => {
                tell(&format!("the token is not changed: {why}"));
                Some(why)
            }
        };
        let written = self.write_membership(refused.as_deref());
        if let Err(error) = written {
            tell(&format!("the token is changed, but that cannot be written: {error}"));
        }
    }

    fn write_membership(&self, refused: Option<&str>) -> io::Result<()> {
        let path = self.handle.directory().join(MEMBERSHIP);
        let unfinished = path.with_extension("new");
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        let Joined { address, head, .. } = &self.joined;
        if let Some(address) = address {
            writeln!(file, "address {address}")?;
        }
        let believed = self.renewal.fingerprints();
        write!(file, "head {head}\nfingerprint {}\n", believed[0])?;
        write!(file, "believed {}\ntoken_file {}\n", believed.join(" "), self.token_file.display())?;
        let [memory, store] = self.offers;
        write!(file, "memory {memory}\nstore {store}\n")?;
        if let Some(refused) = refused {
            writeln!(file, "refused {}", refused.replace('\n', " "))?;
        }
        std::fs::rename(&unfinished, &path)
    }
}

fn start(mut node: NodeOptions, is_head: bool, membership: &Membership) -> Result<Started, StartError> {
    let parent = runtime_directory(&node.base_directory)?;
    let mut lock = if is_head { Some(HeadLock::take(&parent)?) } else { None };
    let (cluster, renewal) = membership.options(node.node, &parent)?;
    let (identity, fate) = (cluster.identity.clone(), cluster.fate.clone());
    if let Some(listen) = cluster.listen {
        name_by_address(&mut node.resources, listen.ip());
    }
    node.cluster = Some(cluster);
    let offers = ["memory", "object_store_memory"].map(|name| node.resources.amount(name) / UNIT);
    let (over, end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    let handle = NodeHandle::start_then(node, Box::new(move || drop(end)))?;
    let joined = fate.wait(JOIN_PATIENCE).unwrap_or_else(|| {
        let text = format!("no answer within {} s", JOIN_PATIENCE.as_secs());
        Err(JoinFailure::new(Kind::NoAnswer, text))
    })?;
    if let Some(lock) = &mut lock {
        lock.name(handle.directory())?;
    }
    let token_file = membership.token_file();
    let started = Started { handle, over, fate, identity, renewal, joined, token_file, offers, _lock: lock };
    started.write_membership(None)?;
    Ok(started)
}

/// Names the resource that stands for a node after the node's address, so that work can ask for it.
fn name_by_address(resources: &mut ResourceSet, address: IpAddr) {
    let local = resources.only(LOCAL_NODE);
    let amount = local.amount(LOCAL_NODE);
    // Cannot fail: the amount is all there is.
    let _ = resources.subtract(&local);
    resources.add_one(&format!("node:{address}"), amount);
}

fn send(ready: Option<OwnedFd>, word: Result<&Path, &str>) {
    match (ready, word) {
        // The process that started this node may have ended; that is no reason not to run.
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

/// Keeps what libraries and panics print, since a daemon has no terminal.
fn redirect_output(directory: &Path) {
    let path = directory.join("logs").join("node.err");
    if let Ok(file) = OpenOptions::new().append(true).create(true).mode(0o600).open(path) {
        let _ = rustix::stdio::dup2_stdout(&file);
        let _ = rustix::stdio::dup2_stderr(&file);
    }
}

/// Time between two looks at the node's directory.
const LOOK: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Errors that concern a directory.
const OF_PLACES: [Errno; 6] =
    [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::ACCESS, Errno::NOENT, Errno::NOTDIR];

fn wait_for_end(started: &mut Started, signals: &OwnedFd) {
    let mut asked = 0;
    while asked < 2 {
        let mut events = [PollFd::new(signals, PollFlags::IN), PollFd::new(&started.over, PollFlags::IN)];
        // An error means a signal, whose byte is there at the next look.
        let count = poll(&mut events, Some(&LOOK));
        if count == Ok(0) {
            // Removing the directory means that no node is wanted here, and no command can find it any more:
            // the node ends as if told to.
            if asked == 0 && !SessionDirectory::is_there(started.handle.directory()) {
                tell("the node's directory was removed: it ends");
                asked += 1;
                started.handle.drain();
            }
            continue;
        }
        if !events[1].revents().is_empty() {
            return;
        }
        if !events[0].revents().contains(PollFlags::IN) {
            continue;
        }
        let mut bytes = [0; 16];
        let count = rustix::io::read(signals, &mut bytes).unwrap_or(0);
        let ends = bytes[..count].iter().filter(|number| i32::from(**number) != RENEW).count();
        if ends < count {
            started.renew();
        }
        if ends > 0 {
            asked += ends;
            started.handle.drain();
        }
    }
}

/// The right to be the head below a runtime directory. The kernel releases it when the process ends, in
/// whatever way.
#[derive(Debug)]
struct HeadLock {
    directory: Directory,
    file: File,
}

impl HeadLock {
    fn take(parent: &Path) -> io::Result<Self> {
        let directory = Directory::open(parent)?;
        loop {
            let mut file =
                directory.open_file(HEAD_LOCK, OFlags::CREATE).map_err(|error| lock_fault(error, parent))?;
            if let Some(holder) = held::take(&mut file)? {
                let holder = if holder.is_empty() { "one that is starting" } else { holder.trim() };
                return Err(io::Error::other(format!(
                    "a head runs already below {}: {holder}. End it with `sooner stop`, or set SOONER_TMPDIR to another directory for a second one",
                    parent.display()
                )));
            }
            // The former head may have removed the file between our opening and our lock.
            let there = directory.look(HEAD_LOCK)?.map(|there| there.st_ino);
            if there == Some(file.metadata()?.ino()) {
                file.set_len(0)?;
                return Ok(Self { directory, file });
            }
        }
    }

    /// Writes which process holds it.
    fn name(&mut self, directory: &Path) -> io::Result<()> {
        write!(self.file, "process {} in {}", std::process::id(), directory.display())
    }
}

impl Drop for HeadLock {
    fn drop(&mut self) {
        let _ = self.directory.remove(HEAD_LOCK);
    }
}

/// What stands at the place of the lock file, for people.
fn lock_fault(error: io::Error, parent: &Path) -> io::Error {
    if !Fault::is_in(&error) {
        return error;
    }
    io::Error::other(format!(
        "{}: {error}; remove it, or set SOONER_TMPDIR to another directory",
        parent.join(HEAD_LOCK).display()
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt;

    use super::*;

    #[test]
    fn there_is_one_head_below_a_directory() {
        let parent = std::env::temp_dir().join(format!("sooner-test-head-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&parent).expect("directory");
        let mut first = HeadLock::take(&parent).expect("free");
        first.name(Path::new("/x/node-1")).expect("written");
        let text = HeadLock::take(&parent).expect_err("taken").to_string();
        assert!(text.contains("in /x/node-1. End it with `sooner stop`"), "{text}");
        drop(first);
        drop(HeadLock::take(&parent).expect("free again"));
        std::fs::create_dir(parent.join(HEAD_LOCK)).expect("a directory");
        let text = HeadLock::take(&parent).expect_err("no file").to_string();
        assert!(text.contains("head.lock: it is no file, and belongs to user "), "{text}");
        std::fs::remove_dir(parent.join(HEAD_LOCK)).expect("removed");
        assert_eq!(std::fs::read_dir(&parent).expect("directory").count(), 0);
        std::fs::remove_dir_all(&parent).expect("clean");
    }
}
