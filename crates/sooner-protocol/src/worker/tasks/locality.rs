//! Sends tasks to their arguments: a task whose arguments are in the memory of another node waits in a lane
//! for that node ([`crate::worker::tasks`], `docs/scheduling.md`).
//!
//! It never moves a queued task: the places of its arguments are looked up once, when all have outcomes.

use std::sync::Arc;

use sooner_wire::message::{Outcome, TaskSpec};
use sooner_wire::{NodeId, ShapeId};

use crate::scheduling::policy::holder_of_most;
use crate::worker::WorkerCore;
use crate::worker::action::Actions;

impl WorkerCore {
    /// The shape or lane in which a task waits whose arguments have their outcomes.
    pub(in crate::worker) fn near_arguments(&mut self, number: u64, shape: ShapeId) -> ShapeId {
        let Some(pending) = self.pendings.get(number) else { return shape };
        let prefer = self.node_of_arguments(&pending.spec);
        let near = self.leases.near(shape, prefer);
        if near != shape
            && let Some(pending) = self.pendings.get_mut(number)
        {
            Arc::make_mut(&mut pending.spec).set_shape(near);
        }
        near
    }

    /// The other node that holds most bytes of a task's arguments, if another one does.
    fn node_of_arguments(&self, spec: &TaskSpec) -> Option<NodeId> {
        let here = self.me.node();
        let values = spec.dependencies.iter().filter_map(|object| {
            match &*self.ownership.record(*object)?.slot.outcome()? {
                Outcome::Stored(location) => Some((here, location.length)),
                Outcome::Remote(remote) => Some((remote.node, remote.location.length)),
                Outcome::Inline(_) | Outcome::Failed(_) => None,
            }
        });
        holder_of_most(values).filter(|node| *node != here)
    }

    /// Serves a shape and its lanes. False if it has none.
    pub(in crate::worker) fn dispatch_lanes(&mut self, shape: ShapeId, out: &mut Actions) -> bool {
        let lanes = self.leases.lanes_of(shape);
        let mut held_back = Vec::new();
        for id in &lanes {
            while let Some(front) = self.leases.front_in(*id, self.now) {
                let spec = &self.pendings.get(front).expect("L1: queued tasks are pending").spec;
                let function = spec.function().expect("a task in the queue of a shape calls a function");
                let bytes = self.ownership.bytes_in_memory(&spec.dependencies);
                if !self.may_send(front, bytes) {
                    held_back.push(*id);
                    break;
                }
                let Some(to) = self.leases.next_push_in(*id, function, self.now) else { break };
                self.push(to.task, to.worker, to.gpus, to.estimate, out);
            }
        }
        for id in &lanes {
            self.leases.record_waiting(*id, self.now);
            if !held_back.contains(id) {
                self.ask_for_leases(*id, out);
            }
        }
        !lanes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::TaskId;
    use sooner_wire::message::{Message, RequestLease};

    use super::*;
    use crate::time::Instant;
    use crate::worker::action::Action;
    use crate::worker::testing::{HERE, ME, THERE, core, grant, pushed, submit, value};

    const MB: u64 = 1 << 20;

    fn requests(out: &Actions) -> Vec<RequestLease> {
        let request = |action: &Action| match action {
            Action::Send { message, .. } => match &**message {
                Message::RequestLease(request) => Some(request.clone()),
                _ => None,
            },
            _ => None,
        };
        out.iter().filter_map(request).collect()
    }

    #[test]
    fn a_task_asks_for_the_node_that_holds_most_of_its_arguments() {
        let (mut core, shape) = core();
        let (there, third) = (THERE.node(), NodeId(3 << 24));
        let large = value(&mut core, 101, there, 3 * MB);
        let here = value(&mut core, 102, ME.node(), 2 * MB);
        let other = value(&mut core, 103, third, 2 * MB);
        for (number, dependencies, expected) in [
            (1, vec![], None),
            (2, vec![here], None),
            (3, vec![other, large, here], Some(there)),
            (4, vec![other], Some(third)),
        ] {
            let out = submit(&mut core, shape, number, dependencies);
            let asked = requests(&out);
            match number {
                2 => assert_eq!(asked, [], "that shape has asked"),
                _ => assert_eq!(asked.iter().map(|r| r.prefer).collect::<Vec<_>>(), [expected], "{number}"),
            }
        }
        let both = [here, large].map(|object| value(&mut core, 200 + object.task.number, ME.node(), 2 * MB));
        let out = submit(&mut core, shape, 5, vec![large, both[0], both[1]]);
        assert_eq!(requests(&out), [], "two here are more than one there: it waits with the others");
    }

    #[test]
    fn a_task_is_pushed_to_its_arguments_and_after_a_while_elsewhere() {
        let (mut core, shape) = core();
        let mut out = Actions::new();
        grant(&mut core, shape, HERE, 1, &mut out);
        let large = value(&mut core, 101, THERE.node(), MB);
        let out = submit(&mut core, shape, 1, vec![large]);
        assert_eq!(pushed(&out), [], "a lease here is idle, and the argument is there");
        let lane = requests(&out)[0].shape;
        let mut out = Actions::new();
        grant(&mut core, lane, THERE, 2, &mut out);
        assert_eq!(pushed(&out), [(THERE, 1)]);
        submit(&mut core, shape, 2, vec![large]);
        let mut out = Actions::new();
        core.on_timer(Instant(3), &mut out);
        let again = core.next_deadline().expect("something waits");
        assert_eq!(pushed(&out), []);
        let mut out = Actions::new();
        core.on_timer(again, &mut out);
        assert_eq!(pushed(&out), [(HERE, 2)], "it has waited for long enough");
        core.on_timer(again, &mut Actions::new());
        assert!(core.next_deadline().is_none_or(|at| at > again));
    }

    #[test]
    fn a_cancelled_task_leaves_its_lane() {
        let (mut core, shape) = core();
        let large = value(&mut core, 101, THERE.node(), MB);
        let lane = requests(&submit(&mut core, shape, 1, vec![large]))[0].shape;
        let mut out = Actions::new();
        core.cancel(TaskId { owner: ME, number: 1 }, false, false, &mut out);
        let withdrawn = requests(&out);
        assert_eq!(withdrawn.iter().map(|r| (r.shape, r.demand)).collect::<Vec<_>>(), [(lane, 0)]);
        assert_eq!(core.pending_tasks(), 0);
    }
}
