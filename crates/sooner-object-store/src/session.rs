//! Which process wrote the objects below a prefix, and whether it still lives: this is how objects of dead
//! sessions are recognised.
//!
//! Each session has a prefix of its own, with a random name, and there an object that identifies its process
//! and machine: the marker. It is written before all other objects, deleted after them, and rewritten every
//! [`RENEW`].
//!
//! **When a session is dead.** If its process is visible to the process that looks (same machine, same boot,
//! same pid namespace): as soon as that process has ended, or another process has its pid. In all other cases
//! this cannot be known, so only when its marker is [`STALE`] old, by the store's clock. A session without a
//! marker is dead when all its objects are that old.
//!
//! This module decides and asks the kernel; it makes no request.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use object_store::path::Path;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// How often a living session rewrites its marker.
pub const RENEW: Duration = Duration::from_secs(600);

/// A session whose marker was not rewritten for so long is dead: it is longer than outages of stores and
/// networks usually are.
pub const STALE: Duration = Duration::from_secs(24 * 3600);
const _: () = assert!(RENEW.as_secs() * 100 < STALE.as_secs());

/// The longest marker (bytes).
pub const MARKER_BYTES_MAX: u64 = 4096;

/// The name below which all sessions lie, below the prefix that the user gives.
const COMMON: &str = "sooner-spill";
const MARKER: &str = "session";
const PROBE: &str = "probe";
const FIRST_LINE: &str = "a session of sooner, version 1";

/// The prefix of all sessions.
pub fn sessions(prefix: &Path) -> Path {
    prefix.clone().join(COMMON)
}

/// The name of a new session.
///
/// # Errors
/// The kernel's, when it has nothing random to give.
pub fn new_name() -> Result<String, Errno> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(random.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// The key of a session's marker.
pub fn marker(session: &Path) -> Path {
    session.clone().join(MARKER)
}

/// The key of the object that is written, read and deleted to see whether that is allowed.
pub fn probe(session: &Path) -> Path {
    session.clone().join(PROBE)
}

/// The key of an object of a file.
pub fn key(session: &Path, file: u64, object: u64) -> Path {
    session.clone().join(format!("{file:08x}-{object:06x}"))
}

/// A process of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The id of the machine's boot; empty if it cannot be read.
    boot: String,
    /// Its namespace of process ids.
    namespace: u64,
    pid: u32,
    /// When the process began, in the kernel's ticks.
    started: u64,
}

impl Identity {
    /// This process.
    #[must_use]
    pub fn own() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
        let pid = std::process::id();
        let started =
            std::fs::read_to_string("/proc/self/stat").ok().and_then(|text| started(&text)).unwrap_or(0);
        Self { boot: boot.trim().to_owned(), namespace, pid, started }
    }

    /// The text of the marker.
    #[must_use]
    pub fn encode(&self) -> String {
        let Self { boot, namespace, pid, started } = self;
        format!("{FIRST_LINE}\nboot {boot}\nnamespace {namespace}\npid {pid}\nstarted {started}\n")
    }

    /// Parses a marker. `None` if this version of sooner does not understand it.
    #[must_use]
    pub fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
        let boot = value("boot").filter(|boot| boot.bytes().all(is_of_boot))?;
        let namespace = value("namespace")?.parse().ok()?;
        let pid = value("pid")?.parse().ok()?;
        let started = value("started")?.parse().ok()?;
        Some(Self { boot, namespace, pid, started })
    }

    /// Whether a session whose marker is `age` old is dead. `self` is the process that looks.
    #[must_use]
    pub fn finds_dead(&self, session: Option<&Self>, age: Duration) -> bool {
        match session.filter(|session| self.sees(session)) {
            Some(session) => !session.runs(),
            None => age >= STALE,
        }
    }

    /// Whether both pids are in the same namespace of the same boot.
    fn sees(&self, other: &Self) -> bool {
        !self.boot.is_empty()
            && self.namespace != 0
            && (&self.boot, self.namespace) == (&other.boot, other.namespace)
    }

    /// Whether its process lives. In doubt, it does.
    fn runs(&self) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return false };
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return false;
        }
        // This may not be readable for a process of another user.
        match std::fs::read_to_string(format!("/proc/{}/stat", self.pid)) {
            Ok(text) => started(&text) == Some(self.started),
            Err(_) => true,
        }
    }
}

#[cfg(test)]
impl Identity {
    pub fn become_process(&mut self, pid: u32) {
        self.pid = pid;
    }

    pub fn become_elsewhere(&mut self) {
        self.boot.push('0');
    }
}

/// Whether a byte may be part of a boot id.
fn is_of_boot(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte == b'-'
}

/// When a process began, from its line in /proc. `None` if it has ended and was not yet reaped by its parent.
fn started(stat: &str) -> Option<u64> {
    // The name before this may contain anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    if ["Z", "X", "x"].contains(&state) {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_marker_says_is_read_again() {
        let own = Identity::own();
        assert_eq!(Identity::decode(&own.encode()), Some(own.clone()));
        let garbled = own.encode().replace("boot ", "boot \r");
        for text in ["", "a session of sooner, version 2\nboot x\n", &own.encode()[..40], &garbled] {
            assert_eq!(Identity::decode(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_of_this_machine_is_dead_when_it_is_gone_or_another_one() {
        let own = Identity::own();
        assert!(!own.finds_dead(Some(&own), 2 * STALE), "it runs, however old its marker is");
        let other = Identity { started: own.started + 1, ..own.clone() };
        assert!(own.finds_dead(Some(&other), Duration::ZERO), "its number was used again");
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        let ended = Identity { pid: child.id(), ..own.clone() };
        child.wait().expect("it ends");
        assert!(own.finds_dead(Some(&ended), Duration::ZERO));
    }

    #[test]
    fn others_are_dead_when_they_have_been_silent_for_long() {
        let own = Identity::own();
        let elsewhere = Identity { boot: "another".to_owned(), ..own.clone() };
        let container = Identity { namespace: own.namespace + 1, started: 0, ..own.clone() };
        for session in [Some(&elsewhere), Some(&container), None] {
            assert!(!own.finds_dead(session, STALE - Duration::from_secs(1)));
            assert!(own.finds_dead(session, STALE));
        }
        let nowhere = Identity { boot: String::new(), started: 0, ..own.clone() };
        assert!(!nowhere.finds_dead(Some(&nowhere), Duration::ZERO), "nobody knows which machine that is");
    }

    #[test]
    fn a_process_that_has_ended_has_not_begun() {
        let fields = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(started(&format!("7 (a) b) S {fields}")), Some(4711));
        assert_eq!(started(&format!("7 (a) b) Z {fields}")), None);
        assert_eq!(started("7 (a"), None);
    }
}
