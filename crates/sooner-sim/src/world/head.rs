//! The control service where there are several nodes: the core by itself, with a channel from and to each node.
//!
//! Its links are as sessions make them: first said is first heard, and nothing is lost while both ends live. What is said is
//! encoded as in production ([`sooner_protocol::uplink::wire`]).

use std::collections::{BTreeMap, VecDeque};

use sooner_protocol::control::persist::{BatchId, Write};
use sooner_protocol::control::view::View;
use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions, Found};
use sooner_protocol::node::NodeCore;
use sooner_protocol::probes::hit;
use sooner_protocol::scheduling::policy;
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::{ToControl, ToNode};
use sooner_wire::message::{AboutNode, Message, NodeRow, kind, node_state};

use super::describe::{brief, name};
use super::node::SEVERAL;
use super::processes::{HEAD, number_of_node};
use super::{Item, Next, SimNode, Wake, World};
use crate::violation::fail;

/// How long a control service waits for the nodes of the one before (nanoseconds).
const PATIENCE_NANOS: u64 = 10_000_000_000;
/// One that has lived for less is mostly left alone (nanoseconds): with a row of them that die young no end of a process is told
/// before sessions with it run out of patience.
const YOUNG_NANOS: u64 = 200_000_000;
/// One to or from which more words than these are on their way is left alone: here each takes a step, and what nodes say to one that
/// starts may be thousands. With a row of them that end before all is read no end of a process is ever told, and more come meanwhile.
const WORDS_MAX: usize = 64;
/// How long a node needs at most to find the next control service (nanoseconds).
const AWAY_NANOS: usize = 3_000_000_000;

/// See the module.
#[derive(Default)]
pub struct Head {
    /// The production core.
    pub core: Directory,
    /// What nodes have free, for them all.
    view: View,
    out: DirectoryActions,
    is_listed: bool,
    wakes_at: u64,
    /// What it has written, for the one after it.
    disk: BTreeMap<String, Vec<u8>>,
    /// What the disk was asked for, and has not answered.
    writes: VecDeque<(BatchId, Vec<Write>)>,
    /// How many there were before it.
    incarnation: u32,
    /// All nodes that the one before knew are there, and it was not told yet.
    is_complete: bool,
    /// When they were there.
    since: u64,
}

impl Head {
    /// The disk does the next thing that it was asked for.
    fn write(&mut self) -> Option<BatchId> {
        let (batch, writes) = self.writes.pop_front()?;
        for Write { key, value } in writes {
            match value {
                Some(value) => drop(self.disk.insert(key, value)),
                None => drop(self.disk.remove(&key)),
            }
        }
        Some(batch)
    }
}

impl World {
    /// The control service begins, and the nodes join it.
    pub(super) fn start_head(&mut self) {
        let mut head = Head::default();
        head.core.keep_records(Found::default());
        self.head = Some(head);
        (0..self.nodes.len()).for_each(|at| self.link(at));
    }

    /// A node has a link to a control service that knows nothing of it.
    fn link(&mut self, at: usize) {
        let now = self.now();
        let SimNode { core, out, is_linked, reporter, .. } = &mut self.nodes[at];
        *is_linked = true;
        reporter.begin_anew();
        let member = core.member().expect(SEVERAL);
        let total = member.row();
        member.on_control_up(true, now, out);
        let row = policy::NodeRow { free: total.total.clone(), ..total };
        self.head().core.on_node_joined(row);
        self.list_node_at(at);
        self.introduce_node(at);
    }

    /// A node hears of the others, and they of it.
    fn introduce_node(&mut self, at: usize) {
        let rows: Vec<NodeRow> = self.nodes.iter_mut().map(|node| about(&node.core)).collect();
        self.head().view.on_joined(&rows[at]);
        for other in 0..rows.len() {
            self.nodes[other].core.on_node_known(&rows[at]);
            self.nodes[at].core.on_node_known(&rows[other]);
        }
        self.list_head();
    }

    /// The control service ends, and with it what was on its way from and to it. Another one begins.
    pub(crate) fn restart_head(&mut self) {
        if self.nodes.iter().any(|node| !node.is_linked) {
            return;
        }
        if self.words_on_their_way() > WORDS_MAX {
            return;
        }
        let since = self.head().since;
        let is_young = since > 0 && self.time - since < YOUNG_NANOS;
        if is_young && self.random.chance(15, 16) {
            return;
        }
        self.trace.say(|| "*** the control service ends".to_owned());
        hit("the control service started again");
        let now = self.now();
        let mut former = self.head.take().expect("there are several nodes");
        // The disk may have done some of what it was asked for.
        let written = self.random.below(1 + former.writes.len());
        for _ in 0..written {
            former.write();
        }
        let Head { is_listed, wakes_at, disk, incarnation, .. } = former;
        let found = Found::read(disk.clone())
            .unwrap_or_else(|(key, error)| fail("I11", format!("the record {key:?}: {error}")));
        let incarnation = incarnation + 1;
        let nodes = self.nodes.iter().map(SimNode::id).collect();
        let mut head = Head { is_listed, wakes_at, disk, incarnation, ..Head::default() };
        head.core.keep_records(Found { incarnation, nodes, ..found });
        head.core.expect_nodes(now.plus(PATIENCE_NANOS));
        self.head = Some(head);
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

    /// How many words to and from the control service are on their way.
    fn words_on_their_way(&self) -> usize {
        let ways = self.nodes.iter().flat_map(|node| [(node.number, HEAD), (HEAD, node.number)]);
        let channels = ways.filter_map(|(from, to)| self.channels.find(from, to));
        channels.map(|channel| self.channels.get(channel).queue.len()).sum()
    }

    /// A node finds the next control service.
    pub(super) fn find_head(&mut self, at: usize) {
        self.link(at);
        if self.nodes.iter().all(|node| node.is_linked) {
            let now = self.time;
            let head = self.head();
            (head.is_complete, head.since) = (true, now);
            self.list_head();
        }
    }

    fn head(&mut self) -> &mut Head {
        self.head.as_mut().expect("there are several nodes")
    }

    /// A node says something to the control service.
    pub(super) fn say_to_head(&mut self, at: usize, word: ToControl) {
        let SimNode { number, is_linked, .. } = self.nodes[at];
        if is_linked {
            let message = word.into_message(self.nodes[at].id());
            self.send(number, HEAD, Item::Message(Box::new(message)));
        }
    }

    /// A node says what it has free, if that is due.
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
        self.trace.say(|| format!("head <- {}: {}", name(from), brief(&message)));
        let (now, node) = (self.now(), self.node(from).id());
        if let Message::ResourceReport(report) = message {
            let row = policy::NodeRow { free: report.free.clone(), ..self.node_mut(from).core.row() };
            let head = self.head();
            head.core.on_report(row);
            head.core.on_bundles_free(node, report.bundles.clone().unwrap_or_default());
            head.view.on_report(node, report).expect("a node says what is right");
            return self.list_head();
        }
        let word = ToControl::parse(message, node).unwrap_or_else(|wrong| {
            fail("I14", format!("{node:?} says what is no word to the control service: {wrong:?}"))
        });
        let Head { core, out, .. } = self.head();
        core.on_node(node, word, now, out);
        if self.random.chance(1, 2) { self.settle_head() } else { self.list_head() }
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
        self.settle_head();
    }

    pub(super) fn wake_head(&mut self) {
        self.head().wakes_at = 0;
        self.settle_head();
    }

    fn settle_head(&mut self) {
        self.events += 1;
        let now = self.now();
        let head = self.head();
        let mut out = std::mem::take(&mut head.out);
        if head.is_complete && head.core.has_heard_all() {
            head.is_complete = false;
            head.core.on_all_here(now, &mut out);
        }
        while let Some(batch) = head.write() {
            head.core.on_persisted(batch, Ok(()), now, &mut out);
        }
        head.core.settle(now, &mut out);
        let mut views = Vec::new();
        head.view.settle(now, &mut views);
        let dues = [head.core.next_deadline(), head.view.next_deadline()];
        // The disk's patience is long, and what comes before it is not to wait for it.
        let is_next = |due: &Instant| head.wakes_at == 0 || due.0 < head.wakes_at;
        let due = dues.into_iter().flatten().min().filter(is_next);
        if let Some(due) = due {
            head.wakes_at = due.0;
            self.wake_in(due.since(now) + 1, Wake::Head);
        }
        for action in out {
            match action {
                DirectoryAction::Send(node, word) => {
                    let to = number_of_node(node);
                    self.send(HEAD, to, Item::Message(Box::new(word.into_message())));
                }
                DirectoryAction::Persist(batch, writes) => {
                    // It is done in another turn of the head: until then it may be killed.
                    self.head().writes.push_back((batch, writes));
                    self.list_head();
                }
                DirectoryAction::Warn(_) => {}
            }
        }
        for (node, view) in views {
            self.send(HEAD, number_of_node(node), Item::Message(Box::new(view)));
        }
    }

    /// The control service says something to a node.
    pub(super) fn hear_from_head(&mut self, at: usize, message: Message) {
        let (now, id) = (self.now(), self.nodes[at].id());
        if let Message::ResourceView(view) = message {
            return self.nodes[at].core.on_view(&view);
        }
        let word = ToNode::parse(message, id).unwrap_or_else(|wrong| {
            fail("I14", format!("the control service says what is no word to {id:?}: {wrong:?}"))
        });
        let SimNode { core, out, .. } = &mut self.nodes[at];
        core.member().expect(SEVERAL).on_control(word, now, out);
    }
}

/// A node as the others know it.
fn about(member: &NodeCore) -> NodeRow {
    let about = AboutNode {
        kind: kind::DAEMON,
        name: format!("n{}", member.id().0),
        address: None,
        host: String::new(),
        boot_id: String::new(),
        resources: member.row().total,
        labels: Vec::new(),
    };
    NodeRow { node: member.id(), about, state: node_state::ALIVE, is_slow: false }
}
