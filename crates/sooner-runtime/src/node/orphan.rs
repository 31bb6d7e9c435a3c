//! A process that is started and is no child of this one.
//!
//! The program that hosts a node may wait for any child that ends (`os.wait()`), and until it has none. It
//! would collect a child that it knows nothing of, or wait for it for ever. So a process in between starts
//! the template and ends; the template is then a child of init, as with any daemon. This process can still
//! watch and end it: the process in between, whose child it is, opens a descriptor for it, which cannot come
//! to mean another process, and passes that on.
//!
//! The program does not meet the process in between, either: that sends no signal when it ends, and `wait`
//! passes over such children. It shares the memory of this process while the calling thread stands still, as
//! with `vfork`, so that a program with much memory is not copied
//! (`docs/adr/0091-no-child-of-the-program.md`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::transport::pair;

/// The most stack that starting a process takes.
const STACK_BYTES: usize = 256 << 10;

/// A process that is no child of this one.
#[derive(Debug)]
pub struct Orphan {
    pidfd: OwnedFd,
}

impl Orphan {
    /// Starts a process.
    ///
    /// # Errors
    /// When it cannot be started; [`io::ErrorKind::Interrupted`] if the process in between was killed: a
    /// process that nobody watches may have its descriptors.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let (ours, theirs) = pair()?;
        let mut errand = Errand { command, socket: &theirs };
        between(&mut errand)?;
        drop(theirs);
        receive(&ours).map(|pidfd| Self { pidfd })
    }

    /// Waits up to `time` for its end. Whether it has ended.
    #[must_use]
    pub fn ends_within(&self, time: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let has_ended = loop {
            match poll(&mut polled, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => {}
                ready => break ready.is_ok_and(|count| count > 0),
            }
        };
        if has_ended {
            // In a container this process may be init, and so the parent that must collect it.
            let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
        has_ended
    }

    /// Kills the process.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

/// What the process in between does.
struct Errand<'a> {
    command: &'a mut Command,
    socket: &'a OwnedFd,
}

/// Runs an errand in a process of its own, to its end.
fn between(errand: &mut Errand<'_>) -> io::Result<()> {
    let mut stack = vec![0_u128; STACK_BYTES / size_of::<u128>()];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    let everything = Signals::block();
    // SAFETY: the stack is this call's, aligned, and grows down from its end. The process shares this one's
    // memory, and this thread, whose thread-local values it uses, stands still until it has ended; other
    // threads see what it does as what a thread does. It runs no handler of a signal, and no exit handler.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(run, top.cast(), flags, std::ptr::from_mut(errand).cast())
    };
    let error = io::Error::last_os_error();
    drop(everything);
    if pid < 0 {
        return Err(error);
    }
    // SAFETY: a wait for a process that nobody else knows of; without a place for the status.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    Ok(())
}

extern "C" fn run(errand: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `between` passes an errand, and does not touch it before this process has ended.
    let errand = unsafe { &mut *errand.cast::<Errand<'_>>() };
    let started = errand.command.spawn().and_then(|child| {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(pidfd_open(pid.expect("a process has an id"), PidfdFlags::empty())?)
    });
    let _ = match &started {
        Ok(pidfd) => send(errand.socket, 0, Some(pidfd)),
        Err(error) => send(errand.socket, error.raw_os_error().unwrap_or(libc::EINVAL), None),
    };
    0
}

fn send(socket: &OwnedFd, code: i32, pidfd: Option<&OwnedFd>) -> rustix::io::Result<usize> {
    let passed = pidfd.map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if let Some(pidfd) = &passed {
        ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(pidfd)));
    }
    sendmsg(socket, &[IoSlice::new(&code.to_ne_bytes())], &mut ancillary, SendFlags::NOSIGNAL)
}

fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut code = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    // The process in between has ended: its message is there. The socket does not block: the process that it
    // started may have the other end until it becomes the program.
    let read =
        match recvmsg(socket, &mut [IoSliceMut::new(&mut code)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::AGAIN) => return Err(was_killed()),
            read => read?,
        };
    let passed = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match passed {
        Some(pidfd) => Ok(pidfd),
        None if read.bytes == code.len() => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(code))),
        None => Err(was_killed()),
    }
}

fn was_killed() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the process that should have started it ended")
}

/// All signals of this thread are blocked while this lives.
struct Signals(libc::sigset_t);

impl Signals {
    fn block() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both calls write what they are given a place for; the first cannot fail.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::sigemptyset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the mask is the one that was there.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn children() -> Vec<String> {
        let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
        let of = |entry: io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(entry.ok()?.path().join("children")).ok()
        };
        tasks.filter_map(of).flat_map(|text| text.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn what_is_started_is_no_child_and_can_be_watched_and_ended() {
        let (end, theirs) = rustix::pipe::pipe().expect("a pipe");
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$; exec sleep 600"]).stdout(Stdio::from(theirs));
        let orphan = Orphan::start(&mut command).expect("it starts");
        drop(command);
        let mut text = [0; 32];
        let count = rustix::io::read(&end, &mut text).expect("its id");
        let pid = String::from_utf8_lossy(&text[..count]).trim().to_owned();
        assert!(!children().contains(&pid), "{pid}");
        assert!(!orphan.ends_within(Duration::ZERO));
        orphan.kill();
        assert!(orphan.ends_within(LONG));
        assert_eq!(rustix::io::read(&end, &mut text), Ok(0), "nothing is left of it");
    }

    #[test]
    fn what_cannot_be_started_says_why() {
        let error = Orphan::start(&mut Command::new("/there/is/no/such/program")).expect_err("no program");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn that_the_process_in_between_was_killed_is_not_taken_for_a_limit() {
        let (ours, theirs) = pair().expect("a socket");
        // What it had started has the other end.
        assert_eq!(receive(&ours).expect_err("nothing was said").kind(), io::ErrorKind::Interrupted);
        drop(theirs);
        assert_eq!(receive(&ours).expect_err("nothing was said").kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn many_threads_start_at_once() {
        let start = |_| {
            std::thread::spawn(|| {
                let begun = Instant::now();
                let orphan = Orphan::start(&mut Command::new("true")).expect("it starts");
                assert!(orphan.ends_within(LONG), "{:?}", begun.elapsed());
            })
        };
        let threads: Vec<_> = (0..16).map(start).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it started"));
    }
}
