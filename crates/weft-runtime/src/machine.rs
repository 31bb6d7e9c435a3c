//! How much memory there is for this process: of the machine, and of the control groups it is in.
//!
//! Groups are those of version 1 and 2, at any depth: each one from this process's up to the root may have a limit, and the
//! smallest counts. It never decides what the memory is for.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of one control group.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    directory: PathBuf,
    is_unified: bool,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Machine {
    root: PathBuf,
    groups: Vec<Group>,
}

impl Default for Machine {
    fn default() -> Self {
        Self::find(Path::new("/"))
    }
}

impl Machine {
    /// What is below this root: "/" but for tests.
    #[must_use]
    pub fn find(root: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let (own, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
        let mut groups = Vec::new();
        for mount in mounts.lines().filter_map(Mount::parse) {
            let path = own.lines().find_map(|line| mount.path_of(line));
            let Some(path) = path else { continue };
            let top = root.join(mount.point.trim_start_matches('/'));
            // In a container, the path may be one of the machine, of which the mount shows another part.
            let below = Path::new(path).strip_prefix(mount.root).unwrap_or(Path::new(""));
            for ancestor in below.ancestors() {
                groups.push(Group { directory: top.join(ancestor), is_unified: mount.is_unified });
            }
        }
        Self { root: root.to_owned(), groups }
    }

    /// Bytes that this process and those it starts may use together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let machine = self.meminfo("MemTotal:").unwrap_or(u64::MAX);
        self.groups.iter().filter_map(Group::limit).fold(machine, u64::min)
    }

    /// Bytes that could be used in addition to those that are.
    #[must_use]
    pub fn available(&self) -> u64 {
        let machine = self.meminfo("MemAvailable:").unwrap_or(u64::MAX);
        self.groups.iter().filter_map(Group::left).fold(machine, u64::min)
    }

    fn meminfo(&self, field: &str) -> Option<u64> {
        let text = fs::read_to_string(self.root.join("proc/meminfo")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(field))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
    }
}

impl Group {
    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.directory.join(file)).ok()?.trim().parse().ok()
    }

    /// `None`: there is no limit here, for which version 2 says "max" and version 1 a number beyond every machine.
    fn limit(&self) -> Option<u64> {
        self.number(if self.is_unified { "memory.max" } else { "memory.limit_in_bytes" })
    }

    fn left(&self) -> Option<u64> {
        let limit = self.limit()?;
        let used = self.number(if self.is_unified { "memory.current" } else { "memory.usage_in_bytes" })?;
        // Files that were read stay in memory for as long as nobody needs it, and count as used.
        let stat = fs::read_to_string(self.directory.join("memory.stat")).unwrap_or_default();
        let fields = if self.is_unified {
            ["active_file ", "inactive_file "]
        } else {
            ["total_active_file ", "total_inactive_file "]
        };
        let value =
            |field: &str| stat.lines().find_map(|line| line.strip_prefix(field)?.trim().parse::<u64>().ok());
        let files: u64 = fields.into_iter().filter_map(value).sum();
        Some(limit.saturating_sub(used.saturating_sub(files)))
    }
}

/// Where the groups are that have to do with memory.
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

    /// The path of the group of this mount, if a line of `/proc/self/cgroup` says it: `4:memory:PATH` or `0::PATH`.
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
        let root = std::env::temp_dir().join(format!("weft-machine-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        root
    }

    #[test]
    fn without_groups_it_is_the_machine() {
        let root = tree("plain", &[("proc/meminfo", MEMINFO)]);
        let machine = Machine::find(&root);
        assert_eq!((machine.total(), machine.available()), (1 << 20, 512 << 10));
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
        fs::remove_dir_all(root).expect("ours");
    }

    #[test]
    fn this_machine_has_memory() {
        let machine = Machine::default();
        assert!(
            machine.total() < u64::MAX && 0 < machine.available() && machine.available() <= machine.total()
        );
    }
}
