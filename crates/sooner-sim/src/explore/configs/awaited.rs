//! Tasks that wait for values behind references before they are queued, as reductions do.

use sooner_wire::message::FailureCode;

use crate::explore::Config;
use crate::explore::program::{Step, body, submit};

/// A task waits for both of its references.
pub fn both(kills: u8) -> Config {
    let (name, about) = match kills {
        0 => ("awaited-well", "a task is queued when both of its references have values; no failure"),
        _ => {
            ("awaited", "a task is queued when both of its references have values; a process fails anywhere")
        }
    };
    config(name, about, 2, kills)
}

/// A task waits for one of its two references.
pub fn one() -> Config {
    let about = "a task is queued when one of its two references has a value; no failure";
    // While it waits for the other one, its CPU is lent.
    Config { processes: 4, ..config("awaited-one", about, 1, 0) }
}

/// A task waits for two references, and the value of one is dropped that was never sealed.
pub fn dropped() -> Config {
    let about = "a task waits for two references, and the value of one never comes; no failure";
    let driver = vec![
        Step::Write { into: 0 },
        submit(1, 0, 1),
        Step::SubmitAfter { values: 2, body: 2, references: vec![0, 1], retries: 1, into: 2 },
        Step::Drop(0),
        Step::Get(2),
    ];
    let bodies = vec![body("driver", driver), body("f", vec![]), body("sum", vec![Step::Get(0)])];
    let config = Config::new("awaited-dropped", about, bodies, 2, 3);
    Config { expected: vec![FailureCode::ObjectLost], ..config }
}

fn config(name: &'static str, about: &'static str, values: usize, kills: u8) -> Config {
    let driver = vec![
        submit(1, 0, 0),
        submit(1, 0, 1),
        Step::SubmitAfter { values, body: 2, references: vec![0, 1], retries: 1, into: 2 },
        Step::Drop(0),
        Step::Drop(1),
        Step::Get(2),
    ];
    let bodies =
        vec![body("driver", driver), body("f", vec![]), body("sum", vec![Step::Get(0), Step::Get(1)])];
    let config = Config { kills, ..Config::new(name, about, bodies, 2, 3 + usize::from(kills)) };
    Config { tolerated: vec![FailureCode::WorkerCrashed, FailureCode::Task], ..config }
}
