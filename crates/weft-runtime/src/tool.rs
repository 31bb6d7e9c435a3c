//! A tool: asks a running session about itself over a connection of its own, and leaves.
//!
//! The driver asks the same way as another program does, so an answer never depends on who waits for what in the
//! asking process.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use weft_protocol::time::Instant;
use weft_wire::WorkerId;
use weft_wire::message::state::{Inspect, InspectEnd, Report};
use weft_wire::message::{Message, role};

use crate::client::hello;
use crate::clock::now;
use crate::transport::{Inlet, Outlet, ReadResult};

/// What a session answered.
#[derive(Debug)]
pub struct Answer {
    /// What each process told.
    pub reports: Vec<(WorkerId, Report)>,
    /// What the node told.
    pub end: InspectEnd,
}

/// Asks the session whose node listens at `path`.
///
/// # Errors
/// `ConnectionRefused` or `NotFound` when no session is there; otherwise the node's word, or that it does not answer.
pub fn ask(path: &Path, mut question: Inspect, patience_nanos: u64) -> io::Result<Answer> {
    question.request = 1;
    let stream = std::os::unix::net::UnixStream::connect(path)?;
    stream.set_nonblocking(true)?;
    let socket: OwnedFd = stream.into();
    let mut outlet = Outlet::default();
    outlet.push(&hello(role::TOOL, WorkerId::default(), "", None).into());
    outlet.push(&question.into());
    outlet.flush(&socket);
    receive(&socket, now().plus(patience_nanos))
}

fn receive(socket: &OwnedFd, deadline: Instant) -> io::Result<Answer> {
    let mut inlet = Inlet::default();
    let mut reports = Vec::new();
    let mut has_ended = false;
    loop {
        while let Some(received) = inlet.next_message().map_err(io::Error::other)? {
            match received.message {
                Message::Welcome(_) => {}
                Message::Inspected(part) => reports.push((part.worker, *part.report)),
                Message::InspectEnd(InspectEnd { error: Some(error), .. }) => {
                    return Err(io::Error::other(error));
                }
                Message::InspectEnd(end) => return Ok(Answer { reports, end }),
                Message::Refused(refused) => return Err(io::Error::other(refused.reason)),
                other => return Err(io::Error::other(format!("the node answered {}", other.kind()))),
            }
        }
        if has_ended {
            let text = "the session ended before it answered";
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, text));
        }
        let left = deadline.since(now());
        if left == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the node did not answer in time"));
        }
        let mut poll = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
        let timeout = rustix::event::Timespec {
            tv_sec: i64::try_from(left / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(left % 1_000_000_000).expect("below a second"),
        };
        let _ = rustix::event::poll(&mut poll, Some(&timeout));
        has_ended = inlet.read_plain(socket) == ReadResult::End;
    }
}
