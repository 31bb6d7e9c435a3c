//! Runs of the production cores as text: `scenarios/*.txt` has what is said and done, and what messages that takes.
//!
//! Each file is run, and what comes of its commands is compared with what it says. `UPDATE_SCENARIOS=1` writes it instead.

use std::path::{Path, PathBuf};

mod cluster;
mod describe;
mod head;
mod node;
mod process;
mod script;
mod values;

use cluster::Cluster;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

/// The text with the output of its commands. An error names the line, and what was expected there.
fn play(text: &str) -> Result<String, String> {
    let mut cluster: Option<Cluster> = None;
    let mut played = String::new();
    let mut has_begun = false;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(command) = line.strip_prefix('>') else {
            // The drawing above the first command stays, empty lines and comments between commands do, too.
            if !has_begun || line.is_empty() || line.starts_with('#') {
                played += line;
                played.push('\n');
            }
            continue;
        };
        has_begun = true;
        played += line;
        played.push('\n');
        let command = command.split(" # ").next().unwrap_or_default().trim();
        let at = |wrong: String| format!("line {number}, `{command}`: expected {wrong}");
        match &mut cluster {
            None => cluster = Some(script::begin(command).map_err(at)?),
            Some(cluster) => {
                cluster.command(command).map_err(at)?;
                cluster.check();
                for line in cluster.lines.drain(..) {
                    played += &line;
                    played.push('\n');
                }
            }
        }
    }
    Ok(played)
}

fn scenarios() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).expect("the scenarios are there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
}

#[expect(clippy::disallowed_methods, reason = "it is asked by the test, and by no core")]
fn updates() -> bool {
    std::env::var("UPDATE_SCENARIOS").is_ok()
}

#[test]
fn every_scenario_goes_as_it_says() {
    let mut wrong = Vec::new();
    for path in scenarios() {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("readable");
        let played = std::panic::catch_unwind(|| play(&text));
        match played {
            Err(_) => wrong.push(format!("{name}: see above")),
            Ok(Err(why)) => wrong.push(format!("{name}: {why}")),
            Ok(Ok(played)) if played == text => {}
            Ok(Ok(played)) if updates() => std::fs::write(&path, played).expect("writable"),
            Ok(Ok(played)) => {
                let at = played.lines().zip(text.lines()).take_while(|(one, other)| one == other).count();
                let line = |text: &str| text.lines().nth(at).unwrap_or("(the end)").to_owned();
                let (now, before) = (line(&played), line(&text));
                wrong.push(format!(
                    "{name}, line {}: it says\n  {before}\nand comes to\n  {now}\nUPDATE_SCENARIOS=1 writes what it comes to",
                    at + 1
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What [`play`] says of a scenario that must not pass.
fn refused(commands: &str) -> String {
    play(&format!("A drawing\n\n> cluster a=1\n> driver: submit x = f()\n> driver: get x\n> run\n{commands}"))
        .expect_err("it must not pass")
}

#[test]
fn a_wrong_expectation_fails() {
    assert_eq!(
        refused("> expect driver x = \"y\""),
        "line 7, `expect driver x = \"y\"`: expected driver x = \"y\"; it is \"x\""
    );
    assert_eq!(
        refused("> expect a.w1 is gone"),
        "line 7, `expect a.w1 is gone`: expected that a.w1 is gone; it is otherwise"
    );
    assert!(refused("> expect node a has 1 values").ends_with("it has 0"));
    assert!(refused("> run until pigs fly").ends_with("that \"pigs fly\" happens; it does not"));
}

#[test]
fn a_wrong_command_names_its_line_and_what_was_expected() {
    assert_eq!(
        refused("> frobnicate").split(", not").next().map(|text| &text[..30]),
        Some("line 7, `frobnicate`: expected")
    );
    assert!(refused("> node b: needs room").contains("a process or a node, not \"node b\""));
    assert!(refused("> driver: submit y = f(z)").contains("a reference that driver has, not \"z\""));
    assert!(refused("> driver: submit y = f() quickly").contains("not \"quickly\""));
    assert!(play("> run").is_err_and(|why| why.contains("`cluster a=1 b=1` first")));
}

#[test]
fn what_comes_to_something_else_is_noticed() {
    let text = "> cluster a=1\n> driver: submit x = f()\n> run\n";
    let played = play(text).expect("nothing is wrong");
    assert!(played.contains("Reply x"), "{played}");
    assert_eq!(play(&played).as_ref(), Ok(&played), "what a run comes to is what it comes to again");
    assert_ne!(played, text);
}
