//! Pulls whose senders the owner of the object names, and copies that the owner counts on
//! (`docs/adr/0026-broadcast-chains-at-the-owner.md`).
//!
//! The owner is asked when there is a block: from then on it may send other nodes here. It names a sender,
//! and later perhaps another; the stream goes on where the last one was, as long as the bytes are of the same
//! generation. A sender that does not have the rest is reported, and the local bytes stay. A copy that no
//! local process needs any more stays until the owner says that no node pulls from it.

use sooner_wire::message::Located;
use sooner_wire::{BlockId, FetchAttempt, NodeId, ObjectId, TransferAttempt, WorkerId};

use super::{Copy, Open, PullAction, Pulls, Requester, State};

/// What the owner has said of a pull or a copy.
#[derive(Debug, Default)]
pub(super) struct Directed {
    /// Its latest message that holds, if one does.
    attempt: Option<TransferAttempt>,
    /// The owner was asked, and has not answered: it may count on the copy already.
    is_asked: bool,
    /// Which execution the local bytes are of; zero: there are none.
    generation: u64,
    is_copy: bool,
    /// The owner was asked whether the copy may go.
    is_leaving: bool,
    /// The session with the owner's node ended: what the owner has said since may be lost, for instance that
    /// it does not know the copy any more.
    is_doubtful: bool,
    /// The owner has no room for another copy in its table: the bytes come from the place that it named, or
    /// not at all.
    is_alone: bool,
}

impl Directed {
    /// The owner is asked for a sender.
    pub(super) fn ask(&mut self, object: ObjectId) -> PullAction {
        self.is_asked = true;
        PullAction::Locate(object)
    }

    /// Whether other nodes may be sent here.
    fn is_counted_on(&self) -> bool {
        self.attempt.is_some() || self.is_asked
    }

    /// Whether the owner knows of the copy, and will say when the value goes.
    pub(super) fn is_known(&self) -> bool {
        self.attempt.is_some() && !self.is_asked && !self.is_leaving && !self.is_doubtful
    }

    /// Whether the bytes are of this execution.
    pub(super) fn is_of(&self, generation: u64) -> bool {
        self.generation == generation
    }

    /// The copy is the owner's: the owner need not be asked any more when it goes. True if this node was
    /// holding it until the owner's answer.
    pub(super) fn take_for_owner(&mut self) -> bool {
        (self.attempt, self.is_asked) = (None, false);
        std::mem::take(&mut self.is_leaving)
    }

    /// The owner is asked whether the copy may go.
    pub(super) fn leave(&mut self, object: ObjectId) -> PullAction {
        self.is_leaving = true;
        PullAction::Leave(object)
    }

    /// Whether the bytes come from a node that pulled them.
    pub(super) fn is_from_copy(&self) -> bool {
        self.is_copy
    }

    /// The generation that the sender is asked for, if it has a copy.
    pub(super) fn of_copy(&self) -> Option<u64> {
        self.is_copy.then_some(self.generation)
    }

    pub(super) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// The copy is complete. True if this node goes on holding it for other nodes alone.
    pub(super) fn stays(&mut self, is_wanted: bool) -> bool {
        self.is_leaving &= !is_wanted;
        self.is_leaving
    }

    pub(super) fn made(&self, object: ObjectId) -> Option<PullAction> {
        self.attempt.map(|attempt| PullAction::Made { object, attempt })
    }

    pub(super) fn failed(&self, object: ObjectId) -> Option<PullAction> {
        self.attempt.map(|attempt| PullAction::SenderFailed { object, attempt })
    }
}

/// Where a copy is that another node asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyAt {
    /// The whole copy is in this block.
    Here(BlockId),
    /// The copy is being written to this block by this stream.
    Moving {
        /// The block.
        block: BlockId,
        /// The stream.
        attempt: FetchAttempt,
    },
    /// The copy is about to come.
    NotYet,
    /// There is no copy of that generation.
    No,
}

impl Pulls {
    /// From now on owners are asked for senders.
    pub fn ask_owners(&mut self) {
        self.asks_owners = true;
    }

    /// The owner of an object names a sender, or none.
    pub fn on_located(&mut self, located: &Located, out: &mut Vec<PullAction>) {
        let Located { object, sender, generation, attempt, .. } = *located;
        if self.here.contains_key(&object) {
            return self.offer(located, out);
        }
        let next = self.next_attempt();
        let Some(open) = self.open.get_mut(&object) else {
            // No process that asked for it is left.
            return out.extend(attempt.is_some().then_some(PullAction::Leave(object)));
        };
        let Some(directed) = &mut open.directed else { return };
        directed.is_asked = false;
        let (block, at, after) = match open.state {
            // The answer is for an earlier pull; this one asks when there is a block, if it comes to that.
            State::Waiting { .. } | State::Allocating => {
                return out.extend(attempt.is_some().then_some(PullAction::Leave(object)));
            }
            State::Asking { block, at } => (block, at, None),
            State::Moving { block, at, attempt } => (block, at, Some(attempt)),
        };
        if attempt.is_some() && attempt <= directed.attempt {
            return;
        }
        let Some(sender) = sender else {
            out.extend(after.map(|attempt| PullAction::Stop { object, attempt }));
            out.push(PullAction::Free(block));
            return self.give_up(object, None, out);
        };
        let is_begun = at > 0 || after.is_some();
        let goes_on = !is_begun || generation == directed.generation;
        if !goes_on || sender.location.length != open.remote.location.length {
            return self.begin_anew(located, out);
        }
        open.remote = sender;
        let (is_copy, is_alone) = (located.is_copy, attempt.is_none());
        *directed = Directed { attempt, generation, is_copy, is_alone, ..*directed };
        open.state = State::Moving { block, at, attempt: next };
        out.push(open.fetch(object, after));
    }

    /// The owner says that no node counts on the local copy.
    pub fn on_drop(&mut self, object: ObjectId, out: &mut Vec<PullAction>) {
        let is_directed = self.here.get(&object).is_some_and(|copy| copy.directed.is_some());
        let was_cached = is_directed && self.uncache(object);
        if let Some(Copy { block, directed: Some(directed), .. }) = self.here.get_mut(&object) {
            directed.attempt = None;
            if std::mem::take(&mut directed.is_leaving) || was_cached {
                out.push(PullAction::Release(*block));
            }
            return;
        }
        let Some(open) = self.open.get_mut(&object) else { return };
        let Some(directed) = &mut open.directed else { return };
        directed.is_leaving = false;
        directed.attempt = None;
        if matches!(open.state, State::Waiting { .. } | State::Allocating) {
            return;
        }
        if open.askers.is_empty() {
            self.cancel(object, out);
            return self.admit(out);
        }
        // The stream may as well go on until the owner names another sender.
        out.push(directed.ask(object));
    }

    /// Messages to and from the owners at a node may be lost: this node sends its messages and questions
    /// again. Owners ignore what they know already.
    pub fn on_messages_lost(&mut self, node: NodeId, out: &mut Vec<PullAction>) {
        let is_there = |object: &ObjectId| object.owner().node() == node;
        // A message that the value is gone may be lost.
        let cached: Vec<ObjectId> = self.cached.values().filter(|object| is_there(object)).copied().collect();
        for object in cached {
            let directed = self.here.get_mut(&object).and_then(|copy| copy.directed.as_mut());
            if let Some(directed) = directed {
                directed.is_leaving = true;
                self.uncache(object);
            }
        }
        for (object, copy) in self.here.iter_mut().filter(|(object, _)| is_there(object)) {
            let Some(directed) = &mut copy.directed else { continue };
            directed.is_doubtful = true;
            out.extend(directed.made(*object));
            // A question that was not answered before all bytes came is taken back.
            let is_open = std::mem::take(&mut directed.is_asked) && directed.attempt.is_none();
            out.extend((directed.is_leaving || is_open).then_some(PullAction::Leave(*object)));
        }
        for (object, open) in self.open.iter_mut().filter(|(object, _)| is_there(object)) {
            let Some(directed) = &mut open.directed else { continue };
            match open.state {
                State::Waiting { .. } | State::Allocating => continue,
                State::Asking { .. } => out.extend(directed.failed(*object)),
                State::Moving { .. } => {}
            }
            directed.is_leaving = open.askers.is_empty();
            // Also if no local process wants it: other nodes may wait for what comes from the named sender.
            out.push(directed.ask(*object));
            out.extend(directed.is_leaving.then_some(PullAction::Leave(*object)));
        }
    }

    /// The owner of objects is dead: no sender is named any more, and no copy is counted on.
    pub fn on_owner_dead(&mut self, owner: WorkerId, out: &mut Vec<PullAction>) {
        self.end_owners(|object| object.owner() == owner, out);
    }

    /// The same for all processes of a node.
    pub fn on_owners_dead(&mut self, node: NodeId, out: &mut Vec<PullAction>) {
        self.end_owners(|object| object.owner().node() == node, out);
    }

    fn end_owners(&mut self, is_hit: impl Fn(&ObjectId) -> bool, out: &mut Vec<PullAction>) {
        for (_, copy) in self.here.iter_mut().filter(|(object, _)| is_hit(object)) {
            let Some(directed) = copy.directed.take() else { continue };
            let age = copy.cached.take();
            age.map(|age| self.cached.remove(&age));
            if directed.is_leaving || age.is_some() {
                out.push(PullAction::Release(copy.block));
            }
        }
        let is_open = |object: &ObjectId, open: &Open| open.directed.is_some() && is_hit(object);
        let hit: Vec<ObjectId> = self
            .open
            .iter()
            .filter(|(object, open)| is_open(object, open))
            .map(|(object, _)| *object)
            .collect();
        for object in hit {
            let askers = std::mem::take(&mut self.open[&object].askers);
            let not_there =
                |asker: Requester| PullAction::NotThere { to: asker.process, object, tried: None };
            out.extend(askers.into_iter().map(not_there));
            if !matches!(self.open[&object].state, State::Allocating) {
                self.cancel(object, out);
            }
        }
        self.admit(out);
    }

    /// No local process holds a block any more. If the copy in it may be needed again, or its owner counts on
    /// it, this node is to hold it until that is over: then true, and in the latter case the owner is asked.
    pub fn keeps(&mut self, block: BlockId, may_cache: bool, out: &mut Vec<PullAction>) -> bool {
        let Some(object) = self.objects.get(&block).copied() else { return false };
        if may_cache && self.cache(object, out) {
            return true;
        }
        let Some(Copy { directed: Some(directed), .. }) = self.here.get_mut(&object) else { return false };
        if !directed.is_counted_on() || std::mem::replace(&mut directed.is_leaving, true) {
            return false;
        }
        // The owner's answer to this comes after its answer to the earlier question, if any.
        directed.is_asked = false;
        out.extend([PullAction::Hold(block), PullAction::Leave(object)]);
        true
    }

    /// Bytes of copies that go as soon as their owners say that no node pulls from them.
    #[must_use]
    pub fn leaving_bytes(&self) -> u64 {
        let leaves = |copy: &&Copy| copy.directed.as_ref().is_some_and(|directed| directed.is_leaving);
        self.here.values().filter(leaves).map(|copy| copy.length).sum()
    }

    /// Where the copy of a generation is, which has `length` bytes, for a node that was sent here.
    #[must_use]
    pub fn copy_at(&self, object: ObjectId, generation: u64, length: u64) -> CopyAt {
        let is_of_it = |directed: &Option<Directed>, bytes: u64| {
            bytes == length && directed.as_ref().is_some_and(|directed| directed.generation == generation)
        };
        if let Some(Copy { block, length: bytes, directed, .. }) = self.here.get(&object) {
            let is_it = is_of_it(directed, *bytes);
            return if is_it { CopyAt::Here(*block) } else { CopyAt::No };
        }
        match self.open.get(&object) {
            Some(Open { state: State::Moving { block, attempt, .. }, directed, remote, .. })
                if is_of_it(directed, remote.location.length) =>
            {
                CopyAt::Moving { block: *block, attempt: *attempt }
            }
            // The other node was sent here because this node asked; the answer to this node may be on its
            // way.
            Some(Open { directed: Some(_), .. }) => CopyAt::NotYet,
            Some(_) | None => CopyAt::No,
        }
    }

    /// No local process waits for an object any more, but other nodes may pull its local bytes. False if the
    /// owner does not know of this pull.
    pub(super) fn ask_to_leave(&mut self, object: ObjectId, out: &mut Vec<PullAction>) -> bool {
        let open = &mut self.open[&object];
        let Some(directed) = &mut open.directed else { return false };
        let is_known = matches!(open.state, State::Asking { .. } | State::Moving { .. });
        if is_known && !std::mem::replace(&mut directed.is_leaving, true) {
            out.push(PullAction::Leave(object));
        }
        is_known
    }

    /// The owner names a sender for a copy that is complete: it may count on the copy, or must not.
    fn offer(&mut self, located: &Located, out: &mut Vec<PullAction>) {
        let Located { object, generation, attempt, .. } = *located;
        let Some(Copy { directed, .. }) = self.here.get_mut(&object) else { return };
        if let Some(directed) = directed {
            directed.is_asked = false;
        }
        if located.sender.is_none() {
            // The value is gone, or was made again at this node, before the owner learned that all bytes had
            // come: the owner does not know of the copy, and would not say when it may go.
            return self.on_drop(object, out);
        }
        match directed {
            Some(directed) if directed.generation == generation && attempt > directed.attempt => {
                (directed.attempt, directed.is_doubtful) = (attempt, false);
                out.extend(directed.made(object));
            }
            Some(directed) if directed.generation == generation => {}
            Some(_) | None => out.extend(attempt.is_some().then_some(PullAction::Leave(object))),
        }
    }

    /// The local bytes of an object are worth nothing: the value was made again. Others may still be reading
    /// them, so the pull gets another block.
    fn begin_anew(&mut self, located: &Located, out: &mut Vec<PullAction>) {
        let Some(sender) = located.sender else { return };
        let object = located.object;
        let open = &mut self.open[&object];
        let before = open.remote.location.length;
        let block = match open.state {
            State::Moving { block, attempt, .. } => {
                out.push(PullAction::Stop { object, attempt });
                block
            }
            State::Asking { block, .. } => block,
            State::Waiting { .. } | State::Allocating => return,
        };
        // No node may count on the old bytes; if the value is still wanted, the owner is asked anew.
        out.extend([PullAction::Free(block), PullAction::Leave(object)]);
        open.remote = sender;
        open.directed = Some(Directed::default());
        open.state = State::Waiting { again: None };
        self.in_flight -= before;
        if self.open[&object].askers.is_empty() {
            self.close(object);
        }
        self.admit(out);
    }
}
