//! Nested tasks and one worker failure: the scope of the model checked in the Ownership paper (section 4.3).
//!
//! Each task of a level submits the tasks of the next level and waits for all of them. Checked on the way:
//! ownership of results, leases that are lent while a task waits, retries, and tasks whose parent is dead.

use sooner_wire::message::FailureCode;

use crate::explore::Config;
use crate::explore::program::{Body, Step, body, submit};

/// One chain of calls: small enough to be searched on every change.
pub fn chain() -> Config {
    config("nested-chain", "2 levels of 1 future each; a worker fails anywhere", &[1, 1], 1, 5)
}

/// Three levels of calls, one future each.
pub fn deep() -> Config {
    config("nested-deep", "3 levels of 1 future each; a worker fails anywhere", &[1, 1, 1], 1, 7)
}

/// Two levels with several futures.
pub fn wide() -> Config {
    config("nested-wide", "2 levels of 2 futures each; a worker fails anywhere", &[2, 2], 1, 6)
}

/// Two futures at the last of three levels.
pub fn broad() -> Config {
    config("nested-broad", "3 levels of 1, 1 and 2 futures; a worker fails anywhere", &[1, 1, 2], 1, 7)
}

/// Three futures on two workers at a time.
pub fn parallel() -> Config {
    config("nested-parallel", "1 level of 3 futures, 2 workers at a time; one fails anywhere", &[3], 2, 5)
}

/// The full scope of the paper: it has too many states here, so the search is cut.
pub fn full() -> Config {
    config("nested-full", "3 levels of 3 futures each; a worker fails anywhere", &[3, 3, 3], 1, 8)
}

fn config(name: &'static str, about: &'static str, futures: &[usize], cpus: u32, processes: usize) -> Config {
    let level = |(number, count): (usize, &usize)| -> Body {
        let calls = (0..*count).map(|variable| submit(number + 1, 1, variable));
        let gets = (0..*count).map(Step::Get);
        body(["driver", "level 1", "level 2", "level 3"][number], calls.chain(gets).collect())
    };
    let leaf = body("leaf", vec![]);
    let bodies = futures.iter().enumerate().map(level).chain([leaf]).collect();
    let tolerated = vec![FailureCode::Cancelled];
    Config { kills: 1, tolerated, ..Config::new(name, about, bodies, cpus, processes) }
}
