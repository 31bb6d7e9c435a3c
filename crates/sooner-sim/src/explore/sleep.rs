//! Reduction by partial order: sleep sets.
//!
//! Two moves are independent in a state if both are possible there and both orders lead to the same state.
//! Moves of two different machines are independent if each changes only the state of its machine, takes the
//! first message of one channel to it, and appends to channels that begin at it
//! ([`World::sole_actor`](super::world::World::sole_actor)): appending behind a message leaves that message
//! the first. All other moves count as dependent on everything: faults; starts and ends of processes, and the
//! node's notices of them; allocations, which change the node; and messages to processes whose end was
//! noticed, which become requests to the node.
//!
//! A move is asleep in a state if a move that is independent of it led to the state, from a state where the
//! sleeping move was made before, or slept. A sleeping move is not made: the other order leads to the same
//! state. If several moves reach a state, only those moves sleep in it that sleep by all of them.
//!
//! The search is breadth first, layer by layer, and keeps the sleeping moves only for the layer that comes
//! next:
//!
//! **Every state is visited, in the layer in which it is visited without sleep sets.** Take a state `y` and,
//! of a state `s` that is visited in its layer, a shortest way `w` from `s` to `y`, such that nothing that is
//! asleep in `s` can be moved to the beginning of `w` by exchanging neighbours that are independent. (In the
//! first state nothing is asleep.) The first move of `w` is made in `s`, then. Of the moves that are made in
//! `s` and can be moved to the beginning of `w`, let `t` be the first, and `w' ` the rest. As `w` is a
//! shortest way, `s t` belongs to the next layer, so what is asleep in it, is so by this move, too: it was
//! asleep or made before in `s`, and is independent of `t`. If it could be moved to the beginning of `w'`, it
//! could be moved to that of `w`: but what was asleep cannot, and what was made before `t` cannot, because
//! `t` is the first. So the same holds of `s t` and `w'`, which is shorter.
//!
//! So all states are visited, and all their checks are made; and a move that is not made has been made
//! before, by the same machine in the same state. Only the steps between states become fewer. Fewer states
//! would need persistent sets, which exist only where no message can reach a machine before it acts. Here
//! every process may receive a message of the node at any time, about every death, so the only such sets are
//! those with all moves.
//!
//! With renaming ([`super::renaming`]) the states are classes, and moves are identified by the names that
//! machines have in the state in which they are asleep.

use rustc_hash::FxHashMap;

use super::machines::Event;
use super::world::Move;

/// The largest number of machines in a world.
const MACHINES: u8 = 9;

/// The moves that are asleep in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sleep(u128);

impl Sleep {
    /// Adds a move, under the names of its machines.
    pub fn add(&mut self, what: Move, name: impl Fn(u8) -> u8) {
        self.0 |= bit(what, name);
    }

    /// Whether a move is asleep.
    #[must_use]
    pub fn has(self, what: Move, name: impl Fn(u8) -> u8) -> bool {
        self.0 & bit(what, name) != 0
    }
}

/// One bit for each move that may sleep.
fn bit(what: Move, name: impl Fn(u8) -> u8) -> u128 {
    let at = match what {
        Move::Deliver { from, to } => name(from) * MACHINES + name(to),
        Move::Local { index, event } => {
            let event = match event {
                Event::Run => 0,
                Event::Timer => 1,
                Event::ReturnQueued | Event::HeadReceives => 2,
                Event::Block | Event::NodeReceives => 3,
                _ => return 0,
            };
            MACHINES * MACHINES + name(index) * 4 + event
        }
        _ => return 0,
    };
    1 << at
}

/// The sleeping moves of the states of a layer, in the order in which the states were met.
#[derive(Debug, Default)]
pub struct Layer {
    sleeps: Vec<Sleep>,
    places: FxHashMap<u64, u32>,
}

impl Layer {
    /// Adds a new state.
    pub fn add(&mut self, fingerprint: u64, sleep: Sleep) {
        // Nothing can be taken away from an empty set.
        if sleep != Sleep::default() {
            let place = u32::try_from(self.sleeps.len()).expect("fewer states in a layer");
            self.places.insert(fingerprint, place);
        }
        self.sleeps.push(sleep);
    }

    /// A known state is reached again: if it is of this layer, moves that do not sleep on this way wake up.
    pub fn meet_again(&mut self, fingerprint: u64, sleep: Sleep) {
        if let Some(place) = self.places.get(&fingerprint) {
            let Sleep(known) = &mut self.sleeps[*place as usize];
            *known &= sleep.0;
        }
    }

    /// The sleeping moves, state by state.
    pub fn into_sleeps(self) -> Vec<Sleep> {
        self.sleeps
    }
}
