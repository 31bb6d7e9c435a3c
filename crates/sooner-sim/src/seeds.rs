//! Shared by [`crate::cluster`] and [`crate::scale`]: worlds in virtual time that a seed decides, and the
//! programs that run many of them.
//!
//! Knows nothing of a world's events, and never decides the order of events at different times.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::thread;

use sooner_protocol::time::Instant;

use crate::trace::Trace;
use crate::violation::Violation;

/// Events that a run reports in words.
const WORDS: usize = 60;

/// Scheduled events: the earliest first, and those of one time in the order in which they were entered.
#[derive(Debug)]
pub struct Agenda<E> {
    events: BTreeMap<(Instant, u64), E>,
    entered: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { events: BTreeMap::new(), entered: 0 }
    }
}

impl<E> Agenda<E> {
    /// Schedules an event.
    pub fn enter(&mut self, when: Instant, event: E) {
        self.entered += 1;
        self.events.insert((when, self.entered), event);
    }

    /// The next event, if it is not after `until`.
    pub fn next(&mut self, until: Instant) -> Option<(Instant, E)> {
        let entry = self.events.first_entry().filter(|entry| entry.key().0 <= until)?;
        let ((when, _), event) = entry.remove_entry();
        Some((when, event))
    }
}

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub struct Ran {
    /// Turns and calls of cores.
    pub events: u64,
    /// How many faults happened.
    pub blows: u64,
    /// A hash over everything that happened.
    pub hash: u64,
    /// The property that did not hold.
    pub violation: Option<Violation>,
    /// The latest events in words, if they were wanted.
    pub words: Vec<String>,
    /// States worth reaching, and how often they were.
    pub seen: BTreeMap<&'static str, u64>,
}

impl Ran {
    /// The result of a world that has ended, with or without a panic.
    #[must_use]
    pub fn new(
        ended: thread::Result<()>,
        trace: &Trace,
        (events, blows): (u64, u64),
        seen: BTreeMap<&'static str, u64>,
    ) -> Self {
        Self {
            events,
            blows,
            hash: trace.hash(),
            violation: ended.err().map(|payload| Violation::from_panic(&*payload)),
            words: trace.latest(WORDS),
            seen,
        }
    }
}

/// The options that all such programs share.
#[derive(Debug, Clone, Default)]
pub struct Command {
    /// The first seed.
    pub start: u64,
    /// How many seeds.
    pub seeds: u64,
    /// Nodes of every world, instead of the seed's number.
    pub nodes: Option<usize>,
    /// Faults that are left out.
    pub without: Vec<String>,
    /// This seed only.
    pub one: Option<u64>,
    /// Whether to print events as they happen.
    pub echoes: bool,
    /// Counts the messages of this many nodes.
    pub counts: Option<usize>,
    /// Length of that run (seconds).
    pub seconds: u64,
}

/// The parts in which the programs differ.
pub struct Program<'a, P> {
    /// Its name, for the line that shows how to run a seed again.
    pub name: &'a str,
    /// What it is, in a sentence.
    pub about: &'a str,
    /// The text that lists its options.
    pub help: &'a str,
    /// How it names its cores.
    pub cores: &'a str,
    /// The faults that a word of `--without` stands for.
    pub faults_of: fn(&str) -> Option<Vec<&'static str>>,
    /// The plan of a seed, under these options.
    pub plan: fn(&Command, u64) -> P,
    /// Runs it.
    pub run: fn(&P, Trace) -> Ran,
}

/// A whole number that an option needs.
///
/// # Errors
/// A sentence that names the option.
pub fn number(option: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{option} needs a number, not {text:?}"))
}

impl<P: std::fmt::Debug> Program<'_, P> {
    /// Reads the command line of this process over the defaults. `own` takes the program's own options: it
    /// gets the word and a reader for its value, and returns whether the word was an option.
    ///
    /// # Errors
    /// The exit code, after the error was printed.
    pub fn read(
        &self,
        defaults: Command,
        own: impl FnMut(&str, &mut dyn FnMut() -> Result<String, String>) -> Result<bool, String>,
    ) -> Result<Command, ExitCode> {
        self.parse(defaults, std::env::args().skip(1), own).map_err(|wrong| {
            eprintln!("{wrong}\n{}", self.help);
            ExitCode::from(2)
        })
    }

    fn parse(
        &self,
        mut command: Command,
        mut words: impl Iterator<Item = String>,
        mut own: impl FnMut(&str, &mut dyn FnMut() -> Result<String, String>) -> Result<bool, String>,
    ) -> Result<Command, String> {
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            let read = |text: String| number(&word, &text);
            match word.as_str() {
                "--seeds" => command.seeds = read(value()?)?,
                "--start" => command.start = read(value()?)?,
                "--nodes" => command.nodes = usize::try_from(read(value()?)?).ok(),
                "--seed" => command.one = Some(read(value()?)?),
                "--trace" => command.echoes = true,
                "--count" => command.counts = usize::try_from(read(value()?)?).ok(),
                "--for" => command.seconds = read(value()?)?,
                "--without" => {
                    for word in value()?.split(',').filter(|word| !word.is_empty()) {
                        let faults = (self.faults_of)(word);
                        let faults = faults.ok_or_else(|| format!("nothing is called {word:?}"))?;
                        command.without.extend(faults.into_iter().map(str::to_owned));
                    }
                }
                "--help" => return Err(self.about.to_owned()),
                other if own(other, &mut value)? => {}
                other => return Err(format!("unknown option {other:?}")),
            }
        }
        match command.nodes.or(command.counts) {
            Some(nodes) if !(1..=10_000).contains(&nodes) => Err(format!("1 to 10000 nodes, not {nodes}")),
            _ => Ok(command),
        }
    }

    /// Runs the seeds that the command line names until one violates a property, and prints the totals.
    pub fn run_seeds(&self, command: &Command) -> ExitCode {
        let (start, seeds) = command.one.map_or((command.start, command.seeds), |seed| (seed, 1));
        let began = std::time::Instant::now();
        let (mut events, mut blows) = (0, 0);
        let mut seen = BTreeMap::new();
        for seed in start..start + seeds {
            let plan = (self.plan)(command, seed);
            let trace =
                if command.one.is_some() { Trace::in_words(command.echoes) } else { Trace::default() };
            let ran = (self.run)(&plan, trace);
            (events, blows) = (events + ran.events, blows + ran.blows);
            for (name, times) in &ran.seen {
                *seen.entry(*name).or_insert(0) += times;
            }
            if command.one.is_some() {
                println!("{plan:?}\ntrace {:016x}", ran.hash);
            }
            if let Some(violation) = &ran.violation {
                self.explain(command, seed, &plan, &ran);
                eprintln!("seed {seed} VIOLATES {violation}");
                return ExitCode::FAILURE;
            }
        }
        let (took, cores) = (began.elapsed().as_secs_f64(), self.cores);
        println!(
            "{seeds} seeds, {events} calls of {cores}, {blows} faults in {took:.1} s: every invariant holds"
        );
        for (name, times) in seen {
            println!("  {times:>7}  {name}");
        }
        ExitCode::SUCCESS
    }

    fn explain(&self, command: &Command, seed: u64, plan: &P, ran: &Ran) {
        let again = if ran.words.is_empty() { (self.run)(plan, Trace::in_words(false)) } else { ran.clone() };
        again.words.iter().for_each(|line| println!("  {line}"));
        let nodes = command.nodes.map(|nodes| format!(" --nodes {nodes}")).unwrap_or_default();
        let (name, without) = (self.name, command.without.join(","));
        println!(
            "to see it: cargo run -p sooner-sim --release --bin {name} -- --seed {seed}{nodes} --without {without:?} --trace"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_entered_first_happens_first_at_one_time() {
        let mut agenda = Agenda::default();
        for (when, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            agenda.enter(Instant(when), event);
        }
        let happened: String =
            std::iter::from_fn(|| agenda.next(Instant(5))).map(|(_, event)| event).collect();
        assert_eq!(happened, "abcd");
        assert_eq!(agenda.next(Instant(9)), Some((Instant(9), 'e')));
    }
}
