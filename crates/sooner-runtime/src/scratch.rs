//! Directories for unit tests.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// A directory of this user alone, removed with the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// An empty directory. `name` must differ from those of all other tests.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sooner-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
