//! When a process dies: what it had from this one, and this one from it, stays until everybody has been heard
//! (`docs/adr/0015-settling-a-death.md`).

use sooner_wire::message::{HeldFrom, Settled};
use sooner_wire::{ObjectId, WorkerId};

use crate::worker::WorkerCore;
use crate::worker::action::{Actions, Peer, send};
use crate::worker::calls::{ActorPlace, replaying};
use crate::worker::core::uses;
use crate::worker::tasks::State;

impl WorkerCore {
    /// A process died with tasks, calls or an actor of ours. It may have lent their arguments on, so they
    /// stay used.
    pub(in crate::worker) fn keep_lent(&mut self, gone: WorkerId, tasks: &[u64]) {
        let calls = self.callers.in_flight();
        let pushed = tasks.iter().copied().chain(calls).filter_map(|number| self.pendings.get(number));
        let mut lent: Vec<ObjectId> = pushed
            .filter(|pending| matches!(pending.state, State::Pushed { worker, .. } if worker == gone))
            .flat_map(|pending| uses(&pending.spec))
            .collect();
        // Where an actor was that this process has ended is not known any more.
        let may_be_there = |place: Option<&ActorPlace>| match place {
            Some(ActorPlace::At { worker, .. }) => *worker == gone,
            Some(ActorPlace::Dead(_) | ActorPlace::OutOfReach(_)) => true,
            Some(ActorPlace::Pending) | None => false,
        };
        let actors = self.creations.keys().filter(|actor| may_be_there(self.callers.place(**actor)));
        let constructors = actors.filter_map(|actor| self.pendings.get(actor.number));
        lent.extend(constructors.flat_map(|pending| uses(&pending.spec)));
        let ghosts = self.callers.ghosts(|place| may_be_there(Some(place)));
        lent.extend(ghosts.flat_map(replaying::arguments));
        if !lent.is_empty() {
            lent.iter().for_each(|object| self.ownership.add_use(*object));
            self.lent.push((gone, lent));
        }
    }

    /// Says what this process holds of a dead one.
    pub(in crate::worker) fn report_held(&mut self, gone: WorkerId, out: &mut Actions) {
        let lent = self.execution.lent_by(gone);
        let held = self.ownership.held_from(gone, &lent);
        send(out, Peer::Node, HeldFrom { gone, held });
    }

    /// Everybody has been heard.
    pub(in crate::worker) fn on_settled(&mut self, settled: &Settled, out: &mut Actions) {
        self.ownership.on_settled(settled, out);
        for (gone, objects) in std::mem::take(&mut self.lent) {
            if settled.gone.contains(&gone) {
                objects.into_iter().for_each(|object| self.ownership.end_use(object, out));
            } else {
                self.lent.push((gone, objects));
            }
        }
        self.forget_dropped_actors();
    }
}
