//! Names of actors: one actor to a name, in the whole cluster.

use sooner_wire::WorkerId;
use sooner_wire::message::{Answer, FindName, ListNames, ReserveName};

use super::actors::Actor;
use super::durable::{Held, Subject};
use crate::control::{Directory, DirectoryActions};
use sooner_wire::ActorId;

impl Directory {
    pub(in crate::control) fn on_reserve_name(
        &mut self,
        from: WorkerId,
        reserve: ReserveName,
        out: &mut DirectoryActions,
    ) {
        let mut reply = Answer { request: reserve.request, ..Answer::default() };
        let key = (reserve.namespace, reserve.name);
        let taken = self.names.get(&key).filter(|(actor, _)| *actor != reserve.actor);
        if let Some((actor, description)) = taken {
            reply.error = Some(format!(
                "an actor named {:?} exists in namespace {:?}: use sooner.get_actor(), end it first, or choose another name",
                key.1, key.0
            ));
            reply.actor = Some(*actor);
            reply.description = Some(description.clone());
        } else {
            self.names.insert(key.clone(), (reserve.actor, reserve.description));
            let actor = self.actors.entry(reserve.actor).or_insert_with(|| Actor::new(from));
            actor.name = Some(key.clone());
            // Held, so that no process relies on a name that a later control service would give away.
            return self.when_written(|| Subject::Name(key), Held::Answer(from, Box::new(reply)), out);
        }
        self.send(from, reply, out);
    }

    pub(in crate::control) fn on_find_name(
        &mut self,
        from: WorkerId,
        find: &FindName,
        out: &mut DirectoryActions,
    ) {
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
        self.send(from, reply, out);
    }

    pub(in crate::control) fn on_list_names(
        &mut self,
        from: WorkerId,
        list: &ListNames,
        out: &mut DirectoryActions,
    ) {
        let wanted = |namespace: &str| list.namespace.as_deref().is_none_or(|n| n == namespace);
        let names = self.names.keys().filter(|(namespace, _)| wanted(namespace)).cloned().collect();
        self.send(from, Answer { request: list.request, names: Some(names), ..Answer::default() }, out);
    }

    pub(in crate::control) fn free_name(&mut self, id: ActorId) {
        if let Some(name) = self.actors.get_mut(&id).and_then(|actor| actor.name.take())
            && self.names.get(&name).is_some_and(|(owner, _)| *owner == id)
        {
            self.names.swap_remove(&name);
            self.note(|| Subject::Name(name));
        }
    }
}
