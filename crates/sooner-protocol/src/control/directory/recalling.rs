//! Recalls actors that were sent to a node and have no process yet, when another node has room meanwhile.
//!
//! If no node has room for an actor, the actor waits at one, in turn with what waits there
//! ([`crate::scheduling::policy::queue`]): it is served however little that node reports as free. As soon as
//! another node reports room, the first node is asked to give the actor back. It does so unless it has set
//! resources aside for the actor, which is then placed anew. An actor that was sent to a node with room and
//! has not begun after [`RECALL_NANOS`] is recalled, too: the report may have been old.
//!
//! Invariants:
//! - Q1: an actor is sent to the next node after the one before has said that nothing of it is there.
//! - Q2: what is asked back has a place: what others were asked back for is taken off what is free.
//!
//! It never takes an actor away from a node that has begun it.

use std::cmp::Reverse;

use sooner_wire::limits::{RECALL_AGAIN_NANOS, RECALL_NANOS};
use sooner_wire::message::{CreateActor, Outcome};
use sooner_wire::{ActorId, GroupId, NodeId, ResourceSet, Strategy, Takeover};

use super::actors::Phase;
use super::placing::Target;
use super::rows::Load;
use crate::control::{Directory, DirectoryAction, DirectoryActions};
use crate::scheduling::policy::holder_of_most;
use crate::table::{Map, Set};
use crate::time::Instant;
use crate::uplink::{End, ToNode};

/// How many kinds of actors for which no node has room are remembered in one search; further actors are
/// looked at one by one.
const KINDS_MAX: usize = 16;

/// What decides where an actor may go.
#[derive(Debug, Clone, Copy)]
pub(in crate::control) struct Needs<'a> {
    /// The resources that must be free.
    pub(in crate::control) placement: &'a ResourceSet,
    /// What the actor holds while it lives.
    pub(in crate::control) lifetime: &'a ResourceSet,
    pub(in crate::control) strategy: Option<&'a Strategy>,
    /// The node that holds most bytes of its constructor's arguments.
    pub(in crate::control) prefer: Option<NodeId>,
    pub(in crate::control) priority: i32,
}

impl<'a> Needs<'a> {
    pub(in crate::control) fn of(create: &'a CreateActor) -> Self {
        let home = create.actor.owner.node();
        let values = create.constructor.dependencies.iter().filter_map(|value| match &value.outcome {
            Outcome::Stored(location) => Some((home, location.length)),
            Outcome::Remote(remote) => Some((remote.node, remote.location.length)),
            Outcome::Inline(_) | Outcome::Failed(_) => None,
        });
        Self {
            placement: &create.placement,
            lifetime: &create.lifetime,
            strategy: create.constructor.spec.strategy(),
            prefer: holder_of_most(values),
            priority: create.constructor.spec.priority().unwrap_or(0),
        }
    }

    fn group(&self) -> Option<GroupId> {
        self.strategy.and_then(Strategy::group).map(|place| place.group)
    }

    /// What the node has less when the actor was sent there.
    pub(in crate::control) fn load(&self) -> Load<'a> {
        Load { takes: self.placement, holds: self.lifetime, group: self.group() }
    }
}

/// An actor that was sent to a node.
#[derive(Debug)]
struct Sent {
    placement: ResourceSet,
    lifetime: ResourceSet,
    strategy: Option<Box<Strategy>>,
    prefer: Option<NodeId>,
    priority: i32,
    /// Its place among the waiting actors.
    turn: u64,
    node: NodeId,
    /// When it may be recalled, at the earliest.
    from: Instant,
    /// It was recalled.
    is_recalled: bool,
}

impl Sent {
    fn needs(&self) -> Needs<'_> {
        let Self { placement, lifetime, strategy, prefer, priority, .. } = self;
        Needs { placement, lifetime, strategy: strategy.as_deref(), prefer: *prefer, priority: *priority }
    }

    /// If no node has room for one of the two, none has for the other.
    fn is_like(&self, other: &Self) -> bool {
        let kind = |sent: &Self| (sent.node, sent.prefer);
        kind(self) == kind(other) && self.placement == other.placement && self.strategy == other.strategy
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::control) struct Recalls {
    sent: Map<ActorId, Sent>,
    /// How many actors in `sent` each node has.
    counts: Map<NodeId, u32>,
    /// When the first actor that may not be recalled yet may be.
    due: Option<Instant>,
    /// Actors that an earlier control service sent to a node, of which no more is known: they are recalled
    /// once.
    unknown: Vec<(ActorId, NodeId)>,
    /// Those that were recalled.
    asked: Set<ActorId>,
}

impl Recalls {
    /// An actor is sent to a node. It may be recalled `from` this time on.
    pub(in crate::control) fn send(
        &mut self,
        id: ActorId,
        turn: u64,
        needs: &Needs<'_>,
        node: NodeId,
        from: Instant,
    ) {
        self.forget(id);
        *self.counts.entry(node).or_default() += 1;
        let sent = Sent {
            placement: needs.placement.clone(),
            lifetime: needs.lifetime.clone(),
            strategy: needs.strategy.map(|strategy| Box::new(strategy.clone())),
            prefer: needs.prefer,
            priority: needs.priority,
            turn,
            node,
            from,
            is_recalled: false,
        };
        self.sent.insert(id, sent);
        self.due = Some(self.due.map_or(from, |due| due.min(from)));
    }

    /// The actor has begun, was given back, or is dead.
    pub(in crate::control) fn forget(&mut self, id: ActorId) {
        self.asked.swap_remove(&id);
        let Some(sent) = self.sent.swap_remove(&id) else { return };
        if let Some(count) = self.counts.get_mut(&sent.node) {
            *count -= 1;
            if *count == 0 {
                self.counts.swap_remove(&sent.node);
            }
        }
    }

    /// Whether an actor was recalled from the node that it was sent to.
    pub(in crate::control) fn is_recalled(&self, id: ActorId) -> bool {
        self.asked.contains(&id) || self.sent.get(&id).is_some_and(|sent| sent.is_recalled)
    }

    /// How many actors without a process were sent to a node.
    pub(in crate::control) fn waiting_at(&self, node: NodeId) -> u32 {
        self.counts.get(&node).copied().unwrap_or(0)
    }

    /// An earlier control service sent an actor to a node, where it waits.
    pub(in crate::control) fn learn(&mut self, id: ActorId, node: NodeId) {
        self.unknown.push((id, node));
    }

    pub(in crate::control) fn next_deadline(&self) -> Option<Instant> {
        self.due
    }
}

impl Directory {
    /// A node was chosen for an actor, which begins there or `waits` there for room.
    pub(in crate::control) fn record_sent(&mut self, id: ActorId, node: NodeId, waits: bool, now: Instant) {
        let Some(actor) = self.actors.get(&id) else { return };
        let Phase::Pending(create) = &actor.phase else { return };
        let needs = Needs::of(create);
        let is_alone = self.rows.all().len() < 2;
        self.rows.send(id, node, needs.load(), waits || is_alone);
        if !waits {
            self.rows.take_turn(needs.strategy, node);
        }
        if !is_alone {
            let from = if waits { now } else { now.plus(RECALL_NANOS) };
            self.recalls.send(id, actor.turn, &needs, node, from);
        }
    }

    /// Searches for room elsewhere at this time, at the latest.
    pub(in crate::control) fn recall_at(&mut self, at: Instant) {
        self.recalls.due = Some(self.recalls.due.map_or(at, |due| due.min(at)));
    }

    /// The actor has begun, was given back, or is dead.
    pub(in crate::control) fn forget_sent(&mut self, id: ActorId) {
        self.recalls.forget(id);
        self.rows.forget(id);
    }

    /// Recalls actors for which another node has room.
    pub(in crate::control) fn recall(&mut self, now: Instant, out: &mut DirectoryActions) {
        self.recall_unknown(out);
        let is_due = self.recalls.due.is_some_and(|due| due <= now);
        if !(self.rows.has_more() || is_due) {
            return;
        }
        self.recalls.due = None;
        let mut ready: Vec<(Reverse<i32>, u64, ActorId)> = Vec::new();
        for (id, sent) in &self.recalls.sent {
            if sent.from > now {
                self.recalls.due = Some(self.recalls.due.map_or(sent.from, |due| due.min(sent.from)));
            } else {
                ready.push((Reverse(sent.priority), sent.turn, *id));
            }
        }
        ready.sort_unstable();
        let mut without: Vec<ActorId> = Vec::new();
        for (_, _, id) in ready {
            let sent = &self.recalls.sent[&id];
            if without.iter().any(|other| self.recalls.sent[other].is_like(sent)) {
                continue;
            }
            if sent.is_recalled {
                // The room that was kept for it on another node is free for a new choice.
                self.rows.send(id, sent.node, sent.needs().load(), true);
            }
            match self.target_of(id, &sent.needs(), Some(sent.node)) {
                Target::Node(to) => self.recall_for(id, to, now, out),
                Target::Queue(_) | Target::None | Target::Never(_) if without.len() < KINDS_MAX => {
                    without.push(id);
                }
                Target::Queue(_) | Target::None | Target::Never(_) => {}
            }
        }
    }

    /// Recalls an actor that is to go to node `to`.
    fn recall_for(&mut self, id: ActorId, to: NodeId, now: Instant, out: &mut DirectoryActions) {
        let (Some(sent), Some(actor)) = (self.recalls.sent.get_mut(&id), self.actors.get(&id)) else {
            return;
        };
        sent.is_recalled = true;
        sent.from = now.plus(RECALL_AGAIN_NANOS);
        self.recalls.due = Some(self.recalls.due.map_or(sent.from, |due| due.min(sent.from)));
        self.rows.send(id, to, sent.needs().load(), false);
        out.push(recall(id, actor.takeovers, sent.node));
    }

    /// Recalls actors of which only their node knows enough, if there is another node. They are placed anew
    /// where they wait, if no other has room.
    fn recall_unknown(&mut self, out: &mut DirectoryActions) {
        for (id, node) in std::mem::take(&mut self.recalls.unknown) {
            let is_there = |phase: &Phase| matches!(phase, Phase::Placing { node: at } if *at == node);
            let Some(actor) = self.actors.get(&id).filter(|actor| is_there(&actor.phase)) else { continue };
            if self.rows.all().len() > 1 {
                self.recalls.asked.insert(id);
                out.push(recall(id, actor.takeovers, node));
            }
        }
    }
}

fn recall(actor: ActorId, takeover: Takeover, node: NodeId) -> DirectoryAction {
    let end = End::Recalled;
    DirectoryAction::Send(node, Box::new(ToNode::EndActor { actor, takeover, end }))
}
