//! Lost values and lineage: any block loses its content, at any time, and a process may fail.
//!
//! What readers meet shows whether lineage in scope is kept: as long as a task has retries left, each get of
//! its result, or of a value computed from the result, returns the value.

use sooner_wire::message::FailureCode;

use crate::explore::Config;
use crate::explore::program::{Body, Step, body};

/// A chain of two tasks and a reader; one value is lost.
pub fn chain() -> Config {
    let bodies = chain_bodies();
    config(
        "lost-chain",
        "2 tasks, each with the value of the one before, and a reader; one value is lost",
        bodies,
        1,
        0,
        1,
    )
}

/// The same, and one worker fails.
pub fn chain_with_a_kill() -> Config {
    let about =
        "2 tasks, each with the value of the one before, and a reader; one value is lost, one worker fails";
    config("lost-chain-kill", about, chain_bodies(), 1, 1, 1)
}

fn chain_bodies() -> Vec<Body> {
    let driver = vec![
        take(1, None, 0),
        take(2, Some(0), 1),
        Step::Drop(0),
        take(3, Some(1), 2),
        Step::Drop(1),
        Step::Get(2),
    ];
    let stored = |name| Body { returns_stored: true, ..body(name, vec![]) };
    vec![body("driver", driver), stored("first"), stored("second"), body("reader", vec![])]
}

/// A borrower reads a value that is lost before, during or after its request.
pub fn borrowed() -> Config {
    let driver = vec![take(1, None, 0), pass(2, 0, 1), Step::Get(0), Step::Drop(0), Step::Get(1)];
    let maker = Body { returns_stored: true, ..body("maker", vec![]) };
    let bodies = vec![body("driver", driver), maker, body("reader", vec![Step::Get(0)])];
    config("lost-borrowed", "a value is read by its owner and a borrower, and lost", bodies, 2, 0, 1)
}

/// A waiting thread looks only once, after the value has come and was lost: its core has asked again.
pub fn waited_for() -> Config {
    let about = "a borrower waits while its value comes and is lost at once";
    let mut config = Config { name: "lost-waiting", about, ..put() };
    config.setup.program.asks_again = false;
    config
}

/// A value that was put cannot be computed again: readers get a failure.
pub fn put() -> Config {
    let driver = vec![
        Step::Put { is_stored: true, contains: vec![], into: 0 },
        pass(1, 0, 1),
        Step::Get(0),
        Step::Drop(0),
        Step::Get(1),
    ];
    let bodies = vec![body("driver", driver), body("reader", vec![Step::Get(0)])];
    let lost = config(
        "lost-put",
        "a value that was put is lost: its readers get an error, or had it",
        bodies,
        1,
        0,
        1,
    );
    Config { tolerated: vec![FailureCode::ObjectLost], ..lost }
}

fn take(body: usize, dependency: Option<usize>, into: usize) -> Step {
    let dependencies = dependency.into_iter().collect();
    Step::Submit { body, dependencies, references: Vec::new(), retries: 2, into }
}

fn pass(body: usize, reference: usize, into: usize) -> Step {
    Step::Submit { body, dependencies: Vec::new(), references: vec![reference], retries: 2, into }
}

fn config(
    name: &'static str,
    about: &'static str,
    bodies: Vec<Body>,
    cpus: u32,
    kills: u8,
    losses: u8,
) -> Config {
    let mut config = Config { kills, losses, ..Config::new(name, about, bodies, cpus, 4) };
    config.setup.program.asks_again = true;
    config
}
