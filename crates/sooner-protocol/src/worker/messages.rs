//! Messages to the core, each passed to the handler of its noun.

use sooner_wire::message::{LeaseGranted, Message, Place, ReadersOf, ReturnLease, StillRead};
use sooner_wire::{BlockId, WorkerId};

use super::WorkerCore;
use super::action::{Actions, Peer, send};
use crate::probes::{bug, mark};
use crate::time::Instant;

impl WorkerCore {
    /// Handles a message. Gives back what is for the shell: answers to the shell's own questions; questions
    /// about blocks, of which the shell has some without a value (`GivenBlocks`; `ReadersOf`:
    /// [`Self::on_readers_of`]); and the order to end, if this process is not needed.
    pub fn on_message(
        &mut self,
        from: Peer,
        message: Message,
        now: Instant,
        out: &mut Actions,
    ) -> Option<Message> {
        self.now = now;
        let other = match (message, from) {
            (Message::Push(push), _) => {
                self.on_push(from, push, out);
                None
            }
            (Message::Define(define), _) => {
                self.define(define);
                None
            }
            // The node registers the process to which it gives an actor's state.
            (Message::AddBorrow(add), _) => {
                let giver = if let Peer::Worker(giver) = from { giver } else { self.me };
                self.ownership.on_add_borrow(add.object, add.borrower, giver, out);
                None
            }
            (Message::GivenBlocks(mut question), Peer::Node) if question.giver.node() == self.me.node() => {
                // The shell knows of blocks without a value: those being written, or kept for reuse.
                question.places.retain(|place| !self.ownership.knows_block(*place));
                return (!question.places.is_empty()).then(|| question.into());
            }
            (Message::GroupState(state), Peer::Node) => return self.on_group_state(state, out),
            (message, Peer::Worker(worker)) => self.on_message_of_process(worker, message, now, out),
            (message, Peer::Node) => self.on_message_of_node(message, now, out),
        };
        self.run_unblocked(out);
        if other.is_none() {
            self.end_need(out);
        }
        other
    }

    /// Handles a message of another process. Gives back what is for the shell.
    fn on_message_of_process(
        &mut self,
        worker: WorkerId,
        message: Message,
        now: Instant,
        out: &mut Actions,
    ) -> Option<Message> {
        match message {
            Message::Reply(reply) => self.on_reply(worker, reply, now, out),
            Message::TasksReturned(returned) => self.on_returned(worker, &returned, out),
            Message::Item(item) => self.on_item(worker, item, out),
            Message::ItemsTaken(taken) => {
                self.execution.on_items_taken(taken.task, taken.taken, taken.stop);
            }
            Message::Retired(_) => {
                self.leases.on_worker_retired(worker);
                self.leases.return_leases(now, out);
            }
            Message::CancelTask(cancel) => self.on_cancel(worker, &cancel, out),
            Message::Fetch(fetch) => self.on_fetch(&fetch, worker, out),
            Message::Value(value) => {
                self.ownership.receive(&value.contained, worker);
                self.resolve(value.object, value.outcome, &value.contained, out);
            }
            Message::RemoveBorrow(remove) => self.ownership.on_remove_borrow(worker, &remove, out),
            Message::Replayed(_) => self.execution.on_replayed(worker),
            other => return Some(other),
        }
        None
    }

    /// Handles a message of, or through, the node. Gives back what is for the shell.
    fn on_message_of_node(&mut self, message: Message, now: Instant, out: &mut Actions) -> Option<Message> {
        match message {
            // Otherwise the shell ends.
            Message::EndIdle(_) if self.is_needed() => self.refuse_to_end(out),
            Message::LeaseGranted(grant) => self.on_granted(grant, now, out),
            Message::ReclaimLease(reclaim) => {
                self.leases.on_reclaim(&reclaim);
                self.leases.return_leases(now, out);
            }
            Message::WorkerDead(gone) => self.on_worker_dead(&gone, out),
            Message::Settled(settled) => self.on_settled(&settled, out),
            Message::ActorStarted(started) => self.on_actor_started(&started, out),
            Message::ActorRestarting(restarting) => self.on_actor_restarting(&restarting, out),
            Message::ActorDead(dead) => self.on_actor_dead(dead.actor, dead.failure, out),
            Message::Checkpointed(done) => self.on_checkpointed(&done, out),
            Message::Restore(restore) => self.on_restore(restore, out),
            Message::KeepObjects(keep) => self.on_keep_objects(keep, out),
            Message::Pulled(pulled) => {
                self.on_pulled(pulled, out);
                self.ask_to_resume(out);
            }
            Message::Resumed(resumed) => self.on_resumed(resumed, out),
            word @ (Message::Locate(_)
            | Message::CopyMade(_)
            | Message::CopyLeaving(_)
            | Message::SenderFailed(_)) => self.on_copies(&word, out),
            Message::Promoted(answer) => self.on_promoted(&answer, out),
            Message::NodeDead(gone) => self.on_node_dead(gone.node, out),
            Message::LostAt(lost) => self.on_lost_at(&lost, out),
            Message::HandOver(hand) => self.ownership.on_hand_over(hand.node, hand.places, out),
            Message::Relinquish(wanted) => self.on_relinquish(&wanted, out),
            Message::BlocksLost(lost) => self.on_blocks_lost(&lost.blocks, out),
            Message::ForgetLost(question) => {
                self.ownership.forget_lost(&question.blocks);
                let answer = StillRead { round: question.round, places: Vec::new(), lent: None };
                send(out, Peer::Node, answer);
            }
            // Those about this node's blocks are answered above.
            Message::GivenBlocks(question) => self.on_given_elsewhere(question, out),
            Message::Infeasible(what) => self.on_infeasible(what, out),
            other => return Some(other),
        }
        None
    }

    /// The node asks who reads blocks whose holder is dead. `is_kept`: the shell has the block without a
    /// value, for writing or reuse. The dead process may have given the block to this one without having told
    /// the node.
    pub fn on_readers_of(
        &mut self,
        question: ReadersOf,
        is_kept: impl Fn(BlockId) -> bool,
        out: &mut Actions,
    ) {
        let is_kept = |place: &Place| place.block().is_some_and(&is_kept);
        let mut places: Vec<Place> = question.places.iter().copied().filter(is_kept).collect();
        if !places.is_empty() {
            mark!("a block whose giver was gone before it told the node was kept for reuse");
        }
        let read = self.ownership.inherit(&question.places);
        places.extend(read.into_iter().filter(|place| !is_kept(place)));
        let places = if bug!(BlockOfDeadOwnerFreed) { Vec::new() } else { places };
        let lent = Some(self.ownership.orphans_met());
        send(out, Peer::Node, StillRead { round: question.round, places, lent });
    }

    pub(super) fn on_granted(&mut self, grant: LeaseGranted, now: Instant, out: &mut Actions) {
        let (shape, worker) = (grant.shape, grant.worker);
        if self.leases.described(shape).is_none() {
            // This process did not ask for that shape.
            return send(out, Peer::Node, ReturnLease { lease: grant.lease });
        }
        self.leases.on_granted(grant, now);
        if self.is_line_full(worker) {
            self.leases.set_held(worker, true);
        }
        self.dispatch(shape, out);
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::message::{Closed, Failure, FailureCode, Infeasible};
    use sooner_wire::{LeaseId, ResourceSet, ShapeId};

    use super::*;
    use crate::worker::testing::{HERE, core};

    const UNKNOWN: ShapeId = ShapeId(77);

    fn told(message: impl Into<Message>) -> Actions {
        let (mut core, mut out) = (core().0, Actions::new());
        assert_eq!(core.on_message(Peer::Node, message.into(), Instant(1), &mut out), None);
        core.check();
        out
    }

    #[test]
    fn a_lease_of_a_shape_that_is_not_known_goes_back() {
        let grant = LeaseGranted { shape: UNKNOWN, lease: LeaseId(4), worker: HERE, gpus: Vec::new() };
        let mut expected = Actions::new();
        send(&mut expected, Peer::Node, ReturnLease { lease: LeaseId(4) });
        assert_eq!(told(grant), expected);
    }

    #[test]
    fn a_shape_that_is_not_known_can_be_closed() {
        let closed =
            Closed { shape: UNKNOWN, failure: Failure::new(FailureCode::ObjectLost, "gone"), for_now: None };
        let (asked, total) = (ResourceSet::default(), ResourceSet::default());
        told(Infeasible { asked, total, closed: Some(Box::new(closed)), reason: None });
    }
}
