//! The receiving half of a socket: bytes and descriptors in, messages out.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use sooner_wire::frame::{FrameError, HEAD_BYTES, whole_frame};
use sooner_wire::message::Message;

use super::stream::Stream;
use super::tls::READ_BYTES_MAX;

/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;
/// With this much room, a read of an encrypted connection leaves nothing behind.
const _: () = assert!(READ_BYTES / 4 >= READ_BYTES_MAX);
/// Descriptors one message carries at most.
const DESCRIPTORS_MAX: usize = 8;

/// A message and the descriptors it owns.
#[derive(Debug)]
pub struct Received {
    /// The message itself.
    pub message: Message,
    /// The descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
    /// Fewer descriptors came than were sent: this process had no room for them, and the kernel closed them.
    pub lacks_descriptors: bool,
    /// The length of its frame.
    pub bytes: u32,
}

/// How a read ended.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Read {
    /// Bytes came.
    Some,
    /// Nothing is there now.
    Nothing,
    /// The peer has ended the connection, or is dead.
    End,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Inlet {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    descriptors: VecDeque<OwnedFd>,
}

impl Inlet {
    /// Reads what is there, once, with descriptors if some came.
    pub fn read(&mut self, socket: impl AsFd) -> Read {
        self.make_room();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut self.buffer[self.end..])];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let result = rustix::net::recvmsg(socket, &mut parts, &mut control, flags);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        self.after(result.map(|message| message.bytes))
    }

    /// Reads what is there from a peer that sends no descriptors: cheaper.
    pub fn read_plain(&mut self, socket: impl AsFd) -> Read {
        self.make_room();
        let result = rustix::net::recv(socket, &mut self.buffer[self.end..], RecvFlags::DONTWAIT);
        self.after(result.map(|(bytes, _)| bytes))
    }

    /// Reads what is there from a peer of any machine.
    pub fn read_stream(&mut self, stream: &Stream) -> Read {
        self.make_room();
        let result = stream.read(&mut self.buffer[self.end..]);
        self.after(result)
    }

    fn after(&mut self, result: rustix::io::Result<usize>) -> Read {
        match result {
            Ok(0) => Read::End,
            Ok(bytes) => {
                self.end += bytes;
                Read::Some
            }
            Err(Errno::AGAIN | Errno::INTR) => Read::Nothing,
            Err(_) => Read::End,
        }
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.buffer.len() > 4 * READ_BYTES {
                // A single large message came; the memory for it is not kept.
                self.buffer = Vec::new();
            }
        }
        if self.buffer.len() - self.end < READ_BYTES / 4 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            let wanted = (self.end * 2).max(READ_BYTES);
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
        }
    }

    /// The next whole message.
    ///
    /// # Errors
    /// [`FrameError`]: the peer is not sooner or is broken; the connection must end.
    pub fn next_message(&mut self) -> Result<Option<Received>, FrameError> {
        let bytes = &self.buffer[self.start..self.end];
        let Some(head) = whole_frame(bytes)? else { return Ok(None) };
        let message = Message::decode(head.kind, &bytes[HEAD_BYTES..HEAD_BYTES + head.length])?;
        let length = HEAD_BYTES + head.length;
        self.start += length;
        let count = usize::from(head.flags).min(self.descriptors.len());
        let descriptors = self.descriptors.drain(..count).collect();
        let lacks_descriptors = count < usize::from(head.flags);
        let bytes = u32::try_from(length).expect("a frame is bounded");
        Ok(Some(Received { message, descriptors, lacks_descriptors, bytes }))
    }
}

pub use Read as ReadResult;
