//! Ordered, reliable channels: one per ordered pair of processes, as the Unix sockets between them are; or
//! the buffers in front of a session ([`super::sessions`]).
//!
//! A message lies in the sender's buffer until it is flushed, then on the wire until it is delivered. It is
//! lost only with its sender's buffer (the sender died) or with its receiver. Two workers exchange nothing
//! before the node has connected both ends.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use sooner_wire::message::{Dependency, Message, TaskSpec};

use super::is_node;

/// What travels.
#[derive(Debug, Clone)]
pub enum Item {
    /// A message.
    Message(Box<Message>),
    /// A task; its description is shared with the sender, as in the shell.
    Push(Arc<TaskSpec>, Vec<Dependency>, Vec<u32>),
    /// The sender's end: the last thing that a node reads from a process.
    End,
}

/// One direction between two processes, or a process and its node.
#[derive(Debug)]
pub struct Channel {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Flushed items first, then those in the sender's buffer.
    pub queue: VecDeque<Item>,
    /// How many items of the queue have left the sender.
    pub sent: usize,
    /// The sender has been connected by the node.
    pub is_connected: bool,
    /// The receiver reads from it.
    pub is_open: bool,
    /// Nothing is delivered for now.
    pub is_stalled: bool,
    /// The channel is in the list of next events.
    pub is_listed: bool,
    /// The sender has items to flush in it.
    pub is_dirty: bool,
}

/// All channels of a world.
#[derive(Debug, Default)]
pub struct Channels {
    numbers: FxHashMap<(u32, u32), u32>,
    channels: Vec<Channel>,
}

impl Channels {
    /// The number of a channel; creates the channel if there is none.
    pub fn number(&mut self, from: u32, to: u32) -> u32 {
        let channels = &mut self.channels;
        *self.numbers.entry((from, to)).or_insert_with(|| {
            let with_node = is_node(from) || is_node(to);
            channels.push(Channel {
                from,
                to,
                queue: VecDeque::new(),
                sent: 0,
                is_connected: with_node,
                is_open: with_node,
                is_stalled: false,
                is_listed: false,
                is_dirty: false,
            });
            u32::try_from(channels.len() - 1).expect("few channels")
        })
    }

    /// The number of a channel that exists.
    #[must_use]
    pub fn find(&self, from: u32, to: u32) -> Option<u32> {
        self.numbers.get(&(from, to)).copied()
    }

    /// A channel by its number.
    #[must_use]
    pub fn get(&self, number: u32) -> &Channel {
        &self.channels[number as usize]
    }

    /// A channel by its number, to change it.
    pub fn get_mut(&mut self, number: u32) -> &mut Channel {
        &mut self.channels[number as usize]
    }

    /// Channels there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channels.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Every channel.
    pub fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.channels.iter()
    }
}

impl Channel {
    /// Whether an item could be delivered, as far as the channel is concerned.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        self.sent > 0 && self.is_open && !self.is_stalled
    }

    /// Takes the next item that has left the sender.
    pub fn take(&mut self) -> Option<Item> {
        if self.sent == 0 {
            return None;
        }
        self.sent -= 1;
        self.queue.pop_front()
    }
}
