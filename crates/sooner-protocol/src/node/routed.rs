//! What comes over the links of other nodes: who may say what to whom, and what becomes of it.
//!
//! | kind | from | to |
//! |---|---|---|
//! | `FreeBlocks`, `UnknownBlocks`, `HandedOver`, `Relinquished`, `Inspected` | a process of that node | this node |
//! | `Located`, `DropCopy`, `Promote` | the owner of the object | this node |
//! | `Locate`, `CopyMade`, `CopyGone`, `SenderFailed`, `Promoted` | that node | the owner of the object |
//! | `GivenBlocks`, `LostAt`, `HandOver`, `Relinquish` | that node | a process here; one that is gone needs no word of what it held |
//! | `Watch`, `LoseBlocks`, leases, lines of jobs, questions about state | that node | this node |
//!
//! For anything else the link is cut: whoever says it is not a node of this cluster, or is broken. That a node speaks for
//! its own processes only is checked here, too. Deaths and how they are settled come from the control service alone.

use sooner_wire::message::{JobState, Message};
use sooner_wire::{NodeId, ObjectId, WorkerId};

use super::values::directions::{direction_of, word_of};
use super::values::transfers::address;
use super::{NodeAction, NodeActions, NodeCore};
use crate::time::Instant;
use crate::uplink::wire::Misplaced;

/// Who is meant by a sender or a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Party {
    Node,
    Process,
}

fn party(id: WorkerId, node: NodeId) -> Result<Party, Misplaced> {
    if id.node() != node {
        return Err(Misplaced("it speaks for, or to, another node than the two of the link"));
    }
    Ok(if id == address(node) { Party::Node } else { Party::Process })
}

/// Owners are spoken with about their own values, and about copies of the node that is spoken with.
fn is_of_copy(said: Option<(ObjectId, NodeId)>, owner: WorkerId, node: NodeId) -> Result<(), Misplaced> {
    match said {
        Some((object, of)) if object.owner() == owner && of == node => Ok(()),
        _ => Err(Misplaced("it is about another process's value, or about a copy of another node")),
    }
}

impl NodeCore {
    /// Whether node `link` may say that.
    ///
    /// # Errors
    /// [`Misplaced`]: it may not.
    pub fn check_routed(
        &self,
        link: NodeId,
        from: WorkerId,
        to: WorkerId,
        message: &Message,
    ) -> Result<(), Misplaced> {
        let parties = (party(from, link)?, party(to, self.id())?);
        let speaks_for = |client: WorkerId| match client.node() == link && client != address(link) {
            true => Ok(()),
            false => Err(Misplaced("it asks for a process that is not its own")),
        };
        let (expected, is_its_own) = match message {
            Message::FreeBlocks(_) | Message::UnknownBlocks(_) => ((Party::Process, Party::Node), Ok(())),
            Message::HandedOver(done) if done.node != self.id() => {
                return Err(Misplaced("it answers for blocks of another node"));
            }
            Message::HandedOver(_) => ((Party::Process, Party::Node), Ok(())),
            Message::Relinquished(answer) if answer.node != Some(self.id()) => {
                return Err(Misplaced("it gives up blocks of another node"));
            }
            Message::Relinquished(_) => ((Party::Process, Party::Node), Ok(())),
            Message::Relinquish(wanted) if wanted.node != Some(link) => {
                return Err(Misplaced("it asks for blocks of another node"));
            }
            Message::Relinquish(_) => ((Party::Node, Party::Process), Ok(())),
            Message::GivenBlocks(_) => ((Party::Node, Party::Process), Ok(())),
            Message::LostAt(lost) if lost.node != link => {
                return Err(Misplaced("it says of another node's blocks that they are lost"));
            }
            Message::HandOver(hand) if hand.node != link => {
                return Err(Misplaced("it hands over blocks of another node"));
            }
            Message::LostAt(_) | Message::HandOver(_) => ((Party::Node, Party::Process), Ok(())),
            Message::Located(_) | Message::DropCopy(_) | Message::Promote(_) => {
                let is_its_own = is_of_copy(direction_of(message), from, self.id());
                ((Party::Process, Party::Node), is_its_own)
            }
            Message::Locate(_)
            | Message::CopyMade(_)
            | Message::CopyGone(_)
            | Message::SenderFailed(_)
            | Message::Promoted(_) => ((Party::Node, Party::Process), is_of_copy(word_of(message), to, link)),
            Message::LeaseAt(ask) => ((Party::Node, Party::Node), speaks_for(ask.client)),
            Message::LeaseGrantedAt(granted) => ((Party::Node, Party::Node), speaks_for(granted.worker)),
            Message::Watch(_)
            | Message::LoseBlocks(_)
            | Message::LeaseRefused(_)
            | Message::ReturnLeaseAt(_)
            | Message::ReclaimLeaseAt(_)
            | Message::LogLines(_)
            | Message::LinesTaken(_)
            | Message::Inspect(_)
            | Message::InspectEnd(_) => ((Party::Node, Party::Node), Ok(())),
            // While there is no control service that could say what a job needs.
            Message::Job(job) => {
                let is_right = match job.state {
                    JobState::Asked => job.job.node() == self.id(),
                    JobState::Started => job.job.node() == link && job.config.is_some(),
                    _ => false,
                };
                let wrong = Misplaced("it speaks of a job that is not one of its drivers'");
                ((Party::Node, Party::Node), is_right.then_some(()).ok_or(wrong))
            }
            Message::Inspected(answer) if answer.worker != from => {
                return Err(Misplaced("it tells of another process than the one that answers"));
            }
            Message::Inspected(_) => ((Party::Process, Party::Node), Ok(())),
            _ => return Err(Misplaced("nodes do not say that to each other")),
        };
        if parties != expected {
            return Err(Misplaced("it is said by, or to, a node instead of a process, or the reverse"));
        }
        is_its_own
    }

    /// Something came from another node or a process there, for this node or a process here. What is the shell's comes back.
    ///
    /// # Errors
    /// [`Misplaced`]: nobody there says that. The link is to be cut.
    pub fn on_routed(
        &mut self,
        from: WorkerId,
        to: WorkerId,
        message: Message,
        now: Instant,
        out: &mut NodeActions,
    ) -> Result<Option<Message>, Misplaced> {
        self.check_routed(from.node(), from, to, &message)?;
        match message {
            Message::FreeBlocks(free) => self.on_free_blocks(from, &free, out),
            Message::HandedOver(done) => self.on_handed_over(from, &done),
            Message::Relinquished(answer) => self.on_relinquished(from, &answer, out),
            Message::UnknownBlocks(unknown) => self.on_unknown_blocks(from, unknown, out),
            Message::LoseBlocks(lose) => self.lose_blocks(&lose.offsets, out),
            Message::LeaseAt(ask) => self.on_lease_at(ask, out),
            Message::LeaseGrantedAt(granted) => self.on_lease_granted_at(granted, out),
            Message::LeaseRefused(refused) => self.on_lease_refused(from.node(), &refused),
            Message::ReturnLeaseAt(returned) => self.on_return_at(from.node(), returned, now, out),
            Message::ReclaimLeaseAt(reclaim) => self.on_reclaim_at(from.node(), reclaim, out),
            Message::Watch(watch) => self.on_watch_from(from.node(), watch.worker, out),
            Message::Promote(promote) => self.on_promote(from, promote, out),
            Message::Promoted(answer) => self.on_promoted(to, answer, out),
            message @ (Message::Located(_) | Message::DropCopy(_)) => self.on_directed(message, out),
            message @ (Message::GivenBlocks(_)
            | Message::LostAt(_)
            | Message::HandOver(_)
            | Message::Relinquish(_)
            | Message::Locate(_)
            | Message::CopyMade(_)
            | Message::CopyGone(_)
            | Message::SenderFailed(_)) => {
                if self.clients.contains_key(&to) {
                    out.push(NodeAction::Send(to, Box::new(message)));
                }
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::message::{
        CopyGone, CopyMade, DropCopy, FreeBlocks, GivenBlocks, LeaseAt, Locate, Located, LostAt, Promote,
        Promoted, Relinquish, Relinquished, ReturnLeaseAt, Routed, SenderFailed, Sever, Shutdown,
        UnknownBlocks, Watch, WorkerGone,
    };
    use sooner_wire::{LeaseId, ResourceSet, ShapeId, TaskId};

    use super::*;

    const HERE: NodeId = NodeId(1 << 24);
    const THERE: NodeId = NodeId(2 << 24);
    const LOCAL: WorkerId = WorkerId(HERE.0 + 1);
    const FAR: WorkerId = WorkerId(THERE.0 + 1);

    fn node() -> NodeCore {
        let mut node = NodeCore::new(ResourceSet::default(), HERE.0, 0);
        node.join_cluster();
        node.on_connected(LOCAL, 1, Instant(0));
        node
    }

    fn lost(node: NodeId) -> LostAt {
        LostAt { node, offsets: vec![64] }
    }

    fn ask(client: WorkerId) -> LeaseAt {
        let resources = ResourceSet::default();
        LeaseAt {
            client,
            job: client,
            shape: ShapeId(1),
            resources,
            demand: 1,
            strategy: None,
            priority: None,
            raises_memory: None,
        }
    }

    #[test]
    fn who_may_say_what() {
        let (here, there) = (address(HERE), address(THERE));
        let freed = || FreeBlocks { offsets: vec![64] }.into();
        let unknown = || UnknownBlocks { giver: LOCAL, offsets: vec![64] }.into();
        let given = || GivenBlocks { giver: FAR, offsets: vec![64] }.into();
        let returned = || ReturnLeaseAt { lease: LeaseId(1) }.into();
        let of = |owner| TaskId { owner, number: 1 }.object(0);
        let locate = |owner| Locate { object: of(owner), node: THERE }.into();
        let located = |owner, node| {
            let (sender, generation, attempt, is_copy) = (None, 0, 0, false);
            Located { object: of(owner), node, sender, generation, attempt, is_copy }.into()
        };
        let (object, attempt) = (of(LOCAL), 1);
        let relinquish = |node| Relinquish { blocks: Vec::new(), gives_way: None, node, recomputes: None };
        let relinquished = |node| Relinquished { moved: Vec::new(), others: Vec::new(), node };
        let promote = |owner, node| Promote { object: of(owner), node, length: 64, generation: 1 }.into();
        let promoted = |owner, node| Promoted { object: of(owner), node, location: None }.into();
        let may: [(WorkerId, WorkerId, Message); 17] = [
            (FAR, here, promote(FAR, HERE)),
            (there, LOCAL, promoted(LOCAL, THERE)),
            (there, LOCAL, locate(LOCAL)),
            (there, LOCAL, CopyMade { object, node: THERE, attempt }.into()),
            (there, LOCAL, CopyGone { object, node: THERE }.into()),
            (there, LOCAL, SenderFailed { object, node: THERE, attempt }.into()),
            (FAR, here, located(FAR, HERE)),
            (FAR, here, DropCopy { object: of(FAR), node: HERE }.into()),
            (FAR, here, freed()),
            (FAR, here, unknown()),
            (there, LOCAL, given()),
            (there, LOCAL, relinquish(Some(THERE)).into()),
            (FAR, here, relinquished(Some(HERE)).into()),
            (there, LOCAL, lost(THERE).into()),
            (there, here, Watch { worker: LOCAL }.into()),
            (there, here, ask(FAR).into()),
            (there, here, returned()),
        ];
        let may_not: [(WorkerId, WorkerId, Message); 25] = [
            (FAR, here, Sever { worker: LOCAL, class: None }.into()),
            (FAR, here, promote(LOCAL, HERE)),
            (FAR, here, promote(FAR, THERE)),
            (there, here, promote(FAR, HERE)),
            (there, LOCAL, promoted(LOCAL, HERE)),
            (FAR, LOCAL, promoted(LOCAL, THERE)),
            (there, LOCAL, relinquish(None).into()),
            (there, LOCAL, relinquish(Some(HERE)).into()),
            (FAR, here, relinquished(None).into()),
            (there, here, relinquished(Some(HERE)).into()),
            (there, LOCAL, locate(FAR)),
            (FAR, LOCAL, locate(LOCAL)),
            (FAR, here, located(LOCAL, HERE)),
            (FAR, here, located(FAR, THERE)),
            (there, here, freed()),
            (LOCAL, here, freed()),
            (FAR, LOCAL, given()),
            (there, here, given()),
            (there, LOCAL, lost(HERE).into()),
            (there, LOCAL, lost(NodeId(3 << 24)).into()),
            (FAR, here, Watch { worker: LOCAL }.into()),
            (there, here, ask(LOCAL).into()),
            (there, here, ask(there).into()),
            (there, LOCAL, WorkerGone { worker: FAR, ..WorkerGone::default() }.into()),
            (there, LOCAL, Shutdown { reason: String::new() }.into()),
        ];
        let node = node();
        for (from, to, message) in may {
            assert!(Routed::takes(message.kind()), "it can be sent: {message:?}");
            assert_eq!(
                node.check_routed(THERE, from, to, &message),
                Ok(()),
                "{from:?} to {to:?}: {message:?}"
            );
            let elsewhere = node.check_routed(NodeId(3 << 24), from, to, &message);
            assert!(elsewhere.is_err(), "over the link of another node: {message:?}");
        }
        for (from, to, message) in may_not {
            assert!(node.check_routed(THERE, from, to, &message).is_err(), "{from:?} to {to:?}: {message:?}");
        }
    }

    #[test]
    fn what_is_for_a_process_that_is_gone_is_dropped() {
        let mut node = node();
        let mut out = NodeActions::new();
        let gone = WorkerId(HERE.0 + 7);
        assert_eq!(node.on_routed(address(THERE), gone, lost(THERE).into(), Instant(0), &mut out), Ok(None));
        assert_eq!(out, []);
    }
}
