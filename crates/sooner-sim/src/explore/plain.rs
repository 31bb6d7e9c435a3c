//! Search of a world whose states are plain data: machines without shared parts, cloned and hashed.
//!
//! Large worlds are products of machines ([`super::world`]); this is for models of one protocol.

use std::hash::Hash;
use std::time::Instant;

use super::hash;
use super::search::Found;
use super::visited::Visited;
use super::world::Violation;
use crate::random::Random;

/// A model of one protocol.
pub trait Model {
    /// Everything that its future depends on.
    type State: Clone + Hash;
    /// A move.
    type Move: Copy;

    /// The first state.
    fn first(&self) -> Self::State;
    /// The moves that are possible in a state. Marked moves are faults, or need not happen: a state without
    /// other moves is an end.
    fn moves(&self, state: &Self::State, moves: &mut Vec<(Self::Move, bool)>);
    /// The state after a move.
    ///
    /// # Errors
    /// What is wrong with it.
    fn take(&self, state: &Self::State, taken: Self::Move) -> Result<Self::State, Violation>;
    /// Checks the properties that hold when no move has to happen any more.
    ///
    /// # Errors
    /// What is wrong.
    fn check_end(&self, state: &Self::State) -> Result<(), Violation>;
    /// Whether a walk delays this move, so that it comes late.
    fn is_late(&self, state: &Self::State, taken: Self::Move) -> bool;
    /// A move in words.
    fn describe(&self, state: &Self::State, taken: Self::Move) -> String;
}

/// Visits all states breadth first, at most `states_max`.
#[must_use]
pub fn search<M: Model>(model: &M, states_max: u64) -> Found {
    let began = Instant::now();
    let mut search = Search { model, visited: Visited::default(), found: Found::default() };
    let violation = search.run(states_max).err();
    search.found.violation = violation.map(|(state, taken, text)| (text, search.trace(state, taken)));
    Found { states: search.visited.len(), took: began.elapsed(), ..search.found }
}

struct Search<'m, M: Model> {
    model: &'m M,
    visited: Visited,
    found: Found,
}

/// The fingerprint of the state, the move out of it if that failed, and the violation.
type Stop<M> = (u64, Option<<M as Model>::Move>, Violation);

impl<M: Model> Search<'_, M> {
    fn run(&mut self, states_max: u64) -> Result<(), Stop<M>> {
        let first = self.model.first();
        self.visited.insert(hash::of(&first), 0);
        let mut layer = vec![first];
        let mut moves = Vec::new();
        while !layer.is_empty() {
            let mut next = Vec::new();
            for state in &layer {
                self.expand(state, &mut moves, &mut next)?;
                if self.visited.len() >= states_max {
                    return Ok(());
                }
            }
            self.found.depth += u32::from(!next.is_empty());
            layer = next;
        }
        self.found.is_complete = true;
        Ok(())
    }

    fn expand(
        &mut self,
        state: &M::State,
        moves: &mut Vec<(M::Move, bool)>,
        next: &mut Vec<M::State>,
    ) -> Result<(), Stop<M>> {
        let fingerprint = hash::of(state);
        moves.clear();
        self.model.moves(state, moves);
        if moves.iter().all(|(_, is_fault)| *is_fault) {
            self.found.ends += 1;
            self.model.check_end(state).map_err(|violation| (fingerprint, None, violation))?;
        }
        self.found.transitions += moves.len() as u64;
        for (taken, _) in moves {
            let after = self.model.take(state, *taken);
            let after = after.map_err(|violation| (fingerprint, Some(*taken), violation))?;
            if self.visited.insert(hash::of(&after), fingerprint) {
                next.push(after);
            }
        }
        Ok(())
    }

    /// The steps to a state, in words, and the move that failed.
    fn trace(&self, last: u64, taken: Option<M::Move>) -> Vec<String> {
        let mut path = vec![last];
        while let Some(before) = path.last().map(|at| self.visited.came_from(*at)).filter(|at| *at != 0) {
            path.push(before);
        }
        let mut state = self.model.first();
        let mut steps = Vec::new();
        for fingerprint in path.into_iter().rev().skip(1) {
            let mut moves = Vec::new();
            self.model.moves(&state, &mut moves);
            let leads_on = |(taken, _): &(M::Move, bool)| {
                let after = self.model.take(&state, *taken).ok()?;
                (hash::of(&after) == fingerprint).then_some((*taken, after))
            };
            let (taken, after) = moves.iter().find_map(leads_on).expect("the path was walked before");
            steps.push(self.model.describe(&state, taken));
            state = after;
        }
        steps.extend(taken.map(|taken| self.model.describe(&state, taken)));
        steps
    }
}

/// Walks through a world that is too large to be searched: a seed picks the moves, a fault one time in eight,
/// and late moves mostly when no other is left. Returns the steps taken.
///
/// # Errors
/// What is wrong with a state on the way.
pub fn walk<M: Model>(model: &M, seed: u64, steps_max: u64) -> Result<u64, Violation> {
    let mut random = Random::new(seed);
    let mut state = model.first();
    let mut moves = Vec::new();
    for step in 0..steps_max {
        moves.clear();
        model.moves(&state, &mut moves);
        let faults = moves.iter().filter(|(_, is_fault)| *is_fault).count();
        if faults == moves.len() {
            model.check_end(&state)?;
        }
        if moves.is_empty() {
            return Ok(step);
        }
        let wants_fault = faults == moves.len() || (faults > 0 && random.chance(1, 8));
        let count = if wants_fault { faults } else { moves.len() - faults };
        let at = random.below(count);
        let mut wanted = moves.iter().filter(|(_, is_fault)| *is_fault == wants_fault);
        let (taken, _) = wanted.nth(at).expect("counted above");
        if count > 1 && model.is_late(&state, *taken) && random.chance(15, 16) {
            continue;
        }
        state = model.take(&state, *taken)?;
    }
    Ok(steps_max)
}
