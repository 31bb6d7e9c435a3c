//! A node's part in a cluster: the door for connections from other machines, the link to the head, and what
//! the node knows of the other nodes.
//!
//! It is a part of the node's loop: one descriptor ([`Cluster::events`]), one deadline. The head sends every
//! change, so questions about the cluster are answered at once, also while the head is away. Nothing of the
//! node stops when the head does: the link is dialled again until a head answers. Only the node of a program
//! gives up at some time.

mod away;
mod dials;
mod door;
pub mod fate;
mod known;
mod leaving;
mod link;
mod links;
mod others;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use sooner_protocol::node::uplink::reporter::{Reporter, Spare};
use sooner_protocol::session::hello::Me;
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::ToNode;
use sooner_protocol::uplink::wire::is_for_directory;
use sooner_wire::message::state::ClusterRow;
use sooner_wire::message::{AboutNode, Message, Register, Routed, Suspect, kind};
use sooner_wire::{NodeId, ResourceSet, WorkerId};

use super::health::{Health, Way};
use super::notes::Notes;
use crate::clock::now;
use crate::control::service::{Control, ControlOptions, Line, State};
use crate::identity::{Credentials, Identity};
use crate::poller::{Event, Events, Poller};
use crate::transport::{Turn, pair};
use away::Away;
use dials::Dials;
use door::Door;
use fate::{Fate, JoinFailure, Joined, Kind};
use known::Known;
use link::{Link, News};
use links::Links;
pub(super) use others::ClusterEvent;

/// Tokens of the nested poller: the door; each other one begins a range, with a token per connection.
const DOOR: u64 = 0;
const FIRST_GUEST: u64 = 1;
const FIRST_OF_LINK: u64 = 1 << 60;
const FIRST_OF_NODES: u64 = 2 << 60;
const FIRST_DIAL: u64 = 3 << 60;

/// Where the head is.
pub enum Head {
    /// In this process.
    Here {
        /// The state that earlier heads saved.
        state: Box<State>,
        /// Silence after which a node is declared dead (nanoseconds).
        health_timeout: u64,
    },
    /// At one of these addresses, all of one name.
    At(Vec<SocketAddr>),
}

/// What a node needs to be a part of a cluster.
pub struct ClusterOptions {
    /// The identity that the node proves.
    pub identity: Identity,
    /// Credentials of its processes: they prove only that a process is on this node.
    pub workers: Credentials,
    /// Where the node listens; port 0: any free port. `None` for the node of a program: it only dials, also
    /// nodes that ask it to by way of the head.
    pub listen: Option<SocketAddr>,
    /// The head of its cluster.
    pub head: Head,
    /// Tells the process about the node's membership.
    pub fate: Arc<Fate>,
    /// Nodes of this machine may read values in its memory, and it in theirs.
    pub shares_memory: bool,
}

/// What a node reports of itself.
pub(super) struct Itself<'a> {
    pub(super) node: NodeId,
    pub(super) name: &'a str,
    pub(super) resources: &'a ResourceSet,
    pub(super) labels: &'a [(String, String)],
    pub(super) python: &'a str,
    pub(super) directory: &'a Path,
    /// Wakes the node's loop.
    pub(super) wake: &'a Arc<OwnedFd>,
}

/// See the module.
pub(super) struct Cluster {
    poller: Poller,
    /// `None` on a program's node, which does not listen.
    door: Option<Door>,
    link: Link,
    known: Known,
    reporter: Reporter,
    health: Health,
    control: Option<Control>,
    fate: Arc<Fate>,
    notes: Notes,
    register: Register,
    identity: Identity,
    address: Option<SocketAddr>,
    opened: Instant,
    /// The failure that was logged last: the next try may fail in the same way, again and again.
    lost: Option<JoinFailure>,
    is_leaving: bool,
    /// Silence after which the head declares a node dead (nanoseconds), once the head has sent it.
    health_timeout: Option<u64>,
    workers: Credentials,
    links: Links,
    dials: Dials,
    /// For a program: measures how long the head is away.
    away: Option<Away>,
    /// Events that the node's loop has not taken.
    heard: Vec<ClusterEvent>,
}

impl Cluster {
    /// Opens the door and begins to join.
    pub(super) fn open(options: ClusterOptions, itself: &Itself<'_>) -> io::Result<Self> {
        let ClusterOptions { identity, workers, listen, head, fate, .. } = options;
        let poller = Poller::new()?;
        let is_head = matches!(head, Head::Here { .. });
        let open = |listen| Door::open(listen, itself.node, is_head, identity.clone(), &poller);
        let door = listen.map(open).transpose()?;
        let address = door.as_ref().map(Door::address).transpose()?;
        let register = Register {
            about: Box::new(about(itself, address)),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            python: itself.python.to_owned(),
            rejoins: None,
        };
        let own = identity.clone();
        let health = Health::start(itself, identity.clone(), fate.clone())?;
        let me = Me { id: WorkerId(itself.node.0), is_head, python: itself.python.to_owned() };
        let of_links = identity.clone();
        let (link, control) = match head {
            Head::At(addresses) => (Link::to(addresses, me.clone(), identity), None),
            Head::Here { state, health_timeout } => {
                let address = address.ok_or_else(|| io::Error::other("a head must listen somewhere"))?;
                let options = ControlOptions {
                    node: itself.node,
                    identity,
                    address,
                    python: itself.python.to_owned(),
                    health_timeout,
                    node_directory: itself.directory.to_owned(),
                };
                let control = Control::start(*state, options)?;
                let (ours, theirs) = pair()?;
                control.connect(theirs, Line::Control);
                (Link::own(ours, address, &poller)?, Some(control))
            }
        };
        let mut cluster = Self {
            poller,
            away: door.is_none().then(Away::default),
            door,
            link,
            known: Known::default(),
            reporter: Reporter::default(),
            health,
            control,
            fate,
            notes: Notes::new(itself.directory),
            register,
            identity: own,
            address,
            opened: now(),
            lost: None,
            is_leaving: false,
            health_timeout: None,
            workers,
            links: Links::new(me, of_links),
            dials: Dials::default(),
            heard: Vec::new(),
        };
        if is_head {
            cluster.link.send(&cluster.register.clone().into());
            cluster.link.flush(&cluster.poller);
        }
        Ok(cluster)
    }

    /// Readable when [`Self::on_ready`] has something to do.
    pub(super) fn events(&self) -> &Poller {
        &self.poller
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if !self.heard.is_empty() {
            // These events arose while the node acted, and no other may follow.
            return Some(now());
        }
        let report = self.link.is_up().then(|| self.reporter.next_deadline()).flatten();
        let made = [self.links.next_deadline(), self.dials.next_deadline()];
        let door = self.door.as_ref().and_then(Door::next_deadline);
        // Events that arose meanwhile are due at once.
        let heard = (!self.heard.is_empty()).then_some(Instant(0));
        let away = self.away.as_ref().and_then(Away::deadline);
        let own = [door, self.link.next_deadline(), report, heard, away];
        own.into_iter().chain(made).flatten().min()
    }

    /// Whether the node must end.
    pub(super) fn must_end(&self) -> bool {
        self.fate.must_end()
    }

    /// Whether this node is a part of a program, which cannot be dialled.
    pub(super) fn is_of_program(&self) -> bool {
        self.door.is_none()
    }

    /// Why the node must end, if it must.
    pub(super) fn why_end(&self) -> Option<String> {
        self.fate.reason()
    }

    /// Handles what is ready.
    pub(super) fn on_ready(&mut self) {
        let mut events = Events::with_capacity(16);
        let _ = self.poller.wait(&mut events, Some(0));
        for event in &events {
            match event.token {
                DOOR => self.knocked(),
                _ => self.on_connection(event),
            }
        }
    }

    fn on_connection(&mut self, event: Event) {
        match event.token {
            token @ FIRST_DIAL.. => {
                if let Some(dialled) = self.dials.on_ready(token, &self.poller) {
                    self.on_dialled(dialled);
                }
            }
            FIRST_OF_NODES.. => {
                self.links.on_ready(event, turn(&self.poller));
                self.on_links();
            }
            FIRST_OF_LINK.. => {
                let news = self.link.on_ready(event, &self.poller);
                self.on_news(news);
            }
            _ => {
                let door = self.door.as_mut();
                if let Some(knock) = door.and_then(|door| door.on_remote_job(event, &self.poller)) {
                    self.let_in(knock);
                }
            }
        }
    }

    /// Does what is due, once for each turn of the node's loop. `read` gives what is free and what waits on
    /// this node; some of it may have changed if the node `has_acted`.
    pub(super) fn attend(&mut self, has_acted: bool, read: impl FnOnce() -> Spare) {
        self.health.on_turn();
        let time = now();
        let door = self.door.as_ref().and_then(Door::next_deadline);
        if door.is_some_and(|deadline| deadline <= time) {
            self.knocked();
        }
        if let Some(failed) = self.health.take_failure() {
            let news = self.link.renew(failed, &self.poller);
            self.on_news(news);
        }
        let news = self.link.on_time(time, &self.poller);
        self.on_news(news);
        if let Some(seconds) = self.away.as_mut().and_then(|away| away.look(self.link.is_up(), time)) {
            self.end(&format!("there was no connection to the head for {seconds} s"));
        }
        self.links.on_timer(turn(&self.poller));
        for late in self.dials.expire(time) {
            self.on_dialled(late);
        }
        if has_acted {
            self.reporter.note();
        }
        if self.link.is_up()
            && let Some(report) = self.reporter.take(time, read)
        {
            self.link.send(&report.into());
        }
        self.links.flush(turn(&self.poller));
        self.on_links();
        self.link.flush(&self.poller);
    }

    /// Where a node listens, as far as this node knows.
    pub(super) fn address_of(&self, node: NodeId) -> Option<SocketAddr> {
        self.known.address_of(node)
    }

    /// Replaces the credentials of this node's processes. The node's own have changed already.
    pub(super) fn renew(&mut self, workers: Credentials) {
        self.workers = workers;
    }

    /// The credentials of this node's processes.
    pub(super) fn credentials(&self) -> &Credentials {
        &self.workers
    }

    /// Takes the events since the last call.
    pub(super) fn take_heard(&mut self) -> Vec<ClusterEvent> {
        std::mem::take(&mut self.heard)
    }

    /// Whether a head has ever registered this node: before that no driver can use it.
    pub(super) fn has_joined(&self) -> bool {
        self.register.rejoins.is_some()
    }

    fn knocked(&mut self) {
        let Some(door) = &mut self.door else { return };
        for knock in door.on_knock(&self.poller, &mut self.notes) {
            self.let_in(knock);
        }
    }

    fn on_news(&mut self, news: Vec<News>) {
        for one in news {
            match one {
                News::Greeted => self.link.send(&self.register.clone().into()),
                News::Resumed => {
                    self.heard.push(ClusterEvent::Up { is_new: false });
                    self.send_given_up();
                }
                News::Said(message) => self.on_message(message),
                News::Lost(failure) => self.on_lost(&failure),
            }
        }
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Registered(registered) => {
                self.register.rejoins = Some(registered.cluster);
                self.link.on_registered();
                self.lost = None;
                self.reporter.begin_anew();
                self.health_timeout = Some(registered.settings.health_timeout);
                let way = self.way();
                self.health.on_registered(way, registered.settings);
                if let Some(away) = &mut self.away {
                    away.on_registered(registered.settings.health_timeout);
                }
                self.notes.write(&format!("part of the cluster {:016x}", registered.cluster));
                self.heard.push(ClusterEvent::Up { is_new: true });
                self.heard.push(ClusterEvent::Known(registered.nodes.clone()));
                for node in self.known.on_registered(registered) {
                    // The node may have died while there was no head to report it: ask the new head.
                    self.link.send(&Suspect { node, is_given_up: None }.into());
                }
                self.send_given_up();
                self.fate.on_joined(Ok(Joined {
                    address: self.address,
                    head: self.link.address(),
                    fingerprint: self.identity.cluster().to_string(),
                }));
            }
            Message::NodesChanged(changed) => {
                self.heard.push(ClusterEvent::Known(changed.rows.clone()));
                self.known.on_changed(changed.rows);
            }
            Message::NodeDead(gone) => {
                self.notes.write(&format!("node {:016x} is gone: {}", gone.node.0, gone.reason));
                self.known.on_dead(gone.node, &gone.reason);
                self.heard.push(ClusterEvent::NodeDead(gone.node));
                self.links.forget(gone.node, turn(&self.poller));
            }
            Message::ResourceView(view) => {
                self.heard.push(ClusterEvent::View(view.clone()));
                self.known.on_view(view);
            }
            Message::Candidates(candidates) => self.heard.push(ClusterEvent::Candidates(candidates)),
            Message::Drain(drain) if drain.node == self.node() => {
                self.heard.push(ClusterEvent::Drain { nanos: drain.nanos });
            }
            Message::DialMe(asked) => self.on_dial_me(asked),
            Message::Fenced(fenced) => self.end(&fenced.reason),
            Message::Refused(refused) => {
                let failure = JoinFailure::new(Kind::NotWanted, refused.reason);
                self.link.on_refused(&failure, &self.poller);
                self.on_lost(&failure);
            }
            Message::Routed(Routed { to, message, .. })
                if to == WorkerId(self.node().0) && matches!(*message, Message::InspectEnd(_)) =>
            {
                if let Message::InspectEnd(end) = *message {
                    self.heard.push(ClusterEvent::Directory(end.request, end.node));
                }
            }
            message if is_for_directory(message.kind()) => match ToNode::parse(message, self.node()) {
                Ok(word) => self.heard.push(ClusterEvent::Word(word)),
                Err(error) => self.notes.write_rationed(&format!("the head says nonsense: {error}")),
            },
            // A message of a later minor version.
            _ => {}
        }
    }

    fn way(&mut self) -> Way {
        let Some(control) = &self.control else {
            return Way::Dial { address: self.link.address(), head: self.link.peer() };
        };
        match pair() {
            Ok((ours, theirs)) => {
                control.connect(theirs, Line::Health);
                Way::Own(ours)
            }
            Err(error) => {
                self.end(&format!("no connection within the process: {error}"));
                Way::Nowhere
            }
        }
    }

    fn on_lost(&mut self, failure: &JoinFailure) {
        if self.is_leaving {
            return;
        }
        self.heard.push(ClusterEvent::Down);
        if self.control.is_some() {
            return self.end(&format!("the control service has ended: {failure}"));
        }
        if self.lost.as_ref() != Some(failure) {
            self.notes.write_rationed(&format!("no connection to the head: {failure}"));
            self.lost = Some(failure.clone());
        }
        if self.register.rejoins.is_none() && self.link.gives_up(self.opened) {
            self.fate.on_joined(Err(failure.clone()));
        }
    }

    fn end(&self, reason: &str) {
        self.notes.write(&format!("must end: {reason}"));
        self.fate.end(reason);
    }

    /// What the node knows of its cluster, for inspection.
    pub(super) fn report(&self) -> ClusterRow {
        ClusterRow {
            cluster: self.register.rejoins.unwrap_or_default(),
            fingerprint: self.identity.cluster().to_string(),
            head: self.link.address().to_string(),
            is_head: self.control.is_some(),
            address: self.address.map(|address| address.to_string()).unwrap_or_default(),
            lost: self.link.why_down(),
            nodes: self.known.nodes(),
            view: self.known.view(),
            gone: Some(self.known.gone()).filter(|gone| !gone.is_empty()),
        }
    }

    /// Where this node listens.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.address.map(|address| address.ip())
    }
}

fn about(itself: &Itself<'_>, address: Option<SocketAddr>) -> AboutNode {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    AboutNode {
        kind: if address.is_some() { kind::DAEMON } else { kind::DRIVER },
        name: itself.name.to_owned(),
        address: address.map(|address| address.to_string()),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        boot_id: boot_id.trim().to_owned(),
        resources: itself.resources.clone(),
        labels: itself.labels.to_vec(),
    }
}

/// The address from which this machine reaches `other`.
///
/// # Errors
/// The system's error: there is no route.
pub fn address_towards(other: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match other {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Nothing is sent by this.
    socket.connect(other)?;
    Ok(socket.local_addr()?.ip())
}

fn turn(poller: &Poller) -> Turn<'_> {
    Turn { poller, time: now() }
}
