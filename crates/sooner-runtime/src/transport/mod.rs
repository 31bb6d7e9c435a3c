//! Stream sockets: framed messages in, framed messages and descriptors out.
//!
//! Sockets do not block; who may wait is decided elsewhere. A descriptor travels with the first byte of the frame
//! that owns it, so a reader has it when it parses that frame. To other machines the same frames travel encrypted
//! ([`Stream`]), without descriptors.

pub mod dial;
mod failure;
mod foreign;
mod framed;
mod inlet;
mod line;
mod outlet;
mod retained;
mod stream;
mod tls;
mod way;
mod wire;

pub use failure::TlsFailure;
pub use foreign::Foreign;
pub use framed::{Ended, Framed};
pub use inlet::{Inlet, ReadResult, Received};
pub use line::Line;
pub use outlet::{Flush, Outlet};
pub use stream::Stream;
pub use tls::{READ_BYTES_MAX, TlsStream};
pub use way::Reader;
pub use wire::{Failure, Turn, Wire, WireNews};

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Two connected sockets.
///
/// # Errors
/// The kernel's word, usually that there are too many open descriptors.
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
