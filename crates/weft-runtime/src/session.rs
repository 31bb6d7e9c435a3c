//! A session's directory: `<base>/weft-<uid>/session-<pid>-<random>`, mode 0700, locked while its driver lives.
//!
//! The lock is how a later start knows that a directory is stale: the kernel drops it with the process, however that
//! ended. A directory of another user is never touched or trusted.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// Begins the name of a directory that is not locked yet.
const UNFINISHED: &str = "new-";

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub struct SessionDirectory {
    path: PathBuf,
    _lock: File,
}

impl SessionDirectory {
    /// Makes a fresh directory below `base` and removes stale ones.
    ///
    /// # Errors
    /// When the directory cannot be made, or what stands there belongs to someone else.
    pub fn create(base: &Path, random: u64) -> io::Result<Self> {
        let uid = rustix::process::getuid().as_raw();
        let parent = base.join(format!("weft-{uid}"));
        make_private(&parent)?;
        let metadata = fs::symlink_metadata(&parent)?;
        if !metadata.is_dir() || metadata.uid() != uid || metadata.mode() & 0o077 != 0 {
            return Err(io::Error::other(format!(
                "{} must be a directory of yours with mode 0700: remove it, or set WEFT_TMPDIR to another place",
                parent.display()
            )));
        }
        reap(&parent);
        let name = format!("session-{}-{random:016x}", std::process::id());
        let path = parent.join(&name);
        // Another start may look here between any two lines: it must find the name of a session only once it is locked.
        let unfinished = parent.join(format!("{UNFINISHED}{name}"));
        DirBuilder::new().mode(0o700).create(&unfinished)?;
        let lock = File::create_new(unfinished.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        DirBuilder::new().mode(0o700).create(unfinished.join("logs"))?;
        fs::rename(&unfinished, &path)?;
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SessionDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
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
            name.starts_with("session-") && is_unlocked(&path)
        };
        if is_stale {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn is_unlocked(path: &Path) -> bool {
    match File::open(path.join("lock")) {
        Ok(lock) => rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
        // Half removed by someone who was killed, or just being removed.
        Err(_) => is_older_than_a_minute(path),
    }
}

fn is_older_than_a_minute(path: &Path) -> bool {
    let age = fs::metadata(path).and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
    age.is_some_and(|age| age.as_secs() > 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_the_same_time_do_not_take_each_other_for_stale() {
        let base = std::env::temp_dir().join(format!("weft-test-many-{}", std::process::id()));
        fs::create_dir_all(&base).expect("directory");
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let base = &base;
                scope.spawn(move || {
                    for number in 0..300 {
                        let session = SessionDirectory::create(base, thread << 32 | number).expect("session");
                        assert!(session.path().join("logs").exists());
                    }
                });
            }
        });
        fs::remove_dir_all(&base).expect("clean");
    }

    #[test]
    fn stale_directories_go_and_living_ones_stay() {
        let base = std::env::temp_dir().join(format!("weft-test-{}", std::process::id()));
        fs::create_dir_all(&base).expect("directory");
        let living = SessionDirectory::create(&base, 1).expect("session");
        let parent = living.path().parent().expect("parent").to_owned();
        let stale = parent.join("session-1-0");
        fs::create_dir(&stale).expect("directory");
        fs::write(stale.join("lock"), "").expect("lock");
        let next = SessionDirectory::create(&base, 2).expect("session");
        assert!(!stale.exists());
        assert!(living.path().exists());
        let mode = fs::metadata(next.path()).expect("directory").mode() & 0o777;
        assert_eq!(mode, 0o700);
        drop(next);
        drop(living);
        assert_eq!(fs::read_dir(&parent).expect("directory").count(), 0);
        fs::remove_dir_all(&base).expect("clean");
    }
}
