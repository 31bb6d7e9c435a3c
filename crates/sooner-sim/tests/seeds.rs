//! Runs the simulator over seeds: `SOONER_SIM_SEEDS` says how many (40 by default).

use sooner_sim::runner::{Orders, run_many};

#[test]
fn every_invariant_holds() {
    let seeds = std::env::var("SOONER_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let totals = run_many(&Orders { jobs: 2, ..Orders::new(0, seeds).without_open() });
    if let Some((plan, violation)) = totals.failed {
        let seed = plan.seed;
        panic!(
            "{violation}\nreplay: cargo run -p sooner-sim --release --bin sooner-sim -- --seed {seed} --without open --trace"
        );
    }
    assert!(totals.kills > 0 && totals.repeated > 0);
}
