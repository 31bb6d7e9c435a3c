//! Actors in the simulated world: restarts, retried and unordered calls, concurrency groups, detached ones, ends.
//!
//! The oracle: in one process calls of one group begin in the order in which they were made, unless the actor is
//! unordered, and never more at a time than the group has places.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_protocol::ownership::Slot;
use weft_protocol::worker::ActorDemand;
use weft_wire::message::{TaskKind, TaskSpec};
use weft_wire::{ActorId, ResourceSet, TaskId};

use super::{Handle, World, spec};

/// Places of the groups of an actor that has groups, the default one first.
const PLACES: [u32; 3] = [1, 2, 1];

/// An actor of the program.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimActor {
    pub(super) id: ActorId,
    is_detached: bool,
    is_unordered: bool,
    has_groups: bool,
    retries: i32,
}

impl SimActor {
    /// Makes a task's description one of a call of this actor.
    pub(super) fn make_call(&self, spec: &mut TaskSpec) {
        let group = u32::try_from(spec.task.number % PLACES.len() as u64).expect("few");
        spec.retries = self.retries;
        spec.unordered = self.is_unordered.then_some(true);
        spec.group = if self.has_groups { group.checked_sub(1) } else { None };
    }
}

/// What one process has begun of its actor's calls.
#[derive(Debug, Default)]
pub(super) struct Starts {
    has_groups: bool,
    latest: BTreeMap<Option<u32>, u64>,
}

impl Starts {
    /// Calls that may run at a time.
    pub(super) fn places(&self) -> usize {
        if self.has_groups { PLACES.iter().sum::<u32>() as usize } else { 1 }
    }

    pub(super) fn on_constructor(&mut self, spec: &TaskSpec) {
        self.has_groups = spec.groups.is_some();
    }

    pub(super) fn on_call<'a>(&mut self, spec: &TaskSpec, running: impl Iterator<Item = &'a TaskSpec>) {
        let of_group = running.filter(|other| other.group == spec.group && is_call(other)).count();
        let places =
            if self.has_groups { PLACES[spec.group.map_or(0, |group| group as usize + 1)] } else { 1 };
        assert!(of_group < places as usize, "a group has {places} places: {:?}", spec.task);
        if spec.unordered != Some(true) {
            let latest = self.latest.insert(spec.group, spec.task.number);
            assert!(latest.is_none_or(|latest| latest < spec.task.number), "E2: {:?} is late", spec.task);
        }
    }
}

fn is_call(spec: &TaskSpec) -> bool {
    matches!(spec.kind, TaskKind::Method(_))
}

impl World {
    pub(super) fn create_actor(&mut self) {
        let process = self.processes.get_mut(&self.driver).expect("the driver lives");
        process.numbers += 1;
        let id = TaskId { owner: self.driver, number: process.numbers };
        let actor = SimActor {
            id,
            is_detached: self.random.chance(1, 3),
            is_unordered: self.random.chance(1, 3),
            has_groups: self.random.chance(1, 3),
            retries: [0, 1, 3, -1][self.random.below(4)],
        };
        let demand = ActorDemand {
            restarts: [0, 1, 4, -1][self.random.below(4)],
            detached: actor.is_detached,
            placement: ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]),
            lifetime: ResourceSet::default(),
        };
        let dependencies =
            self.handles.iter().filter(|handle| !handle.is_actor).map(|handle| handle.id).take(1);
        let mut spec = spec(id, TaskKind::Creation, dependencies.collect(), Vec::new());
        if actor.has_groups {
            spec.concurrency = PLACES.iter().sum();
            spec.groups = Some(PLACES[1..].into());
        }
        let slot = Arc::new(Slot::default());
        slot.acquire();
        self.actors.push(actor);
        self.handles.push(Handle { id: id.object(0), slot: slot.clone(), is_actor: true });
        self.with_core(self.driver, |core, out| core.create_actor(Arc::new(spec), slot, demand, out));
    }

    /// The last handle of an actor goes: a detached one would live on, so the program ends it.
    pub(super) fn leave_actor(&mut self, id: ActorId) {
        let Some(at) = self.actors.iter().position(|actor| actor.id == id) else { return };
        if self.actors.swap_remove(at).is_detached {
            self.has_killed_actors = true;
            self.with_core(self.driver, |core, out| core.kill_actor(id, "the actor", false, out));
        }
    }

    /// The program ends an actor, or only its process.
    pub(super) fn kill_an_actor(&mut self) {
        if self.actors.is_empty() {
            return;
        }
        let id = self.actors[self.random.below(self.actors.len())].id;
        let may_restart = self.random.chance(2, 3);
        self.has_killed_actors = true;
        self.kills += usize::from(may_restart);
        self.with_core(self.driver, |core, out| core.kill_actor(id, "the actor", may_restart, out));
    }
}
