//! A node's directory: `<base>/sooner-<uid>/session-<pid>-<node>` if a driver hosts the node,
//! `node-<pid>-<node>` if `sooner start` did; mode 0700, locked while the node's process lives.
//!
//! The lock's file names the process that holds it: `<pid> <start time>`, as in `/proc/<pid>/stat`. A later
//! start sees by the lock that a directory is stale: the kernel releases it when the process ends, in
//! whatever way. A directory of another user is never touched or trusted.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use sooner_wire::NodeId;

use crate::{groups, private};

/// The prefix of a directory that is not locked yet.
const UNFINISHED: &str = "new-";

/// Which kind of node a directory belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A node that a driver hosts.
    Session,
    /// A node that is a process of its own.
    Node,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Kind::Session => "session-",
            Kind::Node => "node-",
        }
    }
}

/// The directory above those of all nodes of this user on this machine: `<base>/sooner-<uid>`, made if it is
/// missing.
///
/// # Errors
/// When it cannot be made, or what stands there belongs to another user or is open to others.
pub fn runtime_directory(base: &Path) -> io::Result<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let path = base.join(format!("sooner-{uid}"));
    make_private(&path)?;
    private::open_directory(&path)?;
    Ok(path)
}

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub struct SessionDirectory {
    path: PathBuf,
    _lock: File,
}

impl SessionDirectory {
    /// Makes a fresh directory below `base`, whose name begins with `kind`, and removes stale ones.
    ///
    /// # Errors
    /// When the directory cannot be made, or what stands there belongs to another user.
    pub fn create(base: &Path, kind: Kind, node: NodeId) -> io::Result<Self> {
        let parent = runtime_directory(base)?;
        reap(&parent);
        let name = format!("{}{}-{:016x}", kind.prefix(), std::process::id(), node.0);
        let path = parent.join(&name);
        // Another start may look here between any two lines. It must see the name of a session only when the
        // directory is locked.
        let unfinished = parent.join(format!("{UNFINISHED}{name}"));
        DirBuilder::new().mode(0o700).create(&unfinished)?;
        let made = furnish(&unfinished).and_then(|lock| fs::rename(&unfinished, &path).map(|()| lock));
        match made {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err(error) => {
                // Otherwise every start on a full disk would leave a directory.
                let _ = fs::remove_dir_all(&unfinished);
                Err(error)
            }
        }
    }

    /// Whether the directory is still there: once it was removed, no command finds the node any more.
    #[must_use]
    pub fn is_there(path: &Path) -> bool {
        !matches!(fs::symlink_metadata(path.join("lock")), Err(error) if error.kind() == io::ErrorKind::NotFound)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SessionDirectory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Makes what a node's directory contains from the beginning; returns the lock.
fn furnish(unfinished: &Path) -> io::Result<File> {
    let mut lock =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished.join("lock"))?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    writeln!(lock, "{} {}", std::process::id(), started().unwrap_or_default())?;
    DirBuilder::new().mode(0o700).create(unfinished.join("logs"))?;
    Ok(lock)
}

/// When this process began, in the kernel's ticks since the machine did: together with the pid it identifies
/// one process, and no later one.
fn started() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may have any bytes in it; the twentieth field behind it is the start.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Removes the directory of a dead node, and the control groups of its workers.
pub fn remove(directory: &Path) {
    groups::clear(directory, groups::PATIENCE);
    let _ = fs::remove_dir_all(directory);
}

fn make_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(false).mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Removes directories whose lock nobody holds.
fn reap(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_stale = if name.starts_with(UNFINISHED) {
            is_older_than_a_minute(&path)
        } else {
            [Kind::Session, Kind::Node].iter().any(|kind| name.starts_with(kind.prefix()))
                && is_unlocked(&path)
        };
        // Workers may just be ending. This start does not wait for them: the next one finds what they leave.
        if is_stale && groups::clear(&path, Duration::ZERO) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn is_unlocked(path: &Path) -> bool {
    // The entry may be a pipe or a link: it is neither waited for nor followed.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path.join("lock"), flags, Mode::empty()).map(File::from);
    match opened {
        Ok(lock) if lock.metadata().is_ok_and(|about| about.is_file()) => {
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        }
        // Half removed by a process that was killed, or just being removed; or not made by a node.
        Ok(_) | Err(_) => is_older_than_a_minute(path),
    }
}

fn is_older_than_a_minute(path: &Path) -> bool {
    let age = fs::metadata(path).and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
    age.is_some_and(|age| age.as_secs() > 60)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use rustix::fs::{CWD, FileType};

    use super::*;

    #[test]
    fn starts_at_the_same_time_do_not_take_each_other_for_stale() {
        let base = std::env::temp_dir().join(format!("sooner-test-many-{}", std::process::id()));
        fs::create_dir_all(&base).expect("directory");
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let base = &base;
                scope.spawn(move || {
                    for number in 0..300 {
                        let session =
                            SessionDirectory::create(base, Kind::Session, NodeId(thread << 32 | number))
                                .expect("session");
                        assert!(session.path().join("logs").exists());
                    }
                });
            }
        });
        fs::remove_dir_all(&base).expect("clean");
    }

    #[test]
    fn stale_directories_go_and_living_ones_stay() {
        let base = std::env::temp_dir().join(format!("sooner-test-{}", std::process::id()));
        fs::create_dir_all(&base).expect("directory");
        let living = SessionDirectory::create(&base, Kind::Session, NodeId(1)).expect("session");
        let parent = living.path().parent().expect("parent").to_owned();
        let stale = [parent.join("session-1-0"), parent.join("node-1-0")];
        for stale in &stale {
            fs::create_dir(stale).expect("directory");
            fs::write(stale.join("lock"), "").expect("lock");
        }
        // What is in the place of a lock keeps nobody waiting.
        let odd = parent.join("session-1-1");
        fs::create_dir(&odd).expect("directory");
        let pipe = (FileType::Fifo, Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(CWD, odd.join("lock"), pipe.0, pipe.1, 0).expect("a pipe");
        let next = SessionDirectory::create(&base, Kind::Node, NodeId(2)).expect("session");
        assert!(odd.exists(), "it is new");
        fs::remove_dir_all(&odd).expect("clean");
        assert!(stale.iter().all(|stale| !stale.exists()));
        assert!(living.path().exists());
        let lock = fs::read_to_string(next.path().join("lock")).expect("text");
        let (pid, began) = lock.trim().split_once(' ').expect("two numbers");
        assert_eq!(pid.parse(), Ok(std::process::id()));
        assert!(began.parse::<u64>().expect("a number") > 0);
        let mode = fs::metadata(next.path()).expect("directory").mode() & 0o777;
        assert_eq!(mode, 0o700);
        drop(next);
        drop(living);
        assert_eq!(fs::read_dir(&parent).expect("directory").count(), 0);
        fs::remove_dir_all(&base).expect("clean");
    }
}
