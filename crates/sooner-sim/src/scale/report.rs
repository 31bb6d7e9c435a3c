//! The costs of clusters of different sizes: counts and measures of runs without faults, for `docs/scale.md`.

use std::collections::BTreeMap;

use sooner_protocol::time::Instant;

use super::counts::{Count, Way};
use super::meter::Meter;
use super::plan::{Load, SECOND, ScalePlan};
use super::world::World;
use crate::trace::Trace;

/// The loads of drivers for which messages are counted.
pub const LOADS: &[(&str, Load)] = &[
    ("idle", Load { think: 0, hold: 1, leases: 0, is_even: true, actors: 0 }),
    ("leases", Load { think: SECOND / 1000, hold: SECOND / 10, leases: 8, is_even: true, actors: 0 }),
    ("actors", Load { think: SECOND / 20, hold: 1, leases: 1, is_even: true, actors: 100 }),
];

/// The result for one size and load. Messages, bytes and times cover the whole measured time.
#[derive(Debug, Clone)]
pub struct Row {
    /// Nodes.
    pub nodes: usize,
    /// The measured time (seconds of virtual time).
    pub seconds: u64,
    /// Leases that were used, or actors that ended after use.
    pub served: u64,
    /// By direction and kind.
    pub kinds: BTreeMap<(Way, String), Count>,
    /// Messages from and to other nodes, over all nodes: each message counts at both ends.
    pub between: Count,
    /// The same for the busiest node.
    pub busiest: Count,
    /// The processor time on this machine.
    pub meter: Meter,
}

impl Row {
    /// The sum over all kinds of one direction.
    #[must_use]
    pub fn sum(&self, way: Way) -> Count {
        let mut sum = Count::default();
        for (_, count) in self.kinds.iter().filter(|((its, _), _)| *its == way) {
            sum.messages += count.messages;
            sum.bytes += count.bytes;
        }
        sum
    }

    /// Messages that the head receives and sends.
    #[must_use]
    pub fn at_head(&self) -> Count {
        let (to, from) = (self.sum(Way::ToHead), self.sum(Way::FromHead));
        Count { messages: to.messages + from.messages, bytes: to.bytes + from.bytes }
    }
}

/// Counts the messages of `nodes` nodes during `seconds` seconds, after all have joined.
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

/// The time until a value of `bytes` bytes has got to all receivers (nanoseconds): in the simulation, and the
/// lower bound of any one link.
///
/// # Panics
/// If some receiver does not get it.
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
