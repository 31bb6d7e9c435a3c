//! Actors with checkpoints: after a failure the actor is restored from its last checkpoint, and its callers
//! repeat the calls that the checkpoint does not cover.
//!
//! Checked in every state (I8): an actor's state contains each call once, and no call finds an earlier one
//! missing. With as many restarts as failures no caller sees an error, so none is tolerated unless a caller
//! may fail.

use sooner_wire::message::FailureCode;

use crate::explore::Config;
use crate::explore::machines::Setup;
use crate::explore::program::{Body, Step, body};

/// A checkpoint covers every call before the next one begins.
pub fn each_call() -> Config {
    let about = "an actor with 1 restart and a checkpoint after each of 2 calls; it fails anywhere";
    config("checkpoint-each", about, one_caller(2, 1, 1), 1, 4)
}

/// The actor fails with calls that no checkpoint covers.
pub fn replayed() -> Config {
    let about = "an actor with 1 restart and a checkpoint after 2 of 3 calls; it fails anywhere";
    config("checkpoint-replay", about, one_caller(3, 2, 1), 1, 4)
}

/// The process that takes over fails, too, amid the repeated calls.
pub fn twice() -> Config {
    let about = "an actor with 2 restarts and a checkpoint after 2 of 2 calls; it fails twice";
    config("checkpoint-twice", about, one_caller(2, 2, 2), 2, 5)
}

/// Only the checkpoint keeps the reference that it contains.
pub fn state() -> Config {
    let driver = vec![
        Step::Put { is_stored: true, contains: vec![], into: 0 },
        create(1, 1, 1),
        call(1, 2, &[0], 2),
        Step::Drop(0),
        Step::Get(2),
        call(1, 3, &[], 3),
        Step::Get(3),
    ];
    let keep = body("keep", vec![Step::Executed(0), Step::Get(0), Step::Keep(0)]);
    let forget = body("forget", vec![Step::Executed(1), Step::Forget]);
    let bodies = vec![body("driver", driver), body("constructor", vec![]), keep, forget];
    let about = "checkpoints after each call contain a reference, and then no more; the actor fails anywhere";
    config("checkpoint-state", about, bodies, 1, 4)
}

/// Two callers. One is a task that may fail as well: then it does not repeat its calls.
pub fn callers() -> Config {
    let driver = vec![
        create(1, 2, 0),
        Step::Submit { body: 3, dependencies: vec![], references: vec![0], retries: 0, into: 1 },
        call(0, 2, &[], 2),
        Step::Drop(0),
        Step::Get(2),
        Step::Get(1),
    ];
    let task = vec![call(0, 2, &[], 1), Step::Get(1)];
    let bodies = vec![
        body("driver", driver),
        body("constructor", vec![]),
        body("method", vec![]),
        body("caller", task),
    ];
    let about = "an actor with 1 restart and a checkpoint after 2 calls, two callers with 1 call each; one process fails";
    let tolerated = vec![FailureCode::WorkerCrashed, FailureCode::OwnerDied];
    let whole = config("checkpoint-callers", about, bodies, 1, 5);
    Config { tolerated, setup: Setup { cpus: 2, ..whole.setup }, ..whole }
}

/// The driver makes `calls` calls; each checks the calls that were executed before it.
fn one_caller(calls: usize, checkpoint_every: u32, restarts: i32) -> Vec<Body> {
    let mut driver = vec![create(restarts, checkpoint_every, 0)];
    driver.extend((0..calls).map(|number| call(0, 2 + number, &[], 1 + number)));
    driver.extend((0..calls).map(|number| Step::Get(1 + number)));
    let mut bodies = vec![body("driver", driver), body("constructor", vec![])];
    bodies.extend((0..calls).map(|number| body("method", vec![Step::Executed(number)])));
    bodies
}

fn create(restarts: i32, checkpoint_every: u32, into: usize) -> Step {
    Step::Create {
        body: 1,
        dependencies: Vec::new(),
        restarts,
        checkpoint_every: Some(checkpoint_every),
        into,
    }
}

fn call(actor: usize, body: usize, references: &[usize], into: usize) -> Step {
    Step::Call { actor, body, references: references.to_vec(), retries: 2, is_kept: true, into }
}

fn config(name: &'static str, about: &'static str, bodies: Vec<Body>, kills: u8, processes: usize) -> Config {
    Config { kills, ..Config::new(name, about, bodies, 1, processes) }
}
