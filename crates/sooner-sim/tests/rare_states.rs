//! The list of rare states has every name that the sources count, and no other; the documentation shows each.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use sooner_sim::rare::THEMES;

/// Names in calls of `mark!` and `hit`, wherever the formatter put the line's end.
fn names_in(text: &str, found: &mut BTreeSet<String>) {
    for call in ["mark!(", "hit("] {
        for (at, _) in text.match_indices(call) {
            let rest = text[at + call.len()..].trim_start();
            let Some(name) = rest.strip_prefix('"').and_then(|rest| rest.split('"').next()) else { continue };
            if name != "..." && !name.starts_with("OPEN") {
                found.insert(name.to_owned());
            }
        }
    }
}

fn walk(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            names_in(&fs::read_to_string(&path).expect("text"), found);
        }
    }
}

#[test]
fn the_list_is_what_the_sources_count() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    walk(&here.join("src"), &mut found);
    walk(&here.join("../sooner-protocol/src"), &mut found);
    let names: Vec<&str> = THEMES.iter().flat_map(|theme| theme.states.iter().copied()).collect();
    let listed: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(listed.len(), names.len(), "a name is listed twice");
    let unlisted: Vec<_> = found.difference(&listed).collect();
    assert!(unlisted.is_empty(), "counted, and not in crates/sooner-sim/src/rare.rs: {unlisted:#?}");
    let uncounted: Vec<_> = listed.difference(&found).collect();
    assert!(
        uncounted.is_empty(),
        "listed in crates/sooner-sim/src/rare.rs, and counted nowhere: {uncounted:#?}"
    );
}

#[test]
fn the_documentation_shows_each() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rare-states.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let missing: Vec<&str> = THEMES
        .iter()
        .flat_map(|theme| theme.states.iter().copied())
        .filter(|name| !page.contains(&format!("| {name} |")))
        .collect();
    assert!(missing.is_empty(), "not in docs/rare-states.md: {missing:#?}");
}
