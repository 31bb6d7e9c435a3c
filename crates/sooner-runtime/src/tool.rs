//! A tool: queries a running session, or asks that a node leaves, over a connection of its own.
//!
//! The driver uses the same path as other programs, so an answer never depends on what other threads of the
//! asking process wait for.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use sooner_protocol::time::Instant;
use sooner_wire::WorkerId;
use sooner_wire::message::state::{Inspect, InspectEnd, NodeInspected, Report};
use sooner_wire::message::{Drain, Message, role};

use crate::client::hello;
use crate::clock::{now, timespec};
use crate::transport::{Inlet, Outlet, ReadResult};

/// What a session answered.
#[derive(Debug)]
pub struct Answer {
    /// The report of each process.
    pub reports: Vec<(WorkerId, Report)>,
    /// The reports of other nodes.
    pub others: Vec<NodeInspected>,
    /// The report of the node.
    pub end: InspectEnd,
}

/// Asks the session whose node listens at `path`.
///
/// # Errors
/// `ConnectionRefused` or `NotFound` when no session is there; otherwise the node's error, or that it does
/// not answer.
pub fn ask(path: &Path, mut question: Inspect, patience_nanos: u64) -> io::Result<Answer> {
    question.request = 1;
    let socket = connect(path, &question.into())?;
    receive(&socket, now().plus(patience_nanos))
}

/// Asks the node that listens at `path` to have a node of its cluster leave, within `patience_nanos`. Returns
/// when the head has been told.
///
/// # Errors
/// `ConnectionRefused` or `NotFound` when no session is there; otherwise the node's error, or that it does
/// not answer.
pub fn drain(path: &Path, drain: Drain, patience_nanos: u64) -> io::Result<()> {
    let socket = connect(path, &drain.into())?;
    let deadline = now().plus(patience_nanos);
    let mut inlet = Inlet::default();
    loop {
        match next(&socket, &mut inlet, deadline)? {
            Message::Welcome(_) => {}
            Message::Drained(_) => return Ok(()),
            Message::Refused(refused) => return Err(io::Error::other(refused.reason)),
            other => return Err(io::Error::other(format!("the node answered {}", other.kind()))),
        }
    }
}

/// Connects and asks.
fn connect(path: &Path, question: &Message) -> io::Result<OwnedFd> {
    let stream = crate::private::connect(path)?;
    stream.set_nonblocking(true)?;
    let socket: OwnedFd = stream.into();
    let mut outlet = Outlet::default();
    outlet.push(&hello(role::TOOL, WorkerId::default(), "", None).into());
    outlet.push(question);
    outlet.flush(&socket);
    Ok(socket)
}

fn receive(socket: &OwnedFd, deadline: Instant) -> io::Result<Answer> {
    let mut inlet = Inlet::default();
    let (mut reports, mut others) = (Vec::new(), Vec::new());
    loop {
        match next(socket, &mut inlet, deadline)? {
            Message::Welcome(_) => {}
            Message::Inspected(part) => reports.push((part.worker, *part.report)),
            Message::NodeInspected(other) => others.push(other),
            Message::InspectEnd(InspectEnd { error: Some(error), .. }) => {
                return Err(io::Error::other(error));
            }
            Message::InspectEnd(end) => return Ok(Answer { reports, others, end }),
            Message::Refused(refused) => return Err(io::Error::other(refused.reason)),
            other => return Err(io::Error::other(format!("the node answered {}", other.kind()))),
        }
    }
}

/// The next message that comes.
fn next(socket: &OwnedFd, inlet: &mut Inlet, deadline: Instant) -> io::Result<Message> {
    let mut has_ended = false;
    loop {
        if let Some(received) = inlet.next_message().map_err(io::Error::other)? {
            return Ok(received.message);
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
        let _ = rustix::event::poll(&mut poll, Some(&timespec(left)));
        has_ended = inlet.read_plain(socket) == ReadResult::End;
    }
}
