//! Faults: processes killed, machines lost, networks that carry nothing, heads that die.

use sooner_wire::WorkerId;
use sooner_wire::message::Drained;

use super::net::{HEAD, Split};
use super::plan::SECOND;
use super::world::{Event, World};

impl World {
    /// Strikes with one fault of the plan.
    pub(super) fn blow(&mut self) {
        if self.plan.faults.is_empty() || !self.is_on() {
            return;
        }
        self.blows += 1;
        let word = self.plan.faults[self.random.below(self.plan.faults.len())];
        self.trace.send(|| format!("{:?}: {word}", self.now));
        match word {
            "kill" => self.with_some_node(|world, at| world.end_node(at, true)),
            "lose" => self.with_some_node(|world, at| world.end_node(at, false)),
            "leave" => self.with_some_node(|world, at| {
                let node = world.nodes[at].id;
                world.send(at, HEAD, Drained { node }.into());
                world.after(5 * SECOND / 1000, Event::Left(at));
            }),
            "split" => self.split(),
            "worker" => self.kill_some_process(),
            "head" => self.stop_head(),
            _ => {}
        }
    }

    fn with_some_node(&mut self, act: impl FnOnce(&mut Self, usize)) {
        let place = 1 + self.random.below(self.plan.nodes.saturating_sub(1).max(1));
        let node = self.places.get(place).and_then(|place| place.node);
        if let Some(at) = node.filter(|at| self.nodes[*at].runs()) {
            act(self, at);
        }
    }

    fn kill_some_process(&mut self) {
        if self.processes.is_empty() {
            return;
        }
        let at = self.random.below(self.processes.len());
        let worker: Option<WorkerId> = self.processes.get_index(at).map(|(worker, _)| *worker);
        worker.into_iter().for_each(|worker| self.end_process(worker));
    }

    fn split(&mut self) {
        let share = 1 + self.random.below(6) as u64;
        let one_side = (0..self.plan.nodes).map(|_| self.random.chance(1, 1 + share)).collect();
        let longest = self.plan.health_timeout * [1, 1, 3][self.random.below(3)];
        let until = self.now.plus(self.random.below(usize::try_from(longest).expect("seconds")) as u64);
        let now = self.now;
        self.splits.retain(|split| split.until > now);
        self.splits.push(Split { one_side, until });
    }

    fn stop_head(&mut self) {
        if self.head.is_none() {
            return;
        }
        self.end_head();
        let pause = SECOND / 20 + self.about(SECOND);
        self.after(pause, Event::Head);
    }

    /// Ends all faults: machines reach each other, and the head runs.
    pub(super) fn mend_all(&mut self) {
        self.splits.clear();
        self.start_head();
    }
}
