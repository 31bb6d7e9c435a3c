//! Who gets room: again and again, in order, past others for a while, and who gives way.

use sooner_wire::BlockId;
use sooner_wire::message::FailureCode;

use super::*;
use crate::node::objects::pull::tests::{A, B, allocate, here, moving, object, on, pull};

const CAPACITY: u64 = 1000;

fn ask(pulls: &mut Pulls, from: WorkerId, number: u64, bytes: u64, priority: Priority) -> Vec<PullAction> {
    on(pulls, |pulls, out| pulls.on_pull(from, &pull(number, bytes, priority), false, out))
}

fn refuse(pulls: &mut Pulls, number: u64, moves: bool, now: Instant) -> Vec<PullAction> {
    on(pulls, |pulls, out| pulls.on_no_block(object(number), CAPACITY, moves, now, out))
}

fn tick(pulls: &mut Pulls, now: Instant) -> Vec<PullAction> {
    on(pulls, |pulls, out| pulls.on_timer(now, out))
}

/// Asks again and again until the pull is given up. The pause between two questions, and the last moment.
fn until_given_up(pulls: &mut Pulls, moves: bool, from: Instant) -> (u64, Instant) {
    let end = from.plus(PULL_ROOM_NANOS);
    let (mut now, mut pause) = (from, 0);
    while now < end {
        assert_eq!(refuse(pulls, 1, moves, now), []);
        let next = pulls.next_deadline().expect("it is asked for again");
        pause = pause.max(next.since(now));
        assert!(next > now && next <= end);
        assert_eq!(tick(pulls, Instant(next.0 - 1)), []);
        assert_eq!(tick(pulls, next), [allocate(1, 100)], "also at the very end");
        now = next;
    }
    let late = refuse(pulls, 1, moves, now);
    let [PullAction::Failed { to: A, failure, .. }] = &late[..] else { panic!("it is given up: {late:?}") };
    assert_eq!(failure.code, FailureCode::StoreFull);
    assert!(failure.message.contains("from another node"), "{}", failure.message);
    assert!(pulls.is_empty());
    (pause, now)
}

#[test]
fn without_room_a_pull_is_asked_for_again_although_nothing_was_freed_and_not_for_ever() {
    let mut pulls = Pulls::default();
    ask(&mut pulls, A, 1, 100, Priority::Get);
    let end = Instant(5).plus(PULL_ROOM_NANOS);
    assert_eq!(until_given_up(&mut pulls, false, Instant(5)), (PULL_AGAIN_NANOS, end));
}

#[test]
fn while_values_go_elsewhere_room_is_asked_for_more_often_and_not_for_ever() {
    let mut pulls = Pulls::default();
    ask(&mut pulls, A, 1, 100, Priority::Get);
    let end = Instant(5).plus(PULL_ROOM_NANOS);
    assert_eq!(until_given_up(&mut pulls, true, Instant(5)), (MOVES_PAUSE_NANOS, end));
}

#[test]
fn the_time_begins_anew_when_something_is_freed() {
    let mut pulls = Pulls::default();
    ask(&mut pulls, A, 1, 100, Priority::Get);
    refuse(&mut pulls, 1, false, Instant(5));
    assert_eq!(on(&mut pulls, Pulls::on_room), [allocate(1, 100)]);
    let later = Instant(5).plus(PULL_ROOM_NANOS / 2);
    let end = later.plus(PULL_ROOM_NANOS);
    assert_eq!(until_given_up(&mut pulls, false, later).1, end);
}

#[test]
fn a_value_from_disk_is_said_to_be_one() {
    let mut pulls = Pulls::default();
    let mut wanted = pull(1, 2 * CAPACITY, Priority::Get);
    wanted.remote.location.offset = sooner_wire::message::SpillId(1).offset();
    on(&mut pulls, |pulls, out| pulls.on_pull(A, &wanted, true, out));
    let refused = refuse(&mut pulls, 1, false, Instant(5));
    let [PullAction::Failed { failure, .. }] = &refused[..] else { panic!("{refused:?}") };
    assert!(failure.message.contains("from disk does not fit"), "{}", failure.message);
}

/// Object 1, of 100 bytes, has found no room; others of 30 bytes each wait behind it.
fn blocked() -> (Pulls, Vec<PullAction>) {
    let mut pulls = Pulls::default();
    ask(&mut pulls, A, 1, 100, Priority::Argument);
    let mut passed = refuse(&mut pulls, 1, false, Instant(0));
    for number in 2..20 {
        passed.extend(ask(&mut pulls, B, number, 30, Priority::Argument));
    }
    (pulls, passed)
}

#[test]
fn smaller_ones_overtake_and_no_more_of_them_than_the_large_one_has_bytes() {
    let (mut pulls, passed) = blocked();
    assert_eq!(passed, [allocate(2, 30), allocate(3, 30), allocate(4, 30)]);
    // What becomes free goes to the large one first, and it is known whether that suffices before others get
    // any.
    assert_eq!(on(&mut pulls, Pulls::on_room), [allocate(1, 100)]);
    let fetched = on(&mut pulls, |pulls, out| pulls.on_block(object(1), BlockId(1), out));
    assert!(matches!(fetched[0], PullAction::Fetch(_)), "{fetched:?}");
    let rest: Vec<PullAction> = (5..20).map(|number| allocate(number, 30)).collect();
    assert_eq!(fetched[1..], rest);
}

#[test]
fn times_in_which_others_may_overtake_are_ever_further_apart() {
    let (mut pulls, _) = blocked();
    let mut open = Vec::new();
    for turn in 1..=16 {
        let now = Instant(turn * PULL_AGAIN_NANOS);
        assert_eq!(tick(&mut pulls, now), [allocate(1, 100)]);
        if !refuse(&mut pulls, 1, false, now).is_empty() {
            open.push(turn);
        }
    }
    assert_eq!(open, [1, 2, 4, 8, 16]);
}

#[test]
fn a_larger_one_does_not_overtake() {
    let mut pulls = Pulls::default();
    ask(&mut pulls, A, 1, 100, Priority::Argument);
    refuse(&mut pulls, 1, false, Instant(0));
    assert_eq!(ask(&mut pulls, B, 2, 101, Priority::Argument), []);
    assert_eq!(ask(&mut pulls, B, 3, 100, Priority::Argument), [allocate(3, 100)]);
}

#[test]
fn who_came_last_gives_way_first_and_the_oldest_never() {
    let third = WorkerId(B.0 + 1);
    let nobody = |_| false;
    let mut pulls = Pulls::default();
    assert_eq!(pulls.youngest_behind(None, nobody), None);
    for (process, number) in [(A, 1), (A, 2), (B, 3), (third, 4), (B, 5)] {
        ask(&mut pulls, process, number, 100, Priority::Argument);
    }
    assert_eq!(pulls.youngest_behind(Some(object(2)), nobody), Some(third), "B came before it");
    assert_eq!(pulls.youngest_behind(Some(object(2)), |process| process == third), Some(B));
    assert_eq!(pulls.youngest_behind(Some(object(3)), nobody), Some(third));
    assert_eq!(pulls.youngest_behind(Some(object(4)), nobody), None, "the others came before");
    assert_eq!(pulls.youngest_behind(Some(object(2)), |process| process != A), None);
    // Who makes a value runs: all who wait for arguments give way.
    assert_eq!(pulls.youngest_behind(None, |process| process != A), Some(A));
    // So does who reads a value, but for itself.
    ask(&mut pulls, third, 6, 100, Priority::Get);
    assert_eq!(pulls.youngest_behind(Some(object(6)), nobody), Some(B));
}

#[test]
fn of_two_who_wait_for_the_same_the_second_gives_way() {
    let mut pulls = Pulls::default();
    ask(&mut pulls, A, 1, 100, Priority::Argument);
    ask(&mut pulls, B, 1, 100, Priority::Argument);
    assert_eq!(pulls.youngest_behind(Some(object(1)), |_| false), Some(B));
}

#[test]
fn copies_are_known_by_their_blocks() {
    let mut pulls = Pulls::default();
    let attempt = moving(&mut pulls);
    assert_eq!(pulls.copied_blocks().count(), 0);
    let done = on(&mut pulls, |pulls, out| pulls.on_bytes(object(1), attempt, 100, out));
    assert_eq!(done, [here(A, 1, 100)]);
    assert_eq!(pulls.copied_blocks().collect::<Vec<_>>(), [BlockId(1)]);
}
