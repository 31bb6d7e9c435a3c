//! Which descriptors are ready: the one way in which the event loops of this crate wait.
//!
//! A loop registers each descriptor under a token of its own, and each [`Event`] has the token and what it
//! tells. A poller is a descriptor itself ([`AsFd`]), readable when one of its own is ready: parts of a loop
//! have pollers of their own inside the loop's. No other file names `epoll`, so another system's way to wait
//! would go here.
//!
//! **Interruption.** Who waits in vain looks at its deadlines and waits again, so a wait that fails may look
//! like one that found nothing. Therefore [`Poller::wait`] leaves no event behind when it fails, not even of
//! an earlier wait, and it does not begin again by itself. Most loops drop its result. A signal ends the
//! wait with [`Errno::INTR`](rustix::io::Errno::INTR): threads that run Python's signal handlers look for
//! that, and so does who takes an empty wait for silence. Every other error is a fault of the caller: a
//! closed descriptor, or a limit of more than 24 days on a kernel before 5.11.

use std::iter::Copied;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::slice;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Result;

use crate::clock::timespec;

/// What a loop wants to hear of a descriptor. Its end and its failures are told in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Nothing else, for now.
    Nothing,
    /// It can be read.
    Read,
    /// It can be written, or the connection that was begun is made.
    Write,
    /// It can be read, and it can be written.
    Both,
    /// Something has come, or the peer sends no more. Told once for each time: bytes that are only looked at
    /// stay readable.
    Arrivals,
}

impl Interest {
    /// To read; and to write if something waits for that.
    #[inline]
    #[must_use]
    pub fn read_and(wants_write: bool) -> Self {
        if wants_write { Self::Both } else { Self::Read }
    }

    #[inline]
    fn flags(self) -> EventFlags {
        match self {
            Self::Nothing => EventFlags::empty(),
            Self::Read => EventFlags::IN,
            Self::Write => EventFlags::OUT,
            Self::Both => EventFlags::IN | EventFlags::OUT,
            Self::Arrivals => EventFlags::IN | EventFlags::RDHUP | EventFlags::ET,
        }
    }
}

/// A descriptor is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The token under which the descriptor was added.
    pub token: u64,
    flags: EventFlags,
}

impl Event {
    /// The event of a descriptor that can be read, for a loop that is played.
    #[must_use]
    pub fn readable(token: u64) -> Self {
        Self { token, flags: EventFlags::IN }
    }

    /// Whether a read tells something: bytes, the end or the failure.
    #[inline]
    #[must_use]
    pub fn is_readable(self) -> bool {
        self.flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR)
    }

    /// Whether it takes something to write.
    #[inline]
    #[must_use]
    pub fn is_writable(self) -> bool {
        self.flags.contains(EventFlags::OUT)
    }

    /// Whether nothing comes any more behind what can be read. A peer that only sends no more shows to
    /// [`Interest::Arrivals`] alone.
    #[inline]
    #[must_use]
    pub fn has_ended(self) -> bool {
        self.flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
    }
}

/// The most events of one wait; those that are left come with the next one.
const AT_A_TIME: usize = 64;

/// The events of one wait. A loop makes room for them once, and each wait uses it again.
#[derive(Debug)]
pub struct Events {
    room: usize,
    found: Vec<Event>,
}

impl Events {
    /// Room for so many events at a time, at most 64.
    #[must_use]
    pub fn with_capacity(room: usize) -> Self {
        let room = room.min(AT_A_TIME);
        Self { room, found: Vec::with_capacity(room) }
    }

    /// Whether the wait found nothing.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// How many there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// The events, in the order of the system.
    #[inline]
    pub fn iter(&self) -> Copied<slice::Iter<'_, Event>> {
        self.found.iter().copied()
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = Event;
    type IntoIter = Copied<slice::Iter<'a, Event>>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Poller {
    descriptor: OwnedFd,
}

impl Poller {
    /// A poller of nothing.
    ///
    /// # Errors
    /// The system's error, usually too many open descriptors.
    pub fn new() -> Result<Self> {
        Ok(Self { descriptor: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Watches a descriptor from now on. Its events come under this token.
    ///
    /// # Errors
    /// The system's error.
    pub fn add(&self, descriptor: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        epoll::add(&self.descriptor, descriptor, EventData::new_u64(token), interest.flags())
    }

    /// Replaces token and interest of a descriptor that is watched.
    ///
    /// # Errors
    /// The system's error.
    #[inline]
    pub fn change(&self, descriptor: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        epoll::modify(&self.descriptor, descriptor, EventData::new_u64(token), interest.flags())
    }

    /// Watches a descriptor no longer. A descriptor of which there is no copy in any process needs none of
    /// this: closing it is enough.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self, descriptor: impl AsFd) -> Result<()> {
        epoll::delete(&self.descriptor, descriptor)
    }

    /// Replaces the events by those there are. Waits for the first of them for at most `limit` nanoseconds;
    /// `None`: for as long as it takes.
    ///
    /// # Errors
    /// See the module. There is no event then.
    #[inline]
    pub fn wait(&self, events: &mut Events, limit: Option<u64>) -> Result<()> {
        events.found.clear();
        // A client's threads hand the events on to each other. They cannot with the library's own type, which
        // may have a pointer in the token's place.
        let mut space = [MaybeUninit::uninit(); AT_A_TIME];
        let limit = limit.map(timespec);
        let (found, _) = epoll::wait(&self.descriptor, &mut space[..events.room], limit.as_ref())?;
        let found = found.iter().map(|event| Event { token: event.data.u64(), flags: event.flags });
        events.found.extend(found);
        Ok(())
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::pair;

    fn look(poller: &Poller, events: &mut Events) -> Vec<Event> {
        poller.wait(events, Some(0)).expect("it does not wait");
        events.iter().collect()
    }

    #[test]
    fn what_is_told_follows_the_interest() {
        let (here, there) = pair().expect("sockets");
        let (poller, mut events) = (Poller::new().expect("a descriptor"), Events::with_capacity(4));
        poller.add(&here, 7, Interest::Read).expect("watched");
        assert_eq!(look(&poller, &mut events), []);
        rustix::io::write(&there, b"x").expect("sent");
        assert_eq!(look(&poller, &mut events), [Event::readable(7)]);
        poller.change(&here, 8, Interest::Write).expect("watched");
        let [event] = look(&poller, &mut events)[..] else { panic!("one descriptor") };
        assert_eq!((event.token, event.is_readable(), event.is_writable()), (8, false, true));
        poller.change(&here, 9, Interest::read_and(true)).expect("watched");
        let [event] = look(&poller, &mut events)[..] else { panic!("one descriptor") };
        assert_eq!((event.token, event.is_readable(), event.is_writable()), (9, true, true));
        poller.change(&here, 9, Interest::Nothing).expect("watched");
        assert_eq!(look(&poller, &mut events), []);
        drop(there);
        let [event] = look(&poller, &mut events)[..] else { panic!("an end is told in any case") };
        assert!(event.is_readable() && event.has_ended() && !event.is_writable());
        poller.remove(&here).expect("it was watched");
        assert_eq!(look(&poller, &mut events), []);
    }

    #[test]
    fn arrivals_are_told_once_each() {
        let (here, there) = pair().expect("sockets");
        let (poller, mut events) = (Poller::new().expect("a descriptor"), Events::with_capacity(4));
        poller.add(&here, 1, Interest::Arrivals).expect("watched");
        for _ in 0..2 {
            rustix::io::write(&there, b"x").expect("sent");
            assert_eq!(look(&poller, &mut events), [Event::readable(1)]);
            assert_eq!(look(&poller, &mut events), []);
        }
        rustix::net::shutdown(&there, rustix::net::Shutdown::Write).expect("connected");
        let [event] = look(&poller, &mut events)[..] else { panic!("the peer sends no more") };
        assert!(event.has_ended());
    }

    #[test]
    fn a_poller_in_another_is_readable_when_it_has_events() {
        let (here, there) = pair().expect("sockets");
        let (inner, outer) = (Poller::new().expect("a descriptor"), Poller::new().expect("a descriptor"));
        let mut events = Events::with_capacity(4);
        inner.add(&here, 1, Interest::Read).expect("watched");
        outer.add(&inner, 2, Interest::Read).expect("watched");
        assert_eq!(look(&outer, &mut events), []);
        rustix::io::write(&there, b"x").expect("sent");
        assert_eq!(look(&outer, &mut events), [Event::readable(2)]);
        assert_eq!(look(&inner, &mut events), [Event::readable(1)]);
    }

    #[test]
    fn a_wait_that_fails_leaves_no_event() {
        let (here, there) = pair().expect("sockets");
        let (poller, mut events) = (Poller::new().expect("a descriptor"), Events::with_capacity(4));
        poller.add(&here, 1, Interest::Read).expect("watched");
        rustix::io::write(&there, b"x").expect("sent");
        assert_eq!(look(&poller, &mut events).len(), 1);
        // What is no poller cannot wait.
        let fault = Poller { descriptor: here };
        fault.wait(&mut events, Some(0)).expect_err("a socket");
        assert!(events.is_empty());
    }
}
