//! The pulls of a node: exact actions, and random events against the invariants.

use sooner_wire::message::Located;
use sooner_wire::{BlockId, FetchAttempt, TaskId, TransferAttempt};

use super::*;

const OWNER: WorkerId = WorkerId((1 << 24) + 1);
pub(super) const A: WorkerId = WorkerId((2 << 24) + 1);
pub(super) const B: WorkerId = WorkerId((2 << 24) + 2);
const THERE: NodeId = NodeId(1 << 24);

pub(super) fn object(number: u64) -> ObjectId {
    TaskId { owner: OWNER, number }.object(0)
}

fn remote(number: u64, length: u64) -> Remote {
    Remote { node: THERE, location: Location { offset: number * 4096, length } }
}

pub(super) fn pull(number: u64, length: u64, priority: Priority) -> Pull {
    Pull { object: object(number), remote: remote(number, length), priority }
}

pub(super) fn allocate(number: u64, bytes: u64) -> PullAction {
    PullAction::Allocate { object: object(number), bytes }
}

fn fetch(number: u64, length: u64, at: u64, attempt: FetchAttempt) -> PullAction {
    let (object, remote) = (object(number), remote(number, length));
    PullAction::Fetch(Fetching {
        object,
        remote,
        at,
        block: BlockId(number),
        attempt,
        generation: None,
        after: None,
    })
}

pub(super) fn here(to: WorkerId, number: u64, length: u64) -> PullAction {
    PullAction::Here { to, object: object(number), location: Location { offset: number, length } }
}

/// What an event makes the machine do.
pub(super) fn on(pulls: &mut Pulls, event: impl FnOnce(&mut Pulls, &mut Vec<PullAction>)) -> Vec<PullAction> {
    let mut out = Vec::new();
    event(pulls, &mut out);
    pulls.check();
    out
}

/// Object 1, of 100 bytes, is asked for by A and moves. The number of its stream.
pub(super) fn moving(pulls: &mut Pulls) -> FetchAttempt {
    let asked = on(pulls, |pulls, out| pulls.on_pull(A, &pull(1, 100, Priority::Argument), false, out));
    assert_eq!(asked, [allocate(1, 100)]);
    let fetched = on(pulls, |pulls, out| pulls.on_block(object(1), BlockId(1), out));
    let [PullAction::Fetch(Fetching { at: 0, block: BlockId(1), attempt, .. })] = fetched[..] else {
        panic!("it is fetched from the start: {fetched:?}");
    };
    attempt
}

#[test]
fn all_who_ask_get_one_copy() {
    let mut pulls = Pulls::default();
    let attempt = moving(&mut pulls);
    assert_eq!(on(&mut pulls, |pulls, out| pulls.on_pull(B, &pull(1, 100, Priority::Get), false, out)), []);
    assert_eq!(on(&mut pulls, |pulls, out| pulls.on_bytes(object(1), attempt, 64, out)), []);
    let done = on(&mut pulls, |pulls, out| pulls.on_bytes(object(1), attempt, 100, out));
    assert_eq!(done, [here(A, 1, 100), here(B, 1, 100)]);
    // Who comes later finds it.
    let late = on(&mut pulls, |pulls, out| pulls.on_pull(A, &pull(1, 100, Priority::Get), false, out));
    assert_eq!(late, [here(A, 1, 100)]);
    assert_eq!(pulls.object_in(BlockId(1)), Some(object(1)));
    pulls.on_freed(BlockId(1));
    assert!(pulls.is_empty());
}

#[test]
fn a_broken_stream_goes_on_where_it_broke_off() {
    let mut pulls = Pulls::default();
    let first = moving(&mut pulls);
    on(&mut pulls, |pulls, out| pulls.on_bytes(object(1), first, 64, out));
    let again = on(&mut pulls, |pulls, out| pulls.on_stream_end(object(1), first, StreamEnd::Cut, out));
    let [PullAction::Fetch(Fetching { at: 64, block: BlockId(1), attempt: second, .. })] = again[..] else {
        panic!("the prefix is kept: {again:?}");
    };
    // What is still said of the first stream changes nothing.
    assert_eq!(on(&mut pulls, |pulls, out| pulls.on_bytes(object(1), first, 100, out)), []);
    let late = on(&mut pulls, |pulls, out| pulls.on_stream_end(object(1), first, StreamEnd::NotThere, out));
    assert_eq!(late, []);
    let done = on(&mut pulls, |pulls, out| pulls.on_bytes(object(1), second, 100, out));
    assert_eq!(done, [here(A, 1, 100)]);
}

#[test]
fn what_is_not_there_any_more_is_said_to_all_who_asked() {
    let mut pulls = Pulls::default();
    let attempt = moving(&mut pulls);
    on(&mut pulls, |pulls, out| pulls.on_pull(B, &pull(1, 100, Priority::Get), false, out));
    let end = on(&mut pulls, |pulls, out| pulls.on_stream_end(object(1), attempt, StreamEnd::NotThere, out));
    let tried = Some(remote(1, 100));
    let not_there = |to| PullAction::NotThere { to, object: object(1), tried };
    assert_eq!(end, [PullAction::Free(BlockId(1)), not_there(A), not_there(B)]);
    assert!(pulls.is_empty());
}

#[test]
fn what_there_is_no_way_to_stays_where_it_is_and_all_who_asked_learn_why() {
    let mut pulls = Pulls::default();
    let attempt = moving(&mut pulls);
    on(&mut pulls, |pulls, out| pulls.on_pull(B, &pull(1, 100, Priority::Get), false, out));
    let end =
        on(&mut pulls, |pulls, out| pulls.on_stream_end(object(1), attempt, StreamEnd::Unreachable, out));
    let [
        PullAction::Free(BlockId(1)),
        PullAction::Failed { to: A, failure, .. },
        PullAction::Failed { to: B, .. },
    ] = &end[..]
    else {
        panic!("{end:?}");
    };
    assert_eq!(failure.code, FailureCode::PeerUnreachable);
    assert!(pulls.is_empty());
}

/// Object 1, of 100 bytes, moves from where its owner says.
fn directed(pulls: &mut Pulls, is_copy: bool) -> FetchAttempt {
    pulls.ask_owners();
    on(pulls, |pulls, out| pulls.on_pull(A, &pull(1, 100, Priority::Argument), false, out));
    let asked = on(pulls, |pulls, out| pulls.on_block(object(1), BlockId(1), out));
    assert_eq!(asked, [PullAction::Hold(BlockId(1)), PullAction::Locate(object(1))]);
    let (sender, node) = (Some(remote(1, 100)), NodeId(9 << 24));
    let located = Located {
        object: object(1),
        node,
        sender,
        generation: 1,
        attempt: Some(TransferAttempt(7)),
        is_copy,
    };
    let fetched = on(pulls, |pulls, out| pulls.on_located(&located, out));
    let [PullAction::Fetch(Fetching { attempt, .. })] = fetched[..] else { panic!("{fetched:?}") };
    attempt
}

#[test]
fn a_copy_of_which_its_owner_does_not_know_goes_when_nobody_needs_it() {
    let (sender, node) = (None, NodeId(9 << 24));
    let nobody = Located { object: object(1), node, sender, generation: 0, attempt: None, is_copy: false };
    for is_needed in [true, false] {
        let mut pulls = Pulls::default();
        let attempt = directed(&mut pulls, false);
        on(&mut pulls, |pulls, out| pulls.on_bytes(object(1), attempt, 100, out));
        let hold = |pulls: &mut Pulls, out: &mut Vec<PullAction>| {
            assert_eq!(pulls.keeps(BlockId(1), true, out), !is_needed)
        };
        // The value was made again at this node, where it lies in another block.
        if is_needed {
            assert_eq!(on(&mut pulls, |pulls, out| pulls.on_located(&nobody, out)), []);
            assert_eq!(on(&mut pulls, hold), [], "it goes with who needed it");
        } else {
            assert_eq!(on(&mut pulls, hold), [PullAction::Hold(BlockId(1))]);
            let out = on(&mut pulls, |pulls, out| pulls.on_located(&nobody, out));
            assert_eq!(out, [PullAction::Release(BlockId(1))]);
        }
        pulls.on_freed(BlockId(1));
        assert!(pulls.is_empty());
    }
}

#[test]
fn the_state_of_an_actor_comes_from_where_it_is_kept_and_its_creator_is_not_asked() {
    let mut pulls = Pulls::default();
    pulls.ask_owners();
    let state = Pull { object: object(1).task.state(), ..pull(1, 100, Priority::Get) };
    on(&mut pulls, |pulls, out| pulls.on_pull(A, &state, false, out));
    let fetched = on(&mut pulls, |pulls, out| pulls.on_block(state.object, BlockId(1), out));
    let [PullAction::Fetch(Fetching { object, remote, .. })] = fetched[..] else { panic!("{fetched:?}") };
    assert_eq!((object, remote), (state.object, state.remote));
}

#[test]
fn a_value_that_cannot_be_reached_is_not_taken_for_lost() {
    let mut pulls = Pulls::default();
    let attempt = directed(&mut pulls, false);
    let end =
        on(&mut pulls, |pulls, out| pulls.on_stream_end(object(1), attempt, StreamEnd::Unreachable, out));
    let [PullAction::Free(BlockId(1)), PullAction::Leave(_), PullAction::Failed { to: A, failure, .. }] =
        &end[..]
    else {
        panic!("{end:?}");
    };
    assert_eq!(failure.code, FailureCode::PeerUnreachable);
    assert!(pulls.is_empty());
}

#[test]
fn a_value_at_a_node_that_is_not_known_yet_is_not_taken_for_lost() {
    let mut pulls = Pulls::default();
    let attempt = directed(&mut pulls, false);
    let end =
        on(&mut pulls, |pulls, out| pulls.on_stream_end(object(1), attempt, StreamEnd::NoSuchNode, out));
    let (left, object) = (PullAction::Leave(object(1)), object(1));
    assert_eq!(
        end,
        [PullAction::Free(BlockId(1)), left, PullAction::NotThere { to: A, object, tried: None }]
    );
}

#[test]
fn another_copy_takes_the_place_of_one_that_cannot_be_reached() {
    let mut pulls = Pulls::default();
    let attempt = directed(&mut pulls, true);
    let end =
        on(&mut pulls, |pulls, out| pulls.on_stream_end(object(1), attempt, StreamEnd::Unreachable, out));
    assert_eq!(end, [PullAction::SenderFailed { object: object(1), attempt: TransferAttempt(7) }]);
}

#[test]
fn a_node_that_is_gone_ends_its_streams() {
    let mut pulls = Pulls::new(100);
    let attempt = moving(&mut pulls);
    on(&mut pulls, |pulls, out| pulls.on_pull(B, &pull(2, 100, Priority::Argument), false, out));
    let end = on(&mut pulls, |pulls, out| pulls.on_node_dead(THERE, out));
    let not_there = |to, number| {
        let tried = Some(remote(number, 100));
        PullAction::NotThere { to, object: object(number), tried }
    };
    assert_eq!(
        end,
        [
            PullAction::Stop { object: object(1), attempt },
            PullAction::Free(BlockId(1)),
            not_there(A, 1),
            allocate(2, 100),
            not_there(B, 2),
        ]
    );
    // Its block is on its way.
    assert_eq!(
        on(&mut pulls, |pulls, out| pulls.on_block(object(2), BlockId(2), out)),
        [PullAction::Free(BlockId(2))]
    );
    assert!(pulls.is_empty());
}

#[test]
fn what_an_owner_gives_up_is_not_pulled_from_there_any_more() {
    let mut pulls = Pulls::new(200);
    let attempt = moving(&mut pulls);
    on(&mut pulls, |pulls, out| pulls.on_pull(B, &pull(1, 100, Priority::Get), false, out));
    for number in [2, 3] {
        on(&mut pulls, |pulls, out| pulls.on_pull(B, &pull(number, 100, Priority::Argument), false, out));
    }
    let place = |number| remote(number, 100).location.place();
    let all = [place(1), place(2), place(3)];
    assert_eq!(on(&mut pulls, |pulls, out| pulls.on_given_up(A, THERE, &all, out)), [], "not its value");
    let elsewhere = NodeId(9 << 24);
    assert_eq!(on(&mut pulls, |pulls, out| pulls.on_given_up(OWNER, elsewhere, &all, out)), []);
    assert_eq!(on(&mut pulls, |pulls, out| pulls.on_given_up(OWNER, THERE, &[place(4)], out)), []);
    let not_there = |to, number| {
        let tried = Some(remote(number, 100));
        PullAction::NotThere { to, object: object(number), tried }
    };
    // One that waits for its turn, one for which there is no block yet, and one that moves.
    let end = on(&mut pulls, |pulls, out| pulls.on_given_up(OWNER, THERE, &[place(3)], out));
    assert_eq!(end, [not_there(B, 3)]);
    let end = on(&mut pulls, |pulls, out| pulls.on_given_up(OWNER, THERE, &[place(2)], out));
    assert_eq!(end, [not_there(B, 2)]);
    assert_eq!(
        on(&mut pulls, |pulls, out| pulls.on_block(object(2), BlockId(2), out)),
        [PullAction::Free(BlockId(2))]
    );
    let end = on(&mut pulls, |pulls, out| pulls.on_given_up(OWNER, THERE, &[place(1)], out));
    let stop = PullAction::Stop { object: object(1), attempt };
    assert_eq!(end, [stop, PullAction::Free(BlockId(1)), not_there(A, 1), not_there(B, 1)]);
    assert!(pulls.is_empty());
}

/// Found by reading: the block that was looked for went to a stream from where the value had been before.
#[test]
fn who_asks_after_that_is_brought_the_value_from_where_it_is_then() {
    let mut pulls = Pulls::default();
    on(&mut pulls, |pulls, out| pulls.on_pull(A, &pull(1, 100, Priority::Get), false, out));
    let before = remote(1, 100).location.place();
    on(&mut pulls, |pulls, out| pulls.on_given_up(OWNER, THERE, &[before], out));
    let again = Pull { remote: remote(7, 100), ..pull(1, 100, Priority::Get) };
    assert_eq!(on(&mut pulls, |pulls, out| pulls.on_pull(B, &again, false, out)), []);
    let fetched = on(&mut pulls, |pulls, out| pulls.on_block(object(1), BlockId(1), out));
    let [PullAction::Fetch(Fetching { remote: from, .. })] = fetched[..] else { panic!("{fetched:?}") };
    assert_eq!(from, remote(7, 100));
}

#[test]
fn an_owner_that_says_from_whom_to_pull_ends_that_itself() {
    let mut pulls = Pulls::default();
    let attempt = directed(&mut pulls, false);
    let place = remote(1, 100).location.place();
    assert_eq!(on(&mut pulls, |pulls, out| pulls.on_given_up(OWNER, THERE, &[place], out)), []);
    let done = on(&mut pulls, |pulls, out| pulls.on_bytes(object(1), attempt, 100, out));
    assert!(done.contains(&here(A, 1, 100)), "{done:?}");
}

#[test]
fn gets_go_before_arguments_within_the_budget() {
    let mut pulls = Pulls::new(250);
    let attempt = moving(&mut pulls);
    for (number, priority) in [(2, Priority::Argument), (3, Priority::Argument), (4, Priority::Wait)] {
        let asked = on(&mut pulls, |pulls, out| pulls.on_pull(A, &pull(number, 100, priority), false, out));
        assert_eq!(asked, if number == 2 { vec![allocate(2, 100)] } else { vec![] });
    }
    // Somebody waits for the third one now.
    on(&mut pulls, |pulls, out| pulls.on_pull(B, &pull(3, 100, Priority::Get), false, out));
    let done = on(&mut pulls, |pulls, out| pulls.on_bytes(object(1), attempt, 100, out));
    assert_eq!(done, [here(A, 1, 100), allocate(3, 100)]);
}

#[test]
fn a_value_larger_than_the_budget_moves_alone() {
    let mut pulls = Pulls::new(50);
    let attempt = moving(&mut pulls);
    assert_eq!(on(&mut pulls, |pulls, out| pulls.on_pull(A, &pull(2, 10, Priority::Get), false, out)), []);
    let done = on(&mut pulls, |pulls, out| pulls.on_bytes(object(1), attempt, 100, out));
    assert_eq!(done, [here(A, 1, 100), allocate(2, 10)]);
}

#[test]
fn what_can_never_fit_is_refused_at_once() {
    let mut pulls = Pulls::default();
    on(&mut pulls, |pulls, out| pulls.on_pull(A, &pull(1, 100, Priority::Get), false, out));
    let refused = on(&mut pulls, |pulls, out| pulls.on_no_block(object(1), 99, false, Instant(5), out));
    let [PullAction::Failed { to: A, failure, .. }] = &refused[..] else { panic!("{refused:?}") };
    assert!(failure.message.contains("object_store_memory=200"), "{}", failure.message);
    assert!(pulls.is_empty());
}

#[test]
fn what_nobody_wants_any_more_stops() {
    let mut pulls = Pulls::default();
    let attempt = moving(&mut pulls);
    on(&mut pulls, |pulls, out| pulls.on_pull(B, &pull(1, 100, Priority::Get), false, out));
    assert_eq!(on(&mut pulls, |pulls, out| pulls.on_client_dead(A, out)), []);
    let end = on(&mut pulls, |pulls, out| pulls.on_client_dead(B, out));
    assert_eq!(end, [PullAction::Stop { object: object(1), attempt }, PullAction::Free(BlockId(1))]);
    assert!(pulls.is_empty());
    // While the shell looks for a block.
    on(&mut pulls, |pulls, out| pulls.on_pull(A, &pull(1, 100, Priority::Get), false, out));
    assert_eq!(on(&mut pulls, |pulls, out| pulls.on_client_dead(A, out)), []);
    assert_eq!(
        on(&mut pulls, |pulls, out| pulls.on_block(object(1), BlockId(1), out)),
        [PullAction::Free(BlockId(1))]
    );
    assert!(pulls.is_empty());
}

#[test]
fn streams_are_numbered() {
    let mut pulls = Pulls::default();
    let first = moving(&mut pulls);
    let again = on(&mut pulls, |pulls, out| pulls.on_stream_end(object(1), first, StreamEnd::Cut, out));
    assert_eq!(again, [fetch(1, 100, 0, first.next())]);
}

/// A shell that allocates, fetches and fails at random, and clients that ask and free.
struct Shell {
    random: u64,
    pulls: Pulls,
    out: Vec<PullAction>,
    blocks: std::collections::BTreeSet<BlockId>,
    next_block: u64,
    allocating: Vec<(ObjectId, u64)>,
    streams: Vec<Fetching>,
    asked: Vec<(WorkerId, ObjectId)>,
    held: Vec<(WorkerId, Place)>,
    now: u64,
}

impl Shell {
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn perform(&mut self) {
        for action in std::mem::take(&mut self.out) {
            match action {
                PullAction::Allocate { object, bytes } => self.allocating.push((object, bytes)),
                PullAction::Fetch(fetching) => {
                    let before = self.streams.iter().position(|s| s.object == fetching.object);
                    assert!(before.is_none(), "PU1: one stream per object");
                    assert!(self.blocks.contains(&fetching.block));
                    self.streams.push(fetching);
                }
                PullAction::Stop { object, attempt } => {
                    self.streams.retain(|s| (s.object, s.attempt) != (object, attempt));
                }
                PullAction::Here { to, object, location } => {
                    assert!(location.place().block().is_some_and(|block| self.blocks.contains(&block)));
                    self.answered(to, object);
                    if !self.held.contains(&(to, location.place())) {
                        self.held.push((to, location.place()));
                    }
                }
                PullAction::NotThere { to, object, .. } | PullAction::Failed { to, object, .. } => {
                    self.answered(to, object);
                }
                PullAction::Free(block) => {
                    assert!(self.blocks.remove(&block), "freed once");
                    assert!(self.streams.iter().all(|s| s.block != block), "nothing is written to it");
                    assert!(self.held.iter().all(|(_, held)| *held != block.into()), "nobody holds it");
                }
                other => panic!("owners are not asked here: {other:?}"),
            }
        }
        self.pulls.check();
    }

    fn answered(&mut self, to: WorkerId, object: ObjectId) {
        let at = self.asked.iter().position(|asked| *asked == (to, object));
        self.asked.swap_remove(at.expect("PU3: who asked is answered once"));
    }

    fn step(&mut self, finishes: bool) {
        self.now += PULL_ROOM_NANOS / 20;
        match self.below(9) {
            0 | 1 if !finishes => self.ask(),
            2 if !self.allocating.is_empty() => {
                let at = usize::try_from(self.random).unwrap_or(0) % self.allocating.len();
                let (object, _) = self.allocating.swap_remove(at);
                if self.below(4) == 0 {
                    let moves = self.below(2) == 0;
                    self.pulls.on_no_block(object, 10_000, moves, Instant(self.now), &mut self.out);
                } else {
                    self.next_block += 1;
                    self.blocks.insert(BlockId(self.next_block));
                    self.pulls.on_block(object, BlockId(self.next_block), &mut self.out);
                }
            }
            3..=5 if !self.streams.is_empty() => self.stream(finishes),
            6 if !finishes && self.below(20) == 0 => {
                let client = WorkerId((2 << 24) + self.below(3));
                self.asked.retain(|(asker, _)| *asker != client);
                self.pulls.on_client_dead(client, &mut self.out);
                self.perform();
                for (_, block) in
                    self.held.extract_if(.., |(holder, _)| *holder == client).collect::<Vec<_>>()
                {
                    self.free(block);
                }
            }
            6 if !finishes && self.below(20) == 0 => {
                let node = NodeId((3 + self.below(2)) << 24);
                self.streams.retain(|s| s.remote.node != node);
                self.pulls.on_node_dead(node, &mut self.out);
            }
            7 => self.pulls.on_timer(Instant(self.now), &mut self.out),
            8 if !self.held.is_empty() => {
                let at = usize::try_from(self.random).unwrap_or(0) % self.held.len();
                let (_, block) = self.held.swap_remove(at);
                self.free(block);
                self.pulls.on_room(&mut self.out);
            }
            _ => {}
        }
        self.perform();
    }

    fn ask(&mut self) {
        let client = WorkerId((2 << 24) + self.below(3));
        let object = object(self.below(6));
        let priority = [Priority::Get, Priority::Wait, Priority::Argument]
            [usize::try_from(self.below(3)).expect("small")];
        // A client asks once, and not for what it has.
        let has = self.held.iter().any(|(holder, block)| {
            *holder == client && block.block().and_then(|block| self.pulls.object_in(block)) == Some(object)
        });
        if has || self.asked.contains(&(client, object)) {
            return;
        }
        let node = NodeId((3 + self.below(2)) << 24);
        let location = Location { offset: object.task.number, length: 1 + object.task.number * 100 };
        self.asked.push((client, object));
        self.pulls.on_pull(
            client,
            &Pull { object, remote: Remote { node, location }, priority },
            false,
            &mut self.out,
        );
    }

    fn stream(&mut self, finishes: bool) {
        let at = usize::try_from(self.random).unwrap_or(0) % self.streams.len();
        let Fetching { object, remote, at: done, attempt, .. } = self.streams[at];
        let end = if finishes { 2 } else { self.below(6) };
        match end {
            0 | 1 => {
                self.streams.swap_remove(at);
                let end = if end == 0 { StreamEnd::Cut } else { StreamEnd::NotThere };
                self.pulls.on_stream_end(object, attempt, end, &mut self.out);
            }
            _ => {
                let bytes = (done + 1 + self.below(200)).min(remote.location.length);
                self.streams[at].at = bytes;
                if bytes == remote.location.length {
                    self.streams.swap_remove(at);
                }
                self.pulls.on_bytes(object, attempt, bytes, &mut self.out);
            }
        }
    }

    fn free(&mut self, place: Place) {
        let block = place.block().expect("it is in memory");
        if self.held.iter().all(|(_, held)| *held != block.into()) && self.blocks.remove(&block) {
            self.pulls.on_freed(block);
        }
    }
}

#[test]
fn random_events_leave_nobody_without_an_answer() {
    for seed in 1..300 {
        let mut shell = Shell {
            random: seed * 0x9e37_79b9,
            pulls: Pulls::new(500),
            out: Vec::new(),
            blocks: std::collections::BTreeSet::new(),
            next_block: 0,
            allocating: Vec::new(),
            streams: Vec::new(),
            asked: Vec::new(),
            held: Vec::new(),
            now: 1,
        };
        for _ in 0..400 {
            shell.step(false);
        }
        for _ in 0..2000 {
            shell.step(true);
        }
        assert_eq!(shell.asked, [], "PU3: seed {seed}");
        assert_eq!(shell.pulls.len(), 0, "seed {seed}");
        assert!(shell.blocks.is_empty(), "seed {seed}: blocks are left");
        assert!(shell.pulls.is_empty(), "seed {seed}");
    }
}
