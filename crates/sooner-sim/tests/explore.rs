//! Searches the small configurations whole. `make explore` searches all of them.

use sooner_protocol::probes::{Bug, switch};
use sooner_sim::bank::look_for;
use sooner_sim::explore::settle_nodes::SettleNodes;
use sooner_sim::explore::{
    Bounds, Config, Finding, Found, Reductions, chains, check_names, configs, links, search, search_with,
    settle_nodes,
};

/// More than any small configuration has.
const STATES_MAX: u64 = 4_000_000;

fn check(config: &Config) {
    let found = search(config, STATES_MAX);
    let name = config.name;
    assert!(found.is_as_expected(config), "{name}: {:#?}", found.violation);
    assert!(found.is_complete || found.violation.is_some(), "{name} has {} states and more", found.states);
    assert!(found.ends > 0 || found.violation.is_some(), "{name} never ends");
}

#[test]
fn every_state_of_the_small_configurations_is_well() {
    configs::small().iter().for_each(check);
}

#[test]
fn every_state_of_a_session_is_well() {
    for config in links::small() {
        let found = links::search(&config, STATES_MAX);
        let name = config.name;
        assert_eq!(found.violation, None, "{name}");
        assert!(found.is_complete, "{name} has {} states and more", found.states);
        assert!(found.ends > 0, "{name} never ends");
    }
}

#[test]
fn long_sessions_are_well() {
    let steps: u64 = (0..2000).map(|seed| links::walk(seed, None).expect("no violation")).sum();
    assert!(steps > 200_000, "{steps} steps");
}

#[test]
fn every_state_of_a_broadcast_is_well() {
    for config in chains::small() {
        let found = chains::search(&config, STATES_MAX);
        let name = config.name;
        assert_eq!(found.violation, None, "{name}");
        assert!(found.is_complete, "{name} has {} states and more", found.states);
        assert!(found.ends > 0, "{name} never ends");
    }
}

#[test]
fn broadcasts_with_many_faults_are_well() {
    let steps: u64 = (0..2000).map(|seed| chains::walk(seed).expect("no violation")).sum();
    assert!(steps > 50_000, "{steps} steps");
}

#[test]
fn every_state_of_deaths_on_three_nodes_is_well() {
    for config in settle_nodes::small() {
        let found = settle_nodes::search(&config, None, STATES_MAX);
        let name = config.name;
        assert_eq!(found.violation, None, "{name}");
        assert!(found.is_complete, "{name} has {} states and more", found.states);
        assert!(found.ends > 0, "{name} never ends");
    }
}

#[test]
fn a_death_that_is_settled_alone_frees_what_is_read() {
    let found = settle_nodes::search(&settle_nodes::two_deaths(), Some(Bug::SettledAlone), STATES_MAX);
    let (text, _) = found.violation.expect("a value is freed early");
    assert!(text.starts_with("I5"), "{text}");
}

#[test]
fn a_return_that_is_set_off_against_what_was_handed_since_frees_what_is_read() {
    let config = SettleNodes { sets_off: true, ..settle_nodes::given_back() };
    let found = settle_nodes::search(&config, None, STATES_MAX);
    let (text, _) = found.violation.expect("the death is not settled yet");
    assert!(text.starts_with("I5"), "{text}");
}

#[test]
fn an_answer_that_overtakes_what_was_said_before_it_frees_what_is_read() {
    let config = SettleNodes { answers_early: true, ..settle_nodes::small()[0].clone() };
    let found = settle_nodes::search(&config, None, STATES_MAX);
    let (text, _) = found.violation.expect("words on their way are not waited for");
    assert!(text.starts_with("I5"), "{text}");
}

#[test]
fn what_a_node_has_answered_and_forgotten_is_freed_when_another_control_service_settles_the_death() {
    let config = SettleNodes { forgets: true, ..settle_nodes::control_restarts() };
    let found = settle_nodes::search(&config, None, STATES_MAX);
    let (text, _) = found.violation.expect("the one before had told one node and not the other");
    assert!(text.starts_with("I5"), "{text}");
}

#[test]
fn what_is_kept_beyond_a_loan_and_not_said_is_freed_while_it_is_read() {
    let (_, violation) =
        look_for(Bug::KeptWhileLent, 1).expect("the caller dies, and its queued call with it");
    assert!(violation.text.starts_with("I5"), "{}", violation.text);
}

#[test]
fn a_violation_comes_with_its_steps_in_words() {
    // Without the failures that a kill explains, the first one met is a violation.
    let config =
        configs::small().into_iter().find(|config| config.name == "actor-state").expect("a small one");
    let config = Config { tolerated: Vec::new(), finding: Finding::None, ..config };
    let found = search(&config, STATES_MAX);
    assert!(!found.is_as_expected(&config));
    let (text, trace) = found.violation.expect("an actor without restarts is killed");
    assert!(text.starts_with("I2: a get ended in failure"), "{text}");
    assert_eq!(trace.iter().filter(|step| step.starts_with("FAULT")).count(), 1, "{trace:#?}");
}

#[test]
fn the_same_search_finds_the_same_states() {
    let config = &configs::small()[0];
    let (first, second) = (search(config, STATES_MAX), search(config, STATES_MAX));
    assert_eq!(
        (first.states, first.transitions, first.depth),
        (second.states, second.transitions, second.depth)
    );
}

fn with(config: &Config, reductions: Reductions) -> Found {
    search_with(config, reductions, Bounds::states(STATES_MAX))
}

const ORDER: Reductions = Reductions { symmetry: false, order: true };

#[test]
fn sleep_sets_leave_out_steps_and_no_states() {
    let mut saved = 0;
    for config in configs::small() {
        let (whole, reduced) = (search(&config, STATES_MAX), with(&config, ORDER));
        let counts = |found: &Found| (found.states, found.ends, found.depth, found.locals, found.is_complete);
        assert_eq!(counts(&whole), counts(&reduced), "{}", config.name);
        assert!(reduced.is_as_expected(&config), "{}", config.name);
        saved += whole.transitions - reduced.transitions;
    }
    assert!(saved > 500_000, "{saved} steps");
}

#[test]
fn fewer_states_with_both_reductions_are_as_well() {
    let mut saved = 0;
    for config in configs::small() {
        let (whole, reduced) = (with(&config, ORDER), with(&config, Reductions::ALL));
        assert!(reduced.is_as_expected(&config), "{}: {:#?}", config.name, reduced.violation);
        assert!(reduced.is_complete && reduced.ends > 0, "{}", config.name);
        assert!(reduced.states <= whole.states, "{}", config.name);
        saved += whole.states - reduced.states;
    }
    assert!(saved > 100_000, "{saved} states");
}

#[test]
fn machines_do_the_same_whatever_the_names() {
    let mut compared = 0;
    for config in configs::small() {
        compared += check_names(&config, STATES_MAX).unwrap_or_else(|text| panic!("{}: {text}", config.name));
    }
    assert!(compared > 5000, "{compared} transitions");
}

/// Defects, each with a configuration that finds it.
const FOUND: &[(Bug, &str)] = &[
    (Bug::ReplyBeforeRegistration, "actor-state"),
    (Bug::BorrowerDroppedEarly, "actor-state"),
    (Bug::BorrowerNotRegistered, "borrow-arguments-well"),
    (Bug::OwnerDeathHandledTwice, "nested-chain"),
    (Bug::DeadBorrowerKept, "borrow-puts"),
    (Bug::LeaseNotReturned, "nested-chain"),
    (Bug::LeaseNotReturned, "lease-ahead"),
    (Bug::LeaseNotEnded, "nested-chain"),
    (Bug::CallsReorderedAfterRestart, "actor-restart"),
    (Bug::CallsLostAtRestart, "actor-restart"),
    (Bug::ActorCollectedWhileBorrowed, "actor-owned"),
    (Bug::ActorNeverCollected, "actor-unborn"),
    (Bug::BlockNeverFreed, "borrow-puts"),
    (Bug::NestedNotKept, "borrow-puts"),
    (Bug::DependentsForgotten, "actor-unborn"),
    (Bug::DemandForgotten, "lease-ahead"),
    (Bug::CpuNotReclaimed, "nested-chain"),
    (Bug::QueuedTaskLostWhenBlocked, "lease-ahead"),
    (Bug::CallBeforeConstructor, "actor-restart"),
    (Bug::FetcherForgotten, "unsealed-well"),
    (Bug::FetcherForgotten, "unsealed-dropped-well"),
    (Bug::BlockNeverFreed, "unsealed-well"),
    (Bug::AwaitedFailureForgotten, "awaited-dropped"),
];

#[test]
fn defects_are_found_with_reductions_after_as_many_steps() {
    for (bug, name) in FOUND {
        let config = configs::small().into_iter().find(|config| config.name == *name).expect("a small one");
        switch(Some(*bug));
        let [whole, reduced] =
            [Reductions::default(), Reductions::ALL].map(|how| with(&config, how).violation);
        switch(None);
        let (text, steps) = whole.unwrap_or_else(|| panic!("{bug:?} is not found in {name}"));
        let (reduced, fewer) = reduced.unwrap_or_else(|| panic!("{bug:?} is lost in {name}"));
        let property = |text: &str| text.split(':').next().map(str::to_owned);
        assert_eq!((property(&text), steps.len()), (property(&reduced), fewer.len()), "{bug:?}");
    }
}
