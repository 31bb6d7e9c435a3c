//! First-class futures: references inside arguments, returned values and values that are put, over two levels
//! of borrowers, and one failure anywhere: of a borrower or of the owner.
//!
//! The model of the Ownership paper left this for later (section 4.3). Messages of different senders overtake
//! each other freely: a registration, a borrower's return and the value itself come over three channels.

use sooner_wire::message::FailureCode;

use crate::explore::Config;
use crate::explore::program::{Body, Step, body, submit};

/// A reference to a value in shared memory passes down two levels in arguments; its owner drops it.
pub fn arguments(kills: u8) -> Config {
    let driver = vec![put(&[], 0), pass(1, &[0], 1), Step::Drop(0), Step::Get(1)];
    let middle = vec![pass(2, &[0], 1), Step::Drop(0), Step::Get(1)];
    let reader = vec![Step::Get(0)];
    let bodies = vec![body("driver", driver), body("middle", middle), body("reader", reader)];
    let (name, about) = match kills {
        0 => ("borrow-arguments-well", "a reference passed down 2 levels; no failure"),
        _ => ("borrow-arguments", "a reference passed down 2 levels; a borrower fails anywhere"),
    };
    config(name, about, bodies, 1, kills, 5)
}

/// A borrower passes its reference to two short tasks, which are pushed to one worker, and drops it.
pub fn series(kills: u8) -> Config {
    let once =
        |body, into| Step::Submit { body, dependencies: Vec::new(), references: vec![0], retries: 0, into };
    let driver = vec![put(&[], 0), once(1, 1), Step::Drop(0), Step::Get(1)];
    let middle = vec![once(2, 1), once(2, 2), Step::Drop(0), Step::Get(1), Step::Get(2)];
    let reader = vec![Step::Get(0), Step::Drop(0)];
    let bodies = vec![body("driver", driver), body("middle", middle), body("reader", reader)];
    let (name, about) = match kills {
        0 => ("borrow-series-well", "a borrower passes a reference to 2 short tasks; no failure"),
        _ => ("borrow-series", "a borrower passes a reference to 2 short tasks; a borrower fails anywhere"),
    };
    let mut config = config(name, about, bodies, 2, kills, 5 + usize::from(kills));
    config.setup.program.task_nanos = 10_000;
    config
}

/// A task returns a reference to a value that it put; the caller passes the reference to another task.
pub fn returns() -> Config {
    let driver = vec![
        submit(1, 1, 0),
        Step::Get(0),
        Step::Open { of: 0, at: 0, into: 1 },
        Step::Drop(0),
        pass(2, &[1], 2),
        pass(2, &[1], 3),
        Step::Drop(1),
        Step::Get(2),
        Step::Get(3),
    ];
    let maker = Body { returns: vec![0], ..body("maker", vec![put(&[], 0)]) };
    let reader = body("reader", vec![Step::Get(0)]);
    config(
        "borrow-returns",
        "a returned reference goes on to two tasks; its owner or a borrower fails anywhere",
        vec![body("driver", driver), maker, reader],
        2,
        1,
        5,
    )
}

/// A task returns the reference of a result that is not there yet.
pub fn futures() -> Config {
    let driver = vec![
        submit(1, 1, 0),
        Step::Get(0),
        Step::Open { of: 0, at: 0, into: 1 },
        Step::Drop(0),
        Step::Get(1),
    ];
    let delegating = Body { returns: vec![0], ..body("delegating", vec![submit(2, 1, 0)]) };
    let worker = Body { returns_stored: true, ..body("working", vec![]) };
    config(
        "borrow-futures",
        "a task returns the future of another one; the owner or the executor fails anywhere",
        vec![body("driver", driver), delegating, worker],
        2,
        1,
        5,
    )
}

/// A value that was put contains a reference; a task takes it out and returns it.
pub fn puts(kills: u8) -> Config {
    let driver = vec![
        put(&[], 0),
        put(&[0], 1),
        Step::Drop(0),
        Step::Submit { body: 1, dependencies: vec![1], references: vec![], retries: 1, into: 2 },
        Step::Drop(1),
        Step::Get(2),
        Step::Open { of: 2, at: 0, into: 3 },
        Step::Drop(2),
        Step::Get(3),
    ];
    let opener = Body { returns: vec![0], ..body("opener", vec![Step::Get(0)]) };
    let (name, about) = match kills {
        0 => ("borrow-puts-well", "a reference inside a put value, taken out and returned; no failure"),
        _ => (
            "borrow-puts",
            "a reference inside a put value, taken out and returned; a borrower fails anywhere",
        ),
    };
    config(name, about, vec![body("driver", driver), opener], 1, kills, 4)
}

/// A borrower lends a nested reference that it did not get from the owner.
pub fn chain() -> Config {
    let driver = vec![submit(1, 1, 0), pass(2, &[0], 1), Step::Drop(0), Step::Get(1)];
    let maker = Body { returns: vec![0], returns_stored: true, ..body("maker", vec![put(&[], 0)]) };
    let middle = vec![
        Step::Get(0),
        Step::Open { of: 0, at: 0, into: 1 },
        Step::Drop(0),
        pass(3, &[1], 2),
        Step::Drop(1),
        Step::Get(2),
    ];
    let reader = body("reader", vec![Step::Get(0)]);
    let about = "a reference inside a borrowed value, borrowed on by the borrower; an owner or a borrower fails anywhere";
    let bodies = vec![body("driver", driver), maker, body("middle", middle), reader];
    config("borrow-chain", about, bodies, 2, 1, 6)
}

/// Two processes read a value whose owner dies.
pub fn orphans() -> Config {
    let driver = vec![
        submit(1, 0, 0),
        Step::Get(0),
        Step::Open { of: 0, at: 0, into: 1 },
        Step::Drop(0),
        pass(2, &[1], 2),
        pass(2, &[1], 3),
        Step::Get(1),
        Step::Get(2),
        Step::Get(3),
    ];
    let maker = Body { returns: vec![0], ..body("maker", vec![put(&[], 0)]) };
    let reader = body("reader", vec![Step::Get(0)]);
    config(
        "borrow-orphans",
        "three processes read a value whose owner fails anywhere",
        vec![body("driver", driver), maker, reader],
        2,
        1,
        5,
    )
}

/// A borrower passes a reference to its caller, and neither of them owns the object.
pub fn handed() -> Config {
    let driver = vec![
        submit(1, 1, 0),
        Step::Get(0),
        Step::Open { of: 0, at: 0, into: 1 },
        Step::Drop(0),
        pass(2, &[1], 2),
        pass(2, &[1], 4),
        Step::Drop(1),
        Step::Get(2),
        Step::Open { of: 2, at: 0, into: 3 },
        Step::Drop(2),
        Step::Get(3),
    ];
    let maker = Body { returns: vec![0], ..body("maker", vec![put(&[], 0)]) };
    let between = Body { returns: vec![0], ..body("between", vec![]) };
    let about = "2 borrowers return a reference of a third process; the owner or a borrower fails anywhere";
    let bodies = vec![body("driver", driver), maker, between];
    config("borrow-handed", about, bodies, 2, 1, 5)
}

fn put(contains: &[usize], into: usize) -> Step {
    Step::Put { is_stored: true, contains: contains.to_vec(), into }
}

fn pass(body: usize, references: &[usize], into: usize) -> Step {
    Step::Submit { body, dependencies: Vec::new(), references: references.to_vec(), retries: 1, into }
}

fn config(
    name: &'static str,
    about: &'static str,
    bodies: Vec<Body>,
    cpus: u32,
    kills: u8,
    processes: usize,
) -> Config {
    let tolerated = vec![FailureCode::OwnerDied, FailureCode::WorkerCrashed, FailureCode::Cancelled];
    Config { kills, tolerated, ..Config::new(name, about, bodies, cpus, processes) }
}
