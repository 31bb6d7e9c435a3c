//! Values that are written in place: others wait for them before they are sealed, or never are.

use sooner_wire::message::FailureCode;

use crate::explore::Config;
use crate::explore::program::{Body, Step, body, submit};

/// A task passes the reference on, and then seals the value.
pub fn sealed(kills: u8) -> Config {
    let (name, about) = match kills {
        0 => ("unsealed-well", "a reference is passed on before its value is sealed; no failure"),
        _ => ("unsealed", "a reference is passed on before its value is sealed; a process fails anywhere"),
    };
    config(name, about, vec![Step::Seal(0), Step::Drop(0)], kills)
}

/// A task passes the reference on, and drops the value before it is sealed.
pub fn dropped(kills: u8) -> Config {
    let (name, about) = match kills {
        0 => ("unsealed-dropped-well", "a value is dropped that was never sealed; no failure"),
        _ => ("unsealed-dropped", "a value is dropped that was never sealed; a process fails anywhere"),
    };
    let config = config(name, about, vec![Step::Drop(0)], kills);
    Config { expected: vec![FailureCode::ObjectLost], ..config }
}

fn config(name: &'static str, about: &'static str, end: Vec<Step>, kills: u8) -> Config {
    let driver = vec![
        submit(1, 1, 0),
        Step::Get(0),
        Step::Open { of: 0, at: 0, into: 1 },
        Step::Drop(0),
        Step::Get(1),
    ];
    let reads = Step::Submit { body: 2, dependencies: vec![], references: vec![0], retries: 1, into: 1 };
    let mut writer = vec![Step::Write { into: 0 }, reads];
    writer.extend(end);
    let bodies = vec![
        body("driver", driver),
        Body { returns: vec![1], ..body("writer", writer) },
        body("reader", vec![Step::Get(0)]),
    ];
    let config = Config { kills, ..Config::new(name, about, bodies, 2, 4 + usize::from(kills)) };
    Config { tolerated: vec![FailureCode::OwnerDied, FailureCode::ObjectLost], ..config }
}
