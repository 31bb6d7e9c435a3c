//! Runs whole clusters in virtual time: `SOONER_SIM_SCALES` says how many seeds (60 by default).

use std::collections::BTreeMap;

use sooner_sim::scale::plan::ScalePlan;
use sooner_sim::scale::report::{LOADS, broadcast, count};
use sooner_sim::scale::world::run;
use sooner_sim::seeds::Ran;
use sooner_sim::trace::Trace;

/// Clusters of so many nodes at most: larger ones are run by `--bin scale`.
const NODES_MAX: usize = 12;

fn small(seed: u64) -> Ran {
    let plan = ScalePlan::new(seed, None);
    let plan = if plan.nodes > NODES_MAX { ScalePlan::new(seed, Some(NODES_MAX)) } else { plan };
    run(&plan, Trace::default())
}

#[test]
fn every_invariant_holds() {
    let seeds = std::env::var("SOONER_SIM_SCALES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..seeds {
        let ran = small(seed);
        if let Some(violation) = ran.violation {
            panic!(
                "{violation}\nreplay: cargo run -p sooner-sim --release --bin scale -- --seed {seed} --trace"
            );
        }
        ran.seen.iter().for_each(|(state, times)| *seen.entry(state).or_default() += times);
    }
    for state in [
        "a lease was granted on another node",
        "a lease was lost with its worker",
        "a node that lives was declared gone",
        "a value arrived whole",
        "a value was sent on while it was arriving",
        "the head was started again",
    ] {
        assert!(seen.contains_key(state), "not reached: {state}");
    }
}

#[test]
fn a_seed_decides_everything() {
    for seed in [2, 5] {
        let (one, other) = (small(seed), small(seed));
        assert_eq!((one.hash, one.events), (other.hash, other.events), "seed {seed}");
    }
}

#[test]
fn nodes_of_a_large_cluster_ask_the_head_where_there_is_room() {
    let plan = ScalePlan { seconds: 3, blows: 0, ..ScalePlan::new(1, Some(80)) };
    let ran = run(&plan, Trace::default());
    assert_eq!(ran.violation, None);
    assert!(ran.seen.contains_key("a node asked the head who could run something"), "{:?}", ran.seen);
}

#[test]
fn a_broadcast_takes_little_longer_with_more_receivers() {
    // One link carries the value once; each further receiver costs a chunk and its words.
    let bandwidth = 10_000_000_000;
    for receivers in [8, 64] {
        let (took, best) = broadcast(receivers, 64 << 20, bandwidth);
        let hop = (64 << 10) * 8 * 1000 / (bandwidth / 1_000_000) + 100_000;
        let most = best + (receivers as u64 + 3) * hop;
        assert!((best..most).contains(&took), "{receivers}: {took} ns, between {best} and {most} expected");
    }
}

#[test]
fn the_head_hears_of_no_task_and_of_few_leases() {
    let (_, leases) = LOADS[1];
    let row = count(10, 2, leases);
    assert!(row.served > 100, "{}", row.served);
    // At most twenty reports a second from each node, and twenty views to it; the rest are heartbeats and
    // ends of idle workers.
    let most = 10 * 2 * (20 + 20 + 2 + 18);
    assert!(row.at_head().messages <= most, "{} messages: {:?}", row.at_head().messages, row.kinds);
}
