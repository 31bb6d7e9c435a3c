//! How full the memory is, and what a worker holds of it: read from the kernel's files.
//!
//! What is in use is what cannot be had back: of the machine all but `MemAvailable`; of a control group its charge without the
//! pages of files that were not used lately. The tightest of them counts, which is the one that is fullest.
//!
//! A worker holds its anonymous pages. Shared memory, above all that of the object store, is not counted against whoever has it
//! mapped: its end would free none of it.
//!
//! It never decides anything, and what cannot be read is not known, which is no error.

use std::fs;
use std::path::{Path, PathBuf};

use weft_protocol::node::memory::Usage;

/// Where control groups are mounted.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// When workers are stopped to free memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryOptions {
    /// From which share of the memory on; 0, and 1 or more, for never.
    pub threshold: f64,
    /// For tests: workers may hold so much together (bytes), whatever the machine has.
    pub stated: Option<u64>,
}

impl MemoryOptions {
    /// No worker is ever stopped, and nothing is measured.
    pub const OFF: Self = Self { threshold: 0.0, stated: None };

    /// Whether anything is measured.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.threshold > 0.0 && self.threshold < 1.0
    }

    /// How full this much memory is.
    #[must_use]
    pub fn usage(&self, level: Level, of: &str) -> Usage {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let threshold = (level.total as f64 * self.threshold) as u64;
        Usage { used: level.used, total: level.total, threshold, of: of.to_owned() }
    }
}

/// What is used of what there is (bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// In use.
    pub used: u64,
    /// There.
    pub total: u64,
}

impl Level {
    fn is_fuller_than(&self, other: &Self) -> bool {
        u128::from(self.used) * u128::from(other.total) > u128::from(other.used) * u128::from(self.total)
    }
}

/// A control group that may limit memory, by the files of its version.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    directory: PathBuf,
    is_second_version: bool,
}

/// The machine, and the control groups that this process is in.
#[derive(Debug)]
pub struct Places {
    groups: Vec<Group>,
}

impl Places {
    /// Looks which there are.
    #[must_use]
    pub fn find() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self { groups: groups(&own, Path::new(CONTROL_GROUPS)) }
    }

    /// The fullest, and what it is for people; `None` if nothing can be read.
    #[must_use]
    pub fn fullest(&self) -> Option<(Level, String)> {
        let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine_level(&text));
        let machine = machine.map(|level| (level, "this machine".to_owned()));
        let limit = machine.as_ref().map_or(u64::MAX, |(level, _)| level.total);
        let groups = self.groups.iter().filter_map(|group| {
            let level = group.level().filter(|level| level.total < limit)?;
            Some((level, format!("the control group {}", group.directory.display())))
        });
        machine.into_iter().chain(groups).reduce(|a, b| if b.0.is_fuller_than(&a.0) { b } else { a })
    }
}

impl Group {
    fn level(&self) -> Option<Level> {
        let (total, used, idle) = if self.is_second_version {
            ("memory.max", "memory.current", "inactive_file")
        } else {
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        };
        // "max": it has no limit.
        let number = |name: &str| -> Option<u64> {
            fs::read_to_string(self.directory.join(name)).ok()?.trim().parse().ok()
        };
        let total = number(total).filter(|total| *total > 0)?;
        let used = number(used)?;
        let stat = fs::read_to_string(self.directory.join("memory.stat")).unwrap_or_default();
        let idle = field(&stat, idle).unwrap_or(0);
        Some(Level { used: used.saturating_sub(idle), total })
    }
}

/// The control groups of a process, innermost first, from its list of them. In a container the paths may be those of the
/// machine outside, which do not exist here: the mount itself is always looked at.
fn groups(own: &str, mount: &Path) -> Vec<Group> {
    let mut found = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let is_second_version = controllers.is_empty();
        let root = match is_second_version {
            true => mount.to_owned(),
            false if controllers.split(',').any(|name| name == "memory") => mount.join("memory"),
            false => continue,
        };
        let innermost = root.join(path.trim_start_matches('/'));
        let levels = innermost.ancestors().take_while(|one| one.starts_with(&root));
        found.extend(levels.map(|one| Group { directory: one.to_owned(), is_second_version }));
    }
    found
}

/// A figure of a file with one name and one number per line: "name 12" or "name: 12 kB" (bytes).
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.strip_prefix(':').or_else(|| rest.starts_with(' ').then_some(rest))
    })?;
    let mut words = line.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    Some(if words.next() == Some("kB") { number.saturating_mul(1024) } else { number })
}

fn machine_level(meminfo: &str) -> Option<Level> {
    let (total, available) = (field(meminfo, "MemTotal")?, field(meminfo, "MemAvailable")?);
    Some(Level { used: total.saturating_sub(available), total })
}

/// What a process holds (bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Its anonymous pages.
    pub now: u64,
    /// The most it held, if what it shares with others was then as it is now.
    pub peak: u64,
}

/// What a process holds; `None` if it is gone.
#[must_use]
pub fn holding(pid: u32) -> Option<Holding> {
    parse_holding(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn parse_holding(status: &str) -> Option<Holding> {
    let resident = field(status, "VmRSS")?;
    // A kernel that does not tell them apart counts them all.
    let now = field(status, "RssAnon").unwrap_or(resident);
    let shared = resident.saturating_sub(now);
    let peak = field(status, "VmHWM").map_or(now, |peak| peak.saturating_sub(shared));
    Some(Holding { now, peak: peak.max(now) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tpython\nVmHWM:\t  900 kB\nVmRSS:\t  500 kB\nRssAnon:\t  300 kB\n\
                          RssFile:\t  150 kB\nRssShmem:\t   50 kB\n";

    #[test]
    fn shared_pages_are_nobodys() {
        assert_eq!(parse_holding(STATUS), Some(Holding { now: 300 << 10, peak: 700 << 10 }));
        let old = "VmHWM:\t 9 kB\nVmRSS:\t 5 kB\n";
        assert_eq!(parse_holding(old), Some(Holding { now: 5 << 10, peak: 9 << 10 }));
        assert_eq!(parse_holding("State:\tZ (zombie)\n"), None, "it has no memory any more");
    }

    #[test]
    fn this_process_holds_something_less_than_the_machine_has() {
        let own = holding(std::process::id()).expect("it lives");
        let (level, _) = Places::find().fullest().expect("Linux says so");
        assert!(own.now > 0 && own.now <= own.peak && own.now < level.total && level.used <= level.total);
    }

    #[test]
    fn the_machine_has_what_is_not_available() {
        let text = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n";
        assert_eq!(machine_level(text), Some(Level { used: 600 << 10, total: 1000 << 10 }));
        assert_eq!(machine_level("MemTotal: 1000 kB\n"), None);
    }

    #[test]
    fn a_control_group_and_all_above_it_are_looked_at() {
        let mount = Path::new("/g");
        let directories = |own: &str| -> Vec<(String, bool)> {
            let name = |group: Group| (group.directory.display().to_string(), group.is_second_version);
            groups(own, mount).into_iter().map(name).collect()
        };
        let second = ["/g/a/b", "/g/a", "/g"].map(|one| (one.to_owned(), true));
        assert_eq!(directories("0::/a/b\n"), second);
        let first = ["/g/memory/a", "/g/memory"].map(|one| (one.to_owned(), false));
        assert_eq!(directories("5:cpu,cpuacct:/a\n4:memory:/a\n"), first);
        assert_eq!(directories("nonsense\n"), []);
    }

    #[test]
    fn groups_of_both_versions_are_read() {
        let base = std::env::temp_dir().join(format!("weft-groups-{}", std::process::id()));
        let (first, second) = (base.join("memory"), base.join("a"));
        for directory in [&first, &second] {
            fs::create_dir_all(directory).expect("a directory");
        }
        let write = |directory: &Path, name: &str, text: &str| {
            fs::write(directory.join(name), text).expect("a file");
        };
        write(&second, "memory.max", "1000\n");
        write(&second, "memory.current", "700\n");
        write(&second, "memory.stat", "anon 600\ninactive_file 90\n");
        write(&first, "memory.limit_in_bytes", "2000\n");
        write(&first, "memory.usage_in_bytes", "500\n");
        write(&first, "memory.stat", "inactive_file 1\ntotal_inactive_file 100\n");
        let all = groups("4:memory:/\n0::/a\n", &base);
        let levels: Vec<Option<Level>> = all.iter().map(Group::level).collect();
        write(&second, "memory.max", "max\n");
        let unlimited = all[1].level();
        fs::remove_dir_all(&base).expect("removed");
        assert_eq!(
            levels,
            [Some(Level { used: 400, total: 2000 }), Some(Level { used: 610, total: 1000 }), None]
        );
        assert_eq!(unlimited, None);
    }

    #[test]
    fn the_fuller_of_two_is_the_one_with_less_to_go() {
        let level = |used, total| Level { used, total };
        assert!(
            level(9, 10).is_fuller_than(&level(80, 100)) && !level(80, 100).is_fuller_than(&level(9, 10))
        );
    }
}
