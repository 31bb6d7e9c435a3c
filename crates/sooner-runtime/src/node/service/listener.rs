//! The socket at which processes of this machine connect.
//!
//! Without descriptors no connection can be accepted, and one that waits makes the socket ready all the time.
//! So the listener pauses for a moment, and the node goes on with the connections it has.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::io::Errno;
use sooner_protocol::time::Instant;

use crate::poller::{Interest, Poller};

/// How long the listener pauses (nanoseconds).
const PAUSE_NANOS: u64 = 100_000_000;

/// A time in which no connection could be accepted.
#[derive(Debug)]
struct Pause {
    since: Instant,
    until: Instant,
    /// It listens again; whether a connection can be accepted shows when one comes.
    is_over: bool,
    error: io::Error,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Listener {
    socket: UnixListener,
    token: u64,
    pause: Option<Pause>,
}

impl Listener {
    /// Listens at a path, for this user only.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn bind(path: &Path, poller: &Poller, token: u64) -> io::Result<Self> {
        let socket = UnixListener::bind(path)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        socket.set_nonblocking(true)?;
        poller.add(&socket, token, Interest::Read)?;
        Ok(Self { socket, token, pause: None })
    }

    /// Accepts the next connection. The first one after a pause comes with a sentence for the node's log:
    /// before, there was no descriptor for the log either.
    pub(super) fn accept(&mut self, poller: &Poller, now: Instant) -> Option<(UnixStream, Option<String>)> {
        match self.socket.accept() {
            Ok((stream, _)) => {
                let said = self.pause.take().map(|pause| {
                    let seconds = now.since(pause.since) as f64 / 1e9;
                    format!("no process could connect for {seconds:.1} s: {}; see `ulimit -n`", pause.error)
                });
                Some((stream, said))
            }
            Err(error) => {
                let errno = error.raw_os_error().map(Errno::from_raw_os_error);
                if matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) {
                    let since = self.pause.as_ref().map_or(now, |pause| pause.since);
                    self.pause = Some(Pause { since, until: now.plus(PAUSE_NANOS), is_over: false, error });
                    self.listen(poller, Interest::Nothing);
                }
                None
            }
        }
    }

    /// When [`Self::attend`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.pause.as_ref().filter(|pause| !pause.is_over).map(|pause| pause.until)
    }

    /// Listens again after a pause.
    pub(super) fn attend(&mut self, poller: &Poller, now: impl Fn() -> Instant) {
        let Some(pause) = self.pause.as_mut().filter(|pause| !pause.is_over) else { return };
        if pause.until <= now() {
            pause.is_over = true;
            self.listen(poller, Interest::Read);
        }
    }

    fn listen(&self, poller: &Poller, interest: Interest) {
        let _ = poller.change(&self.socket, self.token, interest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poller::Events;

    fn is_ready(poller: &Poller) -> bool {
        let mut events = Events::with_capacity(1);
        poller.wait(&mut events, Some(0)).expect("a descriptor");
        !events.is_empty()
    }

    #[test]
    fn without_descriptors_it_stands_still_and_says_so_later() {
        let path = std::env::temp_dir().join(format!("sooner-listener-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let poller = Poller::new().expect("a descriptor");
        let mut listener = Listener::bind(&path, &poller, 1).expect("a socket");
        let _waiting = UnixStream::connect(&path).expect("it listens");
        assert!(is_ready(&poller));
        // What the system says without descriptors, without taking them from other tests.
        let error = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
        listener.pause =
            Some(Pause { since: Instant(0), until: Instant(PAUSE_NANOS), is_over: false, error });
        listener.listen(&poller, Interest::Nothing);
        listener.attend(&poller, || Instant(PAUSE_NANOS - 1));
        assert!(!is_ready(&poller));
        assert_eq!(listener.next_deadline(), Some(Instant(PAUSE_NANOS)));
        listener.attend(&poller, || Instant(PAUSE_NANOS));
        assert!(is_ready(&poller));
        let (_, said) = listener.accept(&poller, Instant(12_300_000_000)).expect("it waits");
        assert!(
            said.expect("there was a pause")
                .starts_with("no process could connect for 12.3 s: Too many open files")
        );
        assert!(listener.accept(&poller, Instant(12_300_000_000)).is_none());
        assert_eq!(listener.next_deadline(), None);
        let _ = std::fs::remove_file(&path);
    }
}
