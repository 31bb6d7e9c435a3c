//! Failures that more than one core reports, and an actor's title in them: all cores use the same words.

use sooner_wire::GroupId;
use sooner_wire::message::{Failure, FailureCode};

/// The failure of a call to an actor that is not known any more.
pub(crate) fn death_failure() -> Failure {
    let message = "the actor is gone: its last handle was dropped before this one was used, or it ended with its node while the cluster had no head";
    Failure::new(FailureCode::ActorDied, message)
}

/// The failure of a task or an actor in a removed group.
pub(crate) fn removed_failure(group: GroupId, reason: Option<&str>, code: FailureCode) -> Failure {
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let text = format!(
        "placement group {:016x}{:016x} was removed{reason}: what ran or waited in it has ended. Make another group, or run without one",
        group.owner.0, group.number
    );
    Failure::new(code, text)
}

/// An actor's title, for people. `name` contains the namespace.
pub(crate) fn title(name: Option<&(String, String)>, class: &str) -> String {
    match (name, class) {
        (Some((_, name)), class) => format!("actor {name:?} ({class})"),
        (None, "") => "the actor".to_owned(),
        (None, class) => format!("actor {class}"),
    }
}
