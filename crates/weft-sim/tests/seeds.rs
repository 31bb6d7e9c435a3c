//! Runs the simulator over seeds: `WEFT_SIM_SEEDS` says how many (30 by default).

use weft_sim::world::{Plan, World};

fn seeds() -> u64 {
    std::env::var("WEFT_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}

fn run(plan: Plan) -> usize {
    let mut kills = 0;
    for seed in 0..seeds() {
        let result = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, plan);
            world.run();
            world.kills
        });
        match result {
            Ok(count) => kills += count,
            Err(_) => panic!("seed {seed} of {plan:?} fails"),
        }
    }
    kills
}

#[test]
fn without_faults_everything_has_its_value() {
    run(Plan { tasks: 60, cpus: 2, kill_one_in: 0, cancel_one_in: 0, lose_one_in: 0 });
}

#[test]
fn with_cancellation_everything_ends() {
    run(Plan { tasks: 60, cpus: 2, kill_one_in: 0, cancel_one_in: 8, lose_one_in: 0 });
}

#[test]
fn with_killed_workers_everything_ends() {
    assert!(run(Plan { tasks: 80, cpus: 3, kill_one_in: 20, cancel_one_in: 30, lose_one_in: 0 }) > 0);
}

#[test]
fn with_lost_memory_everything_ends() {
    run(Plan { tasks: 60, cpus: 3, kill_one_in: 0, cancel_one_in: 0, lose_one_in: 4 });
}

#[test]
fn with_everything_that_can_happen_everything_ends() {
    run(Plan { tasks: 80, cpus: 3, kill_one_in: 20, cancel_one_in: 30, lose_one_in: 6 });
}
