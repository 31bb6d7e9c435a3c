//! `cargo run -p weft-sim --release --bin cluster`: runs clusters in virtual time, replays one, or counts their messages.

use std::process::ExitCode;
use std::time::Instant;

use weft_sim::cluster::plan::{ClusterPlan, FAULTS, OPEN, SECOND};
use weft_sim::cluster::world::{Ran, World, run};
use weft_sim::runner::silence_panics;
use weft_sim::trace::Trace;

const HELP: &str = "\
cluster [--seeds N] [--start S] [--nodes N] [--without a,b]  run seeds S, S+1, ... until one violates something
cluster --seed S [--trace]                                   run one, and say what happens
cluster --count N [--for T]                                  count the messages of N nodes in T s without faults
        [--without open]                                     without the faults that have open findings";

struct Command {
    start: u64,
    seeds: u64,
    nodes: Option<usize>,
    without: Vec<String>,
    one: Option<u64>,
    echoes: bool,
    counts: Option<usize>,
    seconds: u64,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut command = Command {
        start: 0,
        seeds: 100,
        nodes: None,
        without: Vec::new(),
        one: None,
        echoes: false,
        counts: None,
        seconds: 60,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number =
            |text: String| text.parse::<u64>().map_err(|_| format!("{word} needs a number, not {text:?}"));
        match word.as_str() {
            "--seeds" => command.seeds = number(value()?)?,
            "--start" => command.start = number(value()?)?,
            "--nodes" => command.nodes = usize::try_from(number(value()?)?).ok(),
            "--seed" => command.one = Some(number(value()?)?),
            "--trace" => command.echoes = true,
            "--count" => command.counts = usize::try_from(number(value()?)?).ok(),
            "--for" => command.seconds = number(value()?)?,
            "--without" => {
                let list = value()?;
                let list = list.split(',').filter(|word| !word.is_empty());
                let all = list.flat_map(|word| if word == "open" { OPEN.to_vec() } else { vec![word] });
                for word in all {
                    if !FAULTS.iter().any(|(name, _)| *name == word) {
                        return Err(format!("nothing is called {word:?}"));
                    }
                    command.without.push(word.to_owned());
                }
            }
            "--help" => return Err("Clusters in virtual time.".to_owned()),
            other => return Err(format!("unknown option {other:?}")),
        }
    }
    match command.nodes.or(command.counts) {
        Some(nodes) if !(1..=10_000).contains(&nodes) => Err(format!("1 to 10000 nodes, not {nodes}")),
        _ => Ok(command),
    }
}

impl Command {
    fn plan(&self, seed: u64) -> ClusterPlan {
        let mut plan = ClusterPlan::new(seed);
        plan.nodes = self.nodes.unwrap_or(plan.nodes);
        for word in &self.without {
            plan.leave_out(word);
        }
        plan
    }
}

fn main() -> ExitCode {
    let command = match parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(wrong) => {
            eprintln!("{wrong}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    silence_panics();
    if let Some(nodes) = command.counts {
        count(nodes, command.seconds);
        return ExitCode::SUCCESS;
    }
    let (start, seeds) = command.one.map_or((command.start, command.seeds), |seed| (seed, 1));
    let began = Instant::now();
    let (mut events, mut blows) = (0, 0);
    let mut seen = std::collections::BTreeMap::new();
    for seed in start..start + seeds {
        let trace = if command.one.is_some() { Trace::in_words(command.echoes) } else { Trace::default() };
        let ran = run(&command.plan(seed), trace);
        (events, blows) = (events + ran.events, blows + ran.blows);
        for (name, times) in &ran.seen {
            *seen.entry(*name).or_insert(0) += times;
        }
        if command.one.is_some() {
            println!("{:?}\ntrace {:016x}", command.plan(seed), ran.hash);
        }
        if let Some(violation) = &ran.violation {
            explain(&command, seed, &ran);
            eprintln!("seed {seed} VIOLATES {violation}");
            return ExitCode::FAILURE;
        }
    }
    let took = began.elapsed().as_secs_f64();
    println!("{seeds} seeds, {events} calls of heads, {blows} faults in {took:.1} s: every invariant holds");
    for (name, times) in seen {
        println!("  {times:>7}  {name}");
    }
    ExitCode::SUCCESS
}

fn explain(command: &Command, seed: u64, ran: &Ran) {
    let again =
        if ran.words.is_empty() { run(&command.plan(seed), Trace::in_words(false)) } else { ran.clone() };
    again.words.iter().for_each(|line| println!("  {line}"));
    let nodes = command.nodes.map(|nodes| format!(" --nodes {nodes}")).unwrap_or_default();
    let without = command.without.join(",");
    println!(
        "to see it: cargo run -p weft-sim --release --bin cluster -- --seed {seed}{nodes} --without {without:?} --trace"
    );
}

fn count(nodes: usize, seconds: u64) {
    let plan = ClusterPlan::calm(0, nodes, seconds);
    let joining = plan.nodes as u64 / 50 + 10;
    let mut world = World::new(plan, Trace::default());
    world.counts.with_sizes = true;
    world.run_until(weft_protocol::time::Instant(joining * SECOND));
    let joined = world.counts.clone();
    println!("{nodes} nodes join:");
    print(&joined.kinds, nodes, 1);
    world.run_until(weft_protocol::time::Instant((joining + seconds) * SECOND));
    println!("then, in {seconds} s in which each reports about once a second, per node and second:");
    print(&world.counts.since(&joined), nodes, seconds);
}

type Kinds = std::collections::BTreeMap<(bool, &'static str), weft_sim::cluster::counts::Count>;

fn print(kinds: &Kinds, nodes: usize, seconds: u64) {
    let per = (nodes as u64 * seconds) as f64;
    for ((is_to_head, name), count) in kinds {
        let way = if *is_to_head { "to the head" } else { "from the head" };
        let (messages, bytes) = (count.messages as f64, count.bytes as f64);
        println!("  {way:<14} {name:<16} {:>10.2} messages {:>12.0} bytes", messages / per, bytes / per);
    }
}
