//! The messages between nodes and the control service as wire messages: both ways, and back.
//!
//! A message is encoded here at its sender, and checked here by its row when it has arrived: a node speaks
//! only for itself and its own processes, and a message that does not go this way is refused
//! ([`RouteError`]), never passed on. On the way, values in a node's memory carry the id of the node
//! ([`sooner_wire::place`]).
//!
//! It never decides anything about the content.

use sooner_wire::message::{
    ActorPlaced, ActorProcessDead, ActorSubscribed, Collected, CreateActor, Dependency, EndActor, Ends,
    LetGo, Message, PlaceRefused, ProcessLeft, Restore, Route, RouteError, Routed, Row, RowOf,
};
use sooner_wire::{NodeId, WorkerId};

use super::{BundleAnswer, BundleOrder, End, ToControl, ToNode};

/// The control service as sender or receiver of routed messages.
pub const CONTROL: WorkerId = WorkerId(0);

/// Whether messages of a kind go between a node and the directory, either way. The other kinds on that
/// connection are about the nodes themselves.
#[must_use]
pub fn is_for_directory(kind: u16) -> bool {
    let routes = Message::routes_of(kind);
    routes.contains(Route::NodeToDirectory) || routes.contains(Route::DirectoryToNode)
}

/// The message's row has this route, but no code here reads it (`tests/rows.rs` finds that).
fn unread(message: &Message, route: Route) -> RouteError {
    let RowOf { kind, name, .. } = message.row();
    RouteError::NoRoute { kind, name, route }
}

impl ToControl {
    /// The message for the connection to the control service. `me` is the sending node.
    #[must_use]
    pub fn into_message(self, me: NodeId) -> Message {
        let mut message = match self {
            Self::Routed { from, mut message } => {
                message.globalise(me);
                return Routed { from, to: CONTROL, message }.into();
            }
            Self::ActorPlaced { actor, takeover, worker } => ActorPlaced { actor, takeover, worker }.into(),
            Self::PlaceRefused { actor, takeover, reason, create, no_workers, for_now } => {
                let (no_workers, for_now) = (no_workers.then_some(true), for_now.then_some(true));
                PlaceRefused { actor, takeover, reason, create, no_workers, for_now }.into()
            }
            Self::ActorProcessDead { actor, takeover, gone } => {
                ActorProcessDead { actor, takeover, gone }.into()
            }
            Self::Bundles(answer) => match *answer {
                BundleAnswer::Prepared(prepared) => prepared.into(),
                BundleAnswer::Asks(find) => find.into(),
            },
            Self::ProcessLeaves { process } => {
                ProcessLeft { process, in_order: true, watchers: Vec::new(), gone: None }.into()
            }
            Self::ProcessDead { process, watchers, gone } => {
                ProcessLeft { process, in_order: false, watchers, gone }.into()
            }
            Self::Collected { gone, held } => Collected { gone, held }.into(),
            Self::Job(job) => Message::Job(*job),
            Self::Here(here) => Message::ActorsHere(*here),
        };
        message.globalise(me);
        message
    }

    /// Reads a message that came over the connection of `node`.
    ///
    /// # Errors
    /// [`RouteError`]: a node does not send that, or not about this process.
    pub fn parse(message: Message, node: NodeId) -> Result<Self, RouteError> {
        let (own, route) = (WorkerId(node.0), Route::NodeToDirectory);
        message.check(Ends { route, from: own, to: CONTROL })?;
        Ok(match message {
            Message::Routed(Routed { from, to, message }) => {
                if from.node() != node {
                    return Err(RouteError::Ends("it speaks for a process that is not its own"));
                }
                if to != CONTROL {
                    let why = "it has the control service pass on what nodes say to each other";
                    return Err(RouteError::Ends(why));
                }
                let is_node = from == own;
                let route = if is_node { Route::AskingNodeToDirectory } else { Route::ProcessToDirectory };
                message.check(Ends { route, from, to })?;
                Self::Routed { from, message }
            }
            Message::ActorPlaced(ActorPlaced { actor, takeover, worker }) => {
                Self::ActorPlaced { actor, takeover, worker }
            }
            Message::PlaceRefused(refused) => {
                let PlaceRefused { actor, takeover, reason, create, no_workers, for_now } = refused;
                let (no_workers, for_now) = (no_workers == Some(true), for_now == Some(true));
                Self::PlaceRefused { actor, takeover, reason, create, no_workers, for_now }
            }
            Message::ActorProcessDead(ActorProcessDead { actor, takeover, gone }) => {
                Self::ActorProcessDead { actor, takeover, gone }
            }
            Message::Prepared(prepared) => Self::Bundles(Box::new(BundleAnswer::Prepared(prepared))),
            Message::FindGroup(find) => Self::Bundles(Box::new(BundleAnswer::Asks(find))),
            Message::ProcessLeft(ProcessLeft { process, in_order: true, .. }) => {
                Self::ProcessLeaves { process }
            }
            Message::ProcessLeft(ProcessLeft { process, in_order: false, watchers, gone }) => {
                Self::ProcessDead { process, watchers, gone }
            }
            Message::Collected(Collected { gone, held }) => Self::Collected { gone, held },
            Message::Job(job) => Self::Job(Box::new(job)),
            Message::ActorsHere(here) => Self::Here(Box::new(here)),
            other => return Err(unread(&other, route)),
        })
    }
}

impl ToNode {
    /// The message for the connection to a node.
    #[must_use]
    pub fn into_message(self) -> Message {
        match self {
            Self::Routed { to, message } => Routed { from: CONTROL, to, message }.into(),
            Self::PlaceActor(place) => Message::PlaceActor(*place),
            Self::Restore { takeover, restore } => Restore { takeover: Some(takeover), ..*restore }.into(),
            Self::EndActor { actor, takeover, end } => {
                let recalls = (end == End::Recalled).then_some(true);
                let is_succeeded = (end == End::Succeeded).then_some(true);
                EndActor { actor, takeover, finishes: end == End::Finished, recalls, is_succeeded }.into()
            }
            Self::Subscribed { actor, process, started } => {
                ActorSubscribed { actor, process, started }.into()
            }
            Self::Started(started) => Message::ActorStarted(*started),
            Self::Restarting(news) => Message::ActorRestarting(*news),
            Self::Dead(news) => Message::ActorDead(*news),
            Self::Bundles(order) => match *order {
                BundleOrder::Prepare(prepare) => prepare.into(),
                BundleOrder::Commit(commit) => commit.into(),
                BundleOrder::Release(release) => release.into(),
            },
            Self::LetGo(place) => LetGo { place }.into(),
            Self::WorkerDead(gone) => Message::WorkerDead(*gone),
            Self::Settled(settled) => Message::Settled(*settled),
            Self::Job(job) => Message::Job(*job),
        }
    }

    /// Reads, at node `me`, a message from the control service.
    ///
    /// # Errors
    /// [`RouteError`]: the control service does not send that to nodes.
    pub fn parse(message: Message, me: NodeId) -> Result<Self, RouteError> {
        let (own, route) = (WorkerId(me.0), Route::DirectoryToNode);
        message.check(Ends { route, from: CONTROL, to: own })?;
        Ok(match message {
            Message::Routed(Routed { from, to, message }) => {
                if from != CONTROL || to.node() != me {
                    return Err(RouteError::Ends("it passes on what the control service does not say"));
                }
                let is_node = to == own;
                let route = if is_node { Route::DirectoryToAskingNode } else { Route::DirectoryToProcess };
                message.check(Ends { route, from, to })?;
                Self::Routed { to, message }
            }
            Message::PlaceActor(mut place) => {
                localise(&mut place.create, me);
                Self::PlaceActor(Box::new(place))
            }
            Message::Restore(mut restore) => {
                let (name, why) = (Restore::NAME, "it does not say for which takeover");
                let takeover = restore.takeover.take().ok_or(RouteError::Claim { name, why })?;
                // The node keeps the block of a state as long as the checkpoint stands.
                restore.state.iter_mut().for_each(|state| state.outcome.localise(me));
                Self::Restore { takeover, restore: Box::new(restore) }
            }
            Message::EndActor(EndActor { actor, takeover, finishes, recalls, is_succeeded }) => {
                let end = match (recalls, is_succeeded, finishes) {
                    (Some(true), ..) => End::Recalled,
                    (_, Some(true), _) => End::Succeeded,
                    (.., true) => End::Finished,
                    (.., false) => End::Killed,
                };
                Self::EndActor { actor, takeover, end }
            }
            Message::ActorSubscribed(ActorSubscribed { actor, process, started }) => {
                Self::Subscribed { actor, process, started }
            }
            Message::ActorStarted(started) => Self::Started(Box::new(started)),
            Message::ActorRestarting(news) => Self::Restarting(Box::new(news)),
            Message::ActorDead(news) => Self::Dead(Box::new(news)),
            Message::Prepare(prepare) => Self::Bundles(Box::new(BundleOrder::Prepare(prepare))),
            Message::Commit(commit) => Self::Bundles(Box::new(BundleOrder::Commit(commit))),
            Message::Release(release) => Self::Bundles(Box::new(BundleOrder::Release(release))),
            Message::LetGo(LetGo { place }) => Self::LetGo(place),
            Message::WorkerDead(gone) => Self::WorkerDead(Box::new(gone)),
            Message::Settled(settled) => Self::Settled(Box::new(settled)),
            Message::Job(job) => Self::Job(Box::new(job)),
            other => return Err(unread(&other, route)),
        })
    }
}

/// Makes values in the memory of node `me` local for an actor's constructor: those that its creator owns, or
/// that a creator on this node has passed on. Another creator cannot vouch for a value that it only borrowed;
/// that is read like a value of another node.
fn localise(create: &mut CreateActor, me: NodeId) {
    let creator = create.actor.owner;
    let vouched = |one: &&mut Dependency| creator.node() == me || one.object.owner() == creator;
    let dependencies = create.constructor.dependencies.iter_mut();
    dependencies.filter(vouched).for_each(|one| one.outcome.localise(me));
}

#[cfg(test)]
mod tests;
