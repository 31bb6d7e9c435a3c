//! What a node hears, and what it wants done.

use sooner_protocol::engine::Engine;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_wire::message::{Message, PeerConnected, Routed};
use sooner_wire::{BlockId, NodeId, WorkerId};

use super::cluster::{Cluster, End, Item, first_id, node_of};

impl Cluster {
    /// Has the core of a node do something, settles it, and carries out what it wants.
    pub fn with_node<R>(
        &mut self,
        at: usize,
        work: impl FnOnce(&mut Engine, &mut NodeActions) -> R,
    ) -> Option<R> {
        if self.nodes[at].is_dead {
            return None;
        }
        let now = self.now;
        let mut out = NodeActions::new();
        let result = work(&mut self.nodes[at].core, &mut out);
        self.nodes[at].core.after_events(now, &mut out);
        for action in out {
            self.perform_for_node(at, action);
        }
        self.report_to_head(at, now);
        Some(result)
    }

    pub fn node_hears(&mut self, from: End, at: usize, mut message: Message) {
        let now = self.now;
        match from {
            End::Process(id) => {
                let left = self.with_node(at, |node, out| node.on_message(id, message, now, out));
                assert_eq!(left.flatten(), None, "the shell of a scenario allocates without asking");
            }
            End::Head => self.receive_from_head(at, message),
            End::Node(other) => {
                let (link, me) = (NodeId(first_id(other)), NodeId(first_id(at)));
                message.localise_from(WorkerId(link.0), me);
                let Message::Routed(Routed { from, to, message }) = message else {
                    panic!("nodes pass messages on to each other")
                };
                self.with_node(at, |node, out| {
                    let member = node.member().expect("one of several");
                    let left = member.on_routed(link, from, to, *message, now, out).expect("it may say that");
                    assert_eq!(left, None);
                });
            }
        }
    }

    fn perform_for_node(&mut self, at: usize, action: NodeAction) {
        let here = End::Node(at);
        match action {
            NodeAction::Send(to, message) => self.send_to_process(to, *message),
            NodeAction::Introduce(one, other) => {
                for (to, worker) in [(one, other), (other, one)] {
                    self.send_to_process(to, PeerConnected::pair(worker).into());
                }
            }
            NodeAction::Dial { client, to } => {
                self.nodes[at].core.on_dialled_for(client, to);
                self.send_to_process(client, PeerConnected::pair(to).into());
                self.send(here, End::Node(node_of(to)), Item::Dialled(client, to));
            }
            NodeAction::StartWorker(id) => {
                self.names.add_worker(id);
                self.starting.insert(id);
                self.send(End::Process(id), here, Item::Hello);
            }
            NodeAction::KillWorker(id) => self.kill_process(id, "is killed by its node"),
            NodeAction::FreeBlock(block) => self.free_block(at, block.offset()),
            NodeAction::Warn(text) => self.tell(here, &format!("warns: {text}")),
            NodeAction::Control(word) => self.send_to_head(at, word),
            NodeAction::AllocateFor { object, .. } => {
                let block = self.allocate(at, Some(object));
                self.with_node(at, |node, out| node.on_block(object, BlockId(block), out));
            }
            NodeAction::Fetch(fetching) => self.fetch(at, fetching),
            NodeAction::StopFetching { object, attempt } => self.stop_fetching(at, object, attempt),
            NodeAction::Spill { spilled, block } => self.spill(at, spilled, block.offset()),
            NodeAction::DropSpilled(spilled) => self.drop_spilled(at, spilled),
            NodeAction::Route { from, to, mut message } => {
                message.globalise(NodeId(first_id(at)));
                let routed = Routed { from, to, message };
                self.send(here, End::Node(node_of(to)), Item::Message(Box::new(routed.into())));
            }
            NodeAction::FindNodes(find) => {
                self.send(here, End::Head, Item::Message(Box::new((*find).into())));
            }
            NodeAction::LimitMemory(..)
            | NodeAction::GiveUp(_)
            | NodeAction::BeginJob(..)
            | NodeAction::JobLeaves(_) => {}
        }
    }

    fn send_to_process(&mut self, to: WorkerId, message: Message) {
        if self.processes.contains_key(&to) {
            self.send(End::Node(node_of(to)), End::Process(to), Item::Message(Box::new(message)));
        }
    }

    /// A process of another node comes with a line to one here.
    pub fn arrive(&mut self, at: usize, from: WorkerId, local: WorkerId) {
        if self.with_node(at, |node, _| node.on_arrived_for(local, from)) == Some(true) {
            self.send_to_process(local, PeerConnected::pair(from).into());
        }
    }

    /// A machine is gone, with its processes and what was on its way from and to it.
    pub fn kill_node(&mut self, at: usize) {
        self.tell(End::Node(at), "is gone, and its processes with it");
        self.nodes[at].is_dead = true;
        let there = |end: &End| match end {
            End::Node(other) => *other == at,
            End::Process(id) => node_of(*id) == at,
            End::Head => false,
        };
        let ids = self.processes.keys().chain(&self.starting).copied();
        let ids: Vec<WorkerId> = ids.filter(|id| node_of(*id) == at).collect();
        for id in ids {
            self.processes.remove(&id);
            self.starting.remove(&id);
            self.gone.insert(id);
        }
        self.channels.retain(|(from, to), _| !there(from) && !there(to));
        self.notice_death(at);
    }
}
