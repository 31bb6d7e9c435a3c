//! Actors with checkpoints: after a failure the actor goes on from the last one, and its callers make the
//! calls again that it does not cover.
//!
//! Checked on the way (I8): each call is executed once in the state that the next one meets, and none is
//! missing there. With as many restarts as failures no caller sees an error, so none is tolerated unless a
//! caller may fail.

use sooner_wire::message::FailureCode;

use crate::explore::Config;
use crate::explore::machines::Setup;
use crate::explore::program::{Body, Step, body};

/// Every call is covered before the next one begins.
pub fn each_call() -> Config {
    let about = "an actor with 1 restart and a checkpoint after each of 2 calls; it fails anywhere";
    config("checkpoint-each", about, one_caller(2, 1, 1), 1, 4)
}

/// A failure finds calls that no checkpoint covers.
pub fn replayed() -> Config {
    let about = "an actor with 1 restart and a checkpoint after 2 of 3 calls; it fails anywhere";
    config("checkpoint-replay", about, one_caller(3, 2, 1), 1, 4)
}

/// The process that takes over fails, too: in the middle of the calls that are made again.
pub fn twice() -> Config {
    let about = "an actor with 2 restarts and a checkpoint after 2 of 2 calls; it fails twice";
    config("checkpoint-twice", about, one_caller(2, 2, 2), 2, 5)
}

/// A checkpoint contains a reference that nothing else keeps.
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

/// Two callers, one of which is a task that may fail as well: then its calls are not made again by it.
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

/// The driver makes so many calls; each looks at what was executed before it.
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
