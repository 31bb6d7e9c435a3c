//! The node: when it places, and what it wants.

use weft_protocol::node::NodeAction;
use weft_wire::message::{Message, PeerConnected};

use super::{Item, Next, Process, Wake, World};
use crate::plan::Fault;

impl World {
    pub(super) fn list_node(&mut self) {
        if !self.is_node_listed {
            self.is_node_listed = true;
            self.next.push(Next::Node);
        }
    }

    pub(super) fn settle_node(&mut self) {
        let now = self.now();
        self.events += 1;
        let mut out = std::mem::take(&mut self.node_out);
        self.node.settle(now, &mut out);
        for action in out.drain(..) {
            self.perform_for_node(action);
        }
        self.node_out = out;
        if self.node_wakes_at == 0
            && let Some(at) = self.node.next_deadline()
        {
            self.node_wakes_at = at.0;
            self.wake_in(at.since(now) + 1, Wake::Node);
        }
    }

    fn perform_for_node(&mut self, action: NodeAction) {
        match action {
            NodeAction::Send(to, message) => {
                let to = Self::number(to);
                if let Message::Push(constructor) = &*message {
                    self.note_placed(to, constructor.spec.task);
                }
                if self.process(to).is_running() {
                    self.send(0, to, Item::Message(message));
                }
            }
            NodeAction::Introduce(one, other) => {
                for (to, worker) in [(one, other), (other, one)] {
                    let to = Self::number(to);
                    if self.process(to).is_running() {
                        let message = PeerConnected { worker }.into();
                        self.send(0, to, Item::Message(Box::new(message)));
                    }
                }
            }
            NodeAction::StartWorker(worker) => {
                let number = Self::number(worker);
                assert_eq!(number as usize, self.processes.len(), "ids count up");
                self.processes.push(Process::new(worker));
                let slow = self.has_faults() && self.plan.breaks(Fault::SlowStart);
                let nanos = if slow { 200_000_000 } else { 3_000_000 };
                let nanos = 1 + self.random.below(nanos) as u64;
                self.wake_in(nanos, Wake::Start(number));
            }
            NodeAction::KillWorker(worker) => {
                let number = Self::number(worker);
                if self.process(number).is_running() {
                    let nanos = self.random.below(100_000) as u64;
                    self.wake_in(nanos, Wake::Kill(number));
                }
            }
            NodeAction::FreeBlock(block) => self.free_block(block),
            NodeAction::Warn(_) => {}
            NodeAction::Control(_) => unreachable!("both cores are in this node"),
        }
    }

    /// The contents of blocks are lost.
    pub fn lose(&mut self, blocks: &[u64]) {
        self.events += 1;
        self.node.lose_blocks(blocks, &mut self.node_out);
        self.list_node();
    }
}
