//! The directory of copies: exact actions, and random events against the invariants.

use proptest::prelude::*;
use sooner_wire::{TaskId, TransferAttempt, WorkerId};

use super::*;

const OWNER: WorkerId = WorkerId((1 << 24) + 1);
const LARGE: u64 = 64 << 20;
const SMALL: u64 = 256 << 10;

fn object(number: u64) -> ObjectId {
    TaskId { owner: OWNER, number }.object(0)
}

fn node(number: u64) -> NodeId {
    NodeId(number << 24)
}

/// Who is told to pull from whom, with which attempt.
fn pulls(out: &[ChainAction]) -> Vec<(u64, u64, u64)> {
    let told = out.iter().filter_map(|action| match action {
        ChainAction::Pull(told) => Some((told.receiver.0 >> 24, told.sender.0 >> 24, told.attempt.0)),
        _ => None,
    });
    told.collect()
}

/// Object 1 and its directory.
#[derive(Default)]
struct Owner {
    chains: Chains,
}

impl Owner {
    /// It was made at node 1.
    fn with_value(length: u64) -> Self {
        let mut owner = Self::default();
        assert_eq!(owner.made(1, length), []);
        owner
    }

    fn on(&mut self, event: impl FnOnce(&mut Chains, &mut Vec<ChainAction>)) -> Vec<ChainAction> {
        let mut out = Vec::new();
        event(&mut self.chains, &mut out);
        self.chains.check();
        out
    }

    fn made(&mut self, at: u64, length: u64) -> Vec<ChainAction> {
        self.on(|chains, out| assert!(chains.on_made(object(1), node(at), length, out).is_some()))
    }

    fn locate(&mut self, receiver: u64) -> Vec<ChainAction> {
        self.on(|chains, out| chains.on_locate(object(1), node(receiver), out))
    }

    fn complete(&mut self, at: u64, attempt: u64) -> Vec<ChainAction> {
        self.on(|chains, out| chains.on_complete(object(1), node(at), TransferAttempt(attempt), out))
    }

    fn failed(&mut self, receiver: u64, attempt: u64) -> Vec<ChainAction> {
        self.on(|chains, out| chains.on_failed(object(1), node(receiver), TransferAttempt(attempt), out))
    }

    fn gone(&mut self, at: u64) -> Vec<ChainAction> {
        self.on(|chains, out| chains.on_node_dead(node(at), out))
    }

    /// Has a node attached. The number of its attempt.
    fn attach(&mut self, receiver: u64, sender: u64) -> u64 {
        let told = pulls(&self.locate(receiver));
        let [(to, from, attempt)] = told[..] else { panic!("one is told to pull: {told:?}") };
        assert_eq!((to, from), (receiver, sender));
        attempt
    }
}

fn drop_at(at: u64) -> ChainAction {
    ChainAction::Drop { object: object(1), node: node(at) }
}

fn keep_at(at: u64) -> ChainAction {
    ChainAction::Keep { object: object(1), node: node(at) }
}

fn lost() -> ChainAction {
    ChainAction::Lost { object: object(1) }
}

#[test]
fn receivers_that_come_together_make_a_chain() {
    let mut owner = Owner::with_value(LARGE);
    owner.attach(2, 1);
    owner.attach(3, 2);
    owner.attach(4, 3);
}

#[test]
fn who_comes_later_finds_the_nearest_complete_copy() {
    let mut owner = Owner::with_value(LARGE);
    let two = owner.attach(2, 1);
    owner.attach(3, 2);
    assert_eq!(owner.complete(2, two), []);
    owner.attach(4, 1);
    owner.attach(5, 3);
    owner.attach(6, 4);
}

#[test]
fn who_asks_before_there_is_a_value_waits_for_it_in_order() {
    let mut owner = Owner::default();
    assert_eq!(owner.locate(2), []);
    assert_eq!(owner.locate(3), []);
    assert_eq!(pulls(&owner.made(1, LARGE)), [(2, 1, 2), (3, 2, 3)]);
}

#[test]
fn who_asks_twice_is_told_the_same() {
    let mut owner = Owner::with_value(LARGE);
    let attempt = owner.attach(2, 1);
    assert_eq!(owner.attach(2, 1), attempt);
}

#[test]
fn a_small_value_goes_to_several_at_once() {
    let mut owner = Owner::with_value(SMALL);
    for receiver in 2..6 {
        owner.attach(receiver, 1);
    }
    owner.attach(6, 2);
    owner.attach(7, 3);
}

#[test]
fn the_receiver_of_a_failed_sender_goes_on_with_the_one_before() {
    let mut owner = Owner::with_value(LARGE);
    owner.attach(2, 1);
    let three = owner.attach(3, 2);
    let four = owner.attach(4, 3);
    let out = owner.failed(3, three);
    assert_eq!(out[0], drop_at(2));
    assert_eq!(pulls(&out), [(3, 1, four + 1)]);
    assert_eq!(owner.chains.sender_of(object(1), node(4)), Some(node(3)), "who is behind notices nothing");
}

#[test]
fn a_transfer_goes_on_in_the_same_generation() {
    let mut owner = Owner::with_value(LARGE);
    let first = owner.locate(2);
    let other = owner.locate(3);
    let again = owner.gone(2);
    let generations = [first, other, again].map(|out| match out[..] {
        [ChainAction::Pull(told)] => told.generation,
        ref other => panic!("one is told to pull: {other:?}"),
    });
    assert_eq!(generations, [1; 3]);
}

#[test]
fn a_chain_without_a_head_is_joined_to_another() {
    let mut owner = Owner::with_value(LARGE);
    let two = owner.attach(2, 1);
    owner.complete(2, two);
    // The first copy has served already.
    owner.attach(3, 2);
    let four = owner.attach(4, 1);
    owner.attach(5, 3);
    let out = owner.gone(2);
    // 3 keeps 5 behind it and goes behind 4, which is the tail of the chain that is fed.
    assert_eq!(pulls(&out).iter().map(|told| (told.0, told.1)).collect::<Vec<_>>(), [(3, 4)]);
    assert!(pulls(&out)[0].2 > four);
}

#[test]
fn without_a_complete_copy_all_wait_for_the_value_to_be_made_again() {
    let mut owner = Owner::with_value(LARGE);
    owner.attach(2, 1);
    owner.attach(3, 2);
    assert_eq!(owner.gone(1), [lost()]);
    assert_eq!(owner.locate(4), [], "nobody is sent to a copy that is not fed");
    let out = owner.made(5, LARGE);
    let told = out.iter().map(|action| match action {
        ChainAction::Pull(told) => (told.receiver.0 >> 24, told.sender.0 >> 24, told.generation > 1),
        other => panic!("{other:?}"),
    });
    assert_eq!(told.collect::<Vec<_>>(), [(2, 5, true), (3, 2, true), (4, 3, true)]);
}

#[test]
fn a_copy_that_was_complete_after_all_ends_the_loss() {
    let mut owner = Owner::with_value(LARGE);
    let two = owner.attach(2, 1);
    assert_eq!(owner.gone(1), [lost()]);
    assert_eq!(owner.complete(2, two), [keep_at(2)]);
    let mut out = Vec::new();
    assert_eq!(owner.chains.on_made(object(1), node(3), LARGE, &mut out), None, "not needed any more");
    owner.attach(4, 2);
}

#[test]
fn two_that_do_not_see_each_other_are_not_sent_to_each_other_again() {
    let mut owner = Owner::with_value(LARGE);
    owner.attach(2, 1);
    let three = owner.attach(3, 2);
    let out = owner.failed(3, three);
    let [(3, 1, attempt)] = pulls(&out)[..] else { panic!("3 goes on with 1: {out:?}") };
    assert_eq!(owner.locate(2), [], "3 alone is free, and out of its reach");
    assert_eq!(pulls(&owner.complete(3, attempt)), [(2, 1, attempt + 1)]);
}

#[test]
fn who_reaches_no_complete_copy_tries_one_again() {
    let mut owner = Owner::with_value(LARGE);
    owner.attach(2, 1);
    let three = owner.attach(3, 2);
    let attempt = pulls(&owner.failed(3, three))[0].2;
    owner.locate(2);
    owner.complete(3, attempt);
    let out = owner.gone(1);
    assert_eq!(out[0], keep_at(3));
    let again = pulls(&out)[0];
    assert_eq!((again.0, again.1), (2, 3));
    assert_eq!(owner.failed(2, again.2), [drop_at(3), lost()]);
}

#[test]
fn late_news_changes_nothing() {
    let mut owner = Owner::with_value(LARGE);
    owner.attach(2, 1);
    let three = owner.attach(3, 2);
    owner.gone(2);
    assert_eq!(owner.failed(3, three), [], "it has a new sender");
    assert_eq!(owner.chains.sender_of(object(1), node(3)), Some(node(1)));
    assert_eq!(owner.complete(9, three), [], "nobody knows it");
    owner.gone(1);
    owner.made(5, LARGE);
    assert_eq!(owner.complete(3, three), [], "of bytes that nobody wants any more");
    assert_eq!(owner.chains.sender_of(object(1), node(3)), Some(node(5)));
}

#[test]
fn a_dropped_copy_is_replaced_and_the_kept_one_passed_on() {
    let mut owner = Owner::with_value(LARGE);
    let two = owner.attach(2, 1);
    owner.complete(2, two);
    assert_eq!(owner.on(|chains, out| chains.on_dropped(object(1), node(1), out)), [keep_at(2)]);
    assert_eq!(owner.chains.kept_at(object(1)), Some(node(2)));
    assert_eq!(owner.on(|chains, out| chains.on_dropped(object(1), node(2), out)), [lost()]);
    assert!(owner.chains.is_empty());
}

#[test]
fn a_copy_that_is_not_needed_goes_with_its_last_receiver() {
    let mut owner = Owner::with_value(LARGE);
    let two = owner.attach(2, 1);
    let three = owner.attach(3, 2);
    owner.complete(2, two);
    let leave = |chains: &mut Chains, out: &mut Vec<ChainAction>| chains.on_leaving(object(1), node(2), out);
    assert_eq!(owner.on(leave), [], "a node pulls from it");
    assert_eq!(owner.complete(3, three), [drop_at(2)]);
    assert_eq!(owner.on(leave), [drop_at(2)], "nobody counts on it");
    // Whoever wants it again before it went stays.
    let four = owner.attach(4, 3);
    owner.attach(5, 1);
    owner.attach(6, 4);
    assert_eq!(owner.on(|chains, out| chains.on_leaving(object(1), node(4), out)), []);
    assert_eq!(pulls(&owner.locate(4)), [(4, 3, four)]);
    assert!(!owner.complete(6, four + 2).contains(&drop_at(4)));
}

#[test]
fn a_value_that_is_not_needed_is_dropped_everywhere_but_where_it_is_kept() {
    let mut owner = Owner::with_value(LARGE);
    owner.attach(2, 1);
    assert_eq!(owner.on(|chains, out| chains.on_dead(object(1), out)), [drop_at(2)]);
    assert!(owner.chains.is_empty());
}

#[test]
fn a_value_that_is_unpinned_leaves_its_copies_but_tells_those_that_wait() {
    let mut owner = Owner::with_value(LARGE);
    let two = owner.attach(2, 1);
    owner.complete(2, two);
    let three = owner.attach(3, 2);
    owner.complete(3, three);
    // One asks whether its copy may go while another one pulls from it.
    owner.attach(4, 3);
    owner.attach(5, 1);
    owner.attach(6, 2);
    assert_eq!(owner.on(|chains, out| chains.on_leaving(object(1), node(2), out)), []);
    let told = owner.on(|chains, out| chains.on_unpinned(object(1), out));
    assert_eq!(
        told,
        [drop_at(2), drop_at(4), drop_at(5), drop_at(6)],
        "the third has all, and asked for nothing"
    );
    assert!(owner.chains.is_empty());
    let asked = owner.on(|chains, out| chains.on_leaving(object(1), node(3), out));
    assert_eq!(asked, [drop_at(3)], "it may go when its node asks");
}

#[test]
fn the_tables_are_bounded() {
    let limits = ChainLimits { objects_max: 1, nodes_max: 2, ..ChainLimits::default() };
    let mut owner = Owner { chains: Chains::new(limits) };
    owner.made(1, LARGE);
    let two = owner.attach(2, 1);
    let refused =
        |number, receiver| ChainAction::Refused { object: object(number), receiver: node(receiver) };
    assert_eq!(owner.locate(3), [refused(1, 3)]);
    assert_eq!(owner.on(|chains, out| chains.on_locate(object(2), node(3), out)), [refused(2, 3)]);
    owner.complete(2, two);
    let out = owner.locate(3);
    assert_eq!((out[0].clone(), out.len()), (drop_at(2), 2), "an idle copy makes room");
    let mut out = Vec::new();
    assert_eq!(owner.chains.on_made(object(2), node(1), LARGE, &mut out), None);
}

/// What may be said, by object and node.
#[derive(Debug, Clone, Copy)]
enum Event {
    Made(u64, u64),
    Locate(u64, u64),
    /// ... with an attempt so far back.
    Complete(u64, u64, u64),
    Failed(u64, u64, u64),
    Dropped(u64, u64),
    Leaving(u64, u64),
    NodeDead(u64),
    Gone(u64),
    Unpinned(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let (object, node) = (1..3_u64, 1..9_u64);
    let pair = (object, node);
    let late = (pair.clone(), prop_oneof![4 => Just(0), 1 => 1..4_u64]);
    prop_oneof![
        2 => pair.clone().prop_map(|(object, node)| Event::Made(object, node)),
        12 => pair.clone().prop_map(|(object, node)| Event::Locate(object, node)),
        8 => late.clone().prop_map(|((object, node), back)| Event::Complete(object, node, back)),
        4 => late.prop_map(|((object, node), back)| Event::Failed(object, node, back)),
        2 => pair.clone().prop_map(|(object, node)| Event::Dropped(object, node)),
        3 => pair.prop_map(|(object, node)| Event::Leaving(object, node)),
        2 => (1..9_u64).prop_map(Event::NodeDead),
        1 => (1..3_u64).prop_map(Event::Gone),
        1 => (1..3_u64).prop_map(Event::Unpinned),
    ]
}

proptest! {
    /// B1 to B4 and B6 hold whatever is said in whatever order, also by nodes that do not know what they say.
    #[test]
    fn the_invariants_hold(events in prop::collection::vec(event(), 0..120), length in prop_oneof![Just(SMALL), Just(LARGE)]) {
        let limits = ChainLimits { objects_max: 2, nodes_max: 6, ..ChainLimits::default() };
        let mut chains = Chains::new(limits);
        let mut latest: Map<(u64, u64), u64> = Map::default();
        for event in events {
            let mut out = Vec::new();
            let attempt = |number, at, back| {
                TransferAttempt(latest.get(&(number, at)).copied().unwrap_or(0_u64).saturating_sub(back))
            };
            match event {
                Event::Made(number, at) => {
                    chains.on_made(object(number), node(at), length, &mut out);
                }Event::Locate(number, at) => chains.on_locate(object(number), node(at), &mut out),
                Event::Complete(number, at, back) => {
                    chains.on_complete(object(number), node(at), attempt(number, at, back), &mut out);
                }
                Event::Failed(number, at, back) => {
                    chains.on_failed(object(number), node(at), attempt(number, at, back), &mut out);
                }
                Event::Dropped(number, at) => chains.on_dropped(object(number), node(at), &mut out),
                Event::Leaving(number, at) => chains.on_leaving(object(number), node(at), &mut out),
                Event::NodeDead(at) => chains.on_node_dead(node(at), &mut out),
                Event::Gone(number) => chains.on_dead(object(number), &mut out),
                Event::Unpinned(number) => chains.on_unpinned(object(number), &mut out),
            }
            chains.check();
            for action in out {
                if let ChainAction::Pull(told) = action {
                    let known = latest.entry((told.object.task.number, told.receiver.0 >> 24)).or_default();
                    prop_assert!(told.attempt.0 >= *known, "attempts grow");
                    *known = told.attempt.0;
                }
            }
        }
    }
}
