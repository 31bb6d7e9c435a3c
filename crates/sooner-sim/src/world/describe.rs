//! Where a run stands, for people.

use sooner_wire::message::Message;
use sooner_wire::message::state::{Inspect, about};

use super::processes::{HEAD, is_node, node_at, node_of};
use super::{World, number_of};

impl World {
    /// Where the run stands, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut lines = vec![format!(
            "{:?} after {} steps at {} ms; nodes quiet: {}",
            self.phase,
            self.steps,
            self.time / 1_000_000,
            self.nodes.iter().all(|node| node.core.is_quiet())
        )];
        for process in self.processes.running() {
            let number = number_of(process.id);
            let frames: Vec<String> = process.frames.iter().map(crate::program::Frame::describe).collect();
            lines.push(format!(
                "  {number}: {} pending, {} records, {} leases, {} queued, frames {frames:?}",
                process.core.pending_tasks(),
                process.core.ownership().len(),
                process.core.leases_held(),
                process.core.execution().queued()
            ));
            let question =
                Inspect { request: 0, about: about::TASKS, rows: 12, events: 0, ..Inspect::default() };
            for task in process.core.report(&question).tasks {
                let (label, state, missing) = (task.label, task.state, task.missing);
                let actor = label.actor;
                lines.push(format!("    {:?} of {actor:?} in state {state}, misses {missing:?}", task.task));
            }
        }
        for channel in self.channels.iter().filter(|channel| !channel.queue.is_empty()) {
            lines.push(format!(
                "  {} -> {}: {} waiting, {} sent, connected {}, open {}",
                name(channel.from),
                name(channel.to),
                channel.queue.len(),
                channel.sent,
                channel.is_connected,
                channel.is_open
            ));
        }
        lines.join("\n")
    }
}

pub(super) fn name(number: u32) -> String {
    match (is_node(number), node_at(number)) {
        _ if number == HEAD => "head".to_owned(),
        (true, 0) => "node".to_owned(),
        (true, at) => format!("node {at}"),
        (false, 0) => number.to_string(),
        (false, at) => format!("{at}.{}", number - node_of(number)),
    }
}

pub(super) fn brief(message: &Message) -> String {
    let mut text = format!("{message:?}");
    if text.len() > 300 {
        let end = (0..=300).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}
