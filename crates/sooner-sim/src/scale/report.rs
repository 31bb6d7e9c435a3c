//! What clusters of different sizes cost and carry: counts and measures of runs without faults, for
//! `docs/scale.md`.

use std::collections::BTreeMap;

use sooner_protocol::time::Instant;

use super::counts::{Count, Way};
use super::meter::Meter;
use super::plan::{Load, SECOND, ScalePlan};
use super::world::World;
use crate::trace::Trace;

/// What drivers do while messages are counted.
pub const LOADS: &[(&str, Load)] = &[
    ("idle", Load { think: 0, hold: 1, leases: 0, is_even: true, actors: 0 }),
    ("leases", Load { think: SECOND / 1000, hold: SECOND / 10, leases: 8, is_even: true, actors: 0 }),
    ("actors", Load { think: SECOND / 20, hold: 1, leases: 1, is_even: true, actors: 100 }),
];

/// What one size and load came to. Messages and bytes are of all that time; so is what it took.
#[derive(Debug, Clone)]
pub struct Row {
    /// Nodes.
    pub nodes: usize,
    /// For so long (seconds of virtual time).
    pub seconds: u64,
    /// Leases that were used, or actors that lived.
    pub served: u64,
    /// By way and kind.
    pub kinds: BTreeMap<(Way, String), Count>,
    /// From and to other nodes, of all nodes: each message is counted at both.
    pub between: Count,
    /// ... of the busiest node.
    pub busiest: Count,
    /// The time that it took here.
    pub meter: Meter,
}

impl Row {
    /// All that went one way.
    #[must_use]
    pub fn sum(&self, way: Way) -> Count {
        let mut sum = Count::default();
        for (_, count) in self.kinds.iter().filter(|((its, _), _)| *its == way) {
            sum.messages += count.messages;
            sum.bytes += count.bytes;
        }
        sum
    }

    /// Messages that the head reads and writes.
    #[must_use]
    pub fn at_head(&self) -> Count {
        let (to, from) = (self.sum(Way::ToHead), self.sum(Way::FromHead));
        Count { messages: to.messages + from.messages, bytes: to.bytes + from.bytes }
    }
}

/// Counts what so many nodes say in so many seconds, after all have joined.
#[must_use]
pub fn count(nodes: usize, seconds: u64, load: Load) -> Row {
    let plan = ScalePlan::calm(nodes, seconds + 3, load);
    let begins = plan.joining() + 3 * SECOND;
    let mut world = World::new(plan, Trace::default());
    world.counts.with_sizes = true;
    world.meter = Some(Meter::new());
    world.run_until(Instant(begins));
    let (before, served) = (world.counts.clone(), world.truth.used);
    let meter = world.meter.unwrap_or_default();
    world.run_until(Instant(begins + seconds * SECOND));
    let at = |counts: &[Count], node: usize| counts.get(node).copied().unwrap_or_default();
    let all = &world.counts.nodes;
    let mut between = Count::default();
    let mut busiest = Count::default();
    for node in 0..all.len() {
        let one = at(all, node).since(at(&before.nodes, node));
        between.messages += one.messages;
        between.bytes += one.bytes;
        if one.messages > busiest.messages {
            busiest = one;
        }
    }
    Row {
        nodes,
        seconds,
        served: world.truth.used - served,
        kinds: world.counts.since(&before),
        between,
        busiest,
        meter: world.meter.unwrap_or_default().since(&meter),
    }
}

/// How long one value of so many bytes takes to get to so many nodes (nanoseconds): by the simulation, and at
/// best by any one link.
///
/// # Panics
/// If it does not get to all.
#[must_use]
pub fn broadcast(receivers: usize, bytes: u64, bandwidth: u64) -> (u64, u64) {
    let plan = ScalePlan::broadcast(receivers, bytes, bandwidth);
    let ends = plan.joining() + plan.seconds * SECOND;
    let mut world = World::new(plan, Trace::default());
    world.run_until(Instant(ends));
    let value = world.values.first().expect("one was made");
    assert_eq!(value.waiting, 0, "it got to all");
    let took = value.took.1.since(value.took.0.expect("it was asked for"));
    (took, bytes * 8 * 1000 / (bandwidth / 1_000_000))
}
