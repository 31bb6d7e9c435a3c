//! The nodes: how a daemon keeps in touch with its head, as `sooner-runtime/src/node/{cluster,health}.rs` do
//! it, and how daemons are started again.

use std::collections::{BTreeMap, BTreeSet};

use sooner_protocol::node::uplink::reporter::Reporter;
use sooner_protocol::session::Redial;
use sooner_protocol::time::Instant;
use sooner_wire::limits::{HANDSHAKE_NANOS, JOIN_NANOS};
use sooner_wire::message::{
    AboutNode, Drained, Heartbeat, Message, Register, ResourceView, Settings, Suspect, kind,
};
use sooner_wire::{NodeId, ResourceSet};

use super::conns::{Conn, Side};
use super::head::{CLUSTER, PYTHON};
use super::plan::SECOND;
use super::world::{Event, World};

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Line {
    /// All messages but heartbeats.
    Control,
    /// Heartbeats.
    Health,
}

/// How long a connection may take to be made (nanoseconds).
const CONNECT_NANOS: u64 = 5 * SECOND;
/// How many other nodes a node has connections with.
const PEERS: usize = 3;

/// The state of one of a daemon's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// There is no connection, and none is being dialled.
    Down,
    /// The line is being dialled; the number of the dial.
    Dialling(u32),
    /// There is a connection with this number.
    Up(u64),
}

/// One life of a daemon, from its start to its end.
#[derive(Debug)]
pub struct Daemon {
    pub(super) id: NodeId,
    pub(super) name: String,
    pub(super) host: usize,
    pub(super) address: Option<String>,
    /// Whether the daemon runs in the head's process.
    pub(super) is_own: bool,
    pub(super) runs: bool,
    /// The daemon stands still until then.
    pub(super) stands: Instant,
    pub(super) control: Link,
    pub(super) health: Link,
    /// When to dial each of the two lines again.
    redials: [Redial; 2],
    /// When heartbeats failed last, since when the control connection exists, and which head accepted it.
    failed: Instant,
    connected: Instant,
    head: u32,
    dials: u32,
    began: Instant,
    pub(super) rejoins: Option<u64>,
    /// The head has taken the daemon in over the present control connection.
    pub(super) is_registered: bool,
    settings: Option<Settings>,
    beats: u64,
    pub(super) leaves: bool,
    /// The nodes that it knows.
    pub(super) known: BTreeSet<NodeId>,
    /// The nodes of whose end it has learned.
    pub(super) learnt_dead: BTreeSet<NodeId>,
    pub(super) view: BTreeMap<NodeId, ResourceSet>,
    pub(super) must_ask: bool,
    pub(super) peers: Vec<NodeId>,
    pub(super) total: ResourceSet,
    pub(super) free: ResourceSet,
    reporter: Reporter,
}

fn cpus(count: u64) -> ResourceSet {
    let mut set = ResourceSet::default();
    set.add_one("CPU", count * 10_000);
    set
}

impl Daemon {
    fn register(&self) -> Register {
        let about = AboutNode {
            kind: if self.address.is_some() { kind::DAEMON } else { kind::DRIVER },
            name: self.name.clone(),
            address: self.address.clone(),
            host: format!("host-{}", self.host),
            boot_id: format!("boot-{}", self.host),
            resources: self.total.clone(),
            labels: Vec::new(),
        };
        Register {
            about: Box::new(about),
            version: "0.1.0".into(),
            python: PYTHON.into(),
            rejoins: self.rejoins,
        }
    }

    pub(super) fn link(&mut self, line: Line) -> &mut Link {
        match line {
            Line::Control => &mut self.control,
            Line::Health => &mut self.health,
        }
    }

    fn redial(&mut self, line: Line) -> &mut Redial {
        &mut self.redials[line as usize]
    }

    /// Whether the daemon gives up: no head has ever taken it in.
    fn gives_up(&self, now: Instant) -> bool {
        self.rejoins.is_none() && self.redials[Line::Control as usize].gives_up(self.began, true, now)
    }
}

impl World {
    /// A daemon starts on a machine: under a new id, unless the seed draws one that is taken.
    pub(super) fn start_daemon(&mut self, host: usize) {
        self.hosts[host].will_start = false;
        if self.hosts[host].daemon.is_some_and(|daemon| self.daemons[daemon].runs) {
            return;
        }
        let life = self.daemons.len();
        let is_own = host == 0;
        let mut id = NodeId((life as u64 + 1) << 24);
        let mut name = format!("node-{host}");
        // The last machines are drivers: no task runs there, and no node can dial them.
        let is_driver = !is_own && self.hosts[host].is_driver;
        if !is_own && self.has_faults() && self.plan.has("twins") && self.random.chance(1, 6) {
            let other = self.random.below(self.daemons.len());
            if self.random.chance(1, 2) {
                id = self.daemons[other].id;
                self.twins.insert(id);
            } else {
                name.clone_from(&self.daemons[other].name);
            }
        }
        // The port may be the one of the previous daemon.
        let port = 7000 + if self.random.chance(1, 2) { 0 } else { life % 50_000 };
        let address = format!("10.{}.{}.{}:{port}", host >> 16, (host >> 8) & 255, host & 255);
        let total = cpus(if is_driver { 0 } else { 1 + self.random.below(8) as u64 });
        self.daemons.push(Daemon {
            id,
            name,
            host,
            address: (!is_driver).then_some(address),
            is_own,
            runs: true,
            stands: Instant(0),
            control: Link::Down,
            health: Link::Down,
            redials: Default::default(),
            failed: Instant(0),
            connected: Instant(0),
            head: 0,
            dials: 0,
            began: self.now,
            rejoins: None,
            is_registered: false,
            settings: None,
            beats: 0,
            leaves: false,
            known: BTreeSet::new(),
            learnt_dead: BTreeSet::new(),
            view: BTreeMap::new(),
            must_ask: false,
            peers: Vec::new(),
            free: total.clone(),
            total,
            reporter: Reporter::default(),
        });
        self.hosts[host].daemon = Some(life);
        self.trace.send(|| format!("{:?}: a daemon starts at {host} as {id:?}", self.now));
        self.at(self.now, Event::Dial(life, Line::Control));
        if !self.hosts[host].is_idle {
            self.at(self.now.plus(self.plan.work_nanos), Event::Work(life));
        }
    }

    /// When a process that stands still continues; `None` if it does not stand still.
    pub(super) fn resumes(&self, daemon: usize, side: Side) -> Option<Instant> {
        let stands = match side {
            Side::Head => self.head_stands,
            Side::Node => self.daemons[daemon].stands,
        };
        (stands > self.now).then_some(stands)
    }

    /// Dials a line, if it is down.
    pub(super) fn dial(&mut self, daemon: usize, line: Line) {
        let is_own = self.daemons[daemon].is_own;
        if !self.daemons[daemon].runs || *self.daemons[daemon].link(line) != Link::Down {
            return;
        }
        self.daemons[daemon].dials += 1;
        let number = self.daemons[daemon].dials;
        *self.daemons[daemon].link(line) = Link::Dialling(number);
        if line == Line::Control {
            self.daemons[daemon].redial(line).on_dialled();
        }
        let host = self.daemons[daemon].host;
        let reaches = self.is_carried(host, 0) && self.is_carried(0, host);
        if !reaches {
            return self.at(self.now.plus(CONNECT_NANOS), Event::Undialled(daemon, line, number));
        }
        let latency = if is_own { 0 } else { 3 * self.latency() };
        let patience = match line {
            Line::Control => CONNECT_NANOS,
            Line::Health => HANDSHAKE_NANOS,
        };
        let outcome = match self.head {
            Some(_) if latency <= patience => Event::Arrive(daemon, line, number),
            Some(_) | None => Event::Undialled(daemon, line, number),
        };
        self.at(self.now.plus(latency.min(patience)), outcome);
    }

    /// A dial has failed.
    pub(super) fn undialled(&mut self, daemon: usize, line: Line, number: u32) {
        if !self.daemons[daemon].runs || *self.daemons[daemon].link(line) != Link::Dialling(number) {
            return;
        }
        *self.daemons[daemon].link(line) = Link::Down;
        self.dial_later(daemon, line);
    }

    fn dial_later(&mut self, daemon: usize, line: Line) {
        let now = self.now;
        let one = &mut self.daemons[daemon];
        match line {
            // The user learns of it, and starts the daemon again.
            Line::Control if one.gives_up(now) => {
                self.end_daemon(daemon, true);
            }
            Line::Control => {
                let dial_at = one.redial(line).on_lost(now);
                self.at(dial_at, Event::Dial(daemon, line));
            }
            Line::Health => {
                one.failed = now;
                let dial_at = one.redial(line).on_failed(now);
                let is_to_be_told = one.redial(line).is_to_be_told();
                self.at(dial_at, Event::Dial(daemon, line));
                if is_to_be_told {
                    self.renew_control(daemon);
                }
            }
        }
    }

    /// A dial succeeds now, if the head takes part in the handshake.
    pub(super) fn arrive(&mut self, daemon: usize, line: Line, number: u32) {
        if !self.daemons[daemon].runs || *self.daemons[daemon].link(line) != Link::Dialling(number) {
            return;
        }
        let host = self.daemons[daemon].host;
        let is_carried = self.is_carried(host, 0) && self.is_carried(0, host);
        if self.head.is_none() || !is_carried || self.head_stands > self.now {
            // The kernel accepts connections for a process that stands still.
            return self.at(self.now.plus(HANDSHAKE_NANOS), Event::Undialled(daemon, line, number));
        }
        if line == Line::Health && self.daemons[daemon].head != self.head_life {
            // The restarted head is not the node that the daemon dials.
            return self.undialled(daemon, line, number);
        }
        let conn = self.new_conn(Conn::new(daemon, line));
        *self.daemons[daemon].link(line) = Link::Up(conn);
        match line {
            Line::Control => {
                self.daemons[daemon].connected = self.now;
                self.daemons[daemon].head = self.head_life;
                self.daemons[daemon].is_registered = false;
                let register = self.daemons[daemon].register();
                self.send(conn, Side::Head, register.into());
                self.at(self.now.plus(JOIN_NANOS), Event::Impatient(daemon, conn));
            }
            Line::Health => {
                self.daemons[daemon].redial(line).on_connected();
                self.head_greets(conn);
                self.at(self.now, Event::Beat(daemon, conn));
            }
        }
    }

    pub(super) fn impatient(&mut self, daemon: usize, conn: u64) {
        let one = &self.daemons[daemon];
        if one.runs && one.control == Link::Up(conn) && !one.is_registered {
            self.leave(conn, Side::Node, true);
            self.daemon_loses(daemon, Line::Control, conn);
        }
    }

    /// A connection of a daemon has ended.
    pub(super) fn daemon_loses(&mut self, daemon: usize, line: Line, conn: u64) {
        if !self.daemons[daemon].runs || *self.daemons[daemon].link(line) != Link::Up(conn) {
            return;
        }
        *self.daemons[daemon].link(line) = Link::Down;
        if line == Line::Control {
            self.daemons[daemon].is_registered = false;
        }
        self.dial_later(daemon, line);
    }

    /// Heartbeats have failed. A control connection from before that may be dead, too: nothing shows while no
    /// message is sent over it.
    fn renew_control(&mut self, daemon: usize) {
        let one = &self.daemons[daemon];
        if let Link::Up(conn) = one.control
            && one.connected <= one.failed
        {
            self.leave(conn, Side::Node, true);
            self.daemon_loses(daemon, Line::Control, conn);
        }
    }

    pub(super) fn beat(&mut self, daemon: usize, conn: u64) {
        let one = &mut self.daemons[daemon];
        let Some(settings) = one.settings.filter(|_| one.runs && one.health == Link::Up(conn)) else {
            return;
        };
        one.beats += 1;
        let beat = Heartbeat { number: one.beats, node_lag: 0, data_lag: 0 };
        self.send(conn, Side::Head, beat.into());
        self.at(self.now.plus(settings.heartbeat), Event::Beat(daemon, conn));
    }

    /// The free resources of a node change.
    pub(super) fn work(&mut self, daemon: usize) {
        if !self.daemons[daemon].runs {
            return;
        }
        let used = self.random.below(9) as u64;
        let one = &mut self.daemons[daemon];
        let total = one.total.amount("CPU") / 10_000;
        let free = cpus(total - used.min(total));
        one.free = free;
        one.reporter.note();
        self.report(daemon);
        if !self.is_ending() {
            let pause = self.plan.work_nanos / 2 + self.random.below(self.plan.work_nanos as usize) as u64;
            self.at(self.now.plus(pause), Event::Work(daemon));
        }
    }

    /// Reports the free resources, if a report is due.
    pub(super) fn report(&mut self, daemon: usize) {
        let now = self.now;
        let one = &mut self.daemons[daemon];
        let (Link::Up(conn), true, true) = (one.control, one.is_registered, one.runs) else { return };
        let free = one.free.clone();
        if let Some(report) = one.reporter.take(now, || (free, Vec::new(), Vec::new(), 0)) {
            self.send(conn, Side::Head, report.into());
        } else if let Some(due) = one.reporter.next_deadline() {
            self.at(due.max(now), Event::Report(daemon));
        }
    }

    /// A daemon receives a message from the head.
    pub(super) fn daemon_receives(&mut self, conn: u64, message: Message) {
        let Some(daemon) = self.conns.get(&conn).map(|connection| connection.daemon) else { return };
        match message {
            Message::Registered(registered) => {
                let one = &mut self.daemons[daemon];
                one.rejoins = Some(registered.cluster);
                one.is_registered = true;
                one.redials.iter_mut().for_each(Redial::on_connected);
                one.settings = Some(registered.settings);
                one.known = registered.nodes.iter().map(|row| row.node).collect();
                one.view.clear();
                one.reporter.begin_anew();
                assert_eq!(registered.cluster, CLUSTER);
                self.judge_registered(daemon);
                self.choose_peers(daemon);
                self.report(daemon);
                self.renew_health(daemon);
            }
            Message::NodesChanged(changed) => {
                for row in changed.rows {
                    self.judge_news(daemon, row.node);
                    self.daemons[daemon].known.insert(row.node);
                }
            }
            Message::NodeDead(gone) => {
                let one = &mut self.daemons[daemon];
                one.known.remove(&gone.node);
                one.learnt_dead.insert(gone.node);
                one.view.remove(&gone.node);
                one.peers.retain(|peer| *peer != gone.node);
                self.tell(gone.node);
            }
            Message::ResourceView(view) => self.daemon_sees(daemon, view),
            Message::Fenced(_) => {
                self.saw("a node was told that it is gone");
                self.end_daemon(daemon, true);
            }
            Message::Refused(_) if self.daemons[daemon].rejoins.is_none() => self.end_daemon(daemon, true),
            Message::Refused(_) => {
                self.leave(conn, Side::Node, true);
                self.daemon_loses(daemon, Line::Control, conn);
            }
            Message::Drain(_) => {
                self.daemons[daemon].leaves = true;
                let pause = self.random.below(8 * SECOND as usize) as u64;
                self.at(self.now.plus(pause), Event::Leave(daemon));
            }
            _ => {}
        }
    }

    /// Sends heartbeats to the head that has just taken the node in.
    fn renew_health(&mut self, daemon: usize) {
        let former = std::mem::replace(&mut self.daemons[daemon].health, Link::Down);
        if let Link::Up(conn) = former {
            self.leave(conn, Side::Node, true);
        }
        self.at(self.now, Event::Dial(daemon, Line::Health));
    }

    fn daemon_sees(&mut self, daemon: usize, view: ResourceView) {
        let one = &mut self.daemons[daemon];
        if view.must_ask {
            one.view.clear();
        }
        one.must_ask = view.must_ask;
        one.view.extend(view.rows.into_iter().map(|row| (row.node, row.free)));
    }

    fn choose_peers(&mut self, daemon: usize) {
        let known: Vec<NodeId> = self.daemons[daemon].known.iter().copied().collect();
        let me = self.daemons[daemon].id;
        let chosen = (0..PEERS).map(|_| known[self.random.below(known.len())]).filter(|peer| *peer != me);
        self.daemons[daemon].peers = chosen.collect();
    }

    /// A node notices that its connection with `suspected` has ended, and reports it to the head.
    pub(super) fn suspect(&mut self, suspected: NodeId, by: usize) {
        let one = &self.daemons[by];
        if !one.runs || !one.is_registered || !one.peers.contains(&suspected) {
            return;
        }
        if let Link::Up(conn) = one.control {
            self.send(conn, Side::Head, Suspect { node: suspected, is_given_up: None }.into());
        }
    }

    /// A node that was told to leave has handed on its values.
    pub(super) fn leave_cluster(&mut self, daemon: usize) {
        let one = &self.daemons[daemon];
        if !one.runs {
            return;
        }
        if let (Link::Up(conn), id) = (one.control, one.id) {
            self.send(conn, Side::Head, Drained { node: id }.into());
        }
        self.end_daemon(daemon, true);
    }

    /// A daemon ends. `is_told`: its machine is still there, and closes its connections.
    pub(super) fn end_daemon(&mut self, daemon: usize, is_told: bool) {
        if !self.daemons[daemon].runs {
            return;
        }
        self.daemons[daemon].runs = false;
        let (id, host) = (self.daemons[daemon].id, self.daemons[daemon].host);
        self.trace.send(|| format!("{:?}: the daemon {id:?} at {host} ends", self.now));
        let all: Vec<u64> =
            self.conns.iter().filter(|(_, conn)| conn.daemon == daemon).map(|(number, _)| *number).collect();
        all.into_iter().for_each(|conn| self.leave(conn, Side::Node, is_told));
        if is_told {
            self.raise_suspicion(id, host);
        }
        if !self.daemons[daemon].is_own && !self.hosts[host].will_start && self.random.chance(3, 4) {
            self.hosts[host].will_start = true;
            let pause = SECOND / 10 + self.random.below(5 * SECOND as usize) as u64;
            self.at(self.now.plus(pause), Event::Start(host));
        }
    }

    /// Nodes connected with a node that has ended, and reached by its machine, report it to the head.
    pub(super) fn raise_suspicion(&mut self, id: NodeId, host: usize) {
        for by in 0..self.daemons.len() {
            let one = &self.daemons[by];
            if one.runs && one.peers.contains(&id) && self.is_carried(host, one.host) {
                let due = self.now.plus(self.latency());
                self.at(due, Event::Suspect(id, by));
            }
        }
    }
}
