//! An actor with checkpoints whose process dies at any moment, under two callers.
//!
//! Whatever dies when: each call that was accepted changes the state once, in the order of its caller; each
//! result is the one of the first execution; nobody sees a state without a call that was answered before;
//! nothing is left over.

mod world;

use world::{Plan, World};

fn run(plan: Plan, seeds: std::ops::Range<u64>) -> world::Seen {
    let mut all = world::Seen::default();
    for seed in seeds {
        let seen = std::panic::catch_unwind(|| World::new(seed, plan).run());
        let seen = seen.unwrap_or_else(|_| panic!("seed {seed} of {plan:?} fails"));
        all.add(&seen);
    }
    all
}

#[test]
fn without_failures_every_call_is_executed_once() {
    let plan = Plan { calls: 60, every: 7, kill_one_in: 0, cancel_one_in: 0, retries: -1 };
    let seen = run(plan, 0..20);
    assert_eq!((seen.kills, seen.replayed), (0, 0));
    assert!(seen.checkpoints > 0);
}

#[test]
fn the_state_survives_failures_at_any_step() {
    let plan = Plan { calls: 60, every: 5, kill_one_in: 150, cancel_one_in: 0, retries: -1 };
    let seen = run(plan, 0..150);
    assert!(seen.kills > 100 && seen.replayed > 100 && seen.restored > 50, "{seen:?}");
    assert!(seen.killed_before_sending > 5, "a checkpoint was ready when its process died: {seen:?}");
}

#[test]
fn the_state_survives_failures_in_quick_succession() {
    let plan = Plan { calls: 40, every: 3, kill_one_in: 40, cancel_one_in: 0, retries: -1 };
    assert!(run(plan, 0..100).killed_in_replay > 20);
}

#[test]
fn an_actor_without_a_checkpoint_yet_begins_anew_and_every_call_comes_again() {
    let plan = Plan { calls: 50, every: 1000, kill_one_in: 200, cancel_one_in: 0, retries: -1 };
    let seen = run(plan, 0..50);
    assert!(seen.checkpoints == 0 && seen.replayed > 100, "{seen:?}");
}

#[test]
fn cancelled_calls_are_executed_once_or_not_at_all() {
    let plan = Plan { calls: 60, every: 5, kill_one_in: 150, cancel_one_in: 15, retries: -1 };
    assert!(run(plan, 0..150).cancelled > 50);
}

#[test]
fn a_call_that_is_given_up_is_in_no_state() {
    let plan = Plan { calls: 60, every: 5, kill_one_in: 150, cancel_one_in: 0, retries: 0 };
    let seen = run(plan, 0..150);
    assert!(seen.given_up > 20, "{seen:?}");
}
