//! A node's dealings with the other nodes of its cluster: what its core and its processes say to them, and
//! who comes from there.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use sooner_protocol::uplink::wire::CONTROL;
use sooner_protocol::uplink::{ToControl, ToNode};
use sooner_wire::message::state::{Inspect, NodeReport};
use sooner_wire::message::{
    Candidates, DialMe, Drain, FindNodes, LeaseRefused, Message, NodeRow, ResourceView, Routed, Suspect,
};
use sooner_wire::{NodeId, WorkerId};

use super::dials::{Caller, Dialled};
use super::door::Knock;
use super::links::LinkNews;
use super::{Cluster, turn};
use crate::clock::now;
use crate::control::service::Line;
use crate::identity::Destination;
use crate::node::accept::turn_away;
use crate::node::data::ForData;

/// Why two programs do not find each other.
const NO_WAY: &str = "both programs are on machines without a node, and neither can be dialled";

/// What the cluster has for the node's core and its processes, in the order in which it came.
pub(in crate::node) enum ClusterEvent {
    /// The head has taken this node in. If it `is_new`, it knows nothing of what was said before.
    Up { is_new: bool },
    /// There is no connection to the head.
    Down,
    /// The control service says something.
    Word(ToNode),
    /// Nodes take part, or are otherwise than before.
    Known(Vec<NodeRow>),
    /// What nodes have free.
    View(ResourceView),
    /// Nodes that could serve what was asked for.
    Candidates(Candidates),
    /// A node is gone for good.
    NodeGone(NodeId),
    /// The link with a node is over, though that node may live: what was under way is lost.
    LinkEnded(NodeId),
    /// What the directory answers to a question about state of this number.
    Directory(u64, Box<NodeReport>),
    /// Another node passes something on.
    Routed(NodeId, Routed),
    /// A connection for a process here that wants to speak with one of another node; without socket there is
    /// none, and if it says why, there will never be one.
    Dialled { client: WorkerId, to: WorkerId, socket: Option<OwnedFd>, never: Option<String> },
    /// A process of a node that cannot be dialled from there wants a connection to one here.
    DialMe { client: WorkerId, to: WorkerId },
    /// Somebody has come for a process here, and says to be a process of a node of this cluster.
    Arrived { socket: OwnedFd, to: WorkerId, from: WorkerId },
    /// The head says that this node is to leave within this time (nanoseconds). What is to move has been said
    /// before.
    Drain { nanos: u64 },
    /// Somebody has come for values, or with values that this node has asked for.
    ForData(OwnedFd, SocketAddr, ForData),
    /// A node that cannot dial this one wants values from here.
    WantsValues(NodeId, SocketAddr),
}

impl Cluster {
    /// Whether a node is part of the cluster, as far as is known here.
    pub(in crate::node) fn knows(&self, node: NodeId) -> bool {
        self.known.has(node)
    }

    /// Whether a node is the one with the control service, as far as is known here.
    pub(in crate::node) fn is_head(&self, node: NodeId) -> bool {
        if node == self.node() { self.control.is_some() } else { self.link.peer() == node }
    }

    /// Says something to the control service.
    pub(in crate::node) fn tell(&mut self, word: ToControl) {
        self.link.send(&word.into_message(self.node()));
    }

    /// Asks which nodes could serve something: [`ClusterEvent::Candidates`] follows. While the head is away
    /// it is not said: whoever waits asks again.
    pub(in crate::node) fn find_nodes(&mut self, find: FindNodes) {
        if self.link.is_up() {
            self.link.send(&find.into());
        }
    }

    /// Asks what the directory knows, for those who look at the state: [`ClusterEvent::Directory`] follows.
    /// False if it is not there.
    pub(in crate::node) fn ask_directory(&mut self, request: u64) -> bool {
        if !self.link.is_up() {
            return false;
        }
        let question = Inspect { request, about: 0, rows: 0, events: 0, ..Inspect::default() };
        let (from, message) = (WorkerId(self.node().0), Box::new(question.into()));
        self.link.send(&Routed { from, to: CONTROL, message }.into());
        true
    }

    /// Whether the head is there.
    pub(in crate::node) fn is_connected(&self) -> bool {
        self.link.is_up()
    }

    /// Asks the head to have a node leave within this time (nanoseconds). False if the head is not there.
    pub(in crate::node) fn ask_to_drain(&mut self, node: NodeId, nanos: u64) -> bool {
        if self.link.is_up() {
            self.link.send(&Drain { node, nanos }.into());
        }
        self.link.is_up()
    }

    /// Says something to another node, or to a process there by way of it.
    pub(in crate::node) fn route(&mut self, from: WorkerId, to: WorkerId, mut message: Box<Message>) {
        if let Some(refused) = self.refuse_unsaid(to.node(), &message) {
            let refused = Routed { from: to, to: from, message: Box::new(refused.into()) };
            return self.heard.push(ClusterEvent::Routed(to.node(), refused));
        }
        message.globalise(self.node());
        // One that is gone needs no word: its end is told to all.
        if self.known.has(to.node()) && !self.is_out_of_reach(to.node()) {
            self.links.send(to.node(), &Routed { from, to, message }.into());
        }
    }

    /// What a node that cannot be reached would say to a request for leases, if too much waits for it
    /// already: what is asked of it can be asked of others.
    fn refuse_unsaid(&self, node: NodeId, message: &Message) -> Option<LeaseRefused> {
        let Message::LeaseAt(ask) = message else { return None };
        if ask.demand == 0 || !self.links.is_backed_up(node) {
            return None;
        }
        let reason = "there is no connection to that node yet".to_owned();
        let (client, shape) = (ask.client, ask.shape);
        Some(LeaseRefused { client, shape, reason, infeasible: None, no_workers: None, for_now: None })
    }

    /// Makes a connection for a process here to one of another node: [`ClusterEvent::Dialled`] follows.
    pub(in crate::node) fn dial(&mut self, client: WorkerId, to: WorkerId) {
        self.begin_dial(Caller::Process { client, to }, to.node());
    }

    /// The other nodes of the cluster, as far as is known here.
    pub(in crate::node) fn others(&self) -> Vec<NodeId> {
        let own = self.node();
        self.known.ids().filter(|node| *node != own).collect()
    }

    /// Whether a node runs on this machine, and so reads the same clock.
    pub(in crate::node) fn shares_clock(&self, node: NodeId) -> bool {
        self.known.boot_id_of(node).is_some_and(|boot| boot == self.register.about.boot_id)
    }

    /// Bytes that a node has been told and has not taken yet.
    pub(in crate::node) fn waiting(&self, node: NodeId) -> usize {
        self.links.waiting(node)
    }

    fn begin_dial(&mut self, caller: Caller, node: NodeId) {
        let begun = match self.known.address_of(node) {
            Some(address) => self.dials.begin(caller, address, &self.epoll, now()),
            None => self.ask_to_dial(caller, node),
        };
        if let Err(reason) = begun {
            self.on_dialled((caller, Err(reason)));
        }
    }

    /// Whether there is no way to a node: neither of the two can be dialled.
    pub(in crate::node) fn is_out_of_reach(&self, node: NodeId) -> bool {
        self.is_of_program() && self.known.has(node) && self.known.address_of(node).is_none()
    }

    /// A node without an address dials those who ask it to, by way of the head.
    fn ask_to_dial(&mut self, caller: Caller, node: NodeId) -> Result<(), String> {
        if !self.known.has(node) {
            // It may have come and gone while this node heard nothing: then it hears that now.
            self.suspect(node);
            return Err("no address of it is known".to_owned());
        }
        if self.is_of_program() {
            return Err(NO_WAY.to_owned());
        }
        self.dials.expect(caller, now())?;
        let (from, to) = match caller {
            Caller::Link(node) => (WorkerId(self.node().0), WorkerId(node.0)),
            Caller::Process { client, to } => (client, to),
        };
        self.link.send(&DialMe { from, to, values: None }.into());
        Ok(())
    }

    /// Has a node that cannot be dialled come with values: [`ClusterEvent::ForData`] follows, unless it is
    /// asked in vain.
    pub(in crate::node) fn ask_for_values(&mut self, node: NodeId) {
        let (from, to) = (WorkerId(self.node().0), WorkerId(node.0));
        if self.known.has(node) && self.known.address_of(node).is_none() {
            self.link.send(&DialMe { from, to, values: Some(true) }.into());
        }
    }

    /// Another node, or a process there, wants to be dialled, because this node cannot be.
    pub(super) fn on_dial_me(&mut self, asked: DialMe) {
        let DialMe { from, to, values } = asked;
        let node = from.node();
        let Some(address) = self.known.address_of(node).filter(|_| to.node() == self.node()) else { return };
        if values == Some(true) {
            self.heard.push(ClusterEvent::WantsValues(node, address));
        } else if to.0 == to.node().0 {
            self.links.connect(node, turn(&self.epoll));
            self.on_links();
        } else {
            self.heard.push(ClusterEvent::DialMe { client: to, to: from });
        }
    }

    pub(super) fn on_dialled(&mut self, (caller, made): Dialled) {
        match caller {
            Caller::Link(node) => {
                self.links.on_dialled(node, made, turn(&self.epoll));
                self.on_links();
            }
            Caller::Process { client, to } => {
                if let Err(reason) = &made {
                    let text = format!("no connection to process {:016x} of another node: {reason}", to.0);
                    self.notes.write_rationed(&text);
                }
                let never = self.is_out_of_reach(to.node()).then(|| NO_WAY.to_owned());
                self.heard.push(ClusterEvent::Dialled { client, to, socket: made.ok(), never });
            }
        }
    }

    pub(in crate::node) fn on_links(&mut self) {
        for news in self.links.take_news() {
            match news {
                LinkNews::Dial(node) => self.begin_dial(Caller::Link(node), node),
                LinkNews::Said(node, routed) => self.heard.push(ClusterEvent::Routed(node, routed)),
                LinkNews::Ended(node, reason) => {
                    self.notes.write_rationed(&format!("the link with node {:016x} ended: {reason}", node.0));
                    self.links.forget(node, turn(&self.epoll));
                    self.link.send(&Suspect { node, is_given_up: None }.into());
                    self.heard.push(ClusterEvent::LinkEnded(node));
                }
            }
        }
    }

    /// A process here does not reach one of that node: the head is asked whether it lives. Whether this node
    /// reaches it.
    pub(in crate::node) fn suspect(&mut self, node: NodeId) -> bool {
        if self.link.is_up() {
            self.link.send(&Suspect { node, is_given_up: None }.into());
        }
        self.links.is_open(node)
    }

    /// A node is held for gone: nothing is said to it and nobody from there is let in. The head hears of it
    /// when it is there.
    pub(in crate::node) fn give_up(&mut self, node: NodeId) {
        self.notes.write(&format!(
            "node {:016x} is held for gone: it cannot be reached, and there is no head",
            node.0
        ));
        self.known.give_up(node);
        self.links.forget(node, turn(&self.epoll));
        if self.link.is_up() {
            self.send_given_up();
        }
    }

    /// Has the head end the nodes that are held for gone here.
    pub(super) fn send_given_up(&mut self) {
        for node in self.known.given_up() {
            self.link.send(&Suspect { node, is_given_up: Some(true) }.into());
        }
    }

    /// Ends the link with a node that does not keep to the protocol.
    pub(in crate::node) fn end_link(&mut self, node: NodeId, why: &str) {
        self.links.end(node, why, turn(&self.epoll));
        self.on_links();
    }

    /// How long this node may be silent before the head declares it gone (nanoseconds). The head's own is
    /// not.
    pub(in crate::node) fn silence_allowed(&self) -> Option<u64> {
        self.health_timeout.filter(|_| self.control.is_none())
    }

    pub(in crate::node) fn node(&self) -> NodeId {
        self.links.node()
    }

    /// Hands on whoever has come through the door.
    pub(super) fn let_in(&mut self, knock: Knock) {
        match knock {
            Knock::Node(node, framed, hello) => {
                // One that has just joined is not known yet, and comes again.
                if self.known.has(node) {
                    self.dials.has_come(Caller::Link(node));
                    self.links.accept(node, *framed, hello, turn(&self.epoll));
                    self.on_links();
                }
            }
            Knock::Other(socket, address, Destination::Control) => {
                self.admit(socket, address, Line::Control);
            }
            Knock::Other(socket, address, Destination::Health) => self.admit(socket, address, Line::Health),
            Knock::Other(socket, address, Destination::Data) => {
                self.heard.push(ClusterEvent::ForData(socket, address, ForData::Asks));
            }
            Knock::Other(socket, address, Destination::Values) => {
                self.heard.push(ClusterEvent::ForData(socket, address, ForData::Serves));
            }
            Knock::Other(socket, _, Destination::Worker { to, from }) => {
                self.dials.has_come(Caller::Process { client: to, to: from });
                self.heard.push(ClusterEvent::Arrived { socket, to, from });
            }
            Knock::Other(socket, _, Destination::Node) => turn_away(socket),
        }
    }

    fn admit(&self, socket: OwnedFd, address: SocketAddr, line: Line) {
        match &self.control {
            Some(control) => control.admit(socket, address, line),
            None => turn_away(socket),
        }
    }
}
