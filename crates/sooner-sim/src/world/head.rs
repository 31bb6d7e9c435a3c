//! The control service of several nodes: the production core, with a channel from and to each node.
//!
//! Its links behave like sessions: messages arrive in order, and none is lost while both ends live. Messages
//! are encoded as in production ([`sooner_protocol::uplink::wire`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sooner_protocol::control::persist::Write;
use sooner_protocol::control::{Batch, ControlAction, ControlActions, ControlCore, Probed};
use sooner_protocol::node::NodeAction;
use sooner_protocol::probes::hit;
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::{ToControl, ToNode};
use sooner_wire::NodeId;
use sooner_wire::limits::HEALTH_TIMEOUT_NANOS;
use sooner_wire::message::{AboutNode, Heartbeat, Message, Register, kind};

use super::describe::{brief, name};
use super::node::SEVERAL;
use super::processes::{HEAD, number_of_node};
use super::{Item, Next, SimNode, Wake, World};
use crate::cluster::disk::{apply, beginning};
use crate::cluster::head::{CLUSTER, PYTHON};
use crate::violation::fail;

/// A control service that has lived for less is mostly not killed (nanoseconds). In a series of them that die
/// young, no death of a process would be reported before sessions with it run out of patience.
const YOUNG_NANOS: u64 = 200_000_000;
/// A control service with more messages than this on their way to or from it is not killed. Here each message
/// takes a step, and nodes may send thousands to a new control service. In a series of them that end before
/// reading all, no death of a process would ever be reported, while more messages come.
const MESSAGES_MAX: usize = 64;
/// How long a node takes at most to find the next control service (nanoseconds).
const AWAY_NANOS: usize = 3_000_000_000;

/// See the module.
pub struct Head {
    /// The production core.
    pub core: ControlCore,
    out: ControlActions,
    /// The nodes that the control service has taken in.
    admitted: BTreeSet<NodeId>,
    /// Nodes that a restarted control service dials to see whether they live. All of them do.
    probes: Vec<(NodeId, u32)>,
    is_listed: bool,
    wakes_at: u64,
    /// When the control service next checks its nodes for silence; zero: not set.
    ticks_at: u64,
    /// Records that it has written, for its successor.
    disk: BTreeMap<String, Vec<u8>>,
    /// Writes requested from the disk and not done yet.
    writes: VecDeque<(Batch, Vec<Write>)>,
    /// How many control services there were before.
    incarnation: u32,
    /// When all nodes had joined it again; zero for the first one.
    since: u64,
}

impl Head {
    /// A control service starts from the records of its predecessor.
    fn new(me: NodeId, disk: BTreeMap<String, Vec<u8>>, incarnation: u32, now: Instant) -> Self {
        let begin = beginning(&disk, me, None, incarnation, HEALTH_TIMEOUT_NANOS);
        let mut out = ControlActions::new();
        let core = ControlCore::new(begin, now, &mut out);
        Self {
            core,
            out,
            admitted: BTreeSet::new(),
            probes: Vec::new(),
            is_listed: false,
            wakes_at: 0,
            ticks_at: 0,
            disk,
            writes: VecDeque::new(),
            incarnation,
            since: 0,
        }
    }

    /// Does the writes and probes that the core has asked for, and returns the actions that follow.
    fn after_events(&mut self, now: Instant) -> ControlActions {
        let mut out = std::mem::take(&mut self.out);
        while let Some(batch) = self.write() {
            self.core.on_persisted(batch, Ok(()), now, &mut out);
        }
        for (node, number) in std::mem::take(&mut self.probes) {
            self.core.on_probed(node, number, Probed::Answered(node), now, &mut out);
        }
        self.core.after_events(now, &mut out);
        self.core.check();
        out
    }

    /// The disk does the next batch of writes.
    fn write(&mut self) -> Option<Batch> {
        let (batch, writes) = self.writes.pop_front()?;
        apply(&mut self.disk, &writes);
        Some(batch)
    }
}

impl World {
    /// The control service starts, and the nodes join it before any program runs, without time passing.
    pub(super) fn start_head(&mut self) {
        let now = self.now();
        let me = self.nodes[0].id();
        self.head = Some(Head::new(me, BTreeMap::new(), 0, now));
        for at in 0..self.nodes.len() {
            let (id, register) = (self.nodes[at].id(), self.registration(at, None));
            let Head { core, out, .. } = self.head();
            core.on_register(id, register, now, out);
        }
        loop {
            let actions = self.head().after_events(now);
            if actions.is_empty() {
                break;
            }
            for action in actions {
                match action {
                    ControlAction::Send(node, message) => {
                        self.receive_from_head(super::node_at(number_of_node(node)), *message);
                    }
                    action => self.perform_for_head(action),
                }
            }
        }
        self.head().since = 0;
        self.list_head();
    }

    /// A node's registration.
    fn registration(&mut self, at: usize, rejoins: Option<u64>) -> Register {
        let core = self.nodes[at].core.member().expect(SEVERAL);
        let about = AboutNode {
            kind: kind::DAEMON,
            name: format!("n{}", core.id().0),
            address: Some(format!("10.0.0.{}:6380", at + 1)),
            host: format!("host-{at}"),
            boot_id: format!("boot-{at}"),
            resources: core.row().total,
            labels: Vec::new(),
        };
        Register { about: Box::new(about), version: "0.1.0".into(), python: PYTHON.into(), rejoins }
    }

    /// The control service ends; messages to and from it are lost. Its successor starts.
    pub(crate) fn restart_head(&mut self) {
        if self.nodes.iter().any(|node| !node.is_linked) {
            return;
        }
        if self.messages_on_their_way() > MESSAGES_MAX {
            return;
        }
        let since = self.head().since;
        let is_young = since > 0 && self.time - since < YOUNG_NANOS;
        if is_young && self.random.chance(15, 16) {
            return;
        }
        self.trace.send(|| "*** the control service ends".to_owned());
        hit("the control service started again");
        let now = self.now();
        let mut former = self.head.take().expect("there are several nodes");
        // The disk may have done some of the requested writes.
        let written = self.random.below(1 + former.writes.len());
        for _ in 0..written {
            former.write();
        }
        let Head { is_listed, wakes_at, ticks_at, disk, incarnation, .. } = former;
        let me = self.nodes[0].id();
        let begun = Head::new(me, disk, incarnation + 1, now);
        self.head = Some(Head { is_listed, wakes_at, ticks_at, ..begun });
        self.list_head();
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            node.is_linked = false;
            node.core.member().expect(SEVERAL).on_control_down(now);
            for (from, to) in [(node.number, HEAD), (HEAD, node.number)] {
                let channel = self.channels.number(from, to);
                let channel = self.channels.get_mut(channel);
                channel.queue.clear();
                channel.sent = 0;
            }
            let nanos = 1 + self.random.below(AWAY_NANOS) as u64;
            self.wake_in(nanos, Wake::Link(at));
        }
    }

    /// How many messages to and from the control service are on their way.
    fn messages_on_their_way(&self) -> usize {
        let ways = self.nodes.iter().flat_map(|node| [(node.number, HEAD), (HEAD, node.number)]);
        let channels = ways.filter_map(|(from, to)| self.channels.find(from, to));
        channels.map(|channel| self.channels.get(channel).queue.len()).sum()
    }

    /// A node finds the next control service and registers.
    pub(super) fn find_head(&mut self, at: usize) {
        let register = self.registration(at, Some(CLUSTER));
        self.send(self.nodes[at].number, HEAD, Item::Message(Box::new(register.into())));
    }

    fn head(&mut self) -> &mut Head {
        self.head.as_mut().expect("there are several nodes")
    }

    /// A node sends a message to the control service, if it is linked.
    pub(super) fn send_to_head(&mut self, at: usize, word: ToControl) {
        let SimNode { number, is_linked, .. } = self.nodes[at];
        if is_linked {
            let message = word.into_message(self.nodes[at].id());
            self.send(number, HEAD, Item::Message(Box::new(message)));
        }
    }

    /// A node reports its free resources, if a report is due.
    pub(super) fn report_to_head(&mut self, at: usize) {
        let now = self.now();
        let SimNode { number, core, reporter, .. } = &mut self.nodes[at];
        let number = *number;
        reporter.note();
        if let Some(report) = reporter.take(now, || core.resources_now()) {
            self.send(number, HEAD, Item::Message(Box::new(report.into())));
        }
    }

    pub(super) fn deliver_to_head(&mut self, from: u32, message: Message) {
        self.events += 1;
        self.trace.note(u64::from(from) ^ (u64::from(message.kind()) << 8) ^ (3 << 60));
        self.trace.send(|| format!("head <- {}: {}", name(from), brief(&message)));
        let (now, node) = (self.now(), self.node(from).id());
        let Head { core, out, admitted, .. } = self.head();
        match message {
            Message::Register(register) => core.on_register(node, register, now, out),
            // The message was meant for the previous control service.
            _ if !admitted.contains(&node) => return,
            message => core.on_message(node, message, now, out),
        }
        if self.random.chance(1, 2) { self.after_events_of_head() } else { self.list_head() }
    }

    fn list_head(&mut self) {
        let head = self.head();
        if !head.is_listed {
            head.is_listed = true;
            self.next.push(Next::Head);
        }
    }

    pub(super) fn take_turn_of_head(&mut self) {
        self.head().is_listed = false;
        self.after_events_of_head();
    }

    pub(super) fn wake_head(&mut self) {
        self.head().wakes_at = 0;
        self.after_events_of_head();
    }

    /// Hands the core a heartbeat of every node: nodes send heartbeats from a thread of their own, over
    /// connections that are never cut here.
    pub(super) fn tick_head(&mut self) {
        let now = self.now();
        let Head { core, out, admitted, ticks_at, .. } = self.head();
        *ticks_at = 0;
        for node in admitted.iter() {
            core.on_heartbeat(*node, Heartbeat { number: 1, node_lag: 0, data_lag: 0 }, now, out);
        }
        self.after_events_of_head();
    }

    fn after_events_of_head(&mut self) {
        self.events += 1;
        let now = self.now();
        let out = self.head().after_events(now);
        for action in out {
            self.perform_for_head(action);
        }
        self.set_timers_of_head(now);
    }

    /// Sets two timers: one for the deadlines of the directory and of the view, and one for the check of the
    /// nodes, which recurs for ever and does not keep the world going.
    fn set_timers_of_head(&mut self, now: Instant) {
        let head = self.head();
        let dues = [head.core.directory().next_deadline(), head.core.view().next_deadline()];
        // The disk has a long deadline; earlier ones must not wait for it.
        let due = dues.into_iter().flatten().min().filter(|due| head.wakes_at == 0 || due.0 < head.wakes_at);
        let tick =
            head.core.nodes().next_deadline().filter(|due| head.ticks_at == 0 || due.0 < head.ticks_at);
        if let Some(due) = due {
            head.wakes_at = due.0;
            self.wake_in(due.since(now) + 1, Wake::Head);
        }
        if let Some(due) = tick {
            self.head().ticks_at = due.0;
            self.wake_in(due.since(now) + 1, Wake::HeadTick);
        }
    }

    fn perform_for_head(&mut self, action: ControlAction) {
        let head = self.head();
        match action {
            ControlAction::Send(node, message) => {
                if head.admitted.contains(&node) {
                    self.send(HEAD, number_of_node(node), Item::Message(message));
                }
            }
            ControlAction::Admit(node) => drop(head.admitted.insert(node)),
            ControlAction::Persist(batch, writes) => {
                // The write is done in another turn of the control service, which may be killed before.
                head.writes.push_back((batch, writes));
                self.list_head();
            }
            ControlAction::Probe { node, number, .. } => {
                head.probes.push((node, number));
                self.list_head();
            }
            ControlAction::Dismiss(node, message) => {
                fail("I14", format!("the control service sends {node:?} away: {message:?}"))
            }
            ControlAction::EndNode(node) => {
                fail("I14", format!("the control service ends {node:?}, which lives"))
            }
            ControlAction::EndSession(node, why) => {
                fail("I14", format!("{node:?} sends the control service what it may not: {why}"))
            }
            ControlAction::Log(text) | ControlAction::LogRationed(text) => {
                self.trace.send(|| format!("head: {text}"));
            }
        }
    }

    /// A node receives a message from the control service.
    pub(super) fn receive_from_head(&mut self, at: usize, message: Message) {
        let (now, id) = (self.now(), self.nodes[at].id());
        match message {
            Message::Registered(registered) => {
                let SimNode { core, out, is_linked, reporter, .. } = &mut self.nodes[at];
                *is_linked = true;
                reporter.begin_anew();
                // Messages meant for the previous control service.
                out.retain(|action| !matches!(action, NodeAction::Control(_)));
                core.member().expect(SEVERAL).on_control_up(true, now, out);
                registered.nodes.iter().for_each(|row| core.on_node_known(row));
                self.list_node_at(at);
                if self.nodes.iter().all(|node| node.is_linked) {
                    self.head().since = now.0;
                }
            }
            Message::NodesChanged(changed) => {
                changed.rows.iter().for_each(|row| self.nodes[at].core.on_node_known(row));
                self.list_node_at(at);
            }
            Message::ResourceView(view) => self.nodes[at].core.on_view(&view),
            message => {
                let word = ToNode::parse(message, id).unwrap_or_else(|wrong| {
                    fail("I14", format!("the control service sends {id:?} what it may not: {wrong:?}"))
                });
                let SimNode { core, out, .. } = &mut self.nodes[at];
                core.member().expect(SEVERAL).on_control(word, now, out);
            }
        }
    }
}
