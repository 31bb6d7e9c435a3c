//! Breadth-first search through the states of a world: the first violation found has a shortest trace.

use std::time::{Duration, Instant};

use super::config::{Config, Finding};
use super::renaming::Names;
use super::sleep::{Layer, Sleep};
use super::visited::Visited;
use super::world::{Move, Taken, Violation, WORDS, Words, World};

/// The result of a search.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Distinct states.
    pub states: u64,
    /// Steps between states.
    pub transitions: u64,
    /// States after which nothing happens any more.
    pub ends: u64,
    /// Steps to the farthest state.
    pub depth: u32,
    /// States of single machines.
    pub locals: usize,
    /// How long it took.
    pub took: Duration,
    /// Whether all states were met; otherwise the search was cut.
    pub is_complete: bool,
    /// The violation, and the steps to it.
    pub violation: Option<(Violation, Vec<String>)>,
}

impl Found {
    /// Whether the result is the one that the configuration expects: no violation, or the known one.
    #[must_use]
    pub fn is_as_expected(&self, config: &Config) -> bool {
        match (&self.violation, config.finding) {
            (Some((text, _)), Finding::Violation(known)) => text.starts_with(known),
            (Some(_), Finding::None) => false,
            (None, Finding::Violation(_)) => !self.is_complete,
            (None, Finding::None) => true,
        }
    }
}

/// What a search leaves out because it is like something that it visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reductions {
    /// States that differ from a visited state only in names ([`super::renaming`]).
    pub symmetry: bool,
    /// Steps to states that other orders of the same steps reach ([`super::sleep`]). Every state is still
    /// visited by one of them.
    pub order: bool,
}

impl Reductions {
    /// All reductions.
    pub const ALL: Self = Self { symmetry: true, order: true };
}

/// Limits at which a search is cut.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// About this many distinct states.
    pub states: u64,
    /// About this much time.
    pub time: Duration,
}

impl Bounds {
    /// A limit of states, without a limit of time.
    #[must_use]
    pub fn states(states: u64) -> Self {
        Self { states, time: Duration::MAX }
    }
}

/// States in a row, each packed into a few bytes.
#[derive(Default)]
struct Packed {
    bytes: Vec<u8>,
}

impl Packed {
    fn push(&mut self, words: &[u32]) {
        for word in words {
            let mut rest = *word;
            while rest >= 0x80 {
                self.bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            self.bytes.push(rest as u8);
        }
    }

    /// Reads one state from `at`; moves `at` behind it.
    fn read(&self, at: &mut usize, words: &mut [u32]) {
        for word in words {
            let mut shift = 0;
            *word = 0;
            loop {
                let byte = self.bytes[*at];
                *at += 1;
                *word |= u32::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
                shift += 7;
            }
        }
    }
}

/// Searches all states of a configuration, at most `states_max`.
#[must_use]
pub fn search(config: &Config, states_max: u64) -> Found {
    search_with(config, Reductions::default(), Bounds::states(states_max))
}

/// Searches a configuration with reductions: fewer states are visited, and all properties that do not hold
/// are still found.
#[must_use]
pub fn search_with(config: &Config, reductions: Reductions, bounds: Bounds) -> Found {
    let began = Instant::now();
    let mut search = Search::new(config, reductions);
    let violation = search.run(bounds, began).err();
    let violation = violation.map(|(state, taken, text)| {
        let trace = search.trace(state, taken.is_some());
        (text, trace)
    });
    Found {
        states: search.visited.len(),
        transitions: search.transitions,
        ends: search.ends,
        depth: search.depth,
        locals: search.world.machines().counts().0,
        took: began.elapsed(),
        is_complete: search.is_complete,
        violation,
    }
}

/// Searches a configuration without reductions, and compares the transitions of its machines in states that
/// differ only in names. Returns the number of transitions compared.
///
/// # Errors
/// Two transitions that depend on names.
pub fn check_names(config: &Config, states_max: u64) -> Result<usize, String> {
    let names = Names::of(config);
    let mut search = Search::new(config, Reductions { symmetry: true, order: false });
    search.world.tell_names_apart();
    search.run(Bounds::states(states_max), Instant::now()).map_err(|(.., violation)| violation)?;
    if names.any { search.world.machines().agree(names) } else { Ok(0) }
}

struct Search<'c> {
    world: World<'c>,
    visited: Visited,
    order: bool,
    moves: Vec<(Taken, Words)>,
    transitions: u64,
    ends: u64,
    depth: u32,
    is_complete: bool,
}

/// The fingerprint of the state, the move out of it if that failed, and the violation.
type Stop = (u64, Option<Taken>, Violation);

impl<'c> Search<'c> {
    fn new(config: &'c Config, reductions: Reductions) -> Self {
        let names = if reductions.symmetry { Names::of(config) } else { Names::default() };
        let world = World::new(config, names);
        Self {
            world,
            visited: Visited::default(),
            order: reductions.order,
            moves: Vec::new(),
            transitions: 0,
            ends: 0,
            depth: 0,
            is_complete: false,
        }
    }

    fn run(&mut self, bounds: Bounds, began: Instant) -> Result<(), Stop> {
        let count = self.world.words();
        let first = self.world.first();
        let fingerprint = self.world.fingerprint(&first);
        self.visited.insert(fingerprint, 0);
        let mut layer = Packed::default();
        layer.push(&first[..count]);
        let mut asleep = Layer::default();
        asleep.add(fingerprint, Sleep::default());
        while !layer.bytes.is_empty() {
            let mut next = (Packed::default(), Layer::default());
            let mut at = 0;
            for (place, sleep) in asleep.into_sleeps().into_iter().enumerate() {
                let mut words: Words = [0; WORDS];
                layer.read(&mut at, &mut words[..count]);
                self.expand(&words, sleep, &mut next)?;
                let is_late = place % 4096 == 0 && began.elapsed() >= bounds.time;
                if is_late || self.visited.len() >= bounds.states {
                    return Ok(());
                }
            }
            self.depth += u32::from(!next.0.bytes.is_empty());
            (layer, asleep) = next;
        }
        self.is_complete = true;
        Ok(())
    }

    fn expand(&mut self, words: &Words, sleep: Sleep, next: &mut (Packed, Layer)) -> Result<(), Stop> {
        let count = self.world.words();
        let fingerprint = self.world.fingerprint(words);
        let mut asleep = Vec::new();
        if sleep != Sleep::default() {
            let possible = self.world.possible(words).into_iter();
            asleep.extend(possible.filter(|what| sleep.has(*what, |index| self.world.name(index))));
        }
        let mut moves = std::mem::take(&mut self.moves);
        let unforced = self
            .world
            .successors(words, &asleep, &mut moves)
            .map_err(|(taken, violation)| (fingerprint, Some(taken), violation))?;
        if unforced == 0 {
            self.ends += 1;
            self.world.check_end(words).map_err(|violation| (fingerprint, None, violation))?;
        }
        self.transitions += moves.len() as u64;
        let mut before: Vec<(Move, u8)> = Vec::new();
        for what in asleep {
            let actor = self.world.sole_actor(words, Taken { what, killed_after: None });
            before.extend(actor.map(|actor| (what, actor)));
        }
        for (taken, after) in &moves {
            let actor = if self.order { self.world.sole_actor(words, *taken) } else { None };
            let reached = self.world.fingerprint(after);
            let mut sleep = Sleep::default();
            if let Some(actor) = actor {
                for (what, _) in before.iter().filter(|(_, other)| *other != actor) {
                    sleep.add(*what, |index| self.world.name(index));
                }
                before.push((taken.what, actor));
            }
            if self.visited.insert(reached, fingerprint) {
                next.0.push(&after[..count]);
                next.1.add(reached, sleep);
            } else if self.order {
                next.1.meet_again(reached, sleep);
            }
        }
        self.moves = moves;
        Ok(())
    }

    /// The steps to a state, in words, and the move that failed, if there is one. States may have other names
    /// here than when they were met.
    fn trace(&mut self, last: u64, goes_wrong: bool) -> Vec<String> {
        let mut path = vec![last];
        while let Some(before) = path.last().map(|at| self.visited.came_from(*at)).filter(|at| *at != 0) {
            path.push(before);
        }
        let mut words = self.world.first();
        let mut steps = Vec::new();
        let mut moves = Vec::new();
        for fingerprint in path.into_iter().rev().skip(1) {
            let known = self.world.successors(&words, &[], &mut moves);
            debug_assert!(known.is_ok(), "this state was expanded before");
            let found = moves.iter().find(|(_, next)| self.world.fingerprint(next) == fingerprint);
            let (taken, next) = found.expect("the path was walked before");
            steps.push(self.world.describe(&words, *taken));
            words = *next;
        }
        if goes_wrong && let Err((taken, _)) = self.world.successors(&words, &[], &mut moves) {
            steps.push(self.world.describe(&words, taken));
        }
        steps
    }
}
