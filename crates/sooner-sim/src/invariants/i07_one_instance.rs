//! I7: an actor has one process at a time, and its calls run there in their order, after the constructor.

use sooner_protocol::worker::execution::Incoming;
use sooner_wire::ActorId;
use sooner_wire::message::TaskKind;

use crate::violation::fail;
use crate::world::{World, number_of};

impl World {
    /// A constructor begins.
    pub fn check_one_instance(&self, number: u32, actor: ActorId) {
        let others = self.processes.running();
        for other in others.filter(|other| number_of(other.id) != number) {
            if other.instance.as_ref().is_some_and(|instance| instance.actor == actor) {
                fail("I7", format!("{actor:?} is constructed in {number} and lives in {:?}", other.id));
            }
        }
    }

    /// A call begins.
    pub fn check_call(&mut self, number: u32, incoming: &Incoming) {
        let spec = &incoming.push.spec;
        let has_raised = self.oracle.facts[&spec.task].has_raised;
        // A call whose result was lost is executed again, behind later calls.
        let is_repeated = self.process(number_of(spec.task.owner)).core.recovers(spec.task);
        let process = self.process_mut(number);
        let groups = process.frames.iter().filter_map(|frame| frame.call_group());
        let of_group = groups.filter(|group| *group == spec.group()).count();
        let Some(instance) = &mut process.instance else {
            fail("E3", format!("{:?} begins in a process without its actor", spec.task));
        };
        if !instance.is_constructed || TaskKind::Method(instance.actor) != spec.kind() {
            fail("E3", format!("{:?} begins before the constructor of its actor has ended", spec.task));
        }
        let group = spec.group().map_or(0, |group| group as usize + 1);
        let places = instance.groups.get(group).copied().unwrap_or(instance.concurrency.max(1));
        if of_group >= places as usize {
            fail("I7", format!("{:?} begins in a group with {places} places, {of_group} taken", spec.task));
        }
        // A call that raised or whose result was lost is executed again, behind later ones.
        if instance.is_unordered || spec.is_unordered() || has_raised || is_repeated {
            return;
        }
        let key = (spec.task.owner, spec.group());
        let latest = instance.latest.insert(key, spec.task.number);
        if latest.is_some_and(|latest| latest >= spec.task.number) {
            fail("E2", format!("{:?} begins after {latest:?} of the same caller", spec.task));
        }
    }
}
