//! `cargo run -p sooner-sim --release --bin scale`: whole clusters in virtual time, up to some thousand
//! nodes.

use std::process::ExitCode;

use sooner_sim::scale::plan::{FAULTS, ScalePlan};
use sooner_sim::scale::world::run;
use sooner_sim::seeds::{Command, Program, number};

mod tables;

/// The time of a message beside cores and codec (nanoseconds): about 5,000 by the test `what_a_message_takes`
/// of sooner-runtime, and some for noticing that the message has arrived.
const WIRE_NANOS: u64 = 6_000;

const HELP: &str = "\
scale [--seeds N] [--start S] [--nodes N] [--without a,b]  run seeds S, S+1, ... until one violates something
scale --seed S [--nodes N] [--trace]                       run one, and say what happens
scale --count N [--for T]                                  count and measure what N nodes say in T s without faults
scale --broadcasts                                         how long values take to get to many nodes
scale --report [--for T] [--wire NANOS]                    the table of docs/scale.md; NANOS: what it takes to send a message, or to
                                                           read one, beside cores and codec";

const PROGRAM: Program<'static, ScalePlan> = Program {
    name: "scale",
    about: "Whole clusters in virtual time.",
    help: HELP,
    cores: "cores",
    faults_of,
    plan,
    run,
};

fn faults_of(word: &str) -> Option<Vec<&'static str>> {
    FAULTS.iter().find(|(name, _)| *name == word).map(|(name, _)| vec![*name])
}

fn plan(command: &Command, seed: u64) -> ScalePlan {
    let mut plan = ScalePlan::new(seed, command.nodes);
    for word in &command.without {
        plan.leave_out(word);
    }
    plan
}

fn main() -> ExitCode {
    let (mut broadcasts, mut report, mut wire) = (false, false, WIRE_NANOS);
    let defaults = Command { seeds: 20, seconds: 5, ..Command::default() };
    let read = PROGRAM.read(defaults, |word, value| {
        match word {
            "--broadcasts" => broadcasts = true,
            "--report" => report = true,
            "--wire" => wire = number(word, &value()?)?,
            _ => return Ok(false),
        }
        Ok(true)
    });
    let command = match read {
        Ok(command) => command,
        Err(code) => return code,
    };
    if let Some(nodes) = command.counts {
        tables::count(nodes, command.seconds);
    } else if broadcasts {
        tables::broadcasts();
    } else if report {
        tables::report(command.seconds, wire);
    } else {
        return PROGRAM.run_seeds(&command);
    }
    ExitCode::SUCCESS
}
