//! Arguments of tasks and calls that were with processes that died. Such a process may have lent them on, so
//! they stay used until its death is settled (`docs/adr/0015-settling-a-death.md`).
//!
//! The uses are in the ownership table; this module records their purpose.

use sooner_wire::{ObjectId, WorkerId};

/// See the module.
#[derive(Debug, Default)]
pub struct Lent {
    by_process: Vec<(WorkerId, Vec<ObjectId>)>,
}

impl Lent {
    /// The dead process `gone` had these.
    pub fn insert(&mut self, gone: WorkerId, objects: Vec<ObjectId>) {
        self.by_process.push((gone, objects));
    }

    /// The deaths of `gone` are settled. Gives the objects that no process can have from them any more.
    pub fn on_settled(&mut self, gone: &[WorkerId]) -> impl Iterator<Item = ObjectId> + use<> {
        let is_settled = |(process, _): &mut (WorkerId, Vec<ObjectId>)| gone.contains(process);
        let settled: Vec<_> = self.by_process.extract_if(.., is_settled).collect();
        settled.into_iter().flat_map(|(_, objects)| objects)
    }

    /// What each dead process had.
    pub fn iter(&self) -> impl Iterator<Item = (WorkerId, &[ObjectId])> {
        self.by_process.iter().map(|(gone, objects)| (*gone, &**objects))
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::TaskId;

    use super::*;

    #[test]
    fn what_a_dead_process_had_stays_until_its_death_is_settled() {
        let (one, other) = (WorkerId(5), WorkerId(6));
        let objects = [1, 2, 3].map(|number| TaskId { owner: WorkerId(1), number }.object(0));
        let mut lent = Lent::default();
        lent.insert(one, objects[..2].to_vec());
        lent.insert(other, objects[1..].to_vec());
        assert_eq!(lent.on_settled(&[other]).collect::<Vec<_>>(), objects[1..]);
        assert_eq!(lent.iter().collect::<Vec<_>>(), [(one, &objects[..2])]);
        assert_eq!(lent.on_settled(&[other]).count(), 0);
    }
}
