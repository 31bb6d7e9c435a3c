//! Runs seeds: one, many on several threads, some of them twice; and makes a failing run smaller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use std::collections::BTreeMap;

use weft_protocol::probes::{Bug, switch, take_tally};

use crate::plan::Plan;
use crate::trace::Trace;
use crate::violation::Violation;
use crate::world::World;

/// One seed in so many runs twice.
const TWICE_ONE_IN: u64 = 100;

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct Ran {
    /// Handler calls of cores.
    pub events: u64,
    /// Processes killed by faults.
    pub kills: u64,
    /// Over everything that happened.
    pub hash: u64,
    /// What did not hold.
    pub violation: Option<Violation>,
    /// The latest events in words, if they were wanted.
    pub words: Vec<String>,
}

/// Runs a plan, with a defect switched on if one is given.
#[must_use]
pub fn run(plan: &Plan, bug: Option<Bug>, trace: Trace) -> Ran {
    switch(bug);
    let mut world = World::new(plan.clone(), trace);
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    switch(None);
    Ran {
        events: world.events,
        kills: world.kills,
        hash: world.trace.hash(),
        violation: ended.err().map(|payload| Violation::from_panic(&*payload)),
        words: world.trace.latest(120),
    }
}

/// What many runs came to.
#[derive(Debug, Default)]
pub struct Totals {
    /// Runs.
    pub seeds: u64,
    /// Of those, how many were repeated.
    pub repeated: u64,
    /// Handler calls of cores.
    pub events: u64,
    /// Processes killed by faults.
    pub kills: u64,
    /// Time that threads spent in runs.
    pub busy: Duration,
    /// Rare states, and in how many seeds each was reached.
    pub marks: BTreeMap<&'static str, u64>,
    /// The first seed that reached each.
    pub first_seeds: BTreeMap<&'static str, u64>,
    /// The first violation: of which plan.
    pub failed: Option<(Plan, Violation)>,
}

/// Which seeds to run, and how.
#[derive(Debug, Clone)]
pub struct Orders {
    /// The first seed.
    pub start: u64,
    /// How many.
    pub seeds: u64,
    /// For at most so long.
    pub limit: Option<Duration>,
    /// On so many threads.
    pub jobs: usize,
    /// Left out of every plan.
    pub without: Vec<String>,
    /// Steps of every program, if not what the seed says.
    pub operations: Option<u32>,
    /// A defect that is switched on.
    pub bug: Option<Bug>,
}

impl Orders {
    /// So many seeds on one thread.
    #[must_use]
    pub fn new(start: u64, seeds: u64) -> Self {
        let without = Vec::new();
        Self { start, seeds, limit: None, jobs: 1, without, operations: None, bug: None }
    }

    /// The plan of one of the seeds.
    #[must_use]
    pub fn plan(&self, seed: u64) -> Plan {
        let mut plan = Plan::new(seed);
        for word in &self.without {
            plan.leave_out(word);
        }
        if let Some(operations) = self.operations {
            plan.operations = operations;
        }
        plan
    }
}

/// Runs seeds until all have run, one fails, or the time is over.
#[must_use]
pub fn run_many(orders: &Orders) -> Totals {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let totals = Mutex::new(Totals::default());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..orders.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let is_late = orders.limit.is_some_and(|limit| began.elapsed() >= limit);
                    if at >= orders.seeds || is_late || stop.load(Ordering::Relaxed) {
                        break;
                    }
                    if run_one(orders, orders.start + at, &totals) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    totals.into_inner().expect("no thread dies with it")
}

/// Runs one seed and adds it to the totals. True if it failed.
fn run_one(orders: &Orders, seed: u64, totals: &Mutex<Totals>) -> bool {
    let plan = orders.plan(seed);
    let began = Instant::now();
    let mut ran = run(&plan, orders.bug, Trace::default());
    let marks = take_tally();
    let again = seed.is_multiple_of(TWICE_ONE_IN) && ran.violation.is_none();
    if again {
        let second = run(&plan, orders.bug, Trace::default());
        let _ = take_tally();
        if second.hash != ran.hash {
            let text = format!("the second run gave another trace: {:x} and {:x}", ran.hash, second.hash);
            ran.violation = Some(Violation { invariant: "I15".to_owned(), text });
        }
        ran.events += second.events;
    }
    let mut totals = totals.lock().expect("no thread dies with it");
    totals.seeds += 1;
    totals.repeated += u64::from(again);
    totals.events += ran.events;
    totals.kills += ran.kills;
    totals.busy += began.elapsed();
    for name in marks.keys() {
        *totals.marks.entry(name).or_default() += 1;
        let first = totals.first_seeds.entry(name).or_insert(seed);
        *first = seed.min(*first);
    }
    let Some(violation) = ran.violation else { return false };
    if totals.failed.as_ref().is_none_or(|(failed, _)| seed < failed.seed) {
        totals.failed = Some((plan, violation));
    }
    true
}

/// Keeps assertions of the cores from being printed where they are expected.
pub fn silence_panics() {
    std::panic::set_hook(Box::new(|_| ()));
}

/// The smallest plan found that fails in the same way: without the kinds of faults and operations that are not needed,
/// and with the shortest program.
#[must_use]
pub fn minimise(plan: &Plan, violation: &Violation, bug: Option<Bug>) -> (Plan, Vec<String>) {
    let mut smallest = plan.clone();
    let mut left_out = Vec::new();
    let fails = |plan: &Plan| {
        let ran = run(plan, bug, Trace::default());
        ran.violation.is_some_and(|found| found.invariant == violation.invariant)
    };
    for word in plan.words() {
        let mut candidate = smallest.clone();
        candidate.leave_out(word);
        if fails(&candidate) {
            smallest = candidate;
            left_out.push(word.to_owned());
        }
    }
    for divisor in [8, 4, 2] {
        loop {
            let less = smallest.operations - smallest.operations / divisor;
            let candidate = Plan { operations: less, ..smallest.clone() };
            if less == smallest.operations || !fails(&candidate) {
                break;
            }
            smallest = candidate;
        }
    }
    for _ in 0..20 {
        let Some(less) = smallest.operations.checked_sub(1) else { break };
        let candidate = Plan { operations: less, ..smallest.clone() };
        if !fails(&candidate) {
            break;
        }
        smallest = candidate;
    }
    let _ = take_tally();
    (smallest, left_out)
}
