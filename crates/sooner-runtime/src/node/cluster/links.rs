//! The links of a node with other nodes: one session with each that it has business with. Nodes, and
//! processes by way of their nodes, exchange messages over it, in order.
//!
//! Either side dials a link when there is something to send. The link goes on over the next connection when
//! one is cut. When it ends, both sides know that messages may be lost: the node's core learns of it and
//! gives up what depended on them. The other node need not be dead; the head is asked to look
//! ([`sooner_wire::message::Suspect`]).

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sooner_protocol::session::hello::Me;
use sooner_protocol::time::Instant;
use sooner_wire::limits::{LINKS_BUFFER_BYTES_MAX, NODE_QUEUE_BYTES_MAX};
use sooner_wire::message::{Message, Routed};
use sooner_wire::{NodeId, WorkerId};

use super::FIRST_OF_NODES;
use crate::identity::{Destination, Identity};
use crate::poller::Event;
use crate::transport::{Conn, EpollSession, SessionNews, Stream, TlsStream, Turn};

/// An event of a link.
#[derive(Debug)]
pub(super) enum LinkNews {
    /// A connection to that node is needed.
    Dial(NodeId),
    /// That node passes a message on.
    Said(NodeId, Routed),
    /// The link with that node has ended, for this reason.
    Ended(NodeId, String),
}

/// See the module.
pub(super) struct Links {
    me: Arc<Me>,
    identity: Identity,
    lines: HashMap<NodeId, EpollSession>,
    tokens: HashMap<u64, NodeId>,
    /// Nodes whose links may have something to send.
    dirty: Vec<NodeId>,
    made_tokens: u64,
    made_sessions: u64,
    news: Vec<LinkNews>,
}

impl Links {
    pub(super) fn new(me: Me, identity: Identity) -> Self {
        Self {
            me: Arc::new(me),
            identity,
            lines: HashMap::new(),
            tokens: HashMap::new(),
            dirty: Vec::new(),
            made_tokens: 0,
            made_sessions: 0,
            news: Vec::new(),
        }
    }

    /// This node.
    pub(super) fn node(&self) -> NodeId {
        self.me.id.node()
    }

    /// Takes the events since the last call.
    pub(super) fn take_news(&mut self) -> Vec<LinkNews> {
        std::mem::take(&mut self.news)
    }

    /// A node wants a link, and cannot dial this one.
    pub(super) fn connect(&mut self, node: NodeId, turn: Turn<'_>) {
        if self.lines.get(&node).is_some_and(|line| line.ended().is_some()) {
            self.forget(node, turn);
        }
        self.line(node).connect(turn);
        self.after(node);
    }

    /// Sends a message to a node, at the next [`Self::flush`].
    pub(super) fn send(&mut self, node: NodeId, message: &Message) {
        self.line(node).push(message);
        self.dirty.push(node);
    }

    /// Whether so much waits for a connection to a node that work should go to others if it can.
    pub(super) fn is_backed_up(&self, node: NodeId) -> bool {
        let waits = |line: &&EpollSession| !line.is_open() && line.retained() > NODE_QUEUE_BYTES_MAX;
        self.lines.get(&node).filter(waits).is_some()
    }

    /// Whether there is a connection to a node.
    pub(super) fn is_open(&self, node: NodeId) -> bool {
        self.lines.get(&node).is_some_and(EpollSession::is_open)
    }

    /// Bytes sent to a node that it has not acknowledged.
    pub(super) fn waiting(&self, node: NodeId) -> usize {
        self.lines.get(&node).map_or(0, EpollSession::retained)
    }

    fn line(&mut self, node: NodeId) -> &mut EpollSession {
        let peer = WorkerId(node.0);
        let wins = self.me.id < peer;
        self.lines.entry(node).or_insert_with(|| {
            self.made_sessions += 1;
            // Both sides may dial at the same time, under numbers of their own.
            let session = self.made_sessions << 1 | u64::from(wins);
            EpollSession::new(self.me.clone(), peer, session, wins)
        })
    }

    fn next_token(&mut self, node: NodeId) -> u64 {
        let token = FIRST_OF_NODES + self.made_tokens;
        self.made_tokens += 1;
        self.tokens.insert(token, node);
        token
    }

    /// The connection that [`LinkNews::Dial`] asked for.
    pub(super) fn on_dialled(&mut self, node: NodeId, made: Result<OwnedFd, String>, turn: Turn<'_>) {
        if !self.lines.contains_key(&node) {
            return;
        }
        match made {
            Ok(socket) => {
                let name = Destination::Node.server_name(node);
                let stream = Stream::Tls(Box::new(TlsStream::dial(socket, &self.identity, name)));
                let token = self.next_token(node);
                self.line(node).on_dialled(stream, token, turn);
            }
            Err(reason) => self.line(node).on_dial_failed(&reason, turn),
        }
        self.after(node);
    }

    /// A node has dialled this one and greeted. Its certificate proves which node it is.
    pub(super) fn accept(&mut self, node: NodeId, framed: Conn, hello: Message, turn: Turn<'_>) {
        if self.lines.get(&node).is_some_and(|line| line.ended().is_some()) {
            self.forget(node, turn);
        }
        let (stream, inlet) = framed.into_parts(turn.poller);
        let token = self.next_token(node);
        self.line(node).accept(stream, inlet, hello, token, turn);
        self.after(node);
    }

    pub(super) fn on_ready(&mut self, event: Event, turn: Turn<'_>) {
        let Some(node) = self.tokens.get(&event.token).copied() else { return };
        let Some(line) = self.lines.get_mut(&node) else { return };
        let mut said = Vec::new();
        line.on_ready(event, turn, &mut said);
        self.dirty.push(node);
        for message in said {
            // Other messages are of a later minor version.
            if let Message::Routed(routed) = message {
                self.news.push(LinkNews::Said(node, routed));
            }
        }
        self.after(node);
    }

    /// Ends the link with a node that does not keep to the protocol.
    pub(super) fn end(&mut self, node: NodeId, reason: &str, turn: Turn<'_>) {
        if let Some(line) = self.lines.get_mut(&node) {
            line.end(reason, turn);
            self.after(node);
        }
    }

    /// Closes and forgets the link with a node.
    pub(super) fn forget(&mut self, node: NodeId, turn: Turn<'_>) {
        if let Some(mut line) = self.lines.remove(&node) {
            line.close(turn);
            self.tokens.retain(|_, of| *of != node);
        }
    }

    /// Sends queued messages, and asks for the connections they need.
    pub(super) fn flush(&mut self, turn: Turn<'_>) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        for node in dirty {
            let Some(line) = self.lines.get_mut(&node) else { continue };
            line.flush(turn);
            if line.retained() as u64 > LINKS_BUFFER_BYTES_MAX {
                line.end("it does not read what it is told", turn);
            }
            self.after(node);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.lines.values().filter_map(EpollSession::next_deadline).min()
    }

    pub(super) fn on_timer(&mut self, turn: Turn<'_>) {
        let is_due = |line: &EpollSession| line.next_deadline().is_some_and(|at| at <= turn.time);
        let due: Vec<NodeId> =
            self.lines.iter().filter(|(_, line)| is_due(line)).map(|(node, _)| *node).collect();
        for node in due {
            self.line(node).on_timer(turn);
            self.dirty.push(node);
            self.after(node);
        }
    }

    fn after(&mut self, node: NodeId) {
        let Some(line) = self.lines.get_mut(&node) else { return };
        for news in line.take_news() {
            match news {
                SessionNews::Dial => self.news.push(LinkNews::Dial(node)),
                SessionNews::Opened => {}
                SessionNews::Closed(token) => drop(self.tokens.remove(&token)),
                SessionNews::Ended(reason) => self.news.push(LinkNews::Ended(node, reason)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
