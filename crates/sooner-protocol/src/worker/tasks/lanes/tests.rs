//! What waits in lanes is pushed to its arguments, or elsewhere when it has waited.

use proptest::prelude::*;
use proptest::strategy::Strategy as _;
use sooner_wire::limits::LEASE_IDLE_NANOS;
use sooner_wire::message::{Failure, FailureCode, LeaseGranted, Message, RequestLease};
use sooner_wire::strategy::Strategy;
use sooner_wire::{LeaseId, ResourceSet, WorkerId};

use super::*;
use crate::worker::action::{Action, Actions};
use crate::worker::tasks::Replied;

const FUNCTION: FunctionId = FunctionId(1);
const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);

fn worker(node: NodeId, number: u64) -> WorkerId {
    WorkerId(node.0 + number)
}

fn grant(shape: ShapeId, lease: u64, worker: WorkerId) -> LeaseGranted {
    LeaseGranted { shape, lease: LeaseId(lease), worker, gpus: vec![] }
}

/// A shape, and its lane for the other node.
fn laned() -> (Leases, ShapeId, ShapeId) {
    let mut leases = Leases::default();
    let base = leases.shape(&ResourceSet::default(), None);
    let lane = leases.near(base, Some(THERE));
    (leases, base, lane)
}

#[test]
fn a_lane_is_made_once_per_node_and_none_where_the_place_is_said() {
    let (mut leases, base, lane) = laned();
    assert_ne!(base, lane);
    assert_eq!([leases.near(base, Some(THERE)), leases.near(lane, Some(THERE))], [lane, lane]);
    assert_eq!([leases.near(lane, None), leases.base(lane), leases.base(base)], [base; 3]);
    let third = leases.near(lane, Some(NodeId(3 << 24)));
    assert!(third != lane && leases.base(third) == base, "a lane of the shape, not of the lane");
    let spread = leases.shape(&ResourceSet::default(), Some(&Strategy::Spread));
    assert_eq!(leases.near(spread, Some(THERE)), spread);
    assert_eq!(leases.shape_ids(), [base, spread]);
    assert_eq!(leases.lanes_of(spread), []);
    for node in 4..2 * LANES_MAX as u64 {
        let lane = leases.near(base, Some(NodeId(node << 24)));
        leases.enqueue(lane, node, None);
    }
    let last = Some(NodeId(1 << 40));
    assert_eq!(
        (leases.near(base, last), leases.lanes_of(base).len()),
        (base, LANES_MAX + 1),
        "all are needed"
    );
    let freed = leases.near(base, Some(NodeId(9 << 24)));
    leases.remove_queued(freed, 9);
    assert_eq!(leases.near(base, last), freed, "one that is not needed");
    leases.close(freed, Failure::new(FailureCode::TaskUnschedulable, "no"));
    assert_eq!(leases.near(base, last), base, "nobody has said that of the shape");
}

#[test]
fn tasks_go_where_their_arguments_are_and_elsewhere_when_they_have_waited() {
    let (mut leases, base, lane) = laned();
    let (near, far) = (worker(THERE, 1), worker(HERE, 1));
    leases.on_granted(grant(base, 1, far), Instant(0));
    leases.on_granted(grant(base, 2, near), Instant(0));
    leases.enqueue(lane, 1, None);
    leases.enqueue(lane, 2, None);
    let push = leases.next_push_in(lane, FUNCTION, Instant(0)).expect("a lease there is idle");
    assert_eq!(push.worker, near);
    assert_eq!(leases.next_push_in(lane, FUNCTION, Instant(0)), None);
    leases.record_waiting(lane, Instant(0));
    assert_eq!(leases.next_steal(), Some(Instant(STEAL_NANOS)));
    assert_eq!(leases.late(Instant(STEAL_NANOS - 1)), []);
    assert_eq!(leases.late(Instant(STEAL_NANOS)), [base]);
    let push = leases.next_push_in(lane, FUNCTION, Instant(STEAL_NANOS)).expect("it is late");
    assert_eq!((push.task, push.worker), (2, far));
    leases.record_waiting(lane, Instant(STEAL_NANOS));
    assert_eq!(leases.next_steal(), None);
}

#[test]
fn a_lease_serves_the_lane_that_it_was_asked_for_wherever_it_is() {
    let (mut leases, base, lane) = laned();
    leases.enqueue(lane, 1, None);
    let mut out = Actions::new();
    assert!(leases.update_demand(lane, &mut out) && leases.update_demand(base, &mut out));
    let requests: Vec<RequestLease> = out
        .iter()
        .map(|action| match action {
            Action::Send { message, .. } => match &**message {
                Message::RequestLease(request) => request.clone(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!((request.shape, request.prefer, request.demand), (lane, Some(THERE), 1));
    leases.on_granted(grant(lane, 1, worker(HERE, 1)), Instant(0));
    assert_eq!(leases.front_in(lane, Instant(0)), Some(1));
    let push = leases.next_push_in(lane, FUNCTION, Instant(0)).expect("the node had nothing better");
    assert_eq!(push.worker, worker(HERE, 1));
    // Its reply says the lane; the lease is the shape's.
    let (worker, estimate) = (push.worker, push.estimate);
    let reply = Replied { shape: lane, worker, task: 1, estimate, function: FUNCTION, nanos: 10 };
    leases.on_reply(&reply, Instant(1));
    leases.check(|_| 0);
    leases.enqueue(base, 2, None);
    assert!(leases.next_push_in(base, FUNCTION, Instant(1)).is_some(), "it serves those without a lane, too");
    assert_eq!(leases.held(), 1);
}

#[test]
fn a_lease_is_kept_while_a_lane_of_its_shape_waits() {
    let (mut leases, base, lane) = laned();
    leases.on_granted(grant(base, 1, worker(HERE, 1)), Instant(0));
    leases.enqueue(lane, 1, None);
    let mut out = Actions::new();
    leases.return_leases(Instant(LEASE_IDLE_NANOS), &mut out);
    assert_eq!((leases.held(), out.len()), (1, 0));
    assert_eq!(leases.shapes().map(|(_, queued, held, _)| (queued, held)).collect::<Vec<_>>(), [(1, 1)]);
    leases.remove_queued(lane, 1);
    leases.return_leases(Instant(LEASE_IDLE_NANOS), &mut out);
    assert_eq!((leases.held(), out.len()), (0, 1));
}

#[test]
fn lanes_are_served_by_priority_and_else_in_turn() {
    let (mut leases, base, lane) = laned();
    let orders: Vec<Vec<ShapeId>> = (0..4).map(|_| leases.lanes_of(lane)).collect();
    assert_eq!(orders.iter().filter(|order| order[0] == base).count(), 2, "{orders:?}");
    leases.enqueue(base, 1, Some(3));
    leases.enqueue(lane, 2, Some(1));
    assert!((0..4).all(|_| leases.lanes_of(base) == [base, lane]));
    assert_eq!(leases.priority(base), 3);
}

#[derive(Debug, Clone)]
enum Op {
    Enqueue { lane: usize, times: u64 },
    Grant { lane: usize, node: u64 },
    Reply(usize),
    End(usize),
    Wait(u64),
}

fn ops() -> impl proptest::strategy::Strategy<Value = Op> {
    prop_oneof![
        3 => (0usize..4, 1u64..5).prop_map(|(lane, times)| Op::Enqueue { lane, times }),
        3 => (0usize..4, 1u64..4).prop_map(|(lane, node)| Op::Grant { lane, node }),
        4 => (0usize..20).prop_map(Op::Reply),
        1 => (0usize..20).prop_map(Op::End),
        3 => (1u64..2 * STEAL_NANOS).prop_map(Op::Wait),
    ]
}

struct World {
    leases: Leases,
    base: ShapeId,
    lanes: Vec<ShapeId>,
    /// What is out: its lane, its task, its worker and its estimate.
    out: Vec<(ShapeId, u64, WorkerId, u64)>,
    workers: u64,
    tasks: u64,
    done: u64,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let mut leases = Leases::default();
        let base = leases.shape(&ResourceSet::default(), None);
        let lanes = (1..4).map(|node| leases.near(base, Some(NodeId(node << 24)))).chain([base]).collect();
        Self { leases, base, lanes, out: Vec::new(), workers: 0, tasks: 0, done: 0, now: Instant(0) }
    }

    /// As a process does after each event.
    fn serve(&mut self) {
        for id in self.leases.lanes_of(self.base) {
            while let Some(front) = self.leases.front_in(id, self.now) {
                let Some(push) = self.leases.next_push_in(id, FUNCTION, self.now) else { break };
                assert_eq!(push.task, front);
                self.out.push((id, push.task, push.worker, push.estimate));
            }
        }
        for id in self.lanes.clone() {
            self.leases.record_waiting(id, self.now);
        }
        assert!(self.leases.next_steal().is_none_or(|at| at > self.now), "who waits for that would spin");
        let estimates = self.out.clone();
        self.leases.check(|task| estimates.iter().find(|out| out.1 == task).expect("it is out").3);
    }

    fn grant(&mut self, lane: usize, node: u64) {
        self.workers += 1;
        let granted = grant(self.lanes[lane], self.workers, worker(NodeId(node << 24), self.workers));
        self.leases.on_granted(granted, self.now);
    }

    fn reply(&mut self, at: usize) {
        let (shape, task, worker, estimate) = self.out.remove(at);
        let reply = Replied { shape, worker, task, estimate, function: FUNCTION, nanos: 1_500_000 };
        self.leases.on_reply(&reply, self.now);
        self.done += 1;
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Enqueue { lane, times } => {
                for _ in 0..times {
                    self.tasks += 1;
                    self.leases.enqueue(self.lanes[lane], self.tasks, None);
                }
            }
            Op::Grant { lane, node } => self.grant(lane, node),
            Op::Reply(at) if at < self.out.len() => self.reply(at),
            Op::End(at) if at < self.out.len() => {
                let gone = self.out[at].2;
                let mut lost = self.leases.on_worker_dead(gone);
                let of_dead = self.out.extract_if(.., |out| out.2 == gone);
                let mut expected: Vec<(ShapeId, u64)> = of_dead.map(|out| (out.0, out.1)).collect();
                for (lane, task) in &expected {
                    self.leases.enqueue_front(*lane, *task, None);
                }
                lost.sort_unstable();
                expected.sort_unstable_by_key(|(_, task)| *task);
                assert_eq!(lost, expected.iter().map(|(_, task)| *task).collect::<Vec<_>>());
            }
            Op::Reply(_) | Op::End(_) => {}
            Op::Wait(nanos) => self.now = self.now.plus(nanos),
        }
        self.serve();
    }
}

proptest! {
    #[test]
    fn every_task_runs_once_and_no_lease_idles_beside_work_that_has_waited(
        ops in proptest::collection::vec(ops(), 0..80),
    ) {
        let mut world = World::new();
        ops.iter().for_each(|op| world.apply(op));
        // One lease, wherever it is, runs all that is left.
        world.grant(3, 1);
        world.serve();
        for _ in 0..20_000 {
            if world.done == world.tasks {
                break;
            }
            match world.out.is_empty() {
                true => world.now = world.leases.next_steal().expect("what is idle steals in the end"),
                false => world.reply(0),
            }
            world.serve();
        }
        prop_assert_eq!(world.done, world.tasks);
        prop_assert!(world.lanes.iter().all(|lane| world.leases.shapes[lane.0 as usize].queue.is_empty()));
    }
}
