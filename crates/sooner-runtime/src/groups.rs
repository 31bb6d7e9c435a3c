//! Control groups of single workers: the kernel ends a worker that exceeds its memory limit
//! (`docs/adr/0051`).
//!
//! The groups of a node are below one group, `sooner-NODE/worker-ID`, which is made when the first worker
//! gets a limit. Where it is depends on what the machine allows ([`place_of`]): no program is moved, and no
//! process leaves a limit that it is under. Before that group is made, its path is written in the session's
//! directory, so that whoever removes that directory can remove the groups: the node, the template that is
//! left when the node was killed, or a later start.
//!
//! A group is removed when all its processes are dead. The kernel needs a moment for that after they end, so
//! removal is retried for a while. After that, processes that a worker started and left running are moved to
//! the group of the node.
//!
//! This module never decides which worker has a limit, nor ends a process.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sooner_protocol::node::workers::memory::limit;
use sooner_wire::{NodeId, WorkerId};

use crate::machine::{Group, Home, LIMIT, Machine};

/// A file in a session's directory: the path of its groups, and that of the node's own group.
const RECORD: &str = "groups";
/// The prefix of the name of a node's group.
const PREFIX: &str = "sooner-";
/// Between two attempts to remove a group.
const PAUSE: Duration = Duration::from_millis(5);
/// How long to try to remove a group before the processes left in it are moved elsewhere.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The group in which groups of workers can be made, if there is one.
///
/// In version 1 it is the node's own group, whose limit then covers them, too. In version 2 a group with
/// processes can have no groups below it whose memory is counted (only the root can), so they would be beside
/// it, and free of its limits. That is allowed only where the place was delegated to this program (the mark
/// of systemd's `Delegate=`, or all that a container sees), and the node's own group limits nothing.
#[must_use]
pub fn place_of(home: &Home) -> Option<Group> {
    let own = &home.own;
    if !own.is_unified() {
        let is_nested = own.read("memory.use_hierarchy").is_some_and(|text| text.trim() == "1");
        return (is_nested && own.read(LIMIT[1]).is_some()).then(|| own.clone());
    }
    if hands_memory_on(own) {
        return Some(own.clone());
    }
    let parent = home.parent.as_ref().filter(|parent| hands_memory_on(parent))?;
    let is_free = own.limit().is_none() && own.read("memory.high").is_some_and(|text| text.trim() == "max");
    (is_free && (home.is_parent_top || is_delegated(parent.directory()))).then(|| parent.clone())
}

/// Whether the kernel counts the memory of groups below this one.
fn hands_memory_on(group: &Group) -> bool {
    group
        .read("cgroup.subtree_control")
        .is_some_and(|text| text.split_whitespace().any(|name| name == "memory"))
}

fn is_delegated(directory: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0; 8];
        matches!(rustix::fs::getxattr(directory, *name, &mut value[..]), Ok(1) if value[0] == b'1')
    })
}

/// How a worker with a group ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The kernel ended no process in the group for want of memory.
    Other,
    /// The kernel ended a process in the group, because memory ran out elsewhere.
    Elsewhere,
    /// The kernel ended a process in the group at this limit (bytes).
    AtLimit(u64),
}

#[derive(Debug)]
struct Limited {
    group: Group,
    limit: Option<u64>,
    /// Kills and refused requests that the kernel had counted in the group when the limit was set.
    counted: (u64, u64),
}

/// The groups of a node.
#[derive(Debug)]
pub struct Groups {
    directory: PathBuf,
    name: String,
    place: Option<Place>,
    workers: HashMap<WorkerId, Limited>,
    /// Groups of dead workers, each with the time until which removal is tried.
    leaving: Vec<(Group, Instant)>,
}

#[derive(Debug)]
struct Place {
    /// The group of the node itself.
    home: Group,
    /// The group above those of its workers.
    top: Group,
}

impl Groups {
    /// For a node with this directory. Nothing is made yet.
    #[must_use]
    pub fn new(node: NodeId, directory: &Path) -> Self {
        let name = format!("{PREFIX}{:016x}", node.0);
        let directory = directory.to_owned();
        Self { directory, name, place: None, workers: HashMap::new(), leaving: Vec::new() }
    }

    /// Limits a worker with this process to what it holds, `reserved` more, and an allowance; of `shared`
    /// memory (bytes) only the tables count. Returns the limit.
    ///
    /// # Errors
    /// Where no groups can be made, or this process is gone.
    pub fn limit(
        &mut self,
        machine: &Machine,
        worker: WorkerId,
        pid: u32,
        reserved: u64,
        shared: u64,
    ) -> io::Result<u64> {
        if let Some(known) = self.workers.get_mut(&worker) {
            let bytes = limit(reserved, known.group.used().unwrap_or(0), shared);
            known.counted = count(&known.group);
            write(&known.group, known.group.name(LIMIT), &bytes.to_string())?;
            known.limit = Some(bytes);
            return Ok(bytes);
        }
        let bytes = limit(reserved, 0, shared);
        let group = self.top(machine)?.child(&format!("worker-{:016x}", worker.0));
        fs::create_dir(group.directory())?;
        let limited = Limited { group, limit: Some(bytes), counted: (0, 0) };
        let made = fill(&limited.group, bytes, pid);
        self.workers.insert(worker, limited);
        match made {
            Ok(()) => Ok(bytes),
            Err(error) => {
                self.forget(worker);
                Err(error)
            }
        }
    }

    /// Removes a worker's limit.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn lift(&mut self, worker: WorkerId) -> io::Result<()> {
        let Some(limited) = self.workers.get_mut(&worker) else { return Ok(()) };
        limited.limit = None;
        let unlimited = if limited.group.is_unified() { "max" } else { "-1" };
        write(&limited.group, limited.group.name(LIMIT), unlimited)
    }

    /// How a worker ended, if it has a group.
    #[must_use]
    pub fn end_of(&self, worker: WorkerId) -> Option<End> {
        let Limited { group, limit, counted } = self.workers.get(&worker)?;
        let (kills, refusals) = count(group);
        Some(match limit {
            _ if kills <= counted.0 => End::Other,
            Some(limit) if refusals > counted.1 => End::AtLimit(*limit),
            Some(_) | None => End::Elsewhere,
        })
    }

    /// Whether the kernel counts kills in these groups as kills in the node's own group, too.
    #[must_use]
    pub fn are_counted_at_home(&self) -> bool {
        self.place.as_ref().is_some_and(|Place { home, top }| {
            home.is_unified() && top.directory().starts_with(home.directory())
        })
    }

    /// A worker is dead: its group is to be removed.
    pub fn forget(&mut self, worker: WorkerId) {
        if let Some(limited) = self.workers.remove(&worker) {
            self.leaving.push((limited.group, Instant::now() + PATIENCE));
            self.attend();
        }
    }

    /// Whether the group of a dead worker still exists.
    #[must_use]
    pub fn is_one_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Tries to remove the groups of dead workers.
    pub fn attend(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let home = self.place.as_ref().map(|place| place.home.directory());
        self.leaving.retain(|(group, until)| {
            let is_over = Instant::now() >= *until;
            if let Some(home) = home.filter(|_| is_over) {
                empty(group.directory(), home);
            }
            !is_removed(group.directory()) && !is_over
        });
    }

    /// Removes all groups. The processes of the node have ended.
    pub fn close(&mut self) {
        if self.place.take().is_some() {
            clear(&self.directory, PATIENCE);
        }
    }

    /// The group above those of the workers, made if it is missing.
    fn top(&mut self, machine: &Machine) -> io::Result<&Group> {
        if self.place.is_none() {
            let found = machine.homes().iter().find_map(|home| Some((home, place_of(home)?)));
            let (home, place) = found.ok_or_else(|| {
                let text = "this process may make no control groups that limit memory";
                io::Error::new(io::ErrorKind::Unsupported, text)
            })?;
            let (home, top) = (home.own.clone(), place.child(&self.name));
            let record = format!("{}\n{}\n", top.directory().display(), home.directory().display());
            fs::write(self.directory.join(RECORD), record)?;
            fs::create_dir(top.directory())?;
            if top.is_unified() {
                write(&top, "cgroup.subtree_control", "+memory")?;
            }
            self.place = Some(Place { home, top });
        }
        Ok(&self.place.as_ref().expect("made above").top)
    }
}

/// Gives a new group its limit, and its process.
fn fill(group: &Group, bytes: u64, pid: u32) -> io::Result<()> {
    write(group, group.name(LIMIT), &bytes.to_string())?;
    if group.is_unified() {
        // A task would go on without a helper that the kernel ended in its place. So all processes of the
        // group end, and the task is retried.
        let _ = write(group, "memory.oom.group", "1");
    }
    write(group, PROCESSES, &pid.to_string())
}

/// The file with the processes of a group.
const PROCESSES: &str = "cgroup.procs";

fn count(group: &Group) -> (u64, u64) {
    (group.kills().unwrap_or(0), group.refusals().unwrap_or(0))
}

fn write(group: &Group, file: &str, text: &str) -> io::Result<()> {
    fs::write(group.directory().join(file), text)
}

fn is_removed(directory: &Path) -> bool {
    match fs::remove_dir(directory) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Moves the processes left in a group to another one.
fn empty(directory: &Path, home: &Path) {
    let left = fs::read_to_string(directory.join(PROCESSES)).unwrap_or_default();
    for pid in left.lines() {
        let _ = fs::write(home.join(PROCESSES), pid);
    }
}

/// Removes the groups of the node that had this directory, if there are any. Waits up to `patience` for
/// ending processes; false if some are left.
pub fn clear(directory: &Path, patience: Duration) -> bool {
    let Ok(record) = fs::read_to_string(directory.join(RECORD)) else { return true };
    let mut lines = record.lines().map(Path::new);
    let (Some(top), Some(home)) = (lines.next(), lines.next()) else { return true };
    let is_ours = top.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    if !is_ours {
        return true;
    }
    let until = Instant::now() + patience;
    loop {
        let workers: Vec<PathBuf> = fs::read_dir(top)
            .map(|entries| entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
            .unwrap_or_default();
        let is_over = Instant::now() >= until;
        for worker in &workers {
            if is_over && !patience.is_zero() {
                empty(worker, home);
            }
            is_removed(worker);
        }
        if is_removed(top) {
            let _ = fs::remove_file(directory.join(RECORD));
            return true;
        }
        if is_over {
            return false;
        }
        sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "31 23 0:28 / /cgroup rw - cgroup2 cgroup2 rw\n";
    const FIRST: &str = "31 23 0:28 / /cgroup rw - cgroup cgroup rw,memory\n";

    /// What a machine with these files (the first two of this process) offers, without its root.
    fn place(name: &str, own: &str, mounts: &str, files: &[(&str, &str)]) -> Option<PathBuf> {
        let root = std::env::temp_dir().join(format!("sooner-groups-{}-{name}", std::process::id()));
        let all = [("proc/self/cgroup", own), ("proc/self/mountinfo", mounts)];
        for (path, text) in all.iter().chain(files) {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        let place = Machine::find(&root).homes().iter().find_map(place_of);
        let below = place.map(|place| place.directory().strip_prefix(&root).expect("below it").to_owned());
        fs::remove_dir_all(root).expect("ours");
        below
    }

    #[test]
    fn in_version_1_they_are_in_the_nodes_own() {
        let limit = ("cgroup/job/memory.limit_in_bytes", "4096\n");
        let own = "4:memory:/job\n0::/\n";
        let nested = ("cgroup/job/memory.use_hierarchy", "1\n");
        assert_eq!(place("nested", own, FIRST, &[limit, nested]), Some("cgroup/job".into()));
        let flat = ("cgroup/job/memory.use_hierarchy", "0\n");
        assert_eq!(place("flat", own, FIRST, &[limit, flat]), None, "they would leave its limit");
        assert_eq!(place("elsewhere", own, FIRST, &[]), None, "it is not seen here");
    }

    #[test]
    fn in_version_2_they_are_beside_it_in_what_was_handed_over() {
        let memory = ("cgroup/cgroup.subtree_control", "cpu memory\n");
        let free = [("cgroup/main/memory.max", "max\n"), ("cgroup/main/memory.high", "max\n")];
        let all = [&[memory][..], &free].concat();
        assert_eq!(place("container", "0::/main\n", UNIFIED, &all), Some("cgroup".into()));
        assert_eq!(place("none", "0::/main\n", UNIFIED, &free), None, "memory is not counted there");
        let limited = [memory, ("cgroup/main/memory.max", "4096\n"), free[1]];
        assert_eq!(place("limited", "0::/main\n", UNIFIED, &limited), None, "they would leave its limit");
        let slowed = [memory, free[0], ("cgroup/main/memory.high", "4096\n")];
        assert_eq!(place("slowed", "0::/main\n", UNIFIED, &slowed), None, "this one, too");
        let deeper = [
            ("cgroup/user/cgroup.subtree_control", "memory\n"),
            ("cgroup/user/main/memory.max", "max\n"),
            ("cgroup/user/main/memory.high", "max\n"),
        ];
        assert_eq!(place("deeper", "0::/user/main\n", UNIFIED, &deeper), None, "that is somebody else's");
        assert_eq!(place("root", "0::/\n", UNIFIED, &[memory]), Some("cgroup".into()), "only the root can");
    }

    #[test]
    fn a_place_is_handed_over_by_its_mark() {
        let directory = std::env::temp_dir().join(format!("sooner-groups-{}-marked", std::process::id()));
        fs::create_dir(&directory).expect("a directory");
        assert!(!is_delegated(&directory));
        let marked = rustix::fs::setxattr(&directory, "user.delegate", b"1", rustix::fs::XattrFlags::empty());
        // A file system without such marks says so.
        assert_eq!(is_delegated(&directory), marked.is_ok());
        fs::remove_dir(directory).expect("ours");
    }

    #[test]
    fn what_stands_in_a_record_and_is_not_ours_stays() {
        let directory = std::env::temp_dir().join(format!("sooner-groups-{}-record", std::process::id()));
        let (ours, other) = (directory.join("sooner-00ff"), directory.join("other"));
        for path in [ours.join("worker-1"), other.clone()] {
            fs::create_dir_all(path).expect("a directory");
        }
        assert!(clear(&directory, Duration::ZERO), "nothing is written down");
        for (top, is_left) in [(&other, true), (&ours, false)] {
            fs::write(directory.join(RECORD), format!("{}\n/\n", top.display())).expect("a file");
            assert!(clear(&directory, Duration::ZERO));
            assert_eq!(top.exists(), is_left);
        }
        assert!(!directory.join(RECORD).exists());
        fs::create_dir_all(ours.join("worker-1/busy")).expect("a directory");
        fs::write(directory.join(RECORD), format!("{}\n/\n", ours.display())).expect("a file");
        assert!(!clear(&directory, Duration::ZERO), "somebody is in it");
        fs::remove_dir_all(directory).expect("ours");
    }

    /// On the machine that runs this, where it allows.
    #[test]
    fn a_limit_is_the_kernels_message() {
        let directory = std::env::temp_dir().join(format!("sooner-groups-{}-real", std::process::id()));
        fs::create_dir(&directory).expect("a directory");
        let mut groups = Groups::new(NodeId(u64::from(std::process::id()) << 24), &directory);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let (machine, worker) = (Machine::default(), WorkerId(7));
        match groups.limit(&machine, worker, child.id(), 1 << 20, 0) {
            Err(error) => eprintln!("skipped: no groups can be made here: {error}"),
            Ok(bytes) => {
                assert_eq!(bytes, limit(1 << 20, 0, 0));
                let group = groups.workers[&worker].group.clone();
                assert_eq!(group.limit(), Some(bytes));
                assert_eq!(group.read(PROCESSES), Some(format!("{}\n", child.id())));
                assert_eq!(groups.end_of(worker), Some(End::Other));
                groups.lift(worker).expect("allowed above");
                assert!(group.limit().is_none_or(|limit| limit > 1 << 60));
                groups.forget(worker);
                assert!(groups.is_one_leaving(), "its process lives");
                child.kill().expect("ours");
                child.wait().expect("ours");
                groups.close();
                assert!(!group.directory().exists() && !directory.join(RECORD).exists());
            }
        }
        let _ = child.kill();
        let _ = child.wait();
        fs::remove_dir_all(directory).expect("ours");
    }
}
