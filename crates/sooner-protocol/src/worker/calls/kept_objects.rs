//! Objects of this process that the checkpoints of actors refer to, as the node reports.
//!
//! The uses are in the ownership table; this module records their purpose.

use sooner_wire::{ActorId, ObjectId};

use crate::table::Map;

/// See the module.
#[derive(Debug, Default)]
pub struct KeptObjects {
    by_actor: Map<ActorId, Vec<ObjectId>>,
}

impl KeptObjects {
    /// The last checkpoint of an actor refers to these objects, too. Gives those that are new.
    pub fn extend(&mut self, actor: ActorId, objects: Vec<ObjectId>) -> &[ObjectId] {
        let kept = self.by_actor.entry(actor).or_default();
        let before = kept.len();
        let new: Vec<ObjectId> = objects.into_iter().filter(|object| !kept.contains(object)).collect();
        kept.extend(new);
        &kept[before..]
    }

    /// Another checkpoint refers to these objects alone. Gives those of the one before.
    pub fn replace(&mut self, actor: ActorId, objects: Vec<ObjectId>) -> Vec<ObjectId> {
        let before = match objects.is_empty() {
            true => self.by_actor.swap_remove(&actor),
            false => self.by_actor.insert(actor, objects),
        };
        before.unwrap_or_default()
    }

    /// The kept objects, each as often as it is used.
    pub fn all(&self) -> impl Iterator<Item = ObjectId> {
        self.by_actor.values().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::{TaskId, WorkerId};

    use super::*;

    #[test]
    fn a_checkpoint_takes_the_place_of_the_one_before() {
        let actor = TaskId { owner: WorkerId(2), number: 9 };
        let [a, b] = [1, 2].map(|number| TaskId { owner: WorkerId(1), number }.object(0));
        let mut kept = KeptObjects::default();
        assert_eq!(kept.replace(actor, vec![a]), []);
        assert_eq!(kept.extend(actor, vec![a, b]), [b], "one that is kept is not used twice");
        assert_eq!(kept.replace(actor, vec![b]), [a, b]);
        assert_eq!(kept.replace(actor, Vec::new()), [b]);
        assert_eq!(kept.all().count(), 0);
    }
}
