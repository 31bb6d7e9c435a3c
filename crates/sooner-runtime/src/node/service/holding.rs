//! Which processes hold the memory of a full store: for the errors that say so.
//!
//! It looks only when a process gives up, never while it waits.

use sooner_wire::WorkerId;
use sooner_wire::limits::{HOLDER_TITLE_BYTES_MAX, HOLDERS_NAMED_MAX};
use sooner_wire::message::{BlockHolder, FailureCode, Message};

use super::{Role, Service};

impl Service {
    /// The processes that hold most.
    pub(super) fn largest_holders(&self) -> Vec<BlockHolder> {
        let holders = self.core.largest_holders(HOLDERS_NAMED_MAX, |block| self.arena.length(block.offset()));
        let row = |(process, bytes, objects)| {
            let (title, pid) = self.describe(process);
            BlockHolder { process, pid, title, bytes, objects }
        };
        holders.into_iter().map(row).collect()
    }

    /// If a message says that a value of another node, or of the disk, finds no room here, adds the largest
    /// holders, and why nothing goes to disk.
    pub(super) fn name_holders(&self, message: &mut Message) {
        if let Message::Pulled(pulled) = message
            && let Some(failure) = &mut pulled.failure
            && failure.code == FailureCode::StoreFull
        {
            if let Some(trouble) = self.spilling.trouble() {
                failure.code = FailureCode::OutOfDisk;
                failure.message.push_str(&format!(". Nothing could be written to disk: {trouble}"));
            }
            failure.message.push_str(&BlockHolder::list(&self.largest_holders()));
        }
    }

    fn describe(&self, process: WorkerId) -> (String, u32) {
        if process.0 == self.options.node.0 {
            return ("this node, of values of others".to_owned(), std::process::id());
        }
        let connection = self.tokens.get(&process).and_then(|token| self.connections.get(token));
        let Some(connection) = connection else {
            let title = if process.node() == self.options.node {
                "a process that has ended"
            } else {
                "a process of another node"
            };
            return (title.to_owned(), 0);
        };
        let title = match connection.role {
            Role::Worker => "worker".to_owned(),
            Role::Driver | Role::Stranger | Role::Tool | Role::Reader => {
                format!("program {}", command_of(connection.pid))
            }
        };
        (title, connection.pid)
    }
}

/// The command of a process, as far as there is room for it.
fn command_of(pid: u32) -> String {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = command.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let mut text =
        words.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ").replace(['\n', '\r'], " ");
    if text.len() > HOLDER_TITLE_BYTES_MAX {
        let end = (0..=HOLDER_TITLE_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    format!("`{text}`")
}
