//! Nodes that leave in order, as far as the directory is concerned: no actor begins there any more, and
//! actors that may begin anew do so elsewhere, without using up a restart, since nothing has failed.
//!
//! It never moves an actor that may not be restarted: another process would not be the same actor. That one
//! stays until its node ends; so do actors in placement groups, whose bundles stay, and those that no other
//! node can have.

use sooner_wire::message::CreateActor;
use sooner_wire::{ActorId, NodeId, Takeover};

use super::actors::{Actor, Phase};
use crate::control::{Directory, DirectoryActions};
use crate::uplink::End;

impl Directory {
    /// A node is about to leave. The caller tells the node after the actions of this call.
    pub fn on_node_drains(&mut self, node: NodeId, out: &mut DirectoryActions) {
        if !self.nodes.contains_key(&node) || !self.draining.insert(node) {
            return;
        }
        self.rows.remove(node);
        let is_there = |phase: &Phase| matches!(phase, Phase::Placed { node: at, .. } if *at == node);
        let there = self.actors.iter().filter(|(_, actor)| is_there(&actor.phase));
        for id in there.map(|(id, _)| *id).collect::<Vec<ActorId>>() {
            self.move_away(id, out);
        }
    }

    /// An actor has got a process; its node may have been told to leave meanwhile.
    pub(in crate::control) fn leave_if_draining(
        &mut self,
        id: ActorId,
        node: NodeId,
        out: &mut DirectoryActions,
    ) {
        if self.draining.contains(&node) {
            self.move_away(id, out);
        }
    }

    /// Ends an actor's process, so that it begins elsewhere, if it may and can.
    fn move_away(&mut self, id: ActorId, out: &mut DirectoryActions) {
        let may_move = self.actors.get(&id).is_some_and(Actor::may_move);
        if may_move && self.has_place_for(id) {
            let actor = self.actors.get_mut(&id).expect("it may move");
            actor.is_moving = true;
            self.end_process(id, End::Finished, out);
        }
    }

    /// A leaving node has not begun an actor that it was asked for: another node will.
    pub(in crate::control) fn on_place_given_back(
        &mut self,
        node: NodeId,
        id: ActorId,
        takeover: Takeover,
        create: Box<CreateActor>,
    ) {
        if self.recalls.is_recalled(id) {
            return self.place_anew(node, id, takeover, create);
        }
        if !self.is_placing(id, takeover, node) {
            // The actor went out of scope after it was recalled: this answers the recall, and the node may
            // well stay.
            return;
        }
        // The node may leave although no message said so: the control service was away.
        self.draining.insert(node);
        self.rows.remove(node);
        self.place_elsewhere(node, id, takeover, create);
    }

    /// A recalled actor is placed where there is room now, before those that began to wait later.
    fn place_anew(&mut self, node: NodeId, id: ActorId, takeover: Takeover, create: Box<CreateActor>) {
        let turn = self.actors.get(&id).map(|actor| actor.turn);
        self.place_elsewhere(node, id, takeover, create);
        let is_last = self.pending.back() == Some(&id);
        if let (Some(actor), Some(turn), true) = (self.actors.get_mut(&id), turn, is_last) {
            actor.turn = turn;
            self.pending.rotate_right(1);
        }
    }

    /// An actor that a node was asked for begins on another one.
    pub(in crate::control) fn place_elsewhere(
        &mut self,
        node: NodeId,
        id: ActorId,
        takeover: Takeover,
        create: Box<CreateActor>,
    ) {
        if self.is_placing(id, takeover, node) {
            self.wait(id, create);
            // A later control service must know, too, that nothing has begun on that node.
            self.record_actor(id);
        }
    }

    /// Whether this node was asked for this process of an actor, and has not answered.
    pub(in crate::control) fn is_placing(&self, id: ActorId, takeover: Takeover, node: NodeId) -> bool {
        let is_asked = |phase: &Phase| matches!(phase, Phase::Placing { node: asked } if *asked == node);
        self.actors.get(&id).is_some_and(|actor| actor.takeovers == takeover && is_asked(&actor.phase))
    }

    /// Whether an actor may begin on a node, as far as is known here.
    pub(in crate::control) fn is_open(&self, node: NodeId) -> bool {
        !self.draining.contains(&node) && !self.program_nodes.contains(&node)
    }
}
