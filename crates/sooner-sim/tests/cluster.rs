//! Runs clusters in virtual time: `SOONER_SIM_CLUSTERS` says how many seeds (100 by default).

use std::collections::BTreeMap;

use sooner_sim::cluster::plan::{ClusterPlan, OPEN};
use sooner_sim::cluster::world::run;
use sooner_sim::seeds::Ran;
use sooner_sim::trace::Trace;

fn closed(seed: u64) -> Ran {
    let mut plan = ClusterPlan::new(seed);
    for word in OPEN {
        plan.leave_out(word);
    }
    run(&plan, Trace::default())
}

#[test]
fn every_invariant_holds() {
    let seeds = std::env::var("SOONER_SIM_CLUSTERS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..seeds {
        let ran = closed(seed);
        if let Some(violation) = ran.violation {
            panic!(
                "{violation}\nreplay: cargo run -p sooner-sim --release --bin cluster -- --seed {seed} --without open --trace"
            );
        }
        ran.seen.iter().for_each(|(state, times)| *seen.entry(state).or_default() += times);
    }
    for state in ["a node that lives was declared gone", "a node was told that it is gone"] {
        assert!(seen.contains_key(state), "not reached: {state}");
    }
}

#[test]
fn a_seed_decides_everything() {
    for seed in [1, 7, 23] {
        let (one, other) = (closed(seed), closed(seed));
        assert_eq!((one.hash, one.events), (other.hash, other.events), "seed {seed}");
    }
}

#[test]
fn a_thousand_nodes_join_and_agree() {
    let ran = run(&ClusterPlan::calm(0, 1_000, 30), Trace::default());
    assert_eq!(ran.violation, None);
}
