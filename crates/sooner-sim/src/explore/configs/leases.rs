//! The lease protocol: two clients ask for two workers, push ahead, give leases back, and one process fails.
//!
//! The second client is a task that submits tasks. Several short tasks are pushed ahead to one lease, and a
//! worker whose task takes long sends the others back. With long tasks, the node reclaims leases for the
//! client that has fewer.

use sooner_wire::message::FailureCode;

use crate::explore::Config;
use crate::explore::program::{Step, body, submit};

/// Three short tasks of one client: requests, grants, pushing ahead, returns.
pub fn ahead() -> Config {
    config(
        "lease-ahead",
        "1 client, 1 worker, 3 short tasks pushed ahead; a worker fails anywhere",
        3,
        0,
        1,
        10_000,
        1,
        4,
    )
}

/// Two clients with several tasks and no failure.
pub fn clients() -> Config {
    let about = "2 clients with 2 tasks each, 2 workers at a time; no failure";
    config("lease-clients", about, 2, 2, 2, 5_000_000, 0, 7)
}

/// Two clients and a failure.
pub fn failing() -> Config {
    let about = "2 clients with 1 task each, 2 workers at a time; a worker fails anywhere";
    config("lease-failing", about, 1, 1, 2, 5_000_000, 1, 7)
}

/// Two clients, one worker, short tasks and a failure.
pub fn short() -> Config {
    let about = "2 clients with 1 and 2 short tasks, 1 worker at a time; a worker fails anywhere";
    config("lease-short", about, 1, 2, 1, 10_000, 1, 7)
}

#[allow(clippy::too_many_arguments)]
fn config(
    name: &'static str,
    about: &'static str,
    tasks: usize,
    inner: usize,
    cpus: u32,
    task_nanos: u64,
    kills: u8,
    processes: usize,
) -> Config {
    let many = |body: usize, count: usize, first: usize| {
        (first..first + count).map(move |variable| submit(body, 1, variable))
    };
    let client = usize::from(inner > 0);
    let calls = (0..client).map(|variable| submit(2, 1, variable)).chain(many(1, tasks, client));
    let driver = calls.chain((0..tasks + client).map(Step::Get)).collect();
    let second = many(1, inner, 0).chain((0..inner).map(Step::Get)).collect();
    let bodies = vec![body("driver", driver), body("task", vec![]), body("client", second)];
    let tolerated = vec![FailureCode::Cancelled];
    let mut config = Config { kills, tolerated, ..Config::new(name, about, bodies, cpus, processes) };
    config.setup.program.task_nanos = task_nanos;
    config
}
