//! Which directories and sockets belong to this user, and were not put there by another user of this machine.
//!
//! Whoever makes `/tmp/sooner-<uid>` first chooses what is in it. So no path is trusted for its name: a
//! directory is opened without following a link, its owner and mode are checked on what was opened, and all
//! further steps begin at that descriptor. The kernel is asked for the process behind a socket before a byte
//! of it is read.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// The entry at a path belongs to another user, or another user could change it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: {fault}. sooner uses only what is yours and closed to others (mode 0700, no link): remove it, or set SOONER_TMPDIR to a directory of yours",
    path.display()
)]
pub struct Untrusted {
    path: PathBuf,
    fault: String,
}

impl Untrusted {
    fn error(path: &Path, fault: String) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, Self { path: path.to_owned(), fault })
    }
}

/// Opens a directory that belongs to this user alone.
///
/// # Errors
/// [`Untrusted`] inside of an `io::Error` when it is not; otherwise the system's error.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(error) => return Err(why_not(path, error)),
    };
    let about = rustix::fs::fstat(&opened)?;
    let own = rustix::process::getuid().as_raw();
    if about.st_uid != own {
        return Err(Untrusted::error(path, format!("it belongs to {}", user(about.st_uid))));
    }
    if about.st_mode & 0o077 != 0 {
        let fault = format!("its mode is {:04o}, so others may enter it", about.st_mode & 0o7777);
        return Err(Untrusted::error(path, fault));
    }
    Ok(opened)
}

/// What stands at the path instead of a directory that can be opened.
fn why_not(path: &Path, error: Errno) -> io::Error {
    let Ok(about) = rustix::fs::lstat(path) else { return error.into() };
    let own = rustix::process::getuid().as_raw();
    let fault = match FileType::from_raw_mode(about.st_mode) {
        FileType::Symlink => format!("it is a link, made by {}", user(about.st_uid)),
        FileType::Directory if about.st_uid != own => format!("it belongs to {}", user(about.st_uid)),
        FileType::Directory => return error.into(),
        _ => format!("it is no directory, and belongs to {}", user(about.st_uid)),
    };
    Untrusted::error(path, fault)
}

/// Connects to a socket in a directory of this user alone, if a process of this user listens there.
///
/// # Errors
/// [`Untrusted`] inside of an `io::Error` when the directory, the socket or its process belongs to another
/// user; otherwise the system's error.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let opened = open_directory(directory)?;
    let about = rustix::fs::statat(&opened, Path::new(name), AtFlags::SYMLINK_NOFOLLOW)?;
    let own = rustix::process::getuid().as_raw();
    if FileType::from_raw_mode(about.st_mode) != FileType::Socket || about.st_uid != own {
        let fault = format!("it is no socket of yours, but of {}", user(about.st_uid));
        return Err(Untrusted::error(path, fault));
    }
    // Through the descriptor, because another directory may have the name by now.
    let there = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd())).join(name);
    let stream = UnixStream::connect(there)?;
    check_peer(stream.as_fd(), path)?;
    Ok(stream)
}

/// Checks that the process at the other end of a socket belongs to this user.
///
/// # Errors
/// [`Untrusted`] inside of an `io::Error` if not.
pub fn check_peer(socket: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    if peer.uid == rustix::process::getuid() {
        return Ok(());
    }
    let fault = format!("a process of {} listens there", user(peer.uid.as_raw()));
    Err(Untrusted::error(path, fault))
}

/// The most links followed on the way to a place, as in the kernel.
const LINKS_MAX: usize = 40;

/// Why users other than this one and the administrator can decide what is at a place, if they can: the place,
/// a directory on the way to it or a link belongs to them, or they may write there. A relative place begins
/// at the working directory.
///
/// # Errors
/// The system's error, for example if nothing is there.
pub fn strangers_at(place: &Path) -> io::Result<Option<String>> {
    // An absolute path stays as it is.
    let mut left: Vec<PathBuf> = vec![std::env::current_dir().unwrap_or_default().join(place)];
    if left[0].is_relative() {
        // The working directory was removed, or is not below this process's root.
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut here = PathBuf::from("/");
    let mut links = 0;
    while let Some(next) = left.pop() {
        let mut parts = next.components();
        let Some(part) = parts.next() else { continue };
        left.push(parts.as_path().to_owned());
        match part {
            Component::RootDir => here = PathBuf::from("/"),
            Component::CurDir | Component::Prefix(_) => continue,
            Component::ParentDir => drop(here.pop()),
            Component::Normal(name) => here.push(name),
        }
        let about = rustix::fs::lstat(&here)?;
        let is_last = left.iter().all(|rest| rest.as_os_str().is_empty());
        if let Some(fault) = fault_of(&here, &about, is_last) {
            return Ok(Some(fault));
        }
        if FileType::from_raw_mode(about.st_mode) == FileType::Symlink {
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            left.push(std::fs::read_link(&here)?);
            here.pop();
        }
    }
    Ok(None)
}

fn fault_of(path: &Path, about: &rustix::fs::Stat, is_last: bool) -> Option<String> {
    let own = rustix::process::getuid().as_raw();
    if ![0, own].contains(&about.st_uid) {
        return Some(format!("{} belongs to {}", path.display(), user(about.st_uid)));
    }
    let is_link = FileType::from_raw_mode(about.st_mode) == FileType::Symlink;
    // In a directory like /tmp other users may make entries, but not replace those of others.
    let is_sticky = about.st_mode & 0o1000 != 0 && !is_last;
    if is_link || is_sticky {
        return None;
    }
    if about.st_mode & 0o002 != 0 {
        return Some(format!("everybody may write to {}", path.display()));
    }
    if about.st_mode & 0o020 == 0 {
        return None;
    }
    if has_access_list(path) {
        return Some(format!("an access control list may let others write to {}", path.display()));
    }
    let is_ours = about.st_gid == 0 || is_group_of_one(about.st_gid);
    (!is_ours).then(|| format!("group {} may write to {}", about.st_gid, path.display()))
}

/// Whether a file has an access list: then the group bits of its mode are the mask of that list.
fn has_access_list(path: &Path) -> bool {
    let length = rustix::fs::lgetxattr_query(path, "system.posix_acl_access");
    !matches!(length, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// Whether this user is the only member of a group: many systems make one for each user, of the same name,
/// and let it write by default.
fn is_group_of_one(gid: u32) -> bool {
    let own = rustix::process::getuid().as_raw();
    let (users, groups) = (table("/etc/passwd"), table("/etc/group"));
    // The part of a table that was not read may have more members.
    let are_whole = users.len().max(groups.len()) < TABLE_BYTES_MAX;
    are_whole && has_only(&users, &groups, own, gid)
}

/// Whether a group is named like a user and has no other member, according to the tables of users and groups.
fn has_only(users: &str, groups: &str, user: u32, gid: u32) -> bool {
    let Some(name) = name_in(users, user) else { return false };
    let number = |line: &str, at: usize| line.split(':').nth(at).and_then(|id| id.parse::<u32>().ok());
    // A group is identified by its number, which may have several names.
    let lines = || groups.lines().filter(|line| number(line, 2) == Some(gid));
    let is_named_so = lines().any(|line| line.split(':').next() == Some(name));
    let mut members = lines().flat_map(|line| line.split(':').nth(3).unwrap_or_default().split(','));
    let others_begin_in_it =
        users.lines().any(|line| number(line, 3) == Some(gid) && number(line, 2) != Some(user));
    is_named_so && !others_begin_in_it && members.all(|member| member.is_empty() || member == name)
}

/// A user's name and number, for messages.
pub(crate) fn user(uid: u32) -> String {
    // Only for messages, so a user who is not in this file stays a number.
    let users = table("/etc/passwd");
    name_in(&users, uid).map_or_else(|| format!("user {uid}"), |name| format!("user {name} ({uid})"))
}

/// The most bytes read of a table of users or groups.
const TABLE_BYTES_MAX: usize = 4 << 20;

fn table(path: &str) -> String {
    let mut text = String::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(TABLE_BYTES_MAX as u64).read_to_string(&mut text);
    }
    text
}

fn name_in(users: &str, uid: u32) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::scratch::Scratch;

    fn fault(result: io::Result<impl Sized>) -> String {
        let error = result.err().expect("refused");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        assert!(error.get_ref().is_some_and(|inner| inner.is::<Untrusted>()), "{error}");
        error.to_string()
    }

    #[test]
    fn what_is_ours_and_closed_is_used() {
        let place = Scratch::new("private-ours");
        let socket = place.0.join("node.sock");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        connect(&socket).expect("ours");
        assert_eq!(connect(&place.0.join("none")).expect_err("none").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn links_open_directories_and_other_things_are_named() {
        let place = Scratch::new("private-others");
        let (open, link, file) = (place.0.join("open"), place.0.join("link"), place.0.join("file"));
        fs::create_dir(&open).expect("a directory");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).expect("a mode");
        symlink(&place.0, &link).expect("a link");
        fs::write(&file, "").expect("a file");
        assert!(fault(open_directory(&open)).contains("its mode is 0750"));
        assert!(fault(open_directory(&link)).contains("it is a link, made by user "));
        assert!(fault(open_directory(&file)).contains("it is no directory"));
        assert!(fault(connect(&file)).contains("no socket of yours"));
        assert!(fault(connect(&link.join("node.sock"))).contains("it is a link"));
        symlink(place.0.join("node.sock"), place.0.join("other.sock")).expect("a link");
        let _listener = UnixListener::bind(place.0.join("node.sock")).expect("a socket");
        assert!(fault(connect(&place.0.join("other.sock"))).contains("no socket of yours"));
    }

    #[test]
    fn places_that_others_can_change_are_told_from_those_that_they_cannot() {
        let place = Scratch::new("private-places");
        let at = |name: &str, mode: u32| {
            let path = place.0.join(name);
            fs::create_dir_all(&path).expect("a directory");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
            path
        };
        let fault = |path: &Path| strangers_at(path).expect("it is there");
        assert_eq!(fault(&at("closed", 0o755)), None);
        assert_eq!(fault(Path::new("/usr/../usr/./lib")), None);
        assert!(fault(Path::new("/tmp")).is_some_and(|why| why == "everybody may write to /tmp"));
        let open = at("open", 0o777);
        assert!(fault(&open).is_some_and(|why| why.starts_with("everybody may write to ")));
        // Whoever may write to a directory above may put another one in its place; unless it is like /tmp.
        assert!(fault(&at("open/below", 0o755)).is_some_and(|why| why.ends_with("/open")));
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).expect("a mode");
        assert_eq!(fault(&open.join("below")), None);
        symlink(&open, place.0.join("link")).expect("a link");
        assert!(fault(&place.0.join("link")).is_some());
        assert_eq!(fault(&place.0.join("link/below")), None);
        // The tests' working directory is that of the crate.
        for (relative, absolute) in [("", "."), (".", "."), ("src/..", "."), ("src", "src")] {
            let there = std::env::current_dir().expect("a directory").join(absolute);
            assert_eq!(fault(Path::new(relative)), fault(&there));
        }
        symlink("loop", place.0.join("loop")).expect("a link");
        assert!(strangers_at(&place.0.join("loop")).is_err());
        assert_eq!(strangers_at(&place.0.join("none")).expect_err("none").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_relative_place_is_not_one_of_the_root() {
        assert!(Path::new("/etc").is_dir());
        assert_eq!(strangers_at(Path::new("etc")).expect_err("not here").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_group_of_one_has_nobody_else() {
        let users = "root:x:0:0::/:\nbob:x:7:8::/:\nbobby:x:7:8::/:\neve:x:9:10::/:\n";
        let only = |groups: &str| has_only(users, groups, 7, 8);
        assert!(only("wheel:x:10:eve\nbob:x:8:\n"));
        assert!(only("bob:x:8:bob\n"));
        assert!(!only("staff:x:8:\n"), "another name");
        assert!(!only("bob:x:11:\n"), "another number");
        assert!(!only("bob:x:8:bob,eve\n"));
        assert!(!only("bob:x:8:\nstaff:x:8:eve\n"), "two lines for one number");
        assert!(!only(""));
        assert!(!has_only("bob:x:7:8::/:\neve:x:9:8::/:\n", "bob:x:8:\n", 7, 8), "eve begins in it");
        assert!(!has_only(users, "bob:x:8:\n", 12, 8), "nobody knows the user");
    }

    #[test]
    fn an_access_list_is_no_right_of_the_group() {
        let place = Scratch::new("private-list");
        let path = place.0.join("open");
        fs::create_dir(&path).expect("a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).expect("a mode");
        assert!(!has_access_list(&path));
        // Owner, user 65533, group, mask, others: what each is, what it may, whom it is about.
        let entries =
            [(1u16, 7u16, u32::MAX), (2, 7, 65533), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
        let mut list = 2u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(rights.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        let set = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(&path, "system.posix_acl_access", &list, set) {
            // This file system has none.
            Err(Errno::OPNOTSUPP) => return,
            result => result.expect("a list"),
        }
        let fault = strangers_at(&path).expect("it is there");
        assert!(fault.is_some_and(|why| why.starts_with("an access control list may let others write to ")));
        // What the list lets others do at most is in the bits of the group.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).expect("a mode");
        assert_eq!(strangers_at(&path).expect("it is there"), None);
    }
}
