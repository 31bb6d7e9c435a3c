//! Messages over the links of other nodes: who may send what to whom, and how each is handled.
//!
//! Which messages go between nodes, and what their senders may say in them, is in their rows
//! ([`sooner_wire::message::Row`]). For anything else the link is cut: its sender is not a node of this
//! cluster, or is broken. Deaths and how they are settled come from the control service alone.
//!
//! A dead local process needs no message about what it held, or about copies of what it owned: the message is
//! dropped.

use sooner_wire::message::{Ends, Message, Route, RouteError};
use sooner_wire::{NodeId, WorkerId};

use super::values::transfers::address;
use super::{NodeAction, NodeActions, NodeCore};
use crate::time::Instant;

/// The route of a message that came over the link of node `link` to node `me`.
fn route_between(
    (from, link): (WorkerId, NodeId),
    (to, me): (WorkerId, NodeId),
) -> Result<Route, RouteError> {
    if (from.node(), to.node()) != (link, me) {
        return Err(RouteError::Ends("it speaks for, or to, another node than the two of the link"));
    }
    match (from == address(link), to == address(me)) {
        (true, true) => Ok(Route::NodeToOtherNode),
        (true, false) => Ok(Route::NodeToOtherProcess),
        (false, true) => Ok(Route::ProcessToOtherNode),
        (false, false) => {
            Err(RouteError::Ends("processes do not speak with each other by way of their nodes"))
        }
    }
}

impl NodeCore {
    /// Whether node `link` may send that message.
    ///
    /// # Errors
    /// [`RouteError`]: it may not.
    pub fn check_routed(
        &self,
        link: NodeId,
        from: WorkerId,
        to: WorkerId,
        message: &Message,
    ) -> Result<(), RouteError> {
        let route = route_between((from, link), (to, self.id()))?;
        message.check(Ends { route, from, to })
    }

    /// A message came from another node or a process there, for this node or a local process. Messages for
    /// the shell are returned.
    ///
    /// # Errors
    /// [`RouteError`]: no sender there may send that. The link is to be cut.
    pub fn on_routed(
        &mut self,
        from: WorkerId,
        to: WorkerId,
        message: Message,
        now: Instant,
        out: &mut NodeActions,
    ) -> Result<Option<Message>, RouteError> {
        self.check_routed(from.node(), from, to, &message)?;
        match message {
            Message::FreeBlocks(free) => self.on_free_blocks(from, &free, out),
            Message::HandedOver(done) => self.on_handed_over(from, &done),
            Message::Relinquished(answer) => self.on_relinquished(from, &answer, out),
            Message::UnknownBlocks(unknown) => self.on_unknown_blocks(from, unknown, out),
            Message::LoseBlocks(lose) => self.lose_blocks(&lose.blocks, out),
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
            | Message::CopyLeaving(_)
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
        CopyLeaving, CopyMade, DropCopy, FreeBlocks, GivenBlocks, LeaseAt, Locate, Located, LostAt, Promote,
        Promoted, Relinquish, Relinquished, ReturnLeaseAt, Routed, SenderFailed, Sever, Shutdown,
        UnknownBlocks, Watch, WorkerDead,
    };
    use sooner_wire::{BlockId, LeaseId, ResourceSet, ShapeId, TaskId, TransferAttempt};

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
        LostAt { node, blocks: vec![BlockId(64)] }
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
    fn who_may_send_what() {
        let (here, there) = (address(HERE), address(THERE));
        let freed = || FreeBlocks { places: vec![BlockId(64).into()] }.into();
        let unknown = || UnknownBlocks { giver: LOCAL, places: vec![BlockId(64).into()] }.into();
        let given = || GivenBlocks { giver: FAR, places: vec![BlockId(64).into()] }.into();
        let returned = || ReturnLeaseAt { lease: LeaseId(1) }.into();
        let of = |owner| TaskId { owner, number: 1 }.object(0);
        let locate = |owner| Locate { object: of(owner), node: THERE }.into();
        let located = |owner, node| {
            let (sender, generation, attempt, is_copy) = (None, 0, None, false);
            Located { object: of(owner), node, sender, generation, attempt, is_copy }.into()
        };
        let (object, attempt) = (of(LOCAL), TransferAttempt(1));
        let relinquish = |node| Relinquish { blocks: Vec::new(), gives_way: None, node, recomputes: None };
        let relinquished = |node| Relinquished { moved: Vec::new(), others: Vec::new(), node };
        let promote = |owner, node| Promote { object: of(owner), node, length: 64, generation: 1 }.into();
        let promoted = |owner, node| Promoted { object: of(owner), node, location: None }.into();
        let may: [(WorkerId, WorkerId, Message); 17] = [
            (FAR, here, promote(FAR, HERE)),
            (there, LOCAL, promoted(LOCAL, THERE)),
            (there, LOCAL, locate(LOCAL)),
            (there, LOCAL, CopyMade { object, node: THERE, attempt }.into()),
            (there, LOCAL, CopyLeaving { object, node: THERE }.into()),
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
            (there, LOCAL, WorkerDead { worker: FAR, ..WorkerDead::default() }.into()),
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
