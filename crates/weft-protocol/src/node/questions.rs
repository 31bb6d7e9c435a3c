//! Questions that clients ask and the node answers at once: names of actors, resources, workers.

use weft_wire::WorkerId;
use weft_wire::message::{Answer, FindName, ListNames, Query, QueryKind, ReserveName};

use super::{Actor, ActorPhase, NodeAction, NodeActions, NodeCore, WorkerState};

fn answer(to: WorkerId, answer: Answer, out: &mut NodeActions) {
    out.push(NodeAction::Send(to, Box::new(answer.into())));
}

impl NodeCore {
    pub(super) fn on_reserve_name(&mut self, from: WorkerId, reserve: ReserveName, out: &mut NodeActions) {
        let mut reply = Answer { request: reserve.request, ..Answer::default() };
        let key = (reserve.namespace, reserve.name);
        if let Some((actor, description)) = self.names.get(&key) {
            reply.error = Some(format!(
                "an actor named {:?} exists in namespace {:?}: use weft.get_actor(), end it first, or choose another name",
                key.1, key.0
            ));
            reply.actor = Some(*actor);
            reply.description = Some(description.clone());
        } else {
            self.names.insert(key.clone(), (reserve.actor, reserve.description));
            let actor = self.actors.entry(reserve.actor).or_insert_with(|| Actor::new(from));
            actor.name = Some(key);
        }
        answer(from, reply, out);
    }

    pub(super) fn on_find_name(&mut self, from: WorkerId, find: &FindName, out: &mut NodeActions) {
        let mut reply = Answer { request: find.request, ..Answer::default() };
        match self.names.get(&(find.namespace.clone(), find.name.clone())) {
            Some((actor, description)) => {
                reply.actor = Some(*actor);
                reply.description = Some(description.clone());
            }
            None => {
                reply.error =
                    Some(format!("no actor named {:?} lives in namespace {:?}", find.name, find.namespace));
            }
        }
        answer(from, reply, out);
    }

    pub(super) fn on_list_names(&mut self, from: WorkerId, list: &ListNames, out: &mut NodeActions) {
        let wanted = |namespace: &str| list.namespace.as_deref().is_none_or(|n| n == namespace);
        let names = self.names.keys().filter(|(namespace, _)| wanted(namespace)).cloned().collect();
        answer(from, Answer { request: list.request, names: Some(names), ..Answer::default() }, out);
    }

    fn describe_own(&self, from: WorkerId, reply: &mut Answer) {
        let state = self.workers.get(&from).map(|worker| worker.state);
        match state {
            Some(WorkerState::Leased(lease)) => {
                reply.resources = self.leases.get(&lease).map(|l| l.grant.resources.clone());
            }
            Some(WorkerState::Actor(actor)) => {
                let Some(actor) = self.actors.get(&actor) else { return };
                reply.names = actor.name.clone().map(|name| vec![name]);
                if let ActorPhase::Placed { grant, .. } = &actor.phase {
                    reply.resources = Some(grant.resources.clone());
                }
            }
            Some(WorkerState::Starting | WorkerState::Idle { .. }) | None => {}
        }
    }

    pub(super) fn on_query(&mut self, from: WorkerId, query: &Query, out: &mut NodeActions) {
        let mut reply = Answer { request: query.request, ..Answer::default() };
        match query.what {
            QueryKind::TotalResources => reply.resources = Some(self.resources.total().clone()),
            QueryKind::AvailableResources => reply.resources = Some(self.resources.free().clone()),
            QueryKind::Own => self.describe_own(from, &mut reply),
            QueryKind::Workers => {
                reply.numbers = Some(self.workers.values().map(|w| u64::from(w.pid)).collect());
            }
        }
        answer(from, reply, out);
    }
}
