//! A connected socket to a peer: of this machine, or encrypted to another one.
//!
//! Descriptors travel only over sockets of this machine; code that passes them holds such a socket and does
//! not come here ([`super::Inlet::read`], [`super::Outlet::flush`]). Otherwise readers and writers of frames
//! see no difference between the two kinds, and a local socket costs one branch more than without this type.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use super::tls::TlsStream;
use crate::poller::Interest;

/// See the module.
#[derive(Debug)]
pub enum Stream {
    /// A process of this machine, known by its socket.
    Unix(OwnedFd),
    /// A process of any machine, known by its certificate.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Reads what is there into `out`.
    ///
    /// # Errors
    /// `AGAIN` when nothing is there now; any other means that the connection has ended. `Ok(0)` is its end,
    /// too.
    #[inline]
    pub fn read(&self, out: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Stream::Unix(socket) => {
                rustix::net::recv(socket, out, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)
            }
            Stream::Tls(tls) => tls.read(out),
        }
    }

    /// Sends as much of `bytes` as the connection takes; returns how much it took.
    ///
    /// # Errors
    /// `AGAIN` when it takes nothing now; any other means that the connection has ended.
    #[inline]
    pub fn write(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match self {
            Stream::Unix(socket) => {
                rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            }
            Stream::Tls(tls) => tls.write(&[IoSlice::new(bytes)]),
        }
    }

    /// [`Self::write`] of several parts, one after the other.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_vectored(&self, parts: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        match self {
            Stream::Unix(socket) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                rustix::net::sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags)
            }
            Stream::Tls(tls) => tls.write(parts),
        }
    }

    /// Sends bytes that the connection took but the socket has not. True when there are none, as always for a
    /// socket of this machine.
    ///
    /// # Errors
    /// Any means that the connection has ended.
    #[inline]
    pub fn flush(&self) -> rustix::io::Result<bool> {
        match self {
            Stream::Unix(_) => Ok(true),
            Stream::Tls(tls) => tls.flush(),
        }
    }

    /// The events to wait for; `has_more` if the owner has bytes that were not taken. Must be asked again
    /// after every read and every flush: an encrypted connection may have to write in order to read, and may
    /// take nothing until it has read.
    #[must_use]
    pub fn interest(&self, has_more: bool) -> Interest {
        let wants_write = match self {
            Stream::Unix(_) => has_more,
            Stream::Tls(tls) => tls.wants_write(has_more),
        };
        Interest::read_and(wants_write)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(socket) => socket.as_fd(),
            Stream::Tls(tls) => tls.as_fd(),
        }
    }
}
