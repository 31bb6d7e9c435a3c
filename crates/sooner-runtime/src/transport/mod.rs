//! Stream sockets: framed messages in, framed messages and descriptors out.
//!
//! Sockets do not block; which thread may wait is decided elsewhere. A descriptor travels with the first byte
//! of the frame that owns it, so a reader has it when it parses that frame. To other machines the same frames
//! travel encrypted ([`Stream`]), without descriptors.

mod conn;
pub mod dial;
mod epoll_session;
mod failure;
mod foreign;
mod inlet;
mod outlet;
mod resend_buffer;
mod session;
mod session_conn;
mod stream;
mod tls;

pub use conn::{Conn, Ended};
pub use epoll_session::EpollSession;
pub use failure::TlsFailure;
pub use foreign::Foreign;
pub use inlet::{Inlet, ReadResult, Received};
pub use outlet::{Flush, Outlet};
pub use session::{Failure, Session, SessionNews, Turn};
pub use session_conn::Reader;
pub use stream::Stream;
pub use tls::{READ_BYTES_MAX, TlsStream};

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Two connected sockets.
///
/// # Errors
/// The kernel's error, usually too many open descriptors.
pub fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    for socket in [&a, &b] {
        // Room for a full batch in each direction; the default of 208 KiB halves the rate of large batches.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, 1 << 20);
    }
    Ok((a, b))
}

#[cfg(test)]
mod tests;
