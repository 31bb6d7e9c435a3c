//! `cargo run -p sooner-sim --release --bin explore -- [--config NAME] [--max-states N] [--jobs N]`: visits
//! every state of small worlds and reports the findings. Exits with 1 if a property does not hold.

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use sooner_sim::explore::{Bounds, Found, Reductions, chains, configs, links, search_with, settle_nodes};

/// A configuration of any kind.
struct Job {
    name: &'static str,
    about: &'static str,
    search: Box<dyn Fn(u64) -> (Found, bool) + Send>,
}

fn all(reductions: Reductions, time: Duration) -> Vec<Job> {
    let products = configs::all().into_iter().map(|config| Job {
        name: config.name,
        about: config.about,
        search: Box::new(move |states_max| {
            let found = search_with(&config, reductions, Bounds { states: states_max, time });
            let is_expected = found.is_as_expected(&config);
            (found, is_expected)
        }),
    });
    let links = links::all().into_iter().map(|config| Job {
        name: config.name,
        about: config.about,
        search: Box::new(move |states_max| {
            let found = links::search(&config, states_max);
            let is_expected = found.violation.is_none();
            (found, is_expected)
        }),
    });
    let chains = chains::all().into_iter().map(|config| Job {
        name: config.name,
        about: config.about,
        search: Box::new(move |states_max| {
            let found = chains::search(&config, states_max);
            let is_expected = found.violation.is_none();
            (found, is_expected)
        }),
    });
    let settling = settle_nodes::all().into_iter().map(|config| Job {
        name: config.name,
        about: config.about,
        search: Box::new(move |states_max| {
            let found = settle_nodes::search(&config, None, states_max);
            let is_expected = found.violation.is_none();
            (found, is_expected)
        }),
    });
    products.chain(links).chain(chains).chain(settling).collect()
}

struct Options {
    names: Vec<String>,
    states_max: u64,
    jobs: usize,
    reductions: Reductions,
    time: Duration,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        names: Vec::new(),
        states_max: u64::MAX,
        jobs: 1,
        reductions: Reductions::default(),
        time: Duration::MAX,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--config" => options.names.push(value()?),
            "--max-states" => options.states_max = number(&value()?)?,
            "--jobs" => options.jobs = usize::try_from(number(&value()?)?).map_err(|e| e.to_string())?,
            "--max-seconds" => options.time = Duration::from_secs(number(&value()?)?),
            "--reduce" => match value()?.as_str() {
                "names" => options.reductions.symmetry = true,
                "orders" => options.reductions.order = true,
                "all" => options.reductions = Reductions::ALL,
                other => return Err(format!("--reduce {other}: it is names, orders or all")),
            },
            "--list" => {
                for job in all(options.reductions, options.time) {
                    println!("{:24} {}", job.name, job.about);
                }
                std::process::exit(0);
            }
            other => {
                return Err(format!(
                    "unknown argument {other}; --list, --config, --max-states, --max-seconds, --jobs, --reduce"
                ));
            }
        }
    }
    Ok(options)
}

fn number(text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|error| format!("{text}: {error}"))
}

fn report(name: &str, found: &Found, is_expected: bool, tells_known: bool) {
    let seconds = found.took.as_secs_f64();
    println!(
        "{:24} {:>11} states {:>12} transitions {:>8} ends depth {:>4} {:>7} local states {:>7.1} s {:>8.0} states/s {}",
        name,
        found.states,
        found.transitions,
        found.ends,
        found.depth,
        found.locals,
        seconds,
        found.states as f64 / seconds.max(1e-9),
        if found.is_complete { "complete" } else { "cut" },
    );
    if let Some((violation, trace)) = &found.violation {
        let word = if is_expected { "known finding" } else { "VIOLATION" };
        println!("{word} in {name}: {violation}");
        for (at, step) in trace.iter().enumerate().filter(|_| tells_known || !is_expected) {
            println!("{:>4}. {step}", at + 1);
        }
    }
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(text) => {
            eprintln!("explore: {text}");
            return ExitCode::from(2);
        }
    };
    let is_wanted = |job: &Job| options.names.is_empty() || options.names.iter().any(|n| n == job.name);
    let wanted: Vec<Job> = all(options.reductions, options.time).into_iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        eprintln!("explore: no configuration of that name; --list shows them");
        return ExitCode::from(2);
    }
    let (queue, results) = (Mutex::new(wanted.into_iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("nobody panics with it").next();
                    let Some(job) = next else { return };
                    let (found, is_well) = (job.search)(options.states_max);
                    report(job.name, &found, is_well, !options.names.is_empty());
                    results.lock().expect("nobody panics with it").push((found.states, is_well));
                }
            });
        }
    });
    let results = results.into_inner().expect("all threads have ended");
    let states: u64 = results.iter().map(|(states, _)| states).sum();
    println!("{states} distinct states in {} configurations", results.len());
    ExitCode::from(u8::from(!results.iter().all(|(_, is_well)| *is_well)))
}
