//! The sending half of a socket: encoded frames wait here and leave in one write.
//!
//! The buffer of a peer that does not read grows only by what the protocol allows in flight
//! (`sooner_wire::limits`); the core holds further tasks back.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use sooner_wire::message::Message;

use super::stream::Stream;

/// See the module.
#[derive(Debug, Default)]
pub struct Outlet {
    buffer: Vec<u8>,
    sent: usize,
    /// Descriptors by the position in the buffer of the frame that owns them.
    descriptors: VecDeque<(usize, Vec<OwnedFd>)>,
}

/// How a flush ended.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Flush {
    /// Everything left.
    Done,
    /// The socket is full: flush again when it can take more.
    Full,
    /// The peer has ended the connection, or is dead.
    Gone,
}

impl Outlet {
    /// Appends a message.
    pub fn push(&mut self, message: &Message) {
        message.append(&mut self.buffer, 0);
    }

    /// Appends a message that owns descriptors.
    pub fn push_with(&mut self, message: &Message, descriptors: Vec<OwnedFd>) {
        let count = u16::try_from(descriptors.len()).expect("few descriptors");
        self.descriptors.push_back((self.buffer.len(), descriptors));
        message.append(&mut self.buffer, count);
    }

    /// The buffer, to append encoded frames to.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Bytes waiting.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.sent
    }

    /// Sends as much as the socket takes.
    pub fn flush(&mut self, socket: impl AsFd) -> Flush {
        self.send_all(|outlet| outlet.send_some(&socket))
    }

    /// Sends as much as a connection to a process of any machine takes. No queued message may own
    /// descriptors.
    ///
    /// [`Flush::Full`] may also mean that the peer has not yet proved who it is; [`Stream::interest`] gives
    /// the events to wait for.
    pub fn flush_stream(&mut self, stream: &Stream) -> Flush {
        debug_assert!(self.descriptors.is_empty(), "descriptors travel between processes of one machine");
        match self.send_all(|outlet| stream.write(&outlet.buffer[outlet.sent..])) {
            Flush::Done => match stream.flush() {
                Ok(true) => Flush::Done,
                Ok(false) => Flush::Full,
                Err(_) => Flush::Gone,
            },
            other => other,
        }
    }

    fn send_all(&mut self, mut send: impl FnMut(&mut Self) -> rustix::io::Result<usize>) -> Flush {
        while self.sent < self.buffer.len() {
            match send(self) {
                Ok(bytes) => self.sent += bytes,
                Err(Errno::AGAIN) => {
                    self.drop_sent();
                    return Flush::Full;
                }
                Err(Errno::INTR) => {}
                Err(_) => return Flush::Gone,
            }
        }
        self.buffer.clear();
        self.sent = 0;
        if self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
        Flush::Done
    }

    fn send_some(&mut self, socket: &impl AsFd) -> rustix::io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let Some((at, _)) = self.descriptors.front() else {
            return rustix::net::send(socket, &self.buffer[self.sent..], flags);
        };
        if *at > self.sent {
            return rustix::net::send(socket, &self.buffer[self.sent..*at], flags);
        }
        // The next frame's descriptors go with its first byte; stop before the one after it.
        let end = self.descriptors.get(1).map_or(self.buffer.len(), |(at, _)| *at);
        let (_, descriptors) = self.descriptors.front().expect("looked at above");
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&borrowed)), "at most 8 descriptors");
        let part = [IoSlice::new(&self.buffer[self.sent..end])];
        let bytes = rustix::net::sendmsg(socket, &part, &mut control, flags)?;
        self.descriptors.pop_front();
        Ok(bytes)
    }

    /// Drops sent bytes while the rest waits, so that a slow reader does not make the buffer grow.
    fn drop_sent(&mut self) {
        if self.sent < 64 << 10 {
            return;
        }
        self.buffer.drain(..self.sent);
        for (at, _) in &mut self.descriptors {
            *at -= self.sent;
        }
        self.sent = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{Inlet, pair};
    use sooner_wire::WorkerId;
    use sooner_wire::message::{Connect, PeerConnected};

    #[test]
    fn descriptors_arrive_with_their_message() {
        let (a, b) = pair().expect("sockets");
        let (passed, other) = pair().expect("sockets");
        let mut outlet = Outlet::default();
        outlet.push(&Connect { worker: WorkerId(1) }.into());
        outlet.push_with(&PeerConnected::pair(WorkerId(2)).into(), vec![passed]);
        outlet.push_with(&PeerConnected::pair(WorkerId(3)).into(), vec![other]);
        assert_eq!(outlet.flush(&a), Flush::Done);
        let mut inlet = Inlet::default();
        let mut counts = Vec::new();
        while counts.len() < 3 {
            inlet.read(&b);
            while let Some(received) = inlet.next_message().expect("frames") {
                counts.push(received.descriptors.len());
            }
        }
        assert_eq!(counts, [0, 1, 1]);
    }

    #[test]
    fn a_full_socket_keeps_the_rest_for_later() {
        let (a, b) = pair().expect("sockets");
        let mut outlet = Outlet::default();
        for number in 0..400_000 {
            outlet.push(&Connect { worker: WorkerId(number) }.into());
        }
        let mut inlet = Inlet::default();
        let mut expected = 0;
        loop {
            let state = outlet.flush(&a);
            while inlet.read_plain(&b) == crate::transport::inlet::Read::Some {
                while let Some(received) = inlet.next_message().expect("frames") {
                    let Message::Connect(connect) = received.message else { panic!("connects") };
                    assert_eq!(connect.worker, WorkerId(expected));
                    expected += 1;
                }
            }
            if state == Flush::Done {
                break;
            }
        }
        assert_eq!(expected, 400_000);
    }
}
