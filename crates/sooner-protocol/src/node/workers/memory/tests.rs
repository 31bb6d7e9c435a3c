//! Who goes, whatever is there.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 1000 * MIB;

fn one(class: Class, mebibytes: u64, since: u64) -> Candidate {
    Candidate { class, held: mebibytes * MIB, reserved: 0, since: (Instant(since), 0) }
}

#[test]
fn classes_go_in_order_however_large_the_others_are() {
    let mut all = vec![
        one(Class::Actor, 700, 9),
        one(Class::Task, 600, 9),
        one(Class::Retriable, 50, 1),
        one(Class::Idle, 40, 1),
    ];
    for expected in [3, 2, 1, 0] {
        assert_eq!(choose(&all, TOTAL), Some(expected));
        all.pop();
    }
    assert_eq!(choose(&all, TOTAL), None);
}

#[test]
fn the_one_furthest_over_its_share_goes_and_of_two_alike_the_newest() {
    let mut all =
        [one(Class::Retriable, 400, 1), one(Class::Retriable, 300, 2), one(Class::Retriable, 290, 3)];
    assert_eq!(choose(&all, TOTAL), Some(0), "much further over");
    all[1].held = 380 * MIB;
    assert_eq!(choose(&all, TOTAL), Some(1), "as far, and newer");
    all[2].held = 370 * MIB;
    assert_eq!(choose(&all, TOTAL), Some(2));
    all[2].since = (Instant(0), 0);
    assert_eq!(choose(&all, TOTAL), Some(1));
}

#[test]
fn a_reservation_is_a_share() {
    let reserving = Candidate { reserved: 600 * MIB, ..one(Class::Retriable, 590, 9) };
    let all = [reserving, one(Class::Retriable, 300, 1), one(Class::Retriable, 90, 2)];
    assert_eq!(
        choose(&all, TOTAL),
        Some(1),
        "200 MiB are its share, and the largest holds what it has reserved"
    );
}

#[test]
fn nobody_goes_for_next_to_nothing() {
    let small = one(Class::Retriable, 2, 1);
    assert_eq!(choose(&[small, small], TOTAL), None);
    assert_eq!(choose(&[small, one(Class::Actor, 500, 1)], TOTAL), Some(1));
    assert_eq!(choose(&[small; 400], TOTAL), Some(399), "many small ones are the load");
}

fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let class = prop_oneof![Just(Class::Idle), Just(Class::Retriable), Just(Class::Task), Just(Class::Actor)];
    let reserved = prop_oneof![Just(0), 0..2 * TOTAL];
    let candidate = (class, 0..TOTAL, reserved, 0..5u64, 0..5u64);
    let build = |(class, held, reserved, at, number)| Candidate {
        class,
        held,
        reserved,
        since: (Instant(at), number),
    };
    proptest::collection::vec(candidate.prop_map(build), 0..20)
}

proptest! {
    #[test]
    fn nobody_of_a_later_class_goes_before_one_worth_stopping(all in candidates()) {
        let worth = TOTAL / WORTH;
        match choose(&all, TOTAL) {
            None => prop_assert!(all.iter().all(|one| one.held <= worth)),
            Some(chosen) => {
                let chosen = all[chosen];
                prop_assert!(all.iter().all(|one| one.held <= worth || one.class >= chosen.class));
            }
        }
    }

    #[test]
    fn among_equals_only_the_newest_goes(held in 100u64..900, ages in proptest::collection::hash_set(0..1000u64, 1..10)) {
        let ages: Vec<u64> = ages.into_iter().collect();
        let all: Vec<Candidate> = ages.iter().map(|age| one(Class::Retriable, held, *age)).collect();
        let chosen = choose(&all, TOTAL).expect("each is worth it");
        prop_assert_eq!(ages.iter().max(), Some(&ages[chosen]));
    }

    /// Whoever holds more of the same class, with the same reservation and as new, is not passed over for one
    /// that holds less.
    #[test]
    fn to_hold_less_never_makes_it_worse(all in candidates(), less in 0..TOTAL) {
        let Some(chosen) = choose(&all, TOTAL) else { return Ok(()) };
        for at in (0..all.len()).filter(|at| *at != chosen) {
            let mut others = all.clone();
            others[at].held = others[at].held.saturating_sub(less);
            prop_assert_ne!(choose(&others, TOTAL), Some(at));
        }
    }
}

#[test]
fn peaks_are_of_the_function_that_ran() {
    let mut watch = Watch::default();
    let look = |watch: &mut Watch, task: u64, function: u64, held: u64, peak: u64| {
        let task = TaskId { owner: WorkerId(1), number: task };
        let running =
            Running { task, function: FunctionId(function), name: "f".to_owned(), is_retriable: true };
        watch
            .see(&Measured { worker: WorkerId(7), held, peak, running: Some(running) }, Instant(task.number));
    };
    let peak = |watch: &Watch, function| watch.peaks.get(&FunctionId(function)).copied();
    look(&mut watch, 1, 5, 10, 100);
    assert_eq!(peak(&watch, 5), Some(10), "who held 100 is not known");
    look(&mut watch, 1, 5, 20, 300);
    assert_eq!(peak(&watch, 5), Some(300), "it rose while the task ran");
    look(&mut watch, 2, 6, 30, 500);
    assert_eq!(peak(&watch, 6), Some(30), "it may have risen before");
    look(&mut watch, 3, 0, 400, 500);
    assert_eq!(watch.peaks.len(), 2, "calls of actors have no function");
    assert_eq!(watch.forget(WorkerId(7)), None);
    assert!(watch.seen.is_empty());
}
