//! The simulator's command: runs seeds, replays one, or looks for the defects of the bank.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use sooner_protocol::probes::Bug;
use sooner_sim::bank::{MODELS, SEEDS_MAX, look_for};
use sooner_sim::plan::{OPEN, Plan};
use sooner_sim::rare;
use sooner_sim::runner::{Orders, Totals, minimise, run, run_many};
use sooner_sim::trace::Trace;
use sooner_sim::violation::Violation;

/// Nodes of a world at most.
const NODES_MAX: u64 = 16;

const HELP: &str = "\
sooner-sim [--seeds N] [--start S] [--jobs N] [--seconds T]   run seeds S, S+1, ... until one fails
         [--keep-going]                                     ... or list all that fail
         [--all-states]                                     ... and fail if a rare state was not reached
sooner-sim --seed S [--trace]                                 run one, and say what happens
         [--without a,b,...] [--ops N] [--bug NAME]         without kinds of faults or operations; a shorter program
         [--without open]                                   without those that have open findings
         [--nodes N]                                        on so many nodes, and not as many as the seed says
sooner-sim --bugs                                             look for each defect of the bank";

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(command) => go(&command),
        Err(wrong) => {
            eprintln!("{wrong}\n{HELP}");
            ExitCode::from(2)
        }
    }
}

struct Command {
    orders: Orders,
    one: Option<u64>,
    echoes: bool,
    looks_for_bugs: bool,
    wants_all_states: bool,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Command, String> {
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut command = Command {
        orders: Orders { jobs, ..Orders::new(0, 100) },
        one: None,
        echoes: false,
        looks_for_bugs: false,
        wants_all_states: false,
    };
    let mut seeds = None;
    while let Some(word) = words.next() {
        let mut number = || -> Result<u64, String> {
            let text = words.next().ok_or_else(|| format!("{word} needs a number"))?;
            text.parse().map_err(|_| format!("{word} needs a number, not {text:?}"))
        };
        match word.as_str() {
            "--seeds" => seeds = Some(number()?),
            "--start" => command.orders.start = number()?,
            "--jobs" => command.orders.jobs = usize::try_from(number()?).unwrap_or(1),
            "--seconds" => command.orders.limit = Some(Duration::from_secs(number()?)),
            "--seed" => command.one = Some(number()?),
            "--nodes" => match number()? {
                nodes @ 1..=NODES_MAX => command.orders.nodes = usize::try_from(nodes).ok(),
                other => return Err(format!("1 to {NODES_MAX} nodes, not {other}")),
            },
            "--ops" => command.orders.operations = u32::try_from(number()?).ok(),
            "--bugs" => command.looks_for_bugs = true,
            "--bug" => {
                let name = words.next().unwrap_or_default();
                let found = Bug::ALL.iter().find(|bug| format!("{bug:?}") == name);
                command.orders.bug = Some(*found.ok_or_else(|| format!("no defect is called {name:?}"))?);
            }
            "--all-states" => command.wants_all_states = true,
            "--keep-going" => command.orders.keeps_going = true,
            "--trace" => command.echoes = true,
            "--without" => {
                let list = words.next().unwrap_or_default();
                let words = list.split(',').filter(|word| !word.is_empty());
                let words = words.flat_map(|word| if word == "open" { OPEN.to_vec() } else { vec![word] });
                for word in words {
                    if !Plan::new(0).leave_out(word) {
                        return Err(format!("nothing is called {word:?}"));
                    }
                    command.orders.without.push(word.to_owned());
                }
            }
            "--help" => return Err("The simulator of sooner.".to_owned()),
            other => return Err(format!("unknown option {other:?}")),
        }
    }
    // With a time and no number of seeds: as many as fit.
    let all = if command.orders.limit.is_some() { u64::MAX / 2 } else { 100 };
    command.orders.seeds = seeds.unwrap_or(all);
    Ok(command)
}

fn go(command: &Command) -> ExitCode {
    if command.looks_for_bugs {
        return look_for_bugs(command.orders.jobs);
    }
    if let Some(seed) = command.one {
        return replay(command, seed);
    }
    let began = Instant::now();
    let totals = run_many(&command.orders);
    print_totals(&totals, began.elapsed());
    let missing = print_states(&totals, &command.orders.without);
    if command.orders.keeps_going {
        print_failures(&totals);
    }
    match &totals.failed {
        None if missing > 0 && command.wants_all_states => {
            println!("{missing} rare states were not reached: see crates/sooner-sim/src/rare.rs");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
        Some((plan, violation)) => {
            explain(command, plan, violation);
            ExitCode::FAILURE
        }
    }
}

fn look_for_bugs(jobs: usize) -> ExitCode {
    let mut missed = 0;
    for (bug, model, what) in MODELS {
        match look_for(*bug, jobs) {
            Some((seed, violation)) => {
                println!("{bug:?} ({model}: {what}): seed {seed} violates {}", violation.invariant);
            }
            None => {
                missed += 1;
                println!("{bug:?} ({model}: {what}): NOT FOUND in {SEEDS_MAX} seeds");
            }
        }
    }
    println!("{} of {} defects found", MODELS.len() - missed, MODELS.len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay(command: &Command, seed: u64) -> ExitCode {
    let plan = command.orders.plan(seed);
    println!("{plan:?}\nwith {:?}", plan.words());
    let ran = run(&plan, command.orders.bug, Trace::in_words(command.echoes));
    println!("{} events, {} kills, trace {:016x}", ran.events, ran.kills, ran.hash);
    match ran.violation {
        None => {
            println!("every invariant holds");
            ExitCode::SUCCESS
        }
        Some(violation) => {
            println!("VIOLATION of {violation}");
            ExitCode::FAILURE
        }
    }
}

fn print_totals(totals: &Totals, took: Duration) {
    let busy = totals.busy.as_secs_f64().max(1e-9);
    println!(
        "{} seeds ({} of them twice), {} events, {} kills in {:.1} s; {:.0} events/s and thread",
        totals.seeds,
        totals.repeated,
        totals.events,
        totals.kills,
        took.as_secs_f64(),
        totals.events as f64 / busy
    );
}

/// Prints the rare states, and how many were not reached.
fn print_states(totals: &Totals, without: &[String]) -> usize {
    println!("rare states (seeds that reached each, the first of them):");
    let expected: Vec<&str> = rare::reachable(without).collect();
    for theme in rare::THEMES {
        println!("  {}", theme.name);
        for name in theme.states {
            match totals.marks.get(name) {
                Some(count) => println!("  {count:>7}  {:>7}  {name}", totals.first_seeds[name]),
                None if expected.contains(name) => println!("  NOT REACHED       {name}"),
                None => println!("  left out          {name}"),
            }
        }
    }
    let findings = totals.marks.iter().filter(|(name, _)| name.starts_with("OPEN"));
    for (name, count) in findings {
        println!("  {count:>7}  {:>7}  {name}", totals.first_seeds[name]);
    }
    let missing = expected.iter().filter(|name| !totals.marks.contains_key(*name)).count();
    println!("{} of {} rare states were reached", expected.len() - missing, expected.len());
    missing
}

fn print_failures(totals: &Totals) {
    let mut kinds: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (seed, invariant) in &totals.failures {
        kinds.entry(invariant).or_default().push(*seed);
    }
    println!("{} seeds failed", totals.failures.len());
    for (invariant, seeds) in kinds {
        println!("  {invariant}: {seeds:?}");
    }
}

fn explain(command: &Command, plan: &Plan, violation: &Violation) {
    println!("\nseed {} VIOLATES {violation}", plan.seed);
    if violation.invariant == Violation::STUCK {
        let without = command.orders.without.join(",");
        println!(
            "to see it: cargo run -p sooner-sim --release --bin sooner-sim -- --seed {} --trace --without {without}",
            plan.seed
        );
        return;
    }
    let (smallest, left_out) = minimise(plan, violation, command.orders.bug);
    let ran = run(&smallest, command.orders.bug, Trace::in_words(false));
    println!("\nthe smallest run that was found ({:?}) ends:", smallest.words());
    for line in &ran.words {
        println!("  {line}");
    }
    if let Some(violation) = ran.violation {
        println!("  VIOLATION of {violation}");
    }
    let mut without = command.orders.without.clone();
    without.extend(left_out);
    println!(
        "\nto see it: cargo run -p sooner-sim --release --bin sooner-sim -- --seed {} --trace --nodes {} --ops {} --without {}",
        smallest.seed,
        smallest.nodes,
        smallest.operations,
        without.join(",")
    );
}
