//! `cargo run -p sooner-sim --release --bin cluster`: runs clusters in virtual time, replays one, or counts
//! their messages.

use std::process::ExitCode;

use sooner_sim::cluster::plan::{ClusterPlan, FAULTS, OPEN, SECOND};
use sooner_sim::cluster::world::{World, run};
use sooner_sim::seeds::{Command, Program};
use sooner_sim::trace::Trace;

const HELP: &str = "\
cluster [--seeds N] [--start S] [--nodes N] [--without a,b]  run seeds S, S+1, ... until one violates something
cluster --seed S [--trace]                                   run one, and say what happens
cluster --count N [--for T]                                  count the messages of N nodes in T s without faults
        [--without open]                                     without the faults that have open findings";

const PROGRAM: Program<'static, ClusterPlan> = Program {
    name: "cluster",
    about: "Clusters in virtual time.",
    help: HELP,
    cores: "heads",
    faults_of,
    plan,
    run,
};

fn faults_of(word: &str) -> Option<Vec<&'static str>> {
    if word == "open" {
        return Some(OPEN.to_vec());
    }
    FAULTS.iter().find(|(name, _)| *name == word).map(|(name, _)| vec![*name])
}

fn plan(command: &Command, seed: u64) -> ClusterPlan {
    let mut plan = ClusterPlan::new(seed);
    plan.nodes = command.nodes.unwrap_or(plan.nodes);
    for word in &command.without {
        plan.leave_out(word);
    }
    plan
}

fn main() -> ExitCode {
    let defaults = Command { seeds: 100, seconds: 60, ..Command::default() };
    let command = match PROGRAM.read(defaults, |_, _| Ok(false)) {
        Ok(command) => command,
        Err(code) => return code,
    };
    if let Some(nodes) = command.counts {
        count(nodes, command.seconds);
        return ExitCode::SUCCESS;
    }
    PROGRAM.run_seeds(&command)
}

fn count(nodes: usize, seconds: u64) {
    let plan = ClusterPlan::calm(0, nodes, seconds);
    let joining = plan.nodes as u64 / 50 + 10;
    let mut world = World::new(plan, Trace::default());
    world.counts.with_sizes = true;
    world.run_until(sooner_protocol::time::Instant(joining * SECOND));
    let joined = world.counts.clone();
    println!("{nodes} nodes join:");
    print(&joined.kinds, nodes, 1);
    world.run_until(sooner_protocol::time::Instant((joining + seconds) * SECOND));
    println!("then, in {seconds} s in which each reports about once a second, per node and second:");
    print(&world.counts.since(&joined), nodes, seconds);
}

type Kinds = std::collections::BTreeMap<(bool, &'static str), sooner_sim::cluster::counts::Count>;

fn print(kinds: &Kinds, nodes: usize, seconds: u64) {
    let per = (nodes as u64 * seconds) as f64;
    for ((is_to_head, name), count) in kinds {
        let way = if *is_to_head { "to the head" } else { "from the head" };
        let (messages, bytes) = (count.messages as f64, count.bytes as f64);
        println!("  {way:<14} {name:<16} {:>10.2} messages {:>12.0} bytes", messages / per, bytes / per);
    }
}
