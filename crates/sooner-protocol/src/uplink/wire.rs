//! The words between nodes and the control service as messages: both ways, and back.
//!
//! A word leaves its sender here and is checked here when it has arrived: a node speaks for itself and its own processes
//! only, and what is no word between the two is refused ([`Misplaced`]), never passed on. Values in the memory of a node are
//! said with their node on the way ([`sooner_wire::place`]).
//!
//! It decides nothing about what is said.

use sooner_wire::message::{
    ActorPlaced, ActorProcessGone, ActorSubscribed, Collected, CreateActor, Dependency, EndActor, JobState,
    LetGo, Message, PlaceRefused, ProcessLeft, QueryKind, Restore, Routed,
};
use sooner_wire::{NodeId, WorkerId};

use super::{BundleAnswer, BundleOrder, End, FIRST_ROUND, ToControl, ToNode};

/// The control service as sender or receiver of what is routed.
pub const CONTROL: WorkerId = WorkerId(0);

/// A message is not a word between nodes and the control service, or not one that its sender may say: what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misplaced(pub &'static str);

impl std::fmt::Display for Misplaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Misplaced {}

/// Whether messages of a kind are words between a node and the control service, either way. The others on that connection
/// are about the nodes themselves.
#[must_use]
pub fn is_word(kind: u16) -> bool {
    matches!(kind, 6 | 48 | 51 | 52 | 58 | 82 | 110 | 116 | 117 | 119 | 150..=157 | 163..=167)
}

impl ToControl {
    /// For the connection to the control service. `me` is the node that says it.
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
            Self::ActorProcessGone { actor, takeover, gone } => {
                ActorProcessGone { actor, takeover, gone }.into()
            }
            Self::Bundles(answer) => match *answer {
                BundleAnswer::Prepared(prepared) => prepared.into(),
                BundleAnswer::Asks(find) => find.into(),
            },
            Self::ProcessLeaves { process } => {
                ProcessLeft { process, in_order: true, watchers: Vec::new(), gone: None }.into()
            }
            Self::ProcessGone { process, watchers, gone } => {
                ProcessLeft { process, in_order: false, watchers, gone }.into()
            }
            Self::Collected { gone, held } => Collected { gone, held }.into(),
            Self::Job(job) => Message::Job(*job),
            Self::Here(here) => Message::ActorsHere(*here),
        };
        message.globalise(me);
        message
    }

    /// Reads what came over the connection of `node`.
    ///
    /// # Errors
    /// [`Misplaced`]: a node does not say that, or not about this process.
    pub fn parse(message: Message, node: NodeId) -> Result<Self, Misplaced> {
        let own = |process: WorkerId| {
            let is_own = process.node() == node && process.0 != node.0;
            is_own.then_some(()).ok_or(Misplaced("it speaks for a process that is not its own"))
        };
        Ok(match message {
            Message::Routed(Routed { from, to, message }) => {
                // A node asks for itself where the bundles of a group are.
                if from.0 != node.0 || !matches!(*message, Message::FindGroup(_)) {
                    own(from)?;
                }
                if to != CONTROL || !is_said_to_control(&message) {
                    return Err(Misplaced("it has the control service pass on what nodes say to each other"));
                }
                Self::Routed { from, message }
            }
            Message::ActorPlaced(ActorPlaced { actor, takeover, worker }) => {
                own(worker)?;
                Self::ActorPlaced { actor, takeover, worker }
            }
            Message::PlaceRefused(refused) => {
                let PlaceRefused { actor, takeover, reason, create, no_workers, for_now } = refused;
                if create.as_ref().is_some_and(|create| create.actor != actor) {
                    return Err(Misplaced("it gives back another actor than it refuses"));
                }
                let (no_workers, for_now) = (no_workers == Some(true), for_now == Some(true));
                Self::PlaceRefused { actor, takeover, reason, create, no_workers, for_now }
            }
            Message::ActorProcessGone(ActorProcessGone { actor, takeover, gone }) => {
                own(gone.worker)?;
                Self::ActorProcessGone { actor, takeover, gone }
            }
            Message::Prepared(prepared) => Self::Bundles(Box::new(BundleAnswer::Prepared(prepared))),
            Message::FindGroup(find) => Self::Bundles(Box::new(BundleAnswer::Asks(find))),
            Message::ProcessLeft(ProcessLeft { process, in_order, watchers, gone }) => {
                own(process)?;
                if gone.as_ref().is_some_and(|gone| gone.worker != process) {
                    return Err(Misplaced("it says of one process that another one is gone"));
                }
                match in_order {
                    true => Self::ProcessLeaves { process },
                    false => Self::ProcessGone { process, watchers, gone },
                }
            }
            Message::Collected(Collected { gone, held }) => {
                held.iter().try_for_each(|held| own(held.borrower))?;
                Self::Collected { gone, held }
            }
            Message::Job(job) => {
                match job.state {
                    JobState::Asked => {}
                    JobState::Started if job.config.is_some() => own(job.job)?,
                    _ => return Err(Misplaced("it says of a job what the control service decides")),
                }
                Self::Job(Box::new(job))
            }
            Message::ActorsHere(here) => {
                here.jobs.iter().try_for_each(|job| own(job.job))?;
                here.subscribers.iter().try_for_each(|(_, process)| own(*process))?;
                here.actors.iter().filter_map(|row| row.worker).try_for_each(own)?;
                here.actors.iter().filter_map(|row| row.gone.as_ref()).try_for_each(|g| own(g.worker))?;
                here.also
                    .iter()
                    .flat_map(|also| &also.checkpoints)
                    .try_for_each(|(process, _)| own(*process))?;
                Self::Here(Box::new(here))
            }
            _ => return Err(Misplaced("it is not for the control service")),
        })
    }
}

impl ToNode {
    /// For the connection to a node.
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
            Self::LetGo { block } => LetGo { block }.into(),
            Self::Gone(gone) => Message::WorkerGone(*gone),
            Self::Settled(settled) => Message::Settled(*settled),
            Self::Job(job) => Message::Job(*job),
        }
    }

    /// Reads what came from the control service at node `me`.
    ///
    /// # Errors
    /// [`Misplaced`]: the control service does not say that to nodes.
    pub fn parse(message: Message, me: NodeId) -> Result<Self, Misplaced> {
        Ok(match message {
            Message::Routed(Routed { from, to, message }) => {
                if from != CONTROL || to.node() != me || !is_said_by_control(&message) {
                    return Err(Misplaced("it passes on what the control service does not say"));
                }
                Self::Routed { to, message }
            }
            Message::PlaceActor(mut place) => {
                localise(&mut place.create, me);
                Self::PlaceActor(Box::new(place))
            }
            Message::Restore(mut restore) => {
                let takeover =
                    restore.takeover.take().ok_or(Misplaced("it does not say for which takeover"))?;
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
            Message::LetGo(LetGo { block }) => Self::LetGo { block },
            Message::WorkerGone(gone) => Self::Gone(Box::new(gone)),
            Message::Settled(settled) => Self::Settled(Box::new(settled)),
            Message::Job(job) => Self::Job(Box::new(job)),
            _ => return Err(Misplaced("it is not said to nodes")),
        })
    }
}

/// What is in the memory of node `me` is there for the constructor of an actor: what its creator owns or what a process of
/// this node has passed on. What a process elsewhere has only borrowed it cannot vouch for; that is read like a value of
/// another node.
fn localise(create: &mut CreateActor, me: NodeId) {
    let creator = create.actor.owner;
    let vouched = |one: &&mut Dependency| creator.node() == me || one.object.owner() == creator;
    let dependencies = create.constructor.dependencies.iter_mut();
    dependencies.filter(vouched).for_each(|one| one.outcome.localise(me));
}

/// What processes say to the control service.
fn is_said_to_control(message: &Message) -> bool {
    match message {
        Message::CreateActor(_)
        | Message::SubscribeActor(_)
        | Message::KillActor(_)
        | Message::ActorOutOfScope(_)
        | Message::ActorReady(_)
        | Message::Checkpoint(_)
        | Message::ReserveName(_)
        | Message::FindName(_)
        | Message::ListNames(_)
        | Message::CreateGroup(_)
        | Message::RemoveGroup(_)
        | Message::FindGroup(_)
        | Message::Sever(_) => true,
        Message::StillRead(answer) => answer.round >= FIRST_ROUND,
        Message::Query(query) => query.what == QueryKind::TotalResources,
        _ => false,
    }
}

/// What the control service says to processes.
fn is_said_by_control(message: &Message) -> bool {
    match message {
        Message::Answer(_)
        | Message::GroupState(_)
        | Message::Infeasible(_)
        | Message::ActorDead(_)
        | Message::AddBorrow(_)
        | Message::KeepObjects(_)
        | Message::Checkpointed(_)
        | Message::Sever(_) => true,
        Message::ForgetLost(question) => question.round >= FIRST_ROUND,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
