//! Locks of files that last as long as their process, and name it.
//!
//! The kernel releases such a lock with the last descriptor of the open file. A process that is being started
//! has copies of all its parent's descriptors until it runs its program, also when the parent is killed
//! meanwhile. So for a moment a dead process may still hold a lock; that must not refuse a daemon that is
//! started again at once. Nothing is written here.

use std::fs::File;
use std::io::{Read, Seek};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How long to wait for the lock of a dead process.
const ENDING: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Locks a file whose text begins with the number of the process that holds the lock. If the holder lives, or
/// has not written its number yet, returns the text of the file.
///
/// # Errors
/// The kernel's error when the file cannot be locked.
pub fn take(file: &mut File) -> Result<Option<String>, Errno> {
    let begun = Instant::now();
    loop {
        match flock(&*file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(None),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error),
        }
        let mut said = String::new();
        let _ = file.rewind().and_then(|()| file.read_to_string(&mut said));
        let is_over = number(&said).is_some_and(|process| !lives(process));
        if !is_over || begun.elapsed() >= ENDING {
            return Ok(Some(said));
        }
        sleep(LOOK);
    }
}

fn number(said: &str) -> Option<u32> {
    said.split(|c: char| !c.is_ascii_digit()).find_map(|digits| digits.parse().ok())
}

/// Whether the process exists and has not ended.
fn lives(process: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::Path;

    use super::*;

    fn open(path: &Path) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).open(path).expect("a file")
    }

    #[test]
    fn the_lock_of_a_process_that_has_ended_is_waited_for_and_no_other() {
        let path = std::env::temp_dir().join(format!("sooner-test-held-{}", std::process::id()));
        let mut first = open(&path);
        assert_eq!(take(&mut first), Ok(None));
        let own = format!("process {} in /x/node-1", std::process::id());
        first.write_all(own.as_bytes()).expect("written");
        assert_eq!(take(&mut open(&path)), Ok(Some(own)), "it lives");
        // What is left of one that has ended goes in a moment.
        let mut ended = std::process::Command::new("true").spawn().expect("a process");
        ended.wait().expect("it ends");
        first.set_len(0).and_then(|()| first.rewind()).expect("empty");
        write!(first, "{}", ended.id()).expect("written");
        let last = std::thread::spawn(move || {
            sleep(Duration::from_millis(200));
            drop(first);
        });
        assert_eq!(take(&mut open(&path)), Ok(None));
        last.join().expect("it ends");
        std::fs::remove_file(&path).expect("clean");
    }

    #[test]
    fn who_has_not_said_who_it_is_may_be_starting() {
        let path = std::env::temp_dir().join(format!("sooner-test-held-new-{}", std::process::id()));
        let mut first = open(&path);
        assert_eq!(take(&mut first), Ok(None));
        assert_eq!(take(&mut open(&path)), Ok(Some(String::new())));
        std::fs::remove_file(&path).expect("clean");
    }
}
