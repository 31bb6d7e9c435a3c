//! A session's directory: `<base>/weft-<uid>/session-<pid>-<random>`, mode 0700, locked while its driver lives.
//!
//! The lock is how a later start knows that a directory is stale: the kernel drops it with the process, however that
//! ended. A directory of another user is never touched or trusted.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

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
        let path = parent.join(format!("session-{}-{random:016x}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        let lock = File::create_new(path.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        DirBuilder::new().mode(0o700).create(path.join("logs"))?;
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
        if !entry.file_name().to_string_lossy().starts_with("session-") {
            continue;
        }
        match File::open(path.join("lock")) {
            Ok(lock) => {
                if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    let _ = fs::remove_dir_all(&path);
                }
            }
            // Another start has made the directory and not yet its lock, unless it has stood for a while.
            Err(_) if is_older_than_a_minute(&path) => {
                let _ = fs::remove_dir_all(&path);
            }
            Err(_) => {}
        }
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
