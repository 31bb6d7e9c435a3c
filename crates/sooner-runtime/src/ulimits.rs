//! Which limit of this process an error of the kernel comes from, for messages: the kernel's text does not
//! tell.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use sooner_store::MappingError;

/// The least and the most descriptors that are kept for connections when workers are started
/// ([`keeps_reserve`]).
const RESERVE_MIN: u64 = 8;
const RESERVE_MAX: u64 = 64;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// Limits on a process's memory: its field in `/proc/self/statm`, and the text for messages.
const MEMORY: [(Resource, usize, &str, &str); 2] = [
    (Resource::As, 0, "may use {} bytes of address space", "-v"),
    (Resource::Data, 5, "may use {} bytes for data", "-d"),
];

/// The size of a thread's stack, and of other memory for which a process may have been refused (bytes).
const MEMORY_MARGIN: u64 = 16 << 20;

/// If an error comes from a limit: which one, and how to raise it.
#[must_use]
pub fn explain(error: &io::Error) -> Option<String> {
    let mapping = error.get_ref().and_then(|inner| inner.downcast_ref::<MappingError>());
    let errno = match mapping {
        Some(MappingError::Create { source, .. } | MappingError::Map { source, .. }) => *source,
        None => Errno::from_raw_os_error(error.raw_os_error()?),
    };
    let said = match errno {
        Errno::MFILE => limit(Resource::Nofile, "may have {} files open", "-n")?,
        Errno::NFILE => "The machine has as many files open as it may (fs.file-max)".to_owned(),
        Errno::FBIG => limit(Resource::Fsize, "may write files of {} bytes", "-f")?,
        // Shared memory does not count as data.
        Errno::NOMEM if mapping.is_some() => memory_limits(|limit| limit.0 == Resource::As)?,
        Errno::NOMEM => memory_limits(is_used_up).or_else(|| memory_limits(|_| true))?,
        Errno::AGAIN => processes()?,
        _ => return None,
    };
    let less = if mapping.is_some() { ", or ask for less with object_store_memory" } else { "" };
    Some(format!("{said}: raise that{less}"))
}

/// The text of an error, with the limit it comes from, if any.
#[must_use]
pub fn told(error: &io::Error) -> String {
    match explain(error) {
        Some(limit) => format!("{error}. {limit}"),
        None => error.to_string(),
    }
}

/// Whether enough descriptors are left for connections and files, if `descriptor` was just opened: the kernel
/// gives out the lowest free number, so all below it are taken.
#[must_use]
pub fn keeps_reserve(descriptor: i32) -> bool {
    let Some(most) = getrlimit(Resource::Nofile).current else { return true };
    let reserve = (most / 8).clamp(RESERVE_MIN, RESERVE_MAX);
    u64::try_from(descriptor).unwrap_or(0) + reserve < most
}

fn limit(resource: Resource, text: &str, flag: &str) -> Option<String> {
    let most = getrlimit(resource).current?;
    Some(format!("This process {} (ulimit {flag})", text.replace("{}", &most.to_string())))
}

/// Why there can be no more processes or threads. The kernel has the same error for all these limits.
fn processes() -> Option<String> {
    if let Some((path, most)) = full_group() {
        let path = path.display();
        return Some(format!("Its control group may have {most} processes and threads ({path}/pids.max)"));
    }
    // A thread's stack is memory: a refusal for that has the same error.
    if let Some(limit) = memory_limits(is_used_up) {
        return Some(limit);
    }
    limit(Resource::Nproc, "may have {} processes and threads, as others of this user", "-u")
}

/// The first of these limits on memory that is set.
fn memory_limits(which: impl Fn(&(Resource, usize, &str, &str)) -> bool) -> Option<String> {
    MEMORY
        .iter()
        .filter(|limit| which(limit))
        .find_map(|(resource, _, text, flag)| limit(*resource, text, flag))
}

fn is_used_up((resource, place, ..): &(Resource, usize, &str, &str)) -> bool {
    let Some(most) = getrlimit(*resource).current else { return false };
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let used = pages.split_whitespace().nth(*place).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    used * rustix::param::page_size() as u64 + MEMORY_MARGIN > most
}

/// The control group of this process, or one above it, that may have no more processes, and its limit.
fn full_group() -> Option<(PathBuf, u64)> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let roots = own.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let root = match controllers {
            "" => Path::new(GROUPS).to_owned(),
            named if named.split(',').any(|one| one == "pids") => Path::new(GROUPS).join("pids"),
            _ => return None,
        };
        Some((root.clone(), root.join(path.trim_start_matches('/'))))
    });
    roots.flat_map(|(root, group)| groups_up_to(&root, &group)).find_map(|group| {
        let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let (most, there) = (number("pids.max")?, number("pids.current")?);
        // Processes may have ended since: the kernel's count of refusals counts, too.
        let has_refused = || read("pids.events").is_some_and(|text| refusals(&text) > 0);
        (there + 2 >= most || has_refused()).then_some((group, most))
    })
}

fn refusals(events: &str) -> u64 {
    let line = events.lines().find_map(|line| line.strip_prefix("max "));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

fn groups_up_to(root: &Path, group: &Path) -> Vec<PathBuf> {
    group.ancestors().take_while(|group| group.starts_with(root)).map(Path::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_limits_name_them() {
        let files = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
        let most = getrlimit(Resource::Nofile).current.expect("there is one");
        let said = explain(&files).expect("it is a limit");
        assert!(said.contains(&format!("{most} files open (ulimit -n)")), "{said}");
        assert_eq!(told(&files), format!("{files}. {said}"));
        let other = io::Error::from_raw_os_error(Errno::NOENT.raw_os_error());
        assert_eq!(explain(&other), None);
    }
    #[test]
    fn a_descriptor_near_the_limit_leaves_no_reserve() {
        let most = getrlimit(Resource::Nofile).current.expect("there is one");
        let most = i32::try_from(most.min(1 << 30)).expect("less");
        assert!(keeps_reserve(3));
        assert!(!keeps_reserve(most - 1));
    }

    #[test]
    fn the_groups_of_a_process_are_looked_at_up_to_the_mount() {
        let groups = groups_up_to(Path::new("/g/pids"), Path::new("/g/pids/a/b"));
        assert_eq!(groups, ["/g/pids/a/b", "/g/pids/a", "/g/pids"].map(PathBuf::from));
        assert_eq!(refusals("max 7\n"), 7);
        assert_eq!(refusals(""), 0);
    }
}
