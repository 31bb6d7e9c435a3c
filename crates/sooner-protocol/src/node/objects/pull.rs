//! Values of other nodes on their way into this node's memory. The receiver pulls, as in Hoplite (section 4,
//! figure 4).
//!
//! There is one pull per object, however many processes ask for it. It waits for room, gets a block, and
//! moves, through a stream that the shell opens and that begins where the last one broke off. Pulls are
//! admitted by priority (gets before waits before arguments of tasks), then by age, up to a budget of bytes:
//! `admission.rs`.
//!
//! The bytes come from the block that the first asker named. Where owners are asked ([`Pulls::ask_owners`]),
//! they come from the sender that the owner names, and from another when the owner says so: `directed.rs`. An
//! owner that pulls for itself asks nobody.
//!
//! Invariants:
//! - PU1: an object has one pull at most, and no pull while a copy of it is here.
//! - PU2: the bytes in flight are within the budget, or belong to a single pull.
//! - PU3: every asker is answered once: by a copy, by "not there", or by a failure.
//! - PU4: attempts are numbered; what is said of an earlier one changes nothing.
//! - PU5: bytes below the mark stay as they are: a stream goes on only from the block that it began with, or
//!   from a copy of the same generation, because a value that was computed again may have other bytes.
//! - PU6: a copy that its owner counts on stays until the owner lets go of it.
//!
//! Copies that nobody needs stay as long as there is room: `caching.rs`, which has PU7.
//!
//! It never touches memory or sockets: it says what to allocate, fetch and free.

use std::collections::BTreeMap;

use sooner_wire::limits::PULL_ROOM_NANOS;
use sooner_wire::message::{Failure, FailureCode, Location, Place, Priority, Pull, Remote, SpillId};
use sooner_wire::{BlockId, FetchAttempt, NodeId, ObjectId, TransferAttempt, WorkerId, size};

use crate::table::Map;
use crate::time::Instant;

mod admission;
mod caching;
mod directed;
mod promotion;

pub use directed::CopyAt;

/// No sum of bytes in flight overflows.
const BUDGET_MAX: u64 = u64::MAX / 2;

/// What the machine wants done, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum PullAction {
    /// Find a block of `bytes` bytes; [`Pulls::on_block`] or [`Pulls::on_no_block`] follows.
    Allocate {
        /// For which object.
        object: ObjectId,
        /// Its length.
        bytes: u64,
    },
    /// Open a stream of bytes; [`Pulls::on_bytes`] and [`Pulls::on_stream_end`] follow.
    Fetch(Fetching),
    /// No process wants the stream any more. Nothing may be written to its block from now on.
    Stop {
        /// Of which object.
        object: ObjectId,
        /// Which stream.
        attempt: FetchAttempt,
    },
    /// The value is local. The asker holds its block from now on.
    Here {
        /// Who asked.
        to: WorkerId,
        /// The object.
        object: ObjectId,
        /// Its location.
        location: Location,
    },
    /// The value is not where the asker believed it to be.
    NotThere {
        /// Who asked.
        to: WorkerId,
        /// The object.
        object: ObjectId,
        /// A place where the value is not, for certain: one that an asker named.
        tried: Option<Remote>,
    },
    /// The value cannot be brought here.
    Failed {
        /// Who asked.
        to: WorkerId,
        /// The object.
        object: ObjectId,
        /// Why.
        failure: Failure,
    },
    /// A block is not needed.
    Free(BlockId),
    /// This node holds a block for itself from now on, until [`Self::Free`] or [`Self::Release`].
    Hold(BlockId),
    /// This node does not hold the block any more; others may.
    Release(BlockId),
    /// Ask the owner for a sender; [`Pulls::on_located`] follows.
    Locate(ObjectId),
    /// Tell the owner that a copy is complete.
    Made {
        /// Of which object.
        object: ObjectId,
        /// The owner's message that named the sender.
        attempt: TransferAttempt,
    },
    /// Tell the owner that the sender does not have the rest.
    SenderFailed {
        /// Of which object.
        object: ObjectId,
        /// The owner's message that named the sender.
        attempt: TransferAttempt,
    },
    /// Ask the owner whether a copy may go; [`Pulls::on_drop`] follows.
    Leave(ObjectId),
}

/// A stream of the bytes of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetching {
    /// Of which object.
    pub object: ObjectId,
    /// Where the bytes come from.
    pub remote: Remote,
    /// Bytes that are local: the stream begins behind them.
    pub at: u64,
    /// The block that the bytes go to.
    pub block: BlockId,
    /// The number of the stream.
    pub attempt: FetchAttempt,
    /// Set if the sender has a copy of this generation. It knows by itself in which block.
    pub generation: Option<u64>,
    /// The stream to the same block that this one replaces: it ends now, and the bytes that came by it since
    /// are local, too.
    pub after: Option<FetchAttempt>,
}

/// Why a stream ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The connection broke.
    Cut,
    /// The sender does not have the object there, or is dead.
    NotThere,
    /// This node knows no such node: it is dead, or newer than this node's view.
    NoSuchNode,
    /// This node cannot reach the sender, which may have the object.
    Unreachable,
}

#[derive(Debug)]
enum State {
    /// Other pulls go first, or there was no room: a block is asked for again at this time, or when memory
    /// was freed.
    Waiting { again: Option<Instant> },
    /// The shell looks for a block.
    Allocating,
    /// `at` bytes are in the block; the owner has to say which node has the rest.
    Asking { block: BlockId, at: u64 },
    /// `at` bytes are in the block.
    Moving { block: BlockId, at: u64, attempt: FetchAttempt },
}

/// A process that waits for a value, and since when.
#[derive(Debug)]
struct Requester {
    process: WorkerId,
    priority: Priority,
    age: u64,
}

#[derive(Debug)]
struct Open {
    remote: Remote,
    askers: Vec<Requester>,
    /// The highest priority of the askers.
    priority: Priority,
    age: u64,
    state: State,
    /// When room was refused first since any block was freed.
    refused: Option<Instant>,
    overtaking: admission::Overtaking,
    /// `None` if the bytes come from the block that was named.
    directed: Option<directed::Directed>,
    /// The value comes from this node's disk.
    is_restored: bool,
}

/// A copy that was pulled.
#[derive(Debug)]
struct Copy {
    block: BlockId,
    length: u64,
    directed: Option<directed::Directed>,
    /// Where the value is on this node's disk, if the copy came from there and it is there still.
    restored: Option<SpillId>,
    /// Since when no process needs it, as a number that grows.
    cached: Option<u64>,
    /// The copy has become the value: its owner holds it here.
    is_primary: bool,
}

impl Copy {
    fn location(&self) -> Location {
        Location::in_memory(self.block, self.length)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Pulls {
    /// Bytes that may be in flight.
    budget: u64,
    in_flight: u64,
    open: Map<ObjectId, Open>,
    /// Copies that were pulled and have not been freed.
    here: Map<ObjectId, Copy>,
    /// The same, by block.
    objects: Map<BlockId, ObjectId>,
    /// Copies that no process needs, by the time since when.
    cached: BTreeMap<u64, ObjectId>,
    /// Copies of values that are on this node's disk.
    restored: Map<SpillId, ObjectId>,
    made: u64,
    asks_owners: bool,
}

impl Default for Pulls {
    fn default() -> Self {
        Self::new(BUDGET_MAX)
    }
}

impl Pulls {
    /// At most `budget` bytes are in flight, unless a single value is larger.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        Self {
            budget: budget.min(BUDGET_MAX),
            in_flight: 0,
            open: Map::default(),
            here: Map::default(),
            objects: Map::default(),
            cached: BTreeMap::new(),
            restored: Map::default(),
            made: 0,
            asks_owners: false,
        }
    }

    /// How many bytes may be in flight from now on.
    pub fn set_budget(&mut self, bytes: u64) {
        self.budget = bytes.min(BUDGET_MAX);
    }

    /// A client asks for a value. A request that is repeated before the answer counts once. A dead owner is
    /// not asked. Nor is the creator of an actor for its state, of which it knows nothing: the node that
    /// keeps the state for the control service has it.
    pub fn on_pull(&mut self, from: WorkerId, pull: &Pull, is_owner_dead: bool, out: &mut Vec<PullAction>) {
        let has_owner = !is_owner_dead && pull.object != pull.object.task.state();
        let is_directed = self.asks_owners && has_owner && from != pull.object.owner();
        self.ask_for(from, pull, is_directed, false, out);
    }

    /// A client asks for a value that is on this node's disk. No owner is asked for it.
    pub fn on_pull_from_disk(&mut self, from: WorkerId, pull: &Pull, out: &mut Vec<PullAction>) {
        self.ask_for(from, pull, false, true, out);
    }

    fn ask_for(
        &mut self,
        from: WorkerId,
        pull: &Pull,
        is_directed: bool,
        is_restored: bool,
        out: &mut Vec<PullAction>,
    ) {
        let Pull { object, remote, priority } = *pull;
        if let Some(copy) = self.here.get(&object) {
            let (block, location) = (copy.block, copy.location());
            out.push(PullAction::Here { to: from, object, location });
            // The asker holds the block by now.
            return out.extend(self.uncache(object).then_some(PullAction::Release(block)));
        }
        self.made += 1;
        let age = self.made;
        let open = self.open.entry(object).or_insert_with(|| Open {
            remote,
            askers: Vec::new(),
            priority,
            age,
            state: State::Waiting { again: None },
            refused: None,
            overtaking: admission::Overtaking::default(),
            directed: is_directed.then(directed::Directed::default),
            is_restored,
        });
        let is_free = matches!(open.state, State::Allocating) && open.askers.is_empty();
        if is_free && open.remote.location.length == remote.location.length {
            // Earlier askers had their answers: the place they named may be another value's by now.
            open.remote = remote;
        }
        open.priority = open.priority.min(priority);
        if open.askers.iter().all(|asker| asker.process != from) {
            open.askers.push(Requester { process: from, priority, age });
        }
        self.admit(out);
    }

    /// There is a block for an object.
    pub fn on_block(&mut self, object: ObjectId, block: BlockId, out: &mut Vec<PullAction>) {
        let attempt = self.next_attempt();
        let Some(open) = self.open.get_mut(&object).filter(|open| matches!(open.state, State::Allocating))
        else {
            return out.push(PullAction::Free(block));
        };
        if open.askers.is_empty() {
            out.push(PullAction::Free(block));
            self.close(object);
            return self.admit(out);
        }
        open.overtaking = admission::Overtaking::default();
        if let Some(directed) = &mut open.directed {
            open.state = State::Asking { block, at: 0 };
            out.extend([PullAction::Hold(block), directed.ask(object)]);
        } else {
            open.state = State::Moving { block, at: 0, attempt };
            out.push(open.fetch(object, None));
        }
        self.admit(out);
    }

    /// `bytes` bytes of an object are in its block.
    pub fn on_bytes(
        &mut self,
        object: ObjectId,
        attempt: FetchAttempt,
        bytes: u64,
        out: &mut Vec<PullAction>,
    ) {
        let Some(Open {
            remote,
            state: State::Moving { block, at, attempt: current },
            directed,
            is_restored,
            ..
        }) = self.open.get_mut(&object)
        else {
            return;
        };
        let length = remote.location.length;
        if *current != attempt || bytes > length {
            return;
        }
        *at = bytes.max(*at);
        if *at < length {
            return;
        }
        let (block, location) = (*block, Location::in_memory(*block, length));
        let mut directed = directed.take();
        let restored = remote.location.place().spilled().filter(|_| *is_restored);
        let askers = self.close(object);
        let mut is_held = false;
        if let Some(directed) = &mut directed {
            out.extend(directed.made(object));
            is_held = !directed.stays(!askers.is_empty());
        }
        self.here.insert(object, Copy { block, length, directed, restored, cached: None, is_primary: false });
        self.restored.extend(restored.map(|spilled| (spilled, object)));
        self.objects.insert(block, object);
        // The askers hold the block before this node lets go of it.
        out.extend(askers.into_iter().map(|to| PullAction::Here { to, object, location }));
        out.extend(is_held.then_some(PullAction::Release(block)));
        self.admit(out);
    }

    /// A stream ended before all bytes were local.
    pub fn on_stream_end(
        &mut self,
        object: ObjectId,
        attempt: FetchAttempt,
        end: StreamEnd,
        out: &mut Vec<PullAction>,
    ) {
        let next = self.next_attempt();
        let Some(open) = self.open.get_mut(&object) else { return };
        let State::Moving { block, at, attempt: current } = &mut open.state else { return };
        if *current != attempt {
            return;
        }
        if let Some(directed) = &open.directed
            && !directed.is_alone()
            && (end == StreamEnd::NotThere || directed.is_from_copy())
        {
            out.extend(directed.failed(object));
            open.state = State::Asking { block: *block, at: *at };
            return;
        }
        // The value may well be where this node cannot get it from. Other nodes may have been sent here for
        // it.
        let left = open.directed.is_some().then_some(PullAction::Leave(object));
        match end {
            StreamEnd::Cut => {
                *current = next;
                out.push(open.fetch(object, None));
            }
            StreamEnd::NotThere | StreamEnd::NoSuchNode => {
                let tried = (end == StreamEnd::NotThere).then_some(open.remote);
                out.push(PullAction::Free(*block));
                out.extend(left);
                self.give_up(object, tried, out);
            }
            StreamEnd::Unreachable => {
                let failure = unreachable(open.remote.node);
                out.push(PullAction::Free(*block));
                out.extend(left);
                self.fail(object, &failure, out);
            }
        }
    }

    /// A node is dead, and with it the bytes that were to come from there.
    pub fn on_node_dead(&mut self, node: NodeId, out: &mut Vec<PullAction>) {
        let hit = self.open.iter().filter(|(_, open)| open.remote.node == node).map(|(object, _)| *object);
        for object in hit.collect::<Vec<_>>() {
            if let Some(directed) =
                self.open[&object].directed.as_ref().filter(|directed| !directed.is_alone())
            {
                // The owner names another sender. Until then the stream may stay: it is silent.
                out.extend(directed.failed(object));
                continue;
            }
            let tried = Some(self.open[&object].remote);
            match self.open[&object].state {
                State::Waiting { .. } => self.give_up(object, tried, out),
                State::Allocating => {
                    let askers = std::mem::take(&mut self.open[&object].askers);
                    let not_there =
                        |asker: Requester| PullAction::NotThere { to: asker.process, object, tried };
                    out.extend(askers.into_iter().map(not_there));
                }
                State::Moving { block, attempt, .. } => {
                    out.push(PullAction::Stop { object, attempt });
                    out.push(PullAction::Free(block));
                    self.give_up(object, tried, out);
                }
                // A pull that its owner does not direct asks nobody.
                State::Asking { .. } => {}
            }
        }
    }

    /// A client is dead. A pull that only it asked for does not go on.
    pub fn on_client_dead(&mut self, client: WorkerId, out: &mut Vec<PullAction>) {
        let mut unwanted = Vec::new();
        for (object, open) in &mut self.open {
            let before = open.askers.len();
            open.askers.retain(|asker| asker.process != client);
            if before > 0 && open.askers.is_empty() && !matches!(open.state, State::Allocating) {
                unwanted.push(*object);
            }
        }
        for object in unwanted {
            if !self.ask_to_leave(object, out) {
                self.cancel(object, out);
            }
        }
        self.admit(out);
    }

    /// An owner gives up these places at another node. Pulls from there end that the owner began for itself,
    /// or others because they had learned of the place: such a pull would ask for ever where another value is
    /// by then.
    pub fn on_given_up(
        &mut self,
        owner: WorkerId,
        node: NodeId,
        places: &[Place],
        out: &mut Vec<PullAction>,
    ) {
        let is_there =
            |open: &Open| open.remote.node == node && places.contains(&open.remote.location.place());
        let is_hit = |object: &ObjectId, open: &Open| {
            object.owner() == owner && open.directed.is_none() && is_there(open)
        };
        let hit = self.open.iter().filter(|(object, open)| is_hit(object, open)).map(|(object, _)| *object);
        for object in hit.collect::<Vec<_>>() {
            let open = &mut self.open[&object];
            let tried = Some(open.remote);
            match open.state {
                // When the shell has a block, it finds no asker.
                State::Allocating => {
                    let askers = std::mem::take(&mut open.askers);
                    let gone = |asker: Requester| PullAction::NotThere { to: asker.process, object, tried };
                    out.extend(askers.into_iter().map(gone));
                }
                State::Moving { block, attempt, .. } => {
                    out.push(PullAction::Stop { object, attempt });
                    out.push(PullAction::Free(block));
                    self.give_up(object, tried, out);
                }
                State::Waiting { .. } | State::Asking { .. } => self.give_up(object, tried, out),
            }
        }
    }

    /// Ends a pull that no process waits for.
    fn cancel(&mut self, object: ObjectId, out: &mut Vec<PullAction>) {
        match self.open[&object].state {
            State::Moving { block, attempt, .. } => {
                out.push(PullAction::Stop { object, attempt });
                out.push(PullAction::Free(block));
            }
            State::Asking { block, .. } => out.push(PullAction::Free(block)),
            State::Waiting { .. } | State::Allocating => {}
        }
        self.close(object);
    }

    /// A block is free: a copy that was in it is not local any more.
    pub fn on_freed(&mut self, block: BlockId) {
        if let Some(object) = self.objects.swap_remove(&block) {
            self.forget_source(object);
            self.uncache(object);
            self.here.swap_remove(&object);
        }
    }

    /// The object whose copy is in a block.
    #[must_use]
    pub fn object_in(&self, block: BlockId) -> Option<ObjectId> {
        self.objects.get(&block).copied()
    }

    /// Blocks of values that are still arriving.
    pub fn arriving(&self) -> impl Iterator<Item = BlockId> {
        self.open.values().filter_map(|open| match open.state {
            State::Moving { block, .. } | State::Asking { block, .. } => Some(block),
            State::Waiting { .. } | State::Allocating => None,
        })
    }

    /// Pulls that have not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether nothing is pulled and no copy is here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.here.is_empty()
    }

    /// Asserts the invariants; for tests and the simulator.
    pub fn check(&self) {
        let in_flight = self.open.values().filter(|open| !matches!(open.state, State::Waiting { .. }));
        let lengths: Vec<u64> = in_flight.map(|open| open.remote.location.length).collect();
        assert_eq!(lengths.iter().sum::<u64>(), self.in_flight, "PU2: bytes in flight are counted");
        assert!(self.in_flight <= self.budget || lengths.len() == 1, "PU2: within the budget, or alone");
        assert!(self.open.keys().all(|object| !self.here.contains_key(object)), "PU1: a copy is here");
        assert_eq!(self.here.len(), self.objects.len(), "PU1: a block per copy");
        self.check_cached();
    }

    /// Ends a pull without an answer. Gives the processes to answer.
    fn close(&mut self, object: ObjectId) -> Vec<WorkerId> {
        let Some(open) = self.open.swap_remove(&object) else { return Vec::new() };
        if !matches!(open.state, State::Waiting { .. }) {
            self.in_flight -= open.remote.location.length;
        }
        open.askers.into_iter().map(|asker| asker.process).collect()
    }

    fn give_up(&mut self, object: ObjectId, tried: Option<Remote>, out: &mut Vec<PullAction>) {
        let askers = self.close(object);
        out.extend(askers.into_iter().map(|to| PullAction::NotThere { to, object, tried }));
        self.admit(out);
    }

    fn fail(&mut self, object: ObjectId, failure: &Failure, out: &mut Vec<PullAction>) {
        let askers = self.close(object);
        out.extend(askers.into_iter().map(|to| PullAction::Failed { to, object, failure: failure.clone() }));
        self.admit(out);
    }

    fn next_attempt(&mut self) -> FetchAttempt {
        self.made += 1;
        FetchAttempt(self.made)
    }
}

impl Open {
    /// The action that opens the stream of its state.
    fn fetch(&self, object: ObjectId, after: Option<FetchAttempt>) -> PullAction {
        let State::Moving { block, at, attempt } = self.state else { unreachable!("it moves") };
        let generation = self.directed.as_ref().and_then(directed::Directed::of_copy);
        PullAction::Fetch(Fetching { object, remote: self.remote, at, block, attempt, generation, after })
    }
}

/// Where a value comes from, for people.
fn origin(remote: &Remote) -> &'static str {
    if remote.location.place().is_disk() { "from disk" } else { "from another node" }
}

fn too_large(remote: &Remote, capacity: u64) -> Failure {
    let bytes = remote.location.length;
    let message = format!(
        "a value of {} ({bytes} bytes) {} does not fit into the object store of this node, which has {} ({capacity} bytes). Start the node with a larger store: object_store_memory={}",
        size(bytes),
        origin(remote),
        size(capacity),
        bytes.saturating_mul(2)
    );
    Failure::new(FailureCode::StoreFull, message)
}

fn no_room(remote: &Remote) -> Failure {
    let (bytes, seconds) = (remote.location.length, PULL_ROOM_NANOS / 1_000_000_000);
    let message = format!(
        "there was no room for a value of {} ({bytes} bytes) {} in the object store of this node: all that is there is in use, and nothing was freed for {seconds} s. Drop references and arrays that are not needed, or start the node with a larger store",
        size(bytes),
        origin(remote)
    );
    Failure::new(FailureCode::StoreFull, message)
}

fn unreachable(node: NodeId) -> Failure {
    let message = format!(
        "the value is in the memory of node {:016x}, to which no connection can be made from here: neither of the two nodes can be dialled. Let an actor or a task make the object, or run one of the two programs on a machine with a node",
        node.0
    );
    Failure::new(FailureCode::PeerUnreachable, message)
}

#[cfg(test)]
mod tests;
