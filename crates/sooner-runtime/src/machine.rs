//! How much memory this process can use, how full it is, and how often the kernel killed a process because it
//! was too full: for the machine, and for the control groups that this process is in.
//!
//! Groups are those of versions 1 and 2, at any depth. Each one from this process's up to the root may have a
//! limit; the smallest counts, or the fullest. This module never decides what the memory is used for. A value
//! that cannot be read is unknown, which is no error.

use std::fs;
use std::path::{Path, PathBuf};

/// How much memory is used, of how much (bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// In use and not reclaimable.
    pub used: u64,
    /// The total.
    pub total: u64,
}

impl Level {
    fn is_fuller_than(&self, other: &Self) -> bool {
        u128::from(self.used) * u128::from(other.total) > u128::from(other.used) * u128::from(self.total)
    }
}

/// The files of one control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    directory: PathBuf,
    is_unified: bool,
}

/// The control group of this process in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// The group itself.
    pub own: Group,
    /// The group above it, if it can be seen.
    pub parent: Option<Group>,
    /// `parent` is the top of what can be seen.
    pub is_parent_top: bool,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Machine {
    root: PathBuf,
    groups: Vec<Group>,
    homes: Vec<Home>,
}

impl Default for Machine {
    fn default() -> Self {
        Self::find(Path::new("/"))
    }
}

impl Machine {
    /// Reads the machine below this root: "/" but for tests.
    #[must_use]
    pub fn find(root: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let (own, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
        let (mut groups, mut homes) = (Vec::new(), Vec::new());
        for mount in mounts.lines().filter_map(Mount::parse) {
            let path = own.lines().find_map(|line| mount.path_of(line));
            let Some(path) = path else { continue };
            let top = root.join(mount.point.trim_start_matches('/'));
            // In a container, `path` may be a path on the machine, of which the mount shows another part.
            let below = Path::new(path).strip_prefix(mount.root).unwrap_or(Path::new(""));
            let group = |below| Group { directory: top.join(below), is_unified: mount.is_unified };
            let parent = below.parent();
            let is_parent_top = parent == Some(Path::new(""));
            homes.push(Home { own: group(below), parent: parent.map(group), is_parent_top });
            groups.extend(below.ancestors().map(group));
        }
        Self { root: root.to_owned(), groups, homes }
    }

    /// The control group of this process in each hierarchy that counts memory.
    #[must_use]
    pub fn homes(&self) -> &[Home] {
        &self.homes
    }

    /// Bytes that this process and those it starts may use together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let machine = field(&self.read("proc/meminfo"), "MemTotal").unwrap_or(u64::MAX);
        self.groups.iter().filter_map(Group::limit).fold(machine, u64::min)
    }

    /// Bytes that are still free for this process.
    #[must_use]
    pub fn available(&self) -> u64 {
        let machine = field(&self.read("proc/meminfo"), "MemAvailable").unwrap_or(u64::MAX);
        self.groups.iter().filter_map(Group::left).fold(machine, u64::min)
    }

    /// The machine and the control groups that limit it further, each with a name for people. Those that
    /// cannot be read are left out.
    ///
    /// Used memory is, for the machine, all but what is available; for a control group, its charge without
    /// file pages that were not used lately.
    fn places(&self) -> Vec<(Level, String)> {
        let machine = level_of(&self.read("proc/meminfo"));
        let limit = machine.map_or(u64::MAX, |level| level.total);
        let machine = machine.map(|level| (level, "this machine".to_owned()));
        let groups = self.groups.iter().filter_map(|group| {
            let level = group.level().filter(|level| level.total < limit)?;
            Some((level, format!("the control group {}", group.directory.display())))
        });
        machine.into_iter().chain(groups).collect()
    }

    /// The place with the largest part in use: it is the next to run out.
    #[must_use]
    pub fn fullest(&self) -> Option<(Level, String)> {
        self.places().into_iter().reduce(|a, b| if b.0.is_fuller_than(&a.0) { b } else { a })
    }

    /// The place with the fewest bytes left: most likely it had run out before those were freed.
    #[must_use]
    pub fn tightest(&self) -> Option<(Level, String)> {
        self.places().into_iter().min_by_key(|(level, _)| level.total.saturating_sub(level.used))
    }

    /// How many processes the kernel has ended for want of memory: in the control group of this process, or
    /// on the machine if that cannot be read.
    #[must_use]
    pub fn kills(&self) -> u64 {
        let machine = || field(&self.read("proc/vmstat"), "oom_kill");
        self.groups.iter().find_map(Group::kills).or_else(machine).unwrap_or(0)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_default()
    }
}

impl Group {
    /// A group below this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self { directory: self.directory.join(name), is_unified: self.is_unified }
    }

    /// Where its files are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether it is of version 2.
    #[must_use]
    pub fn is_unified(&self) -> bool {
        self.is_unified
    }

    /// The text of one of its files.
    #[must_use]
    pub fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(file)).ok()
    }

    /// A number from a file that has one name in version 2 and another in version 1, in this order.
    fn number(&self, names: [&str; 2]) -> Option<u64> {
        self.read(self.name(names))?.trim().parse().ok()
    }

    /// The name of a file: the first in version 2, the second in version 1.
    #[must_use]
    pub fn name<'a>(&self, [second, first]: [&'a str; 2]) -> &'a str {
        if self.is_unified { second } else { first }
    }

    /// `None`: no limit, which version 2 writes as "max" and version 1 as a number beyond every machine.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.number(LIMIT).filter(|limit| *limit > 0)
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> Option<u64> {
        self.number(["memory.current", "memory.usage_in_bytes"])
    }

    /// Bytes of file pages: they count as used, but stay in memory only while it is not needed otherwise.
    fn files(&self, kinds: &[[&str; 2]]) -> u64 {
        let stat = self.read("memory.stat").unwrap_or_default();
        kinds.iter().filter_map(|names| field(&stat, self.name(*names))).sum()
    }

    fn left(&self) -> Option<u64> {
        let (limit, used) = (self.limit()?, self.used()?);
        Some(limit.saturating_sub(used.saturating_sub(self.files(&[ACTIVE_FILES, INACTIVE_FILES]))))
    }

    fn level(&self) -> Option<Level> {
        let (total, used) = (self.limit()?, self.used()?);
        Some(Level { used: used.saturating_sub(self.files(&[INACTIVE_FILES])), total })
    }

    /// How often an allocation was refused because of the group's own limit.
    #[must_use]
    pub fn refusals(&self) -> Option<u64> {
        if self.is_unified {
            field(&self.read("memory.events")?, "oom")
        } else {
            self.number(["", "memory.failcnt"])
        }
    }

    /// How many of the group's processes the kernel has ended for want of memory.
    #[must_use]
    pub fn kills(&self) -> Option<u64> {
        field(&self.read(self.name(["memory.events", "memory.oom_control"]))?, "oom_kill")
    }
}

/// The file with the limit of a group.
pub const LIMIT: [&str; 2] = ["memory.max", "memory.limit_in_bytes"];
const ACTIVE_FILES: [&str; 2] = ["active_file", "total_active_file"];
const INACTIVE_FILES: [&str; 2] = ["inactive_file", "total_inactive_file"];

/// A figure of a file with one name and one number per line: "name 12" or "name: 12 kB" (bytes).
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.strip_prefix(':').or_else(|| rest.starts_with(' ').then_some(rest))
    })?;
    let mut words = line.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    Some(if words.next() == Some("kB") { number.saturating_mul(1024) } else { number })
}

fn level_of(meminfo: &str) -> Option<Level> {
    let (total, available) = (field(meminfo, "MemTotal")?, field(meminfo, "MemAvailable")?);
    Some(Level { used: total.saturating_sub(available), total })
}

/// A mount of control groups that count memory.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    is_unified: bool,
}

impl<'a> Mount<'a> {
    /// From a line of `mountinfo`: `31 23 0:28 ROOT POINT options ... - TYPE source options`.
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut system = system.split(' ');
        let is_unified = match system.next()? {
            "cgroup2" => true,
            "cgroup" if system.nth(1)?.split(',').any(|option| option == "memory") => false,
            _ => return None,
        };
        Some(Self { root, point, is_unified })
    }

    /// The path of the group of this mount, if a line of `/proc/self/cgroup` says it: `4:memory:PATH` or
    /// `0::PATH`.
    fn path_of(&self, line: &'a str) -> Option<&'a str> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_it = if self.is_unified {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|controller| controller == "memory")
        };
        is_it.then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       1024 kB\nMemFree:         100 kB\nMemAvailable:    512 kB\n";

    fn tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("sooner-machine-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        root
    }

    #[test]
    fn without_groups_it_is_the_machine() {
        let root = tree("plain", &[("proc/meminfo", MEMINFO), ("proc/vmstat", "oom 9\noom_kill 3\n")]);
        let machine = Machine::find(&root);
        assert_eq!((machine.total(), machine.available()), (1 << 20, 512 << 10));
        let level = Level { used: 512 << 10, total: 1 << 20 };
        assert_eq!((machine.fullest(), machine.kills()), (Some((level, "this machine".to_owned())), 3));
        fs::remove_dir_all(root).expect("ours");
    }

    #[test]
    fn the_smallest_limit_of_nested_groups_counts() {
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/user/mine/job\n"),
            ("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/user/mine/job/memory.max", "max\n"),
            ("sys/fs/cgroup/user/mine/memory.max", "409600\n"),
            ("sys/fs/cgroup/user/mine/memory.current", "300000\n"),
            ("sys/fs/cgroup/user/mine/memory.stat", "anon 5\nactive_file 30000\ninactive_file 20000\n"),
            ("sys/fs/cgroup/user/mine/job/memory.events", "oom 7\noom_kill 2\noom_group_kill 1\n"),
            ("sys/fs/cgroup/user/mine/memory.events", "oom_kill 4\n"),
            ("sys/fs/cgroup/user/memory.max", "819200\n"),
            ("sys/fs/cgroup/user/memory.current", "800000\n"),
        ];
        let root = tree("unified", &files);
        let machine = Machine::find(&root);
        assert_eq!(
            (machine.total(), machine.available()),
            (409_600, 19_200),
            "each by the group that has least"
        );
        let (level, of) = machine.fullest().expect("there are groups");
        assert_eq!(level, Level { used: 800_000, total: 819_200 });
        assert_eq!(machine.tightest().map(|(level, _)| level), Some(level), "19,200 are left");
        assert!(of.starts_with("the control group ") && of.ends_with("/sys/fs/cgroup/user"), "{of}");
        assert_eq!(machine.kills(), 2, "those of this group");
        fs::remove_dir_all(root).expect("ours");
    }

    #[test]
    fn groups_of_version_1_are_those_of_memory() {
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "8:pids:/\n4:cpu,memory:/box/inner\n0::/\n"),
            (
                "proc/self/mountinfo",
                "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n35 31 0:32 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/inner/memory.usage_in_bytes", "4096\n"),
            (
                "sys/fs/cgroup/memory/inner/memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "204800\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "104800\n"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "active_file 9\ntotal_active_file 1000\ntotal_inactive_file 500\n",
            ),
        ];
        let root = tree("old", &files);
        let machine = Machine::find(&root);
        assert_eq!((machine.total(), machine.available()), (204_800, 101_500));
        let (level, _) = machine.fullest().expect("there are groups");
        assert_eq!((level, machine.kills()), (Level { used: 104_300, total: 204_800 }, 5));
        assert_eq!(machine.tightest(), machine.fullest());
        fs::remove_dir_all(root).expect("ours");
    }

    #[test]
    fn this_machine_has_memory() {
        let machine = Machine::default();
        assert!(
            machine.total() < u64::MAX && 0 < machine.available() && machine.available() <= machine.total()
        );
        let (level, _) = machine.fullest().expect("Linux says so");
        assert!(0 < level.used && level.used <= level.total);
    }

    #[test]
    fn the_fuller_of_two_is_the_one_with_less_to_go() {
        let level = |used, total| Level { used, total };
        assert!(
            level(9, 10).is_fuller_than(&level(80, 100)) && !level(80, 100).is_fuller_than(&level(9, 10))
        );
    }

    #[test]
    fn nothing_is_known_where_nothing_can_be_read() {
        let machine = Machine::find(Path::new("/nowhere at all"));
        assert_eq!((machine.total(), machine.fullest(), machine.kills()), (u64::MAX, None, 0));
    }
}
