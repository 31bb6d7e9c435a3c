//! Which checkpoint of each actor stands, and who learns of it.
//!
//! The node of an actor's process holds the block of a state. The owners of references in the state keep
//! those objects: each is sent the list of all that it must keep ([`KeepObjects`]), also by a restarted
//! control service. Each caller learns which of its calls a checkpoint covers, and the next process is given
//! the last checkpoint that was announced: so the calls that callers still keep are exactly those that the
//! state lacks. Both messages go the same way as a restart's, and so in one order with it
//! (`docs/adr/0013-checkpointed-actors.md`).

use sooner_wire::message::{
    ActorDead, ActorsHere, AddBorrow, Checkpoint, Checkpointed, KeepObjects, Outcome, Place, Restore, Return,
};
use sooner_wire::{ActorId, NodeId, ObjectId, Takeover, TaskId, WorkerId};

use super::actors::{Actor, Phase};
use crate::control::{Directory, DirectoryAction, DirectoryActions};
use crate::failures::death_failure;
use crate::table::{Map, Set};
use crate::uplink::{End, ToNode};

/// What is known of one actor's checkpoints.
#[derive(Debug, Default)]
pub(in crate::control) struct Checkpoints {
    /// How many checkpoints were taken.
    pub(in crate::control) taken: u64,
    last: Option<Last>,
    /// Owners that keep objects for the last checkpoint or, while that is not known here, for an earlier one.
    keepers: Set<WorkerId>,
    /// Blocks with states that nodes kept when the control service restarted, and their nodes: one may hold a
    /// later checkpoint than is known here.
    left: Set<(NodeId, Place)>,
    /// Processes before the present one that nodes report, until the present one has its state.
    earlier: Map<WorkerId, Earlier>,
    /// The latest process has the state that it begins with.
    has_begun: bool,
}

/// A process of an actor that has a later one.
#[derive(Debug, Clone, Copy)]
struct Earlier {
    takeover: Takeover,
    /// It had its initial state: its last checkpoint, or else that state, is the last one up to it.
    had_begun: bool,
}

#[derive(Debug)]
struct Last {
    state: Return,
    /// The takeover of the process that took it, or was given it.
    takeover: Takeover,
    /// Where the block of the state is kept.
    node: NodeId,
    /// The process that took it: the objects it owns end with it.
    taker: WorkerId,
}

/// Something that is kept for an actor, as a node reports.
#[derive(Debug)]
pub(in crate::control) struct Keeping {
    actor: ActorId,
    by: Keeper,
}

#[derive(Debug)]
enum Keeper {
    /// Objects that a checkpoint refers to, kept by this owner.
    Owner(WorkerId),
    /// A state, kept by this node in this block.
    State(NodeId, Place),
    /// Arguments of the actor's constructor, kept by the creator's node.
    Arguments(NodeId),
}

impl Keeping {
    /// All that a node and its processes keep.
    pub(in crate::control) fn all_of(
        node: NodeId,
        here: &mut ActorsHere,
    ) -> impl Iterator<Item = Self> + use<> {
        let owners = here.keepers.take().into_iter().flatten();
        let owners = owners.map(|(actor, owner)| Self { actor, by: Keeper::Owner(owner) });
        let blocks = here.kept.take().into_iter().flatten().map(move |(actor, place)| {
            let by = place.map_or(Keeper::Arguments(node), |place| Keeper::State(node, place));
            Self { actor, by }
        });
        owners.chain(blocks)
    }
}

impl Last {
    /// Node and block of the state, if it is in a block.
    fn place(&self) -> Option<(NodeId, Place)> {
        holder(&self.state.outcome).map(|(_, place)| (self.node, place))
    }
}

impl Checkpoints {
    /// A node reports the last checkpoint, which is there or on the node that its outcome names. Not all
    /// owners of references in it may have been told to keep the objects: see [`Directory::keep_again`].
    pub(in crate::control) fn learn(
        &mut self,
        state: Return,
        node: NodeId,
        taker: WorkerId,
        takeover: Takeover,
    ) {
        if self.last.as_ref().is_some_and(|last| last.takeover > takeover) {
            return;
        }
        let node = holder(&state.outcome).and_then(|(at, _)| at).unwrap_or(node);
        self.taken = 1;
        self.last = Some(Last { node, taker, state, takeover });
    }

    /// A process is not the actor's latest one. Its node reports it until [`Directory::let_earlier_go`].
    pub(in crate::control) fn record_earlier(
        &mut self,
        process: WorkerId,
        takeover: Takeover,
        had_begun: bool,
    ) {
        if process != WorkerId::default() {
            self.earlier.insert(process, Earlier { takeover, had_begun });
        }
    }

    /// The actor has another process; `has_begun`: it has its state.
    pub(in crate::control) fn begins(&mut self, has_begun: bool) {
        self.has_begun = has_begun;
    }

    /// Whether the latest process has the state that it begins with.
    pub(in crate::control) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Nodes that report earlier processes.
    pub(in crate::control) fn nodes_of_earlier(&self) -> impl Iterator<Item = NodeId> {
        self.earlier.keys().map(|process| process.node())
    }

    /// Whether the last checkpoint of all processes before this takeover is known, or known not to exist.
    fn knows_all_before(&self, takeover: Takeover) -> bool {
        let of = |takeover| self.earlier.values().find(move |earlier| earlier.takeover == takeover);
        let known = (0..takeover.0).rev().map(Takeover).map_while(of);
        takeover == Takeover::FIRST
            || known.clone().any(|earlier| earlier.had_begun)
            || known.count() == takeover.0 as usize
    }

    /// The takeover of an earlier process that may have taken the last checkpoint: no later one had its
    /// initial state.
    fn takes_from(&self, process: WorkerId) -> Option<Takeover> {
        let takeover = self.earlier.get(&process)?.takeover;
        let is_later = |earlier: &Earlier| earlier.takeover > takeover && earlier.had_begun;
        let is_over = self.has_begun || self.earlier.values().any(is_later);
        let is_latest = self.last.as_ref().is_none_or(|last| last.takeover <= takeover);
        (!is_over && is_latest).then_some(takeover)
    }

    fn last_place(&self) -> Option<(NodeId, Place)> {
        self.last.as_ref().and_then(Last::place)
    }

    /// The objects that each owner keeps for the last checkpoint.
    fn kept(&self) -> Map<WorkerId, Vec<ObjectId>> {
        let mut by_owner: Map<WorkerId, Vec<ObjectId>> = Map::default();
        if let Some(last) = &self.last {
            for object in last.state.contained.iter().filter(|object| object.owner() != last.taker) {
                by_owner.entry(object.owner()).or_default().push(*object);
            }
        }
        by_owner
    }

    /// The objects that each owner must keep from now on; none for an owner that may stop.
    fn keep(&mut self) -> Map<WorkerId, Vec<ObjectId>> {
        let mut by_owner = self.kept();
        let keepers = std::mem::replace(&mut self.keepers, by_owner.keys().copied().collect());
        keepers.into_iter().for_each(|owner| _ = by_owner.entry(owner).or_default());
        by_owner
    }
}

impl Actor {
    /// The takeover of this process, if a checkpoint of it is the actor's last one.
    fn takes_from(&self, process: WorkerId) -> Option<Takeover> {
        match self.phase {
            Phase::Placed { worker, .. } if worker == process => Some(self.takeovers),
            Phase::Dead(_) => None,
            _ => self.checkpoints.as_ref()?.takes_from(process),
        }
    }

    /// Whether the state that the latest process is to begin with is known.
    pub(in crate::control) fn knows_what_came_before(&self) -> bool {
        let knows = |checkpoints: &Checkpoints| checkpoints.knows_all_before(self.takeovers);
        self.checkpoints.as_ref().is_none_or(knows)
    }
}

/// The place of a state's block, and its node if the outcome names one.
fn holder(outcome: &Outcome) -> Option<(Option<NodeId>, Place)> {
    match outcome {
        Outcome::Stored(location) => Some((None, location.place())),
        Outcome::Remote(remote) => Some((Some(remote.node), remote.location.place())),
        Outcome::Inline(_) | Outcome::Failed(_) => None,
    }
}

impl Directory {
    /// An actor's process has taken a checkpoint. Its node keeps the block of the state.
    pub(in crate::control) fn on_checkpoint(
        &mut self,
        from: WorkerId,
        checkpoint: Checkpoint,
        out: &mut DirectoryActions,
    ) {
        let Checkpoint { actor: id, state, calls } = checkpoint;
        let mut last = Last { state, node: from.node(), taker: from, takeover: Takeover(0) };
        let place = last.place();
        let actor = self.actors.get_mut(&id);
        let takeover = actor.as_deref().and_then(|actor| actor.takes_from(from));
        let checkpoints = actor.and_then(|actor| actor.checkpoints.as_mut());
        // An earlier control service may have accepted this checkpoint, and announced it.
        let stands = checkpoints.as_deref().is_some_and(|known| known.last_place() == place);
        let Some((checkpoints, takeover)) = checkpoints.zip(takeover) else {
            return let_go_of((!stands).then_some(last), out);
        };
        last.takeover = takeover;
        checkpoints.taken += 1;
        let before = checkpoints.last.replace(last).filter(|_| !stands);
        if let Some(at) = before.as_ref().and_then(Last::place) {
            // From now on that block may be used for something else.
            checkpoints.left.swap_remove(&at);
        }
        let kept = checkpoints.keep();
        self.notify_owners(id, kept, out);
        let_go_of(before, out);

        // The actor's process learns of it, too, whether it called itself or not.
        let mut covered = by_caller(calls);
        covered.entry(from).or_default();
        for (caller, calls) in covered {
            self.send(caller, Checkpointed { actor: id, calls }, out);
        }
    }

    /// After a restart: callers may not have learned that the actor's checkpoints cover these calls. The
    /// process that took the checkpoints did.
    pub(in crate::control) fn cover_again(
        &self,
        actor: ActorId,
        taker: WorkerId,
        calls: Vec<TaskId>,
        out: &mut DirectoryActions,
    ) {
        for (caller, calls) in by_caller(calls).into_iter().filter(|(caller, _)| *caller != taker) {
            self.send(caller, Checkpointed { actor, calls }, out);
        }
    }

    /// A process takes the actor over. Does nothing for the actor's first process.
    pub(in crate::control) fn restore(
        &mut self,
        id: ActorId,
        node: NodeId,
        worker: WorkerId,
        out: &mut DirectoryActions,
    ) {
        let Some(actor) = self.actors.get(&id).filter(|actor| actor.restores()) else { return };
        let last = actor.checkpoints.as_ref().and_then(|checkpoints| checkpoints.last.as_ref());
        let state = last.map(|last| last.state.clone());
        let callers = actor.subscribers.iter().copied().collect();
        for object in state.iter().flat_map(|state| &state.contained) {
            self.send(object.owner(), AddBorrow { object: *object, borrower: worker }, out);
        }
        let restore = Box::new(Restore { actor: id, state, callers, takeover: None });
        let restore = ToNode::Restore { takeover: actor.takeovers, restore };
        out.push(DirectoryAction::Send(node, Box::new(restore)));
    }

    /// A process of an actor died that was not the latest one.
    pub(in crate::control) fn record_earlier(
        &mut self,
        id: ActorId,
        process: WorkerId,
        takeover: Takeover,
        out: &mut DirectoryActions,
    ) {
        let has_later = self.has_later_process(id);
        let actor = self.actors.get_mut(&id).filter(|actor| !actor.has_ended());
        match actor.and_then(|actor| actor.checkpoints.as_mut()) {
            Some(checkpoints) => {
                let had_begun = checkpoints.earlier.get(&process).is_some_and(|earlier| earlier.had_begun);
                checkpoints.record_earlier(process, takeover, had_begun);
                self.let_earlier_go(id, out);
            }
            None if has_later => {
                let over = ToNode::EndActor { actor: id, takeover, end: End::Succeeded };
                out.push(DirectoryAction::Send(process.node(), Box::new(over)));
            }
            None => {}
        }
    }

    /// Whether the actor without checkpoints that a node reports an ended process of has a later one, or
    /// needs none. Until then only that node may know that the process has been: the node that was asked for
    /// a later one forgets the actor when it gives it back.
    pub(in crate::control) fn has_later_process(&self, id: ActorId) -> bool {
        self.actors.get(&id).is_none_or(|actor| matches!(actor.phase, Phase::Placed { .. } | Phase::Dead(_)))
    }

    /// The latest process has its state: nodes need not report the earlier ones any more.
    pub(in crate::control) fn let_earlier_go(&mut self, id: ActorId, out: &mut DirectoryActions) {
        let checkpoints = self.actors.get_mut(&id).and_then(|actor| actor.checkpoints.as_mut());
        let Some(checkpoints) = checkpoints.filter(|checkpoints| checkpoints.has_begun) else { return };
        for (process, Earlier { takeover, .. }) in std::mem::take(&mut checkpoints.earlier) {
            let over = ToNode::EndActor { actor: id, takeover, end: End::Succeeded };
            out.push(DirectoryAction::Send(process.node(), Box::new(over)));
        }
    }

    /// The actor is dead for good.
    pub(in crate::control) fn drop_checkpoint(&mut self, id: ActorId, out: &mut DirectoryActions) {
        let checkpoints = self.actors.get_mut(&id).and_then(|actor| actor.checkpoints.as_mut());
        let Some(checkpoints) = checkpoints else { return };
        let last = checkpoints.last.take();
        let (kept, left) = (checkpoints.keep(), std::mem::take(&mut checkpoints.left));
        self.notify_owners(id, kept, out);
        let place = last.as_ref().and_then(Last::place);
        for (node, place) in left.into_iter().filter(|at| Some(*at) != place) {
            out.push(DirectoryAction::Send(node, Box::new(ToNode::LetGo(place))));
        }
        let_go_of(last, out);
    }

    /// After a restart: these nodes and owners keep something for these actors, and owners may not have
    /// learned of the last checkpoint. What is kept for a dead actor is released. For others it stays until
    /// the next checkpoint, because an earlier one may still be reported.
    pub(in crate::control) fn keep_again(&mut self, keeping: Vec<Keeping>, out: &mut DirectoryActions) {
        for Keeping { actor: id, by } in keeping {
            let living = self.actors.get_mut(&id).filter(|actor| !actor.has_ended());
            match (by, living.map(|actor| actor.checkpoints.as_mut())) {
                (Keeper::Owner(owner), Some(Some(checkpoints))) => _ = checkpoints.keepers.insert(owner),
                (Keeper::State(node, place), Some(Some(checkpoints))) => {
                    checkpoints.left.insert((node, place));
                }
                // Whether an actor takes checkpoints may be unknown until its node is connected.
                (Keeper::Owner(_) | Keeper::State(..), Some(None)) | (Keeper::Arguments(_), Some(_)) => {}
                (Keeper::Owner(owner), None) => {
                    self.send(owner, KeepObjects { actor: id, objects: Vec::new(), more: None }, out);
                }
                (Keeper::State(node, place), None) => {
                    out.push(DirectoryAction::Send(node, Box::new(ToNode::LetGo(place))));
                }
                (Keeper::Arguments(node), None) => {
                    let dead = ActorDead { actor: id, failure: death_failure() };
                    out.push(DirectoryAction::Send(node, Box::new(ToNode::Dead(Box::new(dead)))));
                }
            }
        }
        let mut all = Vec::new();
        for (id, actor) in &mut self.actors {
            if let Some(checkpoints) = &mut actor.checkpoints {
                let kept = checkpoints.kept();
                checkpoints.keepers.extend(kept.keys().copied());
                all.extend(kept.into_iter().map(|(owner, objects)| (owner, *id, objects)));
            }
        }
        for (owner, actor, objects) in all {
            self.send(owner, KeepObjects { actor, objects, more: Some(true) }, out);
        }
    }

    /// Sends each owner its list. Dead owners keep nothing, and their nodes drop the message.
    fn notify_owners(&self, actor: ActorId, kept: Map<WorkerId, Vec<ObjectId>>, out: &mut DirectoryActions) {
        for (owner, objects) in kept {
            self.send(owner, KeepObjects { actor, objects, more: None }, out);
        }
    }
}

fn by_caller(calls: Vec<TaskId>) -> Map<WorkerId, Vec<u64>> {
    let mut callers: Map<WorkerId, Vec<u64>> = Map::default();
    for call in calls {
        callers.entry(call.owner).or_default().push(call.number);
    }
    callers
}

fn let_go_of(last: Option<Last>, out: &mut DirectoryActions) {
    if let Some((node, place)) = last.as_ref().and_then(Last::place) {
        out.push(DirectoryAction::Send(node, Box::new(ToNode::LetGo(place))));
    }
}
