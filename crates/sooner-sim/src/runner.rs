//! Runs seeds: one, many on several threads, some of them twice; and makes a failing run smaller.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sooner_protocol::probes::{Bug, switch, take_tally};

use crate::plan::{OPEN, Plan};
use crate::trace::Trace;
use crate::violation::{Violation, caught};
use crate::world::World;

/// One seed in this many runs twice.
const TWICE_ONE_IN: u64 = 100;

/// A seed that takes longer counts as stuck: others take a twentieth of a second. The world bounds its steps
/// and events; this bound is for a core that never returns from one of them.
const STUCK_SECONDS: u64 = 90;

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub struct Ran {
    /// Handler calls of cores.
    pub events: u64,
    /// Processes killed by faults.
    pub kills: u64,
    /// A hash over everything that happened.
    pub hash: u64,
    /// The property that did not hold.
    pub violation: Option<Violation>,
    /// The latest events in words, if they were wanted.
    pub words: Vec<String>,
}

/// Runs a plan, with a defect switched on if one is given.
#[must_use]
pub fn run(plan: &Plan, bug: Option<Bug>, trace: Trace) -> Ran {
    switch(bug);
    let mut world = World::new(plan.clone(), trace);
    let ended = caught(|| world.run());
    switch(None);
    Ran {
        events: world.events,
        kills: world.kills,
        hash: world.trace.hash(),
        violation: ended.err().map(|payload| Violation::from_panic(&*payload)),
        words: world.trace.latest(120),
    }
}

/// The results of many runs.
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
    /// Rare states, and how many seeds reached each.
    pub marks: BTreeMap<&'static str, u64>,
    /// The first seed that reached each.
    pub first_seeds: BTreeMap<&'static str, u64>,
    /// The lowest seed that failed, and its violation.
    pub failed: Option<(Plan, Violation)>,
    /// Every seed that failed, and the invariant that it violated.
    pub failures: BTreeMap<u64, String>,
}

impl Totals {
    fn add_failure(&mut self, plan: Plan, violation: Violation) {
        self.failures.insert(plan.seed, violation.invariant.clone());
        if self.failed.as_ref().is_none_or(|(failed, _)| plan.seed < failed.seed) {
            self.failed = Some((plan, violation));
        }
    }
}

/// Which seeds to run, and how.
#[derive(Debug, Clone)]
pub struct Orders {
    /// The first seed.
    pub start: u64,
    /// How many.
    pub seeds: u64,
    /// Time after which no new seed begins.
    pub limit: Option<Duration>,
    /// Number of threads.
    pub jobs: usize,
    /// Features and faults that are left out of every plan.
    pub without: Vec<String>,
    /// Steps of every program, instead of the seed's number.
    pub operations: Option<u32>,
    /// Nodes of every world, instead of the seed's number.
    pub nodes: Option<usize>,
    /// A defect that is switched on.
    pub bug: Option<Bug>,
    /// Whether to continue after a violation.
    pub keeps_going: bool,
}

impl Orders {
    /// `seeds` seeds on one thread.
    #[must_use]
    pub fn new(start: u64, seeds: u64) -> Self {
        let without = Vec::new();
        Self {
            start,
            seeds,
            limit: None,
            jobs: 1,
            without,
            operations: None,
            nodes: None,
            bug: None,
            keeps_going: false,
        }
    }

    /// Leaves out features and faults with open findings.
    #[must_use]
    pub fn without_open(self) -> Self {
        Self { without: OPEN.iter().map(|word| (*word).to_owned()).collect(), ..self }
    }

    /// The plan of one of the seeds.
    #[must_use]
    pub fn plan(&self, seed: u64) -> Plan {
        let mut plan = Plan::new(seed);
        if let Some(nodes) = self.nodes {
            plan.spread(nodes);
        }
        for word in &self.without {
            plan.leave_out(word);
        }
        if let Some(operations) = self.operations {
            plan.operations = operations;
        }
        plan
    }
}

/// What the threads of a run share.
struct Shared {
    orders: Orders,
    next: AtomicU64,
    stop: AtomicBool,
    began: Instant,
    totals: Mutex<Totals>,
    /// The seed that each thread runs, and since when.
    running: Vec<Mutex<Option<(u64, Instant)>>>,
}

/// Runs seeds until all have run, one fails, or the time is over. A seed that makes no progress is a
/// violation of I1; its thread is left behind.
#[must_use]
pub fn run_many(orders: &Orders) -> Totals {
    let jobs = orders.jobs.max(1);
    let shared = Arc::new(Shared {
        orders: orders.clone(),
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        began: Instant::now(),
        totals: Mutex::default(),
        running: (0..jobs).map(|_| Mutex::default()).collect(),
    });
    let (done, all_done) = mpsc::channel::<()>();
    for job in 0..jobs {
        let (shared, done) = (shared.clone(), done.clone());
        std::thread::spawn(move || {
            shared.run_seeds(job);
            drop(done);
        });
    }
    drop(done);
    while all_done.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
        if let Some(seed) = shared.stuck_seed() {
            let text = format!("the run makes no progress for {STUCK_SECONDS} s");
            let violation = Violation { invariant: Violation::STUCK.to_owned(), text };
            shared.stop.store(true, Ordering::Relaxed);
            shared.totals().add_failure(orders.plan(seed), violation);
            break;
        }
    }
    std::mem::take(&mut shared.totals())
}

impl Shared {
    fn totals(&self) -> std::sync::MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_seeds(&self, job: usize) {
        let orders = &self.orders;
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let is_late = orders.limit.is_some_and(|limit| self.began.elapsed() >= limit);
            if at >= orders.seeds || is_late || self.stop.load(Ordering::Relaxed) {
                return;
            }
            let seed = orders.start + at;
            self.record_running(job, Some((seed, Instant::now())));
            let has_failed = run_one(orders, seed, &self.totals);
            self.record_running(job, None);
            if has_failed && !orders.keeps_going {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    fn record_running(&self, job: usize, what: Option<(u64, Instant)>) {
        *self.running[job].lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    fn stuck_seed(&self) -> Option<u64> {
        self.running.iter().find_map(|running| {
            let running = *running.lock().unwrap_or_else(PoisonError::into_inner);
            running.filter(|(_, since)| since.elapsed().as_secs() >= STUCK_SECONDS).map(|(seed, _)| seed)
        })
    }
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
    let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
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
    totals.add_failure(plan, violation);
    true
}

/// The smallest plan found that violates the same invariant: without unneeded kinds of faults and features,
/// and with a short program.
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
