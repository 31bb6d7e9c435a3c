//! Actors: a restart, two callers, retried calls, and references in an actor's state.
//!
//! Checked in every state: an actor lives in one process at a time; there, its constructor runs first, and
//! the calls of each caller begin in order.

use sooner_wire::message::FailureCode;

use crate::explore::Config;
use crate::explore::program::{Body, Step, body, submit};

/// One caller and one restart: small enough to be searched on every change.
pub fn restart() -> Config {
    let driver =
        vec![create(1, &[], 1, 0), call(0, 2, &[], 1, 1), call(0, 2, &[], 1, 2), Step::Get(1), Step::Get(2)];
    let bodies = vec![body("driver", driver), body("constructor", vec![]), body("method", vec![])];
    config(
        "actor-restart",
        "an actor with 1 restart, 2 calls with retries; it fails anywhere",
        bodies,
        1,
        1,
        4,
    )
}

/// Two callers, one of them a task that was given the handle.
pub fn callers() -> Config {
    let task = vec![call(0, 2, &[], 1, 1), Step::Get(1)];
    let about = "an actor with 1 restart, callers with 2 and 1 calls; one process fails anywhere";
    config("actor-callers", about, caller_bodies(task), 2, 1, 5)
}

/// Two callers with two calls each: too many states to be searched completely.
pub fn busy() -> Config {
    let task = vec![call(0, 2, &[], 1, 1), call(0, 2, &[], 1, 2), Step::Get(1), Step::Get(2)];
    let about = "an actor with 1 restart, 2 callers with 2 calls each; one process fails anywhere";
    config("actor-busy", about, caller_bodies(task), 2, 1, 5)
}

fn caller_bodies(task: Vec<Step>) -> Vec<Body> {
    let driver = vec![
        create(1, &[], 1, 0),
        Step::Submit { body: 3, dependencies: vec![], references: vec![0], retries: 0, into: 1 },
        call(0, 2, &[], 1, 2),
        call(0, 2, &[], 1, 3),
        Step::Drop(0),
        Step::Get(2),
        Step::Get(3),
        Step::Get(1),
    ];
    vec![body("driver", driver), body("constructor", vec![]), body("method", vec![]), body("caller", task)]
}

/// The actor keeps a reference in its state beyond the call that brought it.
pub fn state(kills: u8) -> Config {
    let driver = vec![
        Step::Put { is_stored: true, contains: vec![], into: 0 },
        create(1, &[], 0, 1),
        call(1, 2, &[0], 0, 2),
        Step::Drop(0),
        Step::Get(2),
        call(1, 3, &[], 0, 3),
        Step::Get(3),
    ];
    let keep = body("keep", vec![Step::Get(0), Step::Keep(0)]);
    let bodies =
        vec![body("driver", driver), body("constructor", vec![]), keep, body("forget", vec![Step::Forget])];
    let (name, about) = match kills {
        0 => ("actor-state-well", "an actor keeps a reference and lets it go later; no failure"),
        _ => ("actor-state", "an actor keeps a reference and lets it go later; it fails anywhere"),
    };
    config(name, about, bodies, 1, kills, 3)
}

/// An actor whose handle is dropped while calls are on their way, and an actor whose owner fails.
pub fn owned() -> Config {
    let driver = vec![
        Step::Submit { body: 1, dependencies: vec![], references: vec![], retries: 0, into: 0 },
        Step::Get(0),
        Step::Open { of: 0, at: 0, into: 1 },
        Step::Drop(0),
        call(1, 3, &[], 0, 2),
        Step::Get(2),
    ];
    let creator = vec![create(2, &[], 0, 0), call(0, 3, &[], 0, 1)];
    let creator = Body { returns: vec![0], ..body("creator", creator) };
    let bodies = vec![body("driver", driver), creator, body("constructor", vec![]), body("method", vec![])];
    config(
        "actor-owned",
        "a task returns the handle of its actor; the owner or the actor fails anywhere",
        bodies,
        2,
        1,
        4,
    )
}

/// A driver passes a task a reference that it owns and an actor's handle, drops the reference, and waits for
/// the task.
fn lends_to(body: usize) -> Vec<Step> {
    vec![
        Step::Put { is_stored: true, contains: vec![], into: 0 },
        create(1, &[], 0, 1),
        Step::Submit { body, dependencies: vec![], references: vec![0, 1], retries: 0, into: 2 },
        Step::Drop(0),
        Step::Get(2),
    ]
}

/// A task passes a borrowed reference to an actor, which reads the object while the task may be dead.
pub fn lent() -> Config {
    let driver = lends_to(3);
    let task = vec![call(1, 2, &[0], 0, 2), Step::Get(2)];
    let method = body("method", vec![Step::Get(0)]);
    let bodies = vec![body("driver", driver), body("constructor", vec![]), method, body("caller", task)];
    let about = "a borrower passes a reference to an actor; the borrower fails anywhere";
    config("actor-lent", about, bodies, 2, 1, 4)
}

/// A task passes a borrowed reference to two calls of an actor, one of which keeps it, and then drops the
/// reference.
pub fn shared(kills: u8) -> Config {
    let driver = lends_to(4);
    let task = vec![call(1, 2, &[0], 0, 2), call(1, 3, &[0], 0, 3), Step::Drop(0), Step::Get(2)];
    let keep = body("keep", vec![Step::Get(0), Step::Keep(0)]);
    let read = body("read", vec![Step::Drop(0)]);
    let bodies = vec![body("driver", driver), body("constructor", vec![]), keep, read, body("caller", task)];
    let (name, about) = match kills {
        0 => (
            "actor-shared-well",
            "a borrower passes a reference to 2 calls of an actor that keeps it; no failure",
        ),
        _ => (
            "actor-shared",
            "a borrower passes a reference to 2 calls of an actor that keeps it; the borrower fails anywhere",
        ),
    };
    Config { victims: vec![2, 3], ..config(name, about, bodies, 2, kills, 4) }
}

/// A borrower lends a reference to an actor, which keeps it and returns it. The end of the loans may reach
/// the owner before the registrations.
pub fn returned() -> Config {
    let driver = lends_to(3);
    let lend = Step::Submit { body: 4, dependencies: vec![], references: vec![0, 1], retries: 0, into: 2 };
    let first = vec![lend, Step::Drop(0), Step::Drop(1), Step::Get(2)];
    let second = vec![call(1, 2, &[0, 0], 0, 2), Step::Drop(0), Step::Get(2), Step::Drop(2)];
    let bodies = vec![
        body("driver", driver),
        body("constructor", vec![]),
        Body { returns: vec![1], ..body("keep", vec![Step::Get(0), Step::Keep(0)]) },
        body("first", first),
        body("second", second),
    ];
    let about = "an actor keeps and returns a reference that was lent twice before; no failure";
    config("actor-returned", about, bodies, 3, 0, 4)
}

/// An actor whose constructor waits for an argument is called by a process that does not own it.
pub fn unborn() -> Config {
    let driver = vec![
        submit(4, 1, 0),
        create(1, &[0], 0, 1),
        Step::Submit { body: 3, dependencies: vec![], references: vec![1], retries: 0, into: 2 },
        Step::Drop(1),
        Step::Get(2),
    ];
    let task = vec![call(0, 2, &[], 0, 1), Step::Get(1)];
    let bodies = vec![
        body("driver", driver),
        body("constructor", vec![]),
        body("method", vec![]),
        body("caller", task),
        body("argument", vec![]),
    ];
    config(
        "actor-unborn",
        "an actor is called while its constructor waits for an argument; no failure",
        bodies,
        2,
        0,
        4,
    )
}

fn create(body: usize, dependencies: &[usize], restarts: i32, into: usize) -> Step {
    Step::Create { body, dependencies: dependencies.to_vec(), restarts, checkpoint_every: None, into }
}

fn call(actor: usize, body: usize, references: &[usize], retries: i32, into: usize) -> Step {
    Step::Call { actor, body, references: references.to_vec(), retries, is_kept: false, into }
}

fn config(
    name: &'static str,
    about: &'static str,
    bodies: Vec<Body>,
    cpus: u32,
    kills: u8,
    processes: usize,
) -> Config {
    let tolerated = vec![
        FailureCode::ActorDied,
        FailureCode::ActorUnavailable,
        FailureCode::OwnerDied,
        FailureCode::WorkerCrashed,
        FailureCode::Cancelled,
    ];
    Config { kills, tolerated, ..Config::new(name, about, bodies, cpus, processes) }
}
