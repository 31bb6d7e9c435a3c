//! Runs of the production cores as text: `scenarios/*.txt` has what is said and done, and what messages that
//! takes.
//!
//! Each file is run, and what comes of its commands is compared with what it says. `UPDATE_SCENARIOS=1`
//! writes it instead.

use std::path::{Path, PathBuf};

mod cluster;
mod describe;
mod head;
#[path = "../kit/mod.rs"]
mod kit;
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

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md")
}

/// The first sentence of a scenario.
fn title(text: &str) -> String {
    let paragraph: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ");
    let end = paragraph.find(". ").map_or(paragraph.len(), |at| at + 1);
    paragraph[..end].to_owned()
}

/// The page of the documentation, with the list of all scenarios and the text of some of them between its
/// marks.
fn page_from(before: &str) -> String {
    let read = |path: &Path| play(&std::fs::read_to_string(path).expect("readable")).expect("it goes well");
    let mut page = String::new();
    let mut is_generated = false;
    for line in before.lines() {
        is_generated &= line != "<!-- end -->";
        if is_generated {
            continue;
        }
        page += line;
        page.push('\n');
        let mark = line.strip_prefix("<!-- scenario: ").and_then(|rest| rest.strip_suffix(" -->"));
        if let Some(name) = mark {
            let text = read(&folder().join(format!("{name}.txt")));
            page += &format!("```text\n{text}```\n");
            is_generated = true;
        } else if line == "<!-- all scenarios -->" {
            page += "| file | what it shows |\n|---|---|\n";
            for path in scenarios() {
                let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
                page += &format!("| `{name}` | {} |\n", title(&read(&path)).replace('|', "\\|"));
            }
            is_generated = true;
        }
    }
    page
}

/// The page shows the scenarios as they are.
fn check_page() {
    let before = std::fs::read_to_string(page()).expect("the page is there");
    let now = page_from(&before);
    if now != before && updates() {
        std::fs::write(page(), now).expect("writable");
    } else {
        assert_eq!(now, before, "docs/scenarios.md is not up to date: UPDATE_SCENARIOS=1 writes it");
    }
}

#[test]
fn every_scenario_goes_as_it_says_and_as_the_page_shows() {
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
    check_page();
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
