//! Blocks of the node's shared memory that become free, and those whose contents are lost.

use sooner_wire::message::{BlocksLost, ForgetLost, Place, Round};
use sooner_wire::{BlockId, WorkerId};

use super::transfers::address;
use crate::node::{NodeAction, NodeActions, NodeCore};

impl NodeCore {
    /// No process holds a place any more: it is free, unless a process may still believe that a lost value is
    /// there.
    pub(in crate::node) fn free_place(&mut self, place: Place, out: &mut NodeActions) {
        let block = match place {
            Place::Memory(block) => block,
            Place::Disk(spilled) => return self.free_spilled(spilled, out),
        };
        if self.keeps_for_others(block, out) {
            return;
        }
        if self.residency.delays(block) {
            // Nobody is given the copy that was there.
            return self.pulls.on_freed(block);
        }
        if !self.lost.contains(place) {
            out.push(NodeAction::FreeBlock(block));
            return self.on_block_freed(block, out);
        }
        let clients: Vec<WorkerId> = self.clients.keys().copied().collect();
        let Some(round) = self.lost.retire(block, &clients) else {
            return out.push(NodeAction::FreeBlock(block));
        };
        for client in clients {
            let question = ForgetLost { round, blocks: vec![block] };
            out.push(NodeAction::Send(client, Box::new(question.into())));
        }
    }

    /// The node need not keep a place any more.
    pub(in crate::node) fn let_go(&mut self, place: Place, out: &mut NodeActions) {
        if self.holders.let_go(place) {
            self.free_place(place, out);
        }
    }

    /// The owner of blocks is dead.
    pub(in crate::node) fn orphan_blocks_of(&mut self, owner: WorkerId, out: &mut NodeActions) {
        let free = self.holders.on_dead(owner);
        free.into_iter().for_each(|place| self.free_place(place, out));
        self.retry_home_pulls(out);
    }

    /// Asks all processes which blocks of dead owners they read, if some have no known holder.
    pub(in crate::node) fn ask_readers(&mut self, out: &mut NodeActions) {
        if self.clients.is_empty() {
            // A node of its own may be without any process for a while.
            let free = self.holders.on_nobody_left();
            return free.into_iter().for_each(|place| self.free_place(place, out));
        }
        let Some(question) = self.holders.ask(self.clients.keys().copied()) else { return };
        self.tell_all(&question.into(), out);
    }

    /// The contents of these blocks are lost; blocks that no process holds, or only the node, are passed
    /// over.
    pub fn lose_blocks(&mut self, blocks: &[BlockId], out: &mut NodeActions) {
        let mut lost: Vec<BlockId> = Vec::new();
        let itself = [address(self.id())];
        for &block in blocks {
            let is_held = self.holders.is_held(block.into()) && self.holders.of(block.into()) != itself;
            if is_held && self.lost.insert(block) {
                lost.push(block);
            }
        }
        if lost.is_empty() {
            return;
        }
        for block in &lost {
            self.pulls.on_freed(*block);
            // No message will come any more that a copy kept for other nodes may go.
            if self.holders.of((*block).into()).contains(&itself[0]) {
                self.release_own(*block, out);
            }
        }
        self.retry_home_pulls(out);
        self.notify_remote_holders(&lost, out);
        self.tell_all(&BlocksLost { blocks: lost }.into(), out);
    }

    /// Processes that connected after a loss learn of it before they learn of anything else that matters.
    pub(in crate::node) fn notify_newcomers(&mut self, out: &mut NodeActions) {
        for client in self.lost.take_newcomers() {
            let blocks = self.lost.believed();
            if !blocks.is_empty() && self.clients.contains_key(&client) {
                out.push(NodeAction::Send(client, Box::new(BlocksLost { blocks }.into())));
            }
        }
    }

    pub(in crate::node) fn on_forgotten(&mut self, round: Round, from: WorkerId, out: &mut NodeActions) {
        out.extend(self.lost.on_answer(round, from).map(NodeAction::FreeBlock));
    }

    pub(in crate::node) fn lost_blocks_gone(&mut self, client: WorkerId, out: &mut NodeActions) {
        out.extend(self.lost.on_dead(client).into_iter().map(NodeAction::FreeBlock));
    }
}
