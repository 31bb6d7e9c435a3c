//! Dialling another machine without waiting.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use sooner_wire::limits::{PROBE_IDLE_NANOS, SILENCE_NANOS};

/// Begins a connection. The socket becomes writable when [`outcome`] knows the result.
///
/// # Errors
/// The system's error, if it is known at once.
pub fn dial(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    notice_silence(&socket);
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// The result of a connection that was begun.
///
/// # Errors
/// Why the connection failed.
pub fn outcome(socket: &OwnedFd) -> io::Result<()> {
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) | Err(error) => Err(error.into()),
    }
}

/// Ends a connection when nothing of the other machine has come for [`SILENCE_NANOS`], also one that is being
/// made or is idle. The kernel alone would go on for minutes, with pauses that double: after an outage of
/// some seconds it tries again some seconds late, and it never reports that an idle peer's machine is dead.
/// Sessions go on over the next connection. Has no effect on sockets that are not TCP.
pub(super) fn notice_silence(socket: &OwnedFd) {
    let millis = u32::try_from(SILENCE_NANOS / 1_000_000).unwrap_or(u32::MAX);
    let idle = Duration::from_nanos(PROBE_IDLE_NANOS);
    let _ = sockopt::set_tcp_user_timeout(socket, millis);
    let _ = sockopt::set_tcp_keepidle(socket, idle);
    let _ = sockopt::set_tcp_keepintvl(socket, idle);
    let _ = sockopt::set_socket_keepalive(socket, true);
}
