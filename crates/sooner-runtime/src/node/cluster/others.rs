//! A node's dealings with the other nodes of its cluster: messages of its core and its processes to them, and
//! connections from them.

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

/// Why two programs cannot be connected.
const NO_WAY: &str = "both programs are on machines without a node, and neither can be dialled";

/// An event of the cluster for the node's core and its processes. Events come in order.
pub(in crate::node) enum ClusterEvent {
    /// The head has registered this node. If it `is_new`, it knows nothing of earlier messages.
    Up { is_new: bool },
    /// There is no connection to the head.
    Down,
    /// The control service sent a message.
    Word(ToNode),
    /// Nodes take part, or have changed.
    Known(Vec<NodeRow>),
    /// Free resources of nodes.
    View(ResourceView),
    /// Nodes that could serve what was asked for.
    Candidates(Candidates),
    /// A node has died or left for good.
    NodeDead(NodeId),
    /// The link with a node has ended, though the node may live: messages under way are lost.
    LinkEnded(NodeId),
    /// The directory's answer to the question about state with this number.
    Directory(u64, Box<NodeReport>),
    /// Another node passes a message on.
    Routed(NodeId, Routed),
    /// A connection that a local process wanted to a process of another node. Without a socket there is none;
    /// if `never` says why, there will never be one.
    Dialled { client: WorkerId, to: WorkerId, socket: Option<OwnedFd>, never: Option<String> },
    /// A process of another node, which cannot dial this node, wants a connection to a local process.
    DialMe { client: WorkerId, to: WorkerId },
    /// A connection for a local process, from what claims to be a process of a node of this cluster.
    Arrived { socket: OwnedFd, to: WorkerId, from: WorkerId },
    /// The head has this node leave within this time (nanoseconds). Messages about what is to move came
    /// before.
    Drain { nanos: u64 },
    /// A connection for values: to ask for them, or to serve those that this node has asked for.
    ForData(OwnedFd, SocketAddr, ForData),
    /// A node that cannot dial this one wants values from it.
    WantsValues(NodeId, SocketAddr),
}

impl Cluster {
    /// Whether a node is part of the cluster, as far as this node knows.
    pub(in crate::node) fn knows(&self, node: NodeId) -> bool {
        self.known.has(node)
    }

    /// Whether a node is the one with the control service, as far as this node knows.
    pub(in crate::node) fn is_head(&self, node: NodeId) -> bool {
        if node == self.node() { self.control.is_some() } else { self.link.peer() == node }
    }

    /// Sends a message to the control service.
    pub(in crate::node) fn tell(&mut self, word: ToControl) {
        self.link.send(&word.into_message(self.node()));
    }

    /// Asks which nodes could serve something: [`ClusterEvent::Candidates`] follows. While the head is away
    /// nothing is sent: whoever waits asks again.
    pub(in crate::node) fn find_nodes(&mut self, find: FindNodes) {
        if self.link.is_up() {
            self.link.send(&find.into());
        }
    }

    /// Asks what the directory knows, for tools that inspect the state: [`ClusterEvent::Directory`] follows.
    /// False without a connection to the head.
    pub(in crate::node) fn ask_directory(&mut self, request: u64) -> bool {
        if !self.link.is_up() {
            return false;
        }
        let question = Inspect { request, about: 0, rows: 0, events: 0, ..Inspect::default() };
        let (from, message) = (WorkerId(self.node().0), Box::new(question.into()));
        self.link.send(&Routed { from, to: CONTROL, message }.into());
        true
    }

    /// Whether the head is connected.
    pub(in crate::node) fn is_connected(&self) -> bool {
        self.link.is_up()
    }

    /// Asks the head to have a node leave within this time (nanoseconds). False if it is not connected.
    pub(in crate::node) fn ask_to_drain(&mut self, node: NodeId, nanos: u64) -> bool {
        if self.link.is_up() {
            self.link.send(&Drain { node, nanos }.into());
        }
        self.link.is_up()
    }

    /// Sends a message to another node, or to a process there by way of it.
    pub(in crate::node) fn route(&mut self, from: WorkerId, to: WorkerId, mut message: Box<Message>) {
        if let Some(refused) = self.refuse_unsaid(to.node(), &message) {
            let refused = Routed { from: to, to: from, message: Box::new(refused.into()) };
            return self.heard.push(ClusterEvent::Routed(to.node(), refused));
        }
        message.globalise(self.node());
        // A dead node needs no message: its end is reported to all.
        if self.known.has(to.node()) && !self.is_out_of_reach(to.node()) {
            self.links.send(to.node(), &Routed { from, to, message }.into());
        }
    }

    /// Refuses a request for leases in the name of a node that cannot be reached, if too much waits for that
    /// node already: others can be asked instead.
    fn refuse_unsaid(&self, node: NodeId, message: &Message) -> Option<LeaseRefused> {
        let Message::LeaseAt(ask) = message else { return None };
        if ask.demand == 0 || !self.links.is_backed_up(node) {
            return None;
        }
        let reason = "there is no connection to that node yet".to_owned();
        let (client, shape) = (ask.client, ask.shape);
        Some(LeaseRefused { client, shape, reason, infeasible: None, no_workers: None, for_now: None })
    }

    /// Dials a process of another node for a local process: [`ClusterEvent::Dialled`] follows.
    pub(in crate::node) fn dial(&mut self, client: WorkerId, to: WorkerId) {
        self.begin_dial(Caller::Process { client, to }, to.node());
    }

    /// The other nodes of the cluster, as far as this node knows.
    pub(in crate::node) fn others(&self) -> Vec<NodeId> {
        let own = self.node();
        self.known.ids().filter(|node| *node != own).collect()
    }

    /// Whether a node runs on this machine, and so reads the same clock.
    pub(in crate::node) fn shares_clock(&self, node: NodeId) -> bool {
        self.known.boot_id_of(node).is_some_and(|boot| boot == self.register.about.boot_id)
    }

    /// Bytes sent to a node that it has not acknowledged.
    pub(in crate::node) fn waiting(&self, node: NodeId) -> usize {
        self.links.waiting(node)
    }

    fn begin_dial(&mut self, caller: Caller, node: NodeId) {
        let begun = match self.known.address_of(node) {
            Some(address) => self.dials.begin(caller, address, &self.poller, now()),
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

    /// Asks a node without an address to dial, by way of the head.
    fn ask_to_dial(&mut self, caller: Caller, node: NodeId) -> Result<(), String> {
        if !self.known.has(node) {
            // The node may have come and gone unseen: then the head reports that now.
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

    /// Asks a node that cannot be dialled to come with values: [`ClusterEvent::ForData`] follows, unless the
    /// request is in vain.
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
            self.links.connect(node, turn(&self.poller));
            self.on_links();
        } else {
            self.heard.push(ClusterEvent::DialMe { client: to, to: from });
        }
    }

    pub(super) fn on_dialled(&mut self, (caller, made): Dialled) {
        match caller {
            Caller::Link(node) => {
                self.links.on_dialled(node, made, turn(&self.poller));
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
                    self.links.forget(node, turn(&self.poller));
                    self.link.send(&Suspect { node, is_given_up: None }.into());
                    self.heard.push(ClusterEvent::LinkEnded(node));
                }
            }
        }
    }

    /// A local process cannot reach a process of that node: asks the head whether the node lives. Returns
    /// whether this node reaches it.
    pub(in crate::node) fn suspect(&mut self, node: NodeId) -> bool {
        if self.link.is_up() {
            self.link.send(&Suspect { node, is_given_up: None }.into());
        }
        self.links.is_open(node)
    }

    /// Holds a node for dead: sends it nothing, and lets in no connection from it. The head learns of it when
    /// it is there.
    pub(in crate::node) fn give_up(&mut self, node: NodeId) {
        self.notes.write(&format!(
            "node {:016x} is held for gone: it cannot be reached, and there is no head",
            node.0
        ));
        self.known.give_up(node);
        self.links.forget(node, turn(&self.poller));
        if self.link.is_up() {
            self.send_given_up();
        }
    }

    /// Has the head end the nodes that this node holds for dead.
    pub(super) fn send_given_up(&mut self) {
        for node in self.known.given_up() {
            self.link.send(&Suspect { node, is_given_up: Some(true) }.into());
        }
    }

    /// Ends the link with a node that does not keep to the protocol.
    pub(in crate::node) fn end_link(&mut self, node: NodeId, why: &str) {
        self.links.end(node, why, turn(&self.poller));
        self.on_links();
    }

    /// How long this node may be silent before the head declares it dead (nanoseconds); `None` for the head's
    /// own node.
    pub(in crate::node) fn silence_allowed(&self) -> Option<u64> {
        self.health_timeout.filter(|_| self.control.is_none())
    }

    pub(in crate::node) fn node(&self) -> NodeId {
        self.links.node()
    }

    /// Hands on a connection from the door.
    pub(super) fn let_in(&mut self, knock: Knock) {
        match knock {
            Knock::Node(node, framed, hello) => {
                // A node that has just joined is not known yet, and dials again.
                if self.known.has(node) {
                    self.dials.has_come(Caller::Link(node));
                    self.links.accept(node, *framed, hello, turn(&self.poller));
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
