//! Local mode: a process executes what it submits. The client plays the node's part in scheduling and the
//! workers' part in executing; values, references and errors take the same paths as otherwise.
//!
//! Each lease names a worker that does not exist, so that the core keeps its tables as always; what is sent
//! to such a worker comes back to this process. Names of actors stay with the node.

use std::collections::HashSet;

use rustc_hash::FxHashMap;
use sooner_protocol::worker::action::Peer;
use sooner_wire::message::{
    ActorDead, ActorOutOfScope, ActorStarted, Failure, FailureCode, Infeasible, LeaseGranted, Message,
    RequestLease,
};
use sooner_wire::{ActorId, LeaseId, ResourceSet, ShapeId, TaskId, WorkerId};

/// Ids from here on are those of workers that do not exist.
const FIRST_WORKER: u64 = 1 << 63;

/// Whether a worker is one that does not exist.
pub(super) fn is_local(worker: WorkerId) -> bool {
    worker.0 >= FIRST_WORKER
}

/// See the module.
pub(crate) struct LocalNode {
    me: WorkerId,
    total: ResourceSet,
    leases: u64,
    reported: HashSet<ShapeId>,
    /// Living actors and the calls they may execute at a time.
    actors: FxHashMap<ActorId, u32>,
    /// Actors that ended since the shell took this list, and whether in order.
    pub(super) ended: Vec<(ActorId, bool)>,
}

/// What happens with a message to the node.
pub(super) enum Answer {
    /// The message is for the real node.
    Pass(Box<Message>),
    /// The client's own answers.
    Replies(Vec<Message>),
}

impl LocalNode {
    pub(super) fn new(me: WorkerId, total: ResourceSet) -> Self {
        Self {
            me,
            total,
            leases: 0,
            reported: HashSet::new(),
            actors: FxHashMap::default(),
            ended: Vec::new(),
        }
    }

    pub(super) fn on_message(&mut self, message: Message) -> Answer {
        Answer::Replies(match message {
            Message::RequestLease(request) => self.grant(&request),
            Message::CreateActor(create) => {
                let resources = [&create.placement, &create.lifetime];
                if let Some(asked) = resources.into_iter().find(|asked| !self.is_feasible(asked)) {
                    let report = Infeasible {
                        asked: asked.clone(),
                        total: self.total.clone(),
                        closed: None,
                        reason: None,
                    };
                    return Answer::Replies(vec![report.into()]);
                }
                let (actor, concurrency) = (create.actor, create.constructor.spec.concurrency());
                self.actors.insert(actor, concurrency);
                let started = self.started(actor, concurrency);
                vec![(*create.class).into(), (*create.constructor).into(), started]
            }
            Message::SubscribeActor(subscribe) => {
                let actor = subscribe.actor;
                vec![match self.actors.get(&actor) {
                    Some(&concurrency) => self.started(actor, concurrency),
                    None => dead(actor, "the actor is gone: its last handle was dropped before"),
                }]
            }
            Message::KillActor(kill) => self.end(kill.actor, false, "the actor was ended by sooner.kill()"),
            Message::ActorOutOfScope(gone) => {
                self.end(gone.actor, true, "the actor ended because its last handle was dropped")
            }
            Message::ActorReady(ready) => match ready.failure {
                Some(failure) => {
                    let is_exit = failure.code == FailureCode::ActorDied;
                    self.actors.remove(&ready.actor);
                    self.ended.push((ready.actor, is_exit));
                    vec![ActorDead { actor: ready.actor, failure }.into()]
                }
                None => Vec::new(),
            },
            Message::ReturnLease(_) | Message::Blocked(_) | Message::Unblocked(_) | Message::GiveBlock(_) => {
                Vec::new()
            }
            other => return Answer::Pass(Box::new(other)),
        })
    }

    /// The message, if any, that reports to the real node that an actor's name is free.
    pub(super) fn frees_name(message: &Message) -> Option<Message> {
        let actor = match message {
            Message::KillActor(kill) => kill.actor,
            Message::ActorReady(ready) if ready.failure.is_some() => ready.actor,
            Message::ActorOutOfScope(gone) => gone.actor,
            _ => return None,
        };
        Some(ActorOutOfScope { actor }.into())
    }

    fn started(&self, actor: ActorId, concurrency: u32) -> Message {
        ActorStarted { actor, worker: self.me, concurrency, replays: None, restarts: None }.into()
    }

    fn is_feasible(&self, asked: &ResourceSet) -> bool {
        let amount = |name: &str| self.total.iter().find(|(own, _)| *own == name).map_or(0, |(_, n)| n);
        asked.iter().all(|(name, wanted)| wanted <= amount(name))
    }

    fn grant(&mut self, request: &RequestLease) -> Vec<Message> {
        if !self.is_feasible(&request.resources) {
            let asked = request.resources.clone();
            let is_new = request.demand > 0 && self.reported.insert(request.shape);
            return is_new
                .then(|| Infeasible { asked, total: self.total.clone(), closed: None, reason: None }.into())
                .into_iter()
                .collect();
        }
        let gpus = request.resources.iter().find(|(name, _)| *name == "GPU").map_or(0, |(_, amount)| amount);
        let gpus: Vec<u32> = (0..).take(gpus.div_ceil(sooner_wire::resources::UNIT) as usize).collect();
        let mut grants = Vec::new();
        for _ in 0..request.demand {
            self.leases += 1;
            let worker = WorkerId(FIRST_WORKER + self.leases);
            let lease = LeaseId(self.leases);
            grants.push(LeaseGranted { shape: request.shape, lease, worker, gpus: gpus.clone() }.into());
        }
        grants
    }

    fn end(&mut self, actor: ActorId, in_order: bool, why: &str) -> Vec<Message> {
        if self.actors.remove(&actor).is_none() {
            return Vec::new();
        }
        self.ended.push((actor, in_order));
        vec![dead(actor, why)]
    }
}

fn dead(actor: TaskId, why: &str) -> Message {
    ActorDead { actor, failure: Failure::new(FailureCode::ActorDied, why) }.into()
}

/// The sender of a message that came back to this process, as its receiver sees it.
pub(super) fn sender(
    me: WorkerId,
    message: &Message,
    pushed_to: impl Fn(TaskId) -> Option<WorkerId>,
) -> Peer {
    match message {
        Message::Reply(reply) => Peer::Worker(pushed_to(reply.task).unwrap_or(me)),
        Message::TasksReturned(returned) => {
            let worker = returned.tasks.first().and_then(|task| pushed_to(*task));
            Peer::Worker(worker.unwrap_or(me))
        }
        _ => Peer::Worker(me),
    }
}
