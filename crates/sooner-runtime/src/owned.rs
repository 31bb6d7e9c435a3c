//! Files that belong to this user in directories of this user: what a head keeps from one start to the next,
//! and its locks.
//!
//! What is read there decides what code runs as this user. So a directory is opened once and its files are
//! reached through that descriptor, whatever has its name by then ([`crate::private`] defines which
//! directories count). A file counts if what was opened is a regular file of this user to which no other user
//! may write. No link is followed, and no open waits: the name may be that of a pipe.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::private::{self, user};

/// The most links followed on the way to a place, as in the kernel.
const LINKS_MAX: usize = 40;
/// The modes of files and directories that are made.
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o700);

/// What stands at a place does not belong to this user alone: a description of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(String);

impl Fault {
    fn error(text: String) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, Self(text))
    }

    /// Whether an error is a [`Fault`], not one of the system.
    #[must_use]
    pub fn is_in(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// An open directory that belongs to this user alone: files are looked up in it, even if its name changes.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    opened: OwnedFd,
}

impl Directory {
    /// Opens a directory that is there.
    ///
    /// # Errors
    /// As [`private::open_directory`].
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), opened: private::open_directory(path)? })
    }

    /// Opens a directory whose path anyone may have chosen, and makes it and its parents if they are missing.
    ///
    /// The parents are checked, too: a user who may replace an entry in one of them decides which directory
    /// this is. Each step goes from the directory opened by the one before, so the path cannot change
    /// meanwhile. The walk begins at `trusted`, a directory of this user alone, if that is above.
    ///
    /// # Errors
    /// A [`Fault`] inside of an `io::Error`; otherwise the system's error.
    pub fn make(path: &Path, trusted: &Path) -> io::Result<Self> {
        let opened = match path.strip_prefix(trusted) {
            Ok(rest) if rest.as_os_str().is_empty() => private::open_directory(trusted)?,
            Ok(rest) => walk(private::open_directory(trusted)?, trusted, rest)?,
            Err(_) => {
                let root = open_at(CWD, OsStr::new("/"), OFlags::PATH | OFlags::DIRECTORY)?;
                walk(root, Path::new("/"), path)?
            }
        };
        Ok(Self { path: path.to_owned(), opened })
    }

    /// The path at which it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file, whatever it is and whoever may change it.
    ///
    /// # Errors
    /// The system's error; a [`Fault`] inside of an `io::Error` when it is a link.
    pub fn open_any(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        match open_at(&self.opened, OsStr::new(name), flags) {
            Ok(opened) => Ok(opened.into()),
            Err(error) => Err(self.why_not(name, error)),
        }
    }

    /// Opens a file for reading and writing, if it belongs to this user and no other user can change it.
    /// `flags` are added: `CREATE` makes the file if it is missing.
    ///
    /// # Errors
    /// A [`Fault`] inside of an `io::Error` when it does not; otherwise the system's error.
    pub fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let file = self.open_any(name, flags | OFlags::RDWR)?;
        match fault_of_file(&rustix::fs::fstat(&file)?) {
            Some(fault) => Err(Fault::error(fault)),
            None => Ok(file),
        }
    }

    /// The entry of this name, if there is one.
    ///
    /// # Errors
    /// The system's error.
    pub fn look(&self, name: &str) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.opened, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(about) => Ok(Some(about)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames a file, replacing any other of that name, and returns when the change is on disk.
    ///
    /// # Errors
    /// The system's error.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        rustix::fs::renameat(&self.opened, from, &self.opened, to)?;
        Ok(rustix::fs::fsync(&self.opened)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.opened, name, AtFlags::empty())?)
    }

    /// Why an entry cannot be opened. The kernel does not say what it is instead.
    fn why_not(&self, name: &str, error: Errno) -> io::Error {
        match self.look(name) {
            Ok(Some(about)) => fault_of_file(&about).map_or_else(|| error.into(), Fault::error),
            Ok(None) | Err(_) => error.into(),
        }
    }
}

fn own() -> u32 {
    rustix::process::getuid().as_raw()
}

fn fault_of_file(about: &Stat) -> Option<String> {
    let owner = || user(about.st_uid);
    match FileType::from_raw_mode(about.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return Some(format!("it is a link, made by {}", owner())),
        _ => return Some(format!("it is no file, and belongs to {}", owner())),
    }
    if about.st_uid != own() {
        return Some(format!("it belongs to {}", owner()));
    }
    let mode = about.st_mode & 0o7777;
    let fault =
        || format!("its mode is {mode:04o}, so others may have changed it (if nobody did, say chmod 600)");
    (mode & 0o022 != 0).then(fault)
}

fn open_at(within: impl std::os::fd::AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(within, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, FILE_MODE)
}

/// Walks from an open directory to one below it, which is made if it is missing.
fn walk(from: OwnedFd, begin: &Path, rest: &Path) -> io::Result<OwnedFd> {
    let mut within = from;
    let root = rustix::fs::stat("/")?;
    // In a user namespace the administrator may have no number, or that of "nobody".
    let trusted = [0, own(), root.st_uid];
    let (mut here, mut links) = (begin.to_owned(), 0);
    let mut left: Vec<PathBuf> = vec![rest.to_owned()];
    while let Some(next) = left.pop() {
        let mut parts = next.components();
        let Some(part) = parts.next() else { continue };
        left.push(parts.as_path().to_owned());
        let name = match part {
            Component::RootDir => {
                within = open_at(CWD, OsStr::new("/"), OFlags::PATH | OFlags::DIRECTORY)?;
                here = PathBuf::from("/");
                continue;
            }
            Component::CurDir | Component::Prefix(_) => continue,
            Component::ParentDir => OsStr::new(".."),
            Component::Normal(name) => name,
        };
        let above = here.clone();
        if part == Component::ParentDir {
            here.pop();
        } else {
            here.push(name);
        }
        let opened = open_or_make(&within, name)?;
        let about = rustix::fs::fstat(&opened)?;
        if left.iter().all(|rest| rest.as_os_str().is_empty()) {
            return finish(&within, name, &about, &here);
        }
        if !trusted.contains(&about.st_uid) {
            let text =
                format!("{} belongs to {}, who decides what is there", here.display(), user(about.st_uid));
            return Err(Fault::error(text));
        }
        match FileType::from_raw_mode(about.st_mode) {
            FileType::Symlink => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let target = rustix::fs::readlinkat(&opened, "", Vec::new())?;
                left.push(PathBuf::from(OsStr::from_bytes(target.as_bytes())));
                here = above;
            }
            // In a directory like /tmp other users may make entries, but not replace those of others.
            FileType::Directory if about.st_mode & 0o1002 == 0o002 => {
                return Err(Fault::error(format!(
                    "everybody may write to {0}, and put another directory in its place (chmod +t {0} ends that)",
                    here.display()
                )));
            }
            FileType::Directory => within = opened,
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Err(Fault::error("it is the root directory".to_owned()))
}

fn open_or_make(within: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    match open_at(within, name, OFlags::PATH) {
        Err(Errno::NOENT) => {}
        other => return other,
    }
    match rustix::fs::mkdirat(within, name, DIRECTORY_MODE) {
        Ok(()) | Err(Errno::EXIST) => open_at(within, name, OFlags::PATH),
        Err(error) => Err(error),
    }
}

/// Opens the last directory of the path. What was seen of it before is only for the error text.
fn finish(within: &OwnedFd, name: &OsStr, seen: &Stat, path: &Path) -> io::Result<OwnedFd> {
    let owner = |about: &Stat| user(about.st_uid);
    match FileType::from_raw_mode(seen.st_mode) {
        FileType::Symlink => {
            let text = format!("it is a link, made by {}: name the directory that it leads to", owner(seen));
            return Err(Fault::error(text));
        }
        FileType::Directory if seen.st_uid != own() => {
            return Err(Fault::error(format!("it belongs to {}", owner(seen))));
        }
        FileType::Directory => {}
        _ => return Err(Fault::error(format!("it is no directory, and belongs to {}", owner(seen)))),
    }
    let opened = open_at(within, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let about = rustix::fs::fstat(&opened)?;
    if about.st_uid != own() {
        return Err(Fault::error(format!("it belongs to {}", owner(&about))));
    }
    let mode = about.st_mode & 0o7777;
    if mode & 0o077 != 0 {
        let text =
            format!("its mode is {mode:04o}, so others may enter it: say chmod 700 {}", path.display());
        return Err(Fault::error(text));
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::{Read, Write};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;
    use crate::scratch::Scratch;

    fn directory(place: &Scratch, name: &str, mode: u32) -> PathBuf {
        let path = place.0.join(name);
        fs::create_dir_all(&path).expect("a directory");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
        path
    }

    /// A place that is above nothing.
    fn nowhere() -> &'static Path {
        Path::new("/nowhere")
    }

    fn fault(result: io::Result<impl Sized>) -> String {
        let error = result.err().expect("refused");
        assert!(Fault::is_in(&error), "{error}");
        error.to_string()
    }

    #[test]
    fn a_directory_is_made_with_those_above_it() {
        let place = Scratch::new("owned-made");
        let path = place.0.join("a/b");
        let made = Directory::make(&path, nowhere()).expect("made");
        assert_eq!(made.path(), path);
        for path in [place.0.join("a"), path.clone()] {
            assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o700);
        }
        Directory::make(&path, nowhere()).expect("it is there");
        // Links of ours on the way are ours to make.
        symlink(place.0.join("a"), place.0.join("link")).expect("a link");
        symlink("./a/../link", place.0.join("other")).expect("a link");
        Directory::make(&place.0.join("other/b"), nowhere()).expect("the same");
        symlink("loop", place.0.join("loop")).expect("a link");
        assert!(Directory::make(&place.0.join("loop/b"), nowhere()).is_err());
        fs::write(place.0.join("file"), "").expect("a file");
        assert!(Directory::make(&place.0.join("file/b"), nowhere()).is_err());
    }

    #[test]
    fn a_directory_that_others_can_enter_or_exchange_is_refused() {
        let place = Scratch::new("owned-refused");
        let make = |path: &Path| Directory::make(path, nowhere());
        assert!(fault(make(&directory(&place, "open", 0o750))).contains("its mode is 0750"));
        symlink(directory(&place, "real", 0o700), place.0.join("link")).expect("a link");
        assert!(fault(make(&place.0.join("link"))).contains("it is a link, made by user "));
        fs::write(place.0.join("file"), "").expect("a file");
        assert!(fault(make(&place.0.join("file"))).contains("it is no directory"));
        let above = directory(&place, "above", 0o777);
        assert!(fault(make(&above.join("below"))).contains("everybody may write to "));
        assert!(!above.join("below").exists(), "nothing is made there");
        fs::set_permissions(&above, Permissions::from_mode(0o1777)).expect("a mode");
        make(&above.join("below")).expect("as in /tmp");
        // What is above a directory that is trusted does not matter.
        fs::set_permissions(&above, Permissions::from_mode(0o777)).expect("a mode");
        Directory::make(&above.join("below/cluster"), &above.join("below")).expect("trusted");
        assert!(fault(make(&above.join("below/cluster"))).contains("everybody may write to "));
    }

    #[test]
    fn files_are_those_of_the_directory_that_was_opened() {
        let place = Scratch::new("owned-files");
        let directory = Directory::open(&directory(&place, "one", 0o700)).expect("ours");
        fs::rename(place.0.join("one"), place.0.join("two")).expect("moved");
        let mut file = directory.open_file("a", OFlags::CREATE).expect("made");
        file.write_all(b"text").expect("written");
        assert_eq!(file.metadata().expect("there").mode() & 0o777, 0o600);
        directory.rename("a", "b").expect("renamed");
        let mut text = String::new();
        directory.open_file("b", OFlags::empty()).expect("there").read_to_string(&mut text).expect("text");
        assert_eq!(text, "text");
        assert_eq!(fs::read_to_string(place.0.join("two/b")).expect("there"), "text");
        assert_eq!(directory.look("a").expect("no error").map(|about| about.st_size), None);
        assert_eq!(directory.look("b").expect("no error").map(|about| about.st_size), Some(4));
        directory.remove("b").expect("removed");
        let error = directory.open_file("b", OFlags::empty()).expect_err("gone");
        assert!(error.kind() == io::ErrorKind::NotFound && !Fault::is_in(&error), "{error}");
    }

    #[test]
    fn what_is_no_file_of_ours_is_named_and_not_waited_for() {
        let place = Scratch::new("owned-kinds");
        let directory = Directory::open(&directory(&place, "d", 0o700)).expect("ours");
        let at = |name: &str| place.0.join("d").join(name);
        let open = |name: &str| directory.open_file(name, OFlags::CREATE);
        fs::write(at("target"), "").expect("a file");
        for (name, target) in [("link", "target"), ("dangling", "none")] {
            symlink(target, at(name)).expect("a link");
            assert!(fault(open(name)).contains("it is a link, made by user "));
        }
        assert!(!at("none").exists(), "it is not followed");
        fs::create_dir(at("directory")).expect("a directory");
        let pipe = (FileType::Fifo, Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(CWD, at("pipe"), pipe.0, pipe.1, 0).expect("a pipe");
        for name in ["directory", "pipe"] {
            assert!(fault(open(name)).contains("it is no file, and belongs to user "));
        }
        for mode in [0o666, 0o620] {
            fs::set_permissions(at("target"), Permissions::from_mode(mode)).expect("a mode");
            assert!(fault(open("target")).contains(&format!("its mode is {mode:04o}")));
        }
        fs::set_permissions(at("target"), Permissions::from_mode(0o644)).expect("a mode");
        open("target").expect("others may read it, if they get there");
    }
}
