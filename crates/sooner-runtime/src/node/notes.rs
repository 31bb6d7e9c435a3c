//! The node's log. Any of the node's threads adds lines to it.
//!
//! Strangers cause lines, too, and may cause many. Such lines are limited per second; a later line says how
//! many were left out.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sooner_protocol::time::Instant;
use sooner_wire::limits::NOTES_MAX;

use crate::clock::now;

/// Writes a line to this process's standard error. A failed write (a full disk, a pipe that nobody reads) is
/// ignored, where `eprintln!` would panic.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "sooner: {text}");
}

const SECOND: u64 = 1_000_000_000;

/// See the module.
#[derive(Debug)]
pub struct Notes {
    path: PathBuf,
    ration: Ration,
}

impl Notes {
    /// The log of the node with this directory.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { path: directory.join("logs").join("node.log"), ration: Ration::default() }
    }

    /// Writes a line.
    pub fn write(&self, text: &str) {
        let mut options = std::fs::OpenOptions::new();
        // Of the user alone, whatever the umask is.
        if let Ok(mut file) = options.append(true).create(true).mode(0o600).open(&self.path) {
            // What peers say must not look like lines of ours.
            let line = text.replace(|c: char| c.is_control(), " ");
            let _ = file.write_all(format!("{} {line}\n", now().0 / 1_000_000).as_bytes());
        }
    }

    /// Writes a line that an outsider caused, unless this second had too many.
    pub fn write_rationed(&mut self, text: &str) {
        match self.ration.take(now()) {
            Some(0) => self.write(text),
            Some(left_out) => self.write(&format!("{text} ({left_out} similar lines were left out before)")),
            None => {}
        }
    }
}

/// At most `NOTES_MAX` lines per second.
#[derive(Debug, Default)]
struct Ration {
    since: Instant,
    taken: u32,
    left_out: u64,
}

impl Ration {
    /// If one more line may be written: how many were left out since the last one.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if now.since(self.since) >= SECOND {
            self.since = now;
            self.taken = 0;
        }
        if self.taken == NOTES_MAX {
            self.left_out += 1;
            return None;
        }
        self.taken += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_flood_is_counted_and_not_written() {
        let mut ration = Ration::default();
        let at = |millis: u64| Instant(5 * SECOND + millis * 1_000_000);
        let written = (0..1000).filter(|_| ration.take(at(0)).is_some()).count();
        assert_eq!(written, NOTES_MAX as usize);
        assert_eq!(ration.take(at(999)), None);
        assert_eq!(ration.take(at(1000)), Some(1001 - u64::from(NOTES_MAX)));
        assert_eq!(ration.take(at(1001)), Some(0));
    }

    #[test]
    fn what_a_peer_sends_is_one_line() {
        let directory = std::env::temp_dir().join(format!("sooner-test-notes-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("logs")).expect("directory");
        let notes = Notes::new(&directory);
        notes.write("a\nb\u{1b}[2J");
        let text = std::fs::read_to_string(directory.join("logs").join("node.log")).expect("written");
        assert!(text.ends_with(" a b [2J\n"), "{text:?}");
        let about = std::fs::metadata(directory.join("logs").join("node.log")).expect("there");
        assert_eq!(about.permissions().mode() & 0o777, 0o600);
        std::fs::remove_dir_all(&directory).expect("clean");
    }
}
