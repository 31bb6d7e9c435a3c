//! Values that come from other nodes and go to them: pulls of clients, blocks that remote processes hold, and
//! reports of losses to other nodes (`docs/adr/0023-remote-values.md`).
//!
//! Owners of values say which node pulls them from which: the messages with owners are in `directions.rs`.
//!
//! The shell moves bytes and knows other nodes: it is told what to allocate, fetch and forward.

use sooner_wire::message::{
    FreeAt, FreeBlocks, GiveBlock, GivenBlocks, LostAt, Place, Pull, Pulled, Remote, UnknownBlocks,
};
use sooner_wire::{BlockId, FetchAttempt, NodeId, ObjectId, WorkerId};

use super::directions::Direction;
use super::home_pulls::HomePull;
use crate::node::core::send;
use crate::node::objects::{PullAction, Serves, StreamEnd};
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::probes::mark;
use crate::time::Instant;

impl NodeCore {
    /// This node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.pool.node()
    }

    /// Bytes of the store: they bound the bytes on their way into it at a time.
    pub fn set_store_bytes(&mut self, bytes: u64) {
        self.pulls.set_budget(bytes / sooner_wire::limits::PULL_SHARE);
    }

    pub(in crate::node) fn on_pull(
        &mut self,
        from: WorkerId,
        pull: &Pull,
        now: Instant,
        out: &mut NodeActions,
    ) {
        if pull.remote.node == self.id()
            && let Place::Disk(spilled) = pull.remote.location.place()
        {
            return self.on_pull_of_spilled(from, pull, spilled, out);
        }
        let block = pull.remote.location.place().block();
        let is_copy = block.and_then(|block| self.pulls.object_in(block)) == Some(pull.object);
        if pull.remote.node == self.id() && !is_copy {
            return self.on_home_pull(from, pull, now, out);
        }
        let is_owner_dead = self.meet_owner(pull.object.owner(), out);
        let mut wanted = Vec::new();
        self.pulls.on_pull(from, pull, is_owner_dead, &mut wanted);
        self.perform(wanted, out);
    }

    /// A client asks for a value in the memory of this node.
    fn on_home_pull(&mut self, from: WorkerId, pull: &Pull, now: Instant, out: &mut NodeActions) {
        mark!("a process asked its own node for a value that lies there");
        let pull = HomePull::new(from, pull, now);
        if !self.answer_home_pull(&pull, out) {
            self.home_pulls.wait(pull);
        }
    }

    /// The node has learned more of a block: answers the questions that waited for that.
    pub(in crate::node) fn retry_home_pulls(&mut self, out: &mut NodeActions) {
        for pull in self.home_pulls.take() {
            if !self.answer_home_pull(&pull, out) {
                self.home_pulls.wait(pull);
            }
        }
    }

    /// Clients that have waited long enough are told that the value is not there.
    fn end_home_pulls(&mut self, now: Instant, out: &mut NodeActions) {
        let not_there = |pull: HomePull| {
            let HomePull { from: to, object, .. } = pull;
            PullAction::NotThere { to, object, tried: None }
        };
        let late = self.home_pulls.take_late(now).into_iter().map(not_there).collect();
        self.perform(late, out);
    }

    /// False if the answer is not known yet.
    fn answer_home_pull(&mut self, pull: &HomePull, out: &mut NodeActions) -> bool {
        let HomePull { from: to, object, location, .. } = *pull;
        let answer = match self.serves(location.place(), object) {
            Serves::Yes => PullAction::Here { to, object, location },
            Serves::No => {
                let tried = Some(Remote { node: self.id(), location });
                PullAction::NotThere { to, object, tried }
            }
            Serves::NotYet => return false,
        };
        self.perform(vec![answer], out);
        true
    }

    /// There is a block for an object that is pulled.
    pub fn on_block(&mut self, object: ObjectId, block: BlockId, out: &mut NodeActions) {
        let mut wanted = Vec::new();
        self.pulls.on_block(object, block, &mut wanted);
        self.perform(wanted, out);
    }

    /// There is no room for such an object now, in a store of `capacity` bytes. `moves`: values are being
    /// brought elsewhere to make room.
    pub fn on_no_block(
        &mut self,
        object: ObjectId,
        capacity: u64,
        moves: bool,
        now: Instant,
        out: &mut NodeActions,
    ) {
        let mut wanted = Vec::new();
        self.pulls.on_no_block(object, capacity, moves, now, &mut wanted);
        self.perform(wanted, out);
    }

    /// `bytes` bytes of an object that is pulled are local.
    pub fn on_bytes(&mut self, object: ObjectId, attempt: FetchAttempt, bytes: u64, out: &mut NodeActions) {
        let mut wanted = Vec::new();
        self.pulls.on_bytes(object, attempt, bytes, &mut wanted);
        self.perform(wanted, out);
    }

    /// A stream ended before all bytes were local.
    pub fn on_stream_end(
        &mut self,
        object: ObjectId,
        attempt: FetchAttempt,
        end: StreamEnd,
        out: &mut NodeActions,
    ) {
        let mut wanted = Vec::new();
        self.pulls.on_stream_end(object, attempt, end, &mut wanted);
        self.perform(wanted, out);
    }

    pub(in crate::node) fn end_pulls_of(&mut self, client: WorkerId, out: &mut NodeActions) {
        self.home_pulls.forget_client(client);
        let mut wanted = Vec::new();
        self.pulls.on_owner_dead(client, &mut wanted);
        self.pulls.on_client_dead(client, &mut wanted);
        self.perform(wanted, out);
    }

    /// A node is dead, and with it what is brought from there.
    pub(in crate::node) fn end_pulls_from(&mut self, node: NodeId, out: &mut NodeActions) {
        let mut wanted = Vec::new();
        self.pulls.on_owners_dead(node, &mut wanted);
        self.pulls.on_node_dead(node, &mut wanted);
        self.perform(wanted, out);
    }

    pub(in crate::node) fn give_pulls_up(&mut self, now: Instant, out: &mut NodeActions) {
        self.end_home_pulls(now, out);
        if self.pulls.next_deadline().is_some_and(|deadline| deadline <= now) {
            let mut wanted = Vec::new();
            self.pulls.on_timer(now, &mut wanted);
            self.perform(wanted, out);
        }
    }

    /// A block is free: it holds no copy, and there may be room for a pull that waits.
    pub(in crate::node) fn on_block_freed(&mut self, block: BlockId, out: &mut NodeActions) {
        if !self.pulls.is_empty() {
            self.pulls.on_freed(block);
        }
        self.on_room(out);
    }

    /// There may be room for pulls that wait for some: also when a block is free later than this core freed
    /// it, because the disk was using it.
    pub fn on_room(&mut self, out: &mut NodeActions) {
        self.residency.on_room();
        if !self.pulls.is_empty() {
            let mut wanted = Vec::new();
            self.pulls.on_room(&mut wanted);
            self.perform(wanted, out);
        }
    }

    pub(in crate::node) fn perform(&mut self, wanted: Vec<PullAction>, out: &mut NodeActions) {
        for action in wanted {
            match action {
                PullAction::Allocate { object, bytes } => out.push(NodeAction::AllocateFor { object, bytes }),
                PullAction::Fetch(fetching) if fetching.remote.node == self.id() => {
                    self.restore(fetching, out)
                }
                PullAction::Fetch(fetching) => out.push(NodeAction::Fetch(fetching)),
                PullAction::Stop { object, attempt } => {
                    out.push(NodeAction::StopFetching { object, attempt });
                }
                PullAction::Here { to, object, location } => {
                    let place = location.place();
                    let serves = self.holders.serves(place, object);
                    if serves == Serves::No {
                        self.holders.insert(place, to);
                    } else {
                        self.holders.share(place, to);
                    }
                    if serves != Serves::Yes {
                        self.holders.set_object(place, object);
                    }
                    let location = Some(location);
                    out.push(send(to, Pulled { object, location, failure: None, tried: None }));
                }
                PullAction::NotThere { to, object, tried } => {
                    out.push(send(to, Pulled { object, location: None, failure: None, tried }));
                }
                PullAction::Failed { to, object, failure } => {
                    let failure = Some(Box::new(failure));
                    out.push(send(to, Pulled { object, location: None, failure, tried: None }));
                }
                PullAction::Free(block) => self.drop_pulled(block, out),
                PullAction::Hold(block) => self.holders.insert(block.into(), address(self.id())),
                PullAction::Release(block) => self.release_own(block, out),
                PullAction::Locate(object) => self.ask_owner(object, Direction::Locate, out),
                PullAction::Made { object, attempt } => {
                    self.ask_owner(object, Direction::Made(attempt), out);
                }
                PullAction::SenderFailed { object, attempt } => {
                    self.ask_owner(object, Direction::Failed(attempt), out);
                }
                PullAction::Leave(object) => self.ask_owner(object, Direction::Leave, out),
            }
        }
    }

    /// Whether a place may be read for another node that asks for an object in it.
    #[must_use]
    pub fn serves(&self, place: Place, object: ObjectId) -> Serves {
        let has_moved = || place.block().is_some_and(|block| self.residency.has_moved(object, block));
        match self.holders.serves(place, object) {
            _ if self.lost.contains(place) => Serves::No,
            // Another value is there by now, and no process has to report more: the asking node would wait
            // for ever.
            Serves::NotYet if has_moved() || self.has_ended(object.owner()) => Serves::No,
            serves => serves,
        }
    }

    /// Whether a process is dead, and local processes have sent all that they had to send before they learned
    /// of that: no process gives it a block any more.
    fn has_ended(&self, owner: WorkerId) -> bool {
        if owner.node() != self.id() {
            return self.settling.has_answered(owner);
        }
        !self.clients.contains_key(&owner) && !self.settling.is_open(owner)
    }

    /// A block is about to be read for another node: if that is allowed, the block stays as it is until
    /// [`Self::end_serving`].
    pub fn begin_serving(&mut self, block: BlockId, object: ObjectId) -> Serves {
        let serves = self.serves(block.into(), object);
        if serves == Serves::Yes {
            self.holders.keep(block.into());
        }
        serves
    }

    /// The read for the other node is over.
    pub fn end_serving(&mut self, block: BlockId, out: &mut NodeActions) {
        self.let_go(block.into(), out);
    }

    /// A block goes to the process that owns the object in it, here or at another node.
    pub(in crate::node) fn on_give_block(&mut self, from: WorkerId, give: &GiveBlock, out: &mut NodeActions) {
        let GiveBlock { block, owner, object } = *give;
        let (here, place) = (self.id(), Place::from(block));
        if self.is_elsewhere(owner) {
            self.on_watch(owner, out);
        }
        // Of processes of other nodes nothing is known until the control service says so.
        let is_dead = |process: WorkerId| {
            let is_here = process.node() == here;
            let is_dead_elsewhere = || self.watches.is_with_node(process) || self.settling.knows(process);
            (is_here && !self.clients.contains_key(&process)) || (!is_here && is_dead_elsewhere())
        };
        if self.holders.give(place, from, owner, &is_dead) {
            return self.free_place(place, out);
        }
        if let Some(object) = object {
            self.holders.set_object(place, object);
        }
        if owner.node() != here && self.lost.contains(place) {
            // The block was lost before this node knew that the owner has to be told.
            self.notify_remote_holders(&[block], out);
        }
        if let Some((giver, receiver)) = self.holders.last_given(place)
            && giver != from
            && is_dead(giver)
            && !self.is_asked_later(receiver, giver)
        {
            self.ask_receiver(receiver, giver, &[place], out);
        }
        self.retry_home_pulls(out);
    }

    /// A local process is dead: the receivers of its blocks may not have learned of them.
    pub(in crate::node) fn ask_receivers(&mut self, giver: WorkerId, out: &mut NodeActions) {
        for (receiver, places) in self.holders.given_by(giver) {
            if !self.is_elsewhere(receiver) {
                self.ask_receiver(receiver, giver, &places, out);
            }
        }
    }

    /// The same for receivers at other nodes: they have read by now what the giver had sent to them, because
    /// its death is settled.
    pub(in crate::node) fn ask_receivers_elsewhere(&mut self, giver: WorkerId, out: &mut NodeActions) {
        if giver.node() != self.id() {
            return;
        }
        for (receiver, places) in self.holders.given_by(giver) {
            if self.is_elsewhere(receiver) {
                self.ask_receiver(receiver, giver, &places, out);
            }
        }
    }

    /// Whether a receiver at another node may not have read yet what a dead local giver had sent to it: it is
    /// asked with all that it was given when that death is settled.
    fn is_asked_later(&self, receiver: WorkerId, giver: WorkerId) -> bool {
        self.is_elsewhere(receiver) && self.settling.is_open(giver)
    }

    fn ask_receiver(&self, receiver: WorkerId, giver: WorkerId, places: &[Place], out: &mut NodeActions) {
        let question = GivenBlocks { giver, places: places.to_vec() };
        if self.is_elsewhere(receiver) {
            let message = Box::new(question.into());
            out.push(NodeAction::Route { from: address(self.id()), to: receiver, message });
        } else {
            out.push(send(receiver, question));
        }
    }

    /// A process does not know blocks that a dead process had given to it: blocks of the dead process's node.
    pub(in crate::node) fn on_unknown_blocks(
        &mut self,
        from: WorkerId,
        answer: UnknownBlocks,
        out: &mut NodeActions,
    ) {
        if self.is_elsewhere(answer.giver) {
            let to = address(answer.giver.node());
            return out.push(NodeAction::Route { from, to, message: Box::new(answer.into()) });
        }
        for place in answer.places {
            if self.holders.disown(place, answer.giver, from) {
                self.free_place(place, out);
            }
        }
        self.retry_home_pulls(out);
    }

    pub(in crate::node) fn on_free_blocks(
        &mut self,
        from: WorkerId,
        free: &FreeBlocks,
        out: &mut NodeActions,
    ) {
        for &place in &free.places {
            self.draining.on_given_back(from, place);
            if self.holders.release(place, from) {
                self.free_place(place, out);
            }
        }
        self.retry_home_pulls(out);
    }

    /// A client gives blocks of another node back.
    pub(in crate::node) fn on_free_at(&mut self, from: WorkerId, free: FreeAt, out: &mut NodeActions) {
        if free.node == self.id() {
            // Places of spilled values.
            return self.on_free_blocks(from, &FreeBlocks { places: free.places }, out);
        }
        let mut wanted = Vec::new();
        self.pulls.on_given_up(from, free.node, &free.places, &mut wanted);
        self.perform(wanted, out);
        let message = Box::new(FreeBlocks { places: free.places }.into());
        out.push(NodeAction::Route { from, to: address(free.node), message });
    }

    /// The contents of blocks are lost: holders on other nodes are told.
    pub(in crate::node) fn notify_remote_holders(&self, lost: &[BlockId], out: &mut NodeActions) {
        let node = self.id();
        for block in lost {
            for holder in self.holders.of((*block).into()).iter().filter(|holder| holder.node() != node) {
                let message = Box::new(LostAt { node, blocks: vec![*block] }.into());
                out.push(NodeAction::Route { from: address(node), to: *holder, message });
            }
        }
    }
}

/// A node as sender or receiver of a message: the id before those of its processes.
pub(in crate::node) fn address(node: NodeId) -> WorkerId {
    WorkerId(node.0)
}
