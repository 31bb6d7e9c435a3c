//! The list of all messages: their rows, and the bytes of their samples (`golden/messages.txt`).
//!
//! Whoever changes it on purpose writes it anew with `SOONER_UPDATE_GOLDEN=1 cargo test -p sooner-wire`, and
//! what is different is read in the diff. Bytes may only change by fields at the end: nodes of other versions
//! read them.

use std::fmt::Write;

use super::*;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/messages.txt");

const HEAD: &str = "\
# Every message: number, name, routes (-> over a connection, => passed on by nodes or the control service), and
# whether it says where values are. Below it the bodies of its samples.
# Written by SOONER_UPDATE_GOLDEN=1 cargo test -p sooner-wire
";

fn list() -> String {
    let samples = samples();
    let mut rows = Message::ROWS.to_vec();
    rows.sort_by_key(|row| row.kind);
    let mut text = HEAD.to_owned();
    for row in rows {
        let routes: Vec<&str> = row.routes.iter().map(Route::name).collect();
        let values = if row.carries_values { "values" } else { "no values" };
        writeln!(text, "{} {}: {}; {values}", row.kind, row.name, routes.join(", ")).expect("memory");
        let own = samples.iter().filter(|sample| sample.kind() == row.kind);
        for sample in own {
            let mut body = Vec::new();
            sample.encode_body(&mut body);
            let body: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(text, "    {body}").expect("memory");
        }
    }
    text
}

#[test]
fn every_message_has_a_sample() {
    let samples = samples();
    let lacking = |row: &&RowOf| !samples.iter().any(|sample| sample.row() == **row);
    let names: Vec<&str> = Message::ROWS.iter().filter(lacking).map(|row| row.name).collect();
    assert_eq!(names, [""; 0], "add samples of these to message/tests");
}

/// An `outcome` is where a message says what became of a value. One that a row forgets would mean the memory
/// of the node that reads it.
#[test]
fn every_outcome_in_a_message_is_reached() {
    let mut met: Vec<u16> = Vec::new();
    for mut sample in samples() {
        let text = format!("{sample:?}");
        let (row, mut reached) = (sample.row(), 0);
        sample.for_each_outcome(&mut |_, _| reached += 1);
        assert_eq!(reached, text.matches(" outcome: ").count(), "{text}");
        if reached > 0 {
            assert!(row.carries_values, "{text}");
            met.push(row.kind);
        }
    }
    let untested = |row: &&RowOf| row.carries_values && !met.contains(&row.kind);
    let names: Vec<&str> = Message::ROWS.iter().filter(untested).map(|row| row.name).collect();
    assert_eq!(names, [""; 0], "add samples with values of these to message/tests");
}

#[test]
fn what_does_not_go_that_way_is_refused() {
    for sample in samples() {
        let RowOf { kind, name, routes, .. } = sample.row();
        assert_eq!(Message::routes_of(kind), routes, "{name}");
        for route in Route::ALL.iter().copied() {
            let refused = sample.check(Ends { route, from: WorkerId(1 << 24), to: WorkerId(2 << 24) });
            let by_route = Err(RouteError::NoRoute { kind, name, route });
            assert_eq!(refused == by_route, !routes.contains(route), "{name}: {route}");
        }
    }
}

#[test]
fn only_what_is_passed_on_can_be_inside() {
    for sample in samples() {
        let RowOf { name, routes, .. } = sample.row();
        let is_passed_on = routes.iter().any(Route::is_passed_on);
        assert_eq!(Routed::takes(sample.kind()), is_passed_on, "{name}");
        let mut body = Vec::new();
        sample.encode_body(&mut body);
        let read = between_nodes::routed(sample.kind(), &body);
        let inside = Routed { from: WorkerId(1), to: WorkerId(2), message: Box::new(sample) };
        match is_passed_on {
            true => assert_eq!(read, Ok(inside.into()), "{name}"),
            false => assert!(matches!(read, Err(FrameError::Body { kind: 110, .. })), "{name}: {read:?}"),
        }
    }
}

#[test]
fn the_list_of_messages_is_what_it_was() {
    let list = list();
    if std::env::var_os("SOONER_UPDATE_GOLDEN").is_some() {
        std::fs::write(PATH, &list).expect("the directory is there");
    }
    let golden = std::fs::read_to_string(PATH).expect("the list is there");
    let (mut before, mut now) = (golden.lines(), list.lines());
    loop {
        let (was, is) = (before.next(), now.next());
        assert_eq!(is, was, "golden/messages.txt; see the module if it is meant");
        if is.is_none() {
            return;
        }
    }
}
