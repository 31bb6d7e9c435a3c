//! A session with both its ends: the frames that each end retains, and the connections between the ends.
//!
//! The machine is the production one ([`Link`]). This file models the shell around it, and TCP: a connection
//! keeps the order; when it is cut, each direction loses either everything on its way or nothing. To lose
//! only the rest is the same as a cut a little later.

use std::collections::VecDeque;

use sooner_protocol::probes::{Bug, is_on};
use sooner_protocol::session::{Connection, Link, LinkAction, LinkActions, Resume, Resumed};
use sooner_protocol::time::Instant;

/// Bytes of an acknowledgement.
const ACK_FRAME_BYTES: u64 = 13;

/// What is wrong with the machine, in words.
pub type Wrong = String;

/// An item on a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Item<T> {
    Hello(Resume),
    Welcome(Resumed),
    /// With its bytes.
    Frame(T, u64),
    Ack(u64),
    Ended(String),
    /// The sender has closed the connection: nothing follows.
    Close,
}

/// A connection.
#[derive(Debug, Clone, Hash)]
struct Wire<T> {
    /// Items on their way to each end.
    queues: [VecDeque<Item<T>>; 2],
    /// Whether each end still has the connection.
    has: [bool; 2],
    is_cut: bool,
}

/// One end.
#[derive(Debug, Clone, Hash)]
pub struct End<T> {
    /// The machine.
    pub link: Link,
    /// Retained items, each with the stream position behind it.
    retained: VecDeque<(u64, Item<T>)>,
    /// The stream position where the retained items begin.
    begin: u64,
    /// The stream position where they end.
    sent: u64,
    /// The machine wants a connection.
    pub may_dial: bool,
    /// Why the session has ended.
    pub ended: Option<String>,
}

/// See the module. If both ends dial, the connection of the first end is used.
#[derive(Debug, Clone, Hash)]
pub struct Line<T> {
    /// Both ends.
    pub ends: [End<T>; 2],
    wires: Vec<Wire<T>>,
}

impl<T: Clone> Default for Line<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone> Line<T> {
    /// A session without a connection.
    #[must_use]
    pub fn new() -> Self {
        Self { ends: [End::new(0), End::new(1)], wires: Vec::new() }
    }

    /// How many connections there have been.
    #[must_use]
    pub fn wires(&self) -> usize {
        self.wires.len()
    }

    /// The next item to arrive at an end over a connection, in words.
    ///
    /// # Panics
    /// If nothing is on its way.
    #[must_use]
    pub fn describe_next(&self, wire: usize, to: usize) -> String
    where
        T: std::fmt::Debug,
    {
        format!("{:?}", self.wires[wire].queues[to][0])
    }

    /// Connections, each with an end at which an item may arrive.
    pub fn arrivals(&self) -> impl Iterator<Item = (usize, usize)> {
        let all = (0..self.wires.len()).flat_map(|wire| [(wire, 0), (wire, 1)]);
        all.filter(|(wire, to)| self.wires[*wire].has[*to] && !self.wires[*wire].queues[*to].is_empty())
    }

    /// Connections that may be cut, and whether the cut loses the items on their way to each end.
    pub fn cuts(&self) -> impl Iterator<Item = (usize, [bool; 2])> {
        let live = |wire: &(usize, &Wire<T>)| !wire.1.is_cut && wire.1.has.contains(&true);
        self.wires.iter().enumerate().filter(live).flat_map(|(number, wire)| {
            let ways = |to: usize| if wire.queues[to].is_empty() { &[false][..] } else { &[false, true] };
            let (firsts, seconds) = (ways(0), ways(1));
            firsts.iter().flat_map(move |first| seconds.iter().map(move |second| (number, [*first, *second])))
        })
    }

    /// An end sends a frame.
    ///
    /// # Errors
    /// What is wrong with the machine.
    pub fn send(&mut self, index: usize, what: T, bytes: u64, now: Instant) -> Result<(), Wrong> {
        let end = &mut self.ends[index];
        let item = Item::Frame(what, bytes);
        let used = end.link.connection();
        end.link.took(bytes);
        end.retain(item.clone(), bytes);
        let mut out = LinkActions::new();
        end.link.connect(now, &mut out);
        if let Some(used) = used {
            self.put(index, used, item);
        }
        self.perform(index, out)
    }

    /// The first item on a connection arrives. Returns the frame that the machine hands up, if any.
    ///
    /// # Errors
    /// What is wrong with the machine.
    pub fn deliver(&mut self, wire: usize, to: usize, now: Instant) -> Result<Option<T>, Wrong> {
        let on = connection(wire);
        let Some(item) = self.wires[wire].queues[to].pop_front() else { return Ok(None) };
        let link = &mut self.ends[to].link;
        let mut out = LinkActions::new();
        let mut handed_up = None;
        match item {
            Item::Hello(hello) => link.on_hello(on, hello, now, &mut out),
            Item::Welcome(welcome) => link.on_welcome(on, welcome, now, &mut out),
            Item::Frame(what, bytes) => {
                if link.on_frame(on, bytes, false, now, &mut out) {
                    handed_up = Some(what);
                }
            }
            Item::Ack(position) => {
                if link.on_frame(on, ACK_FRAME_BYTES, true, now, &mut out) {
                    link.on_ack(position, &mut out);
                }
            }
            Item::Ended(reason) => link.on_ended(on, &reason, &mut out),
            Item::Close => {
                link.on_cut(on, now, &mut out);
                self.wires[wire].leave(to);
            }
        }
        if handed_up.is_some() && self.ends[to].ended.is_some() {
            return Err("SE4: a frame is handed up after the end of the session".to_owned());
        }
        self.perform(to, out)?;
        Ok(handed_up)
    }

    /// The connection that an end wanted is made.
    ///
    /// # Errors
    /// What is wrong with the machine.
    pub fn dialled(&mut self, index: usize, now: Instant) -> Result<(), Wrong> {
        self.ends[index].may_dial = false;
        self.wires.push(Wire { queues: Default::default(), has: [true; 2], is_cut: false });
        let mut out = LinkActions::new();
        self.ends[index].link.on_dialled(connection(self.wires.len() - 1), now, &mut out);
        self.perform(index, out)
    }

    /// The connection that an end wanted cannot be made.
    pub fn dial_fails(&mut self, index: usize, now: Instant) {
        self.ends[index].may_dial = false;
        self.ends[index].link.on_dial_failed(now);
    }

    /// Time has passed for an end.
    ///
    /// # Errors
    /// What is wrong with the machine.
    pub fn on_timer(&mut self, index: usize, now: Instant) -> Result<(), Wrong> {
        let mut out = LinkActions::new();
        self.ends[index].link.on_timer(now, &mut out);
        self.perform(index, out)
    }

    /// An end ends the session.
    ///
    /// # Errors
    /// What is wrong with the machine.
    pub fn end(&mut self, index: usize, reason: &str) -> Result<(), Wrong> {
        let mut out = LinkActions::new();
        self.ends[index].link.end(reason, &mut out);
        self.perform(index, out)
    }

    /// A connection is cut.
    pub fn cut(&mut self, number: usize, loses: [bool; 2], now: Instant) {
        self.wires[number].is_cut = true;
        for (to, loses) in loses.into_iter().enumerate() {
            let wire = &mut self.wires[number];
            let lost = if loses { std::mem::take(&mut wire.queues[to]) } else { VecDeque::new() };
            if wire.has[to] {
                wire.queues[to].push_back(Item::Close);
            }
            if is_on(Bug::AckBeforeProcessed)
                && let Some(Item::Frame(_, bytes)) = lost.front()
            {
                // The frame was counted when it was read from the socket, and the connection ended before it
                // was handed up.
                let link = &mut self.ends[to].link;
                link.on_frame(connection(number), *bytes, false, now, &mut LinkActions::new());
            }
        }
    }

    /// The process at an end dies: items that it has sent stay on their way, its retained items are lost.
    pub fn abandon(&mut self, index: usize) {
        for number in 0..self.wires.len() {
            if self.wires[number].has[index] {
                self.close(index, connection(number));
            }
        }
        let end = &mut self.ends[index];
        end.may_dial = false;
        end.retained.clear();
    }

    /// Puts an item on a connection, which loses it if the connection is cut or the receiver has left.
    fn put(&mut self, from: usize, on: Connection, item: Item<T>) {
        let wire = &mut self.wires[on.0 as usize];
        if !wire.is_cut && wire.has[1 - from] {
            wire.queues[1 - from].push_back(item);
        }
    }

    fn close(&mut self, index: usize, on: Connection) {
        self.put(index, on, Item::Close);
        self.wires[on.0 as usize].leave(index);
    }

    fn perform(&mut self, index: usize, out: LinkActions) -> Result<(), Wrong> {
        for action in out {
            match action {
                LinkAction::Dial => self.ends[index].may_dial = true,
                LinkAction::Hello(on, hello) => self.put(index, on, Item::Hello(hello)),
                LinkAction::Welcome(on, welcome) => self.put(index, on, Item::Welcome(welcome)),
                LinkAction::SendEnded(on, reason) => {
                    self.put(index, on, Item::Ended(reason));
                    self.close(index, on);
                }
                LinkAction::Close(on) => self.close(index, on),
                LinkAction::SendFrom(on, position) => {
                    for item in self.ends[index].retained_from(position)? {
                        self.put(index, on, item);
                    }
                }
                LinkAction::Release(position) => self.ends[index].release(position)?,
                LinkAction::Ack(received) => {
                    let end = &mut self.ends[index];
                    end.link.took_ack(ACK_FRAME_BYTES);
                    end.retain(Item::Ack(received), ACK_FRAME_BYTES);
                    if let Some(on) = end.link.connection() {
                        self.put(index, on, Item::Ack(received));
                    }
                }
                LinkAction::End(reason) => {
                    if self.ends[index].ended.replace(reason).is_some() {
                        return Err("SE4: a session ends twice".to_owned());
                    }
                }
            }
        }
        self.ends[index].check()
    }
}

impl<T> Wire<T> {
    /// An end leaves the connection. A connection that both ends have left always looks the same.
    fn leave(&mut self, index: usize) {
        self.has[index] = false;
        self.queues[index].clear();
        self.is_cut |= !self.has.contains(&true);
    }
}

impl<T: Clone> End<T> {
    fn new(index: usize) -> Self {
        Self {
            link: Link::new(7 + index as u64, index == 0),
            retained: VecDeque::new(),
            begin: 0,
            sent: 0,
            may_dial: false,
            ended: None,
        }
    }

    fn retain(&mut self, item: Item<T>, bytes: u64) {
        self.sent += bytes;
        self.retained.push_back((self.sent, item));
    }

    fn retained_from(&self, position: u64) -> Result<Vec<Item<T>>, Wrong> {
        self.check_boundary(position)?;
        let behind = self.retained.iter().filter(|(end, _)| *end > position);
        Ok(behind.map(|(_, item)| item.clone()).collect())
    }

    fn release(&mut self, position: u64) -> Result<(), Wrong> {
        self.check_boundary(position)?;
        while self.retained.front().is_some_and(|(end, _)| *end <= position) {
            self.retained.pop_front();
        }
        self.begin = position;
        Ok(())
    }

    fn check_boundary(&self, position: u64) -> Result<(), Wrong> {
        let is_boundary = position == self.begin || self.retained.iter().any(|(end, _)| *end == position);
        if is_boundary { Ok(()) } else { Err(format!("SE1: {position} is not where a retained frame ends")) }
    }

    fn check(&self) -> Result<(), Wrong> {
        let (retained, counted) = (self.sent - self.begin, self.link.retained());
        if counted == retained {
            return Ok(());
        }
        Err(format!("SE2: {retained} bytes are retained, and {counted} are counted"))
    }
}

fn connection(number: usize) -> Connection {
    Connection(u32::try_from(number).expect("few connections"))
}
