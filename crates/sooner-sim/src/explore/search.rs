//! Breadth-first search through the states of a world, so that the first violation found has a shortest trace.

use std::time::{Duration, Instant};

use super::config::{Config, Finding};
use super::hash;
use super::visited::Visited;
use super::world::{Taken, Violation, WORDS, Words, World};

/// What a search found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Distinct states.
    pub states: u64,
    /// Steps between them.
    pub transitions: u64,
    /// States after which nothing happens any more.
    pub ends: u64,
    /// Steps to the farthest state.
    pub depth: u32,
    /// States of single machines.
    pub locals: usize,
    /// How long it took.
    pub took: Duration,
    /// Every state was met; otherwise the search was cut.
    pub is_complete: bool,
    /// What is wrong, and the steps to it.
    pub violation: Option<(Violation, Vec<String>)>,
}

impl Found {
    /// Whether it is what the configuration says: no violation, or the one that is known.
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
    let began = Instant::now();
    let mut search = Search::new(config);
    let violation = search.run(states_max).err();
    let violation = violation.map(|(state, taken, text)| {
        let trace = search.trace(state, taken);
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

struct Search<'c> {
    world: World<'c>,
    visited: Visited,
    transitions: u64,
    ends: u64,
    depth: u32,
    is_complete: bool,
}

/// The state before, the move out of it if that is what went wrong, and what is wrong.
type Stop = (u64, Option<Taken>, Violation);

impl<'c> Search<'c> {
    fn new(config: &'c Config) -> Self {
        let world = World::new(config);
        Self { world, visited: Visited::default(), transitions: 0, ends: 0, depth: 0, is_complete: false }
    }

    fn run(&mut self, states_max: u64) -> Result<(), Stop> {
        let count = self.world.words();
        let first = self.world.first();
        self.visited.insert(hash::of_words(&first[..count]), 0);
        let mut layer = Packed::default();
        layer.push(&first[..count]);
        let mut moves = Vec::new();
        while !layer.bytes.is_empty() {
            let mut next = Packed::default();
            let mut at = 0;
            while at < layer.bytes.len() {
                let mut words: Words = [0; WORDS];
                layer.read(&mut at, &mut words[..count]);
                self.expand(&words, &mut moves, &mut next)?;
                if self.visited.len() >= states_max {
                    return Ok(());
                }
            }
            self.depth += u32::from(!next.bytes.is_empty());
            layer = next;
        }
        self.is_complete = true;
        Ok(())
    }

    fn expand(
        &mut self,
        words: &Words,
        moves: &mut Vec<(Taken, Words)>,
        next: &mut Packed,
    ) -> Result<(), Stop> {
        let count = self.world.words();
        let fingerprint = hash::of_words(&words[..count]);
        let unforced = self
            .world
            .successors(words, moves)
            .map_err(|(taken, violation)| (fingerprint, Some(taken), violation))?;
        if unforced == 0 {
            self.ends += 1;
            self.world.check_end(words).map_err(|violation| (fingerprint, None, violation))?;
        }
        self.transitions += moves.len() as u64;
        for (_, words) in &*moves {
            if self.visited.insert(hash::of_words(&words[..count]), fingerprint) {
                next.push(&words[..count]);
            }
        }
        Ok(())
    }

    /// The steps to a state, in words, and the one that went wrong.
    fn trace(&mut self, last: u64, taken: Option<Taken>) -> Vec<String> {
        let mut path = vec![last];
        while let Some(before) = path.last().map(|at| self.visited.came_from(*at)).filter(|at| *at != 0) {
            path.push(before);
        }
        let count = self.world.words();
        let mut words = self.world.first();
        let mut steps = Vec::new();
        let mut moves = Vec::new();
        for fingerprint in path.into_iter().rev().skip(1) {
            let known = self.world.successors(&words, &mut moves);
            debug_assert!(known.is_ok(), "this state was expanded before");
            let found = moves.iter().find(|(_, next)| hash::of_words(&next[..count]) == fingerprint);
            let (taken, next) = found.expect("the path was walked before");
            steps.push(self.world.describe(&words, *taken));
            words = *next;
        }
        steps.extend(taken.map(|taken| self.world.describe(&words, taken)));
        steps
    }
}
