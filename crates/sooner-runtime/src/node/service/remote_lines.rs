//! Lines that workers print for drivers on other nodes.
//!
//! The workers' node sends them to the driver's node, which hands them on as it does those of its own
//! workers. Sent lines that the driver's node has not reported as taken are bounded; further lines wait in
//! the [`Lines`](super::lines::Lines) of their job, and a worker that prints more waits in `write`. So a
//! driver that reads nothing holds up its own workers, wherever they are, and no others. Each node whose
//! workers may print tells the driver's node, and again when all they printed has been sent: until then that
//! node waits for lines after the driver has left. Lines that are under way when the connection of the two
//! nodes is lost for good are lost with it: they are in files, too.

use sooner_protocol::table::Set;
use sooner_wire::limits::LINES_UNTAKEN_BYTES_MAX;
use sooner_wire::message::{LinesTaken, LogLines, Message};
use sooner_wire::{NodeId, WorkerId};

use super::{Service, now};

impl Service {
    /// Sends waiting lines to the nodes of their drivers, and forgets jobs that are over when all is sent.
    pub(super) fn pass_remote_lines(&mut self) {
        let mut sent: Vec<LogLines> = Vec::new();
        let mut finished = Vec::new();
        for (id, job) in &mut self.jobs {
            let Some(lines) = job.lines.clone().filter(|_| job.is_remote_job()) else { continue };
            let has_all = job.left.is_some() && job.has_all_but(&Set::default());
            let has_room = job.untaken <= LINES_UNTAKEN_BYTES_MAX;
            if has_room {
                let (waiting, was_full) = lines.take();
                if let Some(left) = job.left.as_mut().filter(|_| !waiting.is_empty()) {
                    left.on_moved(now());
                }
                job.untaken += waiting.iter().map(|line| line.text.len() as u64).sum::<u64>();
                sent.extend(waiting);
                if was_full {
                    self.logs.kick();
                }
            }
            let Some(left) = job.left else { continue };
            if now() >= left.deadline() || (has_all && has_room) {
                lines.close();
                finished.push(*id);
            }
        }
        for lines in sent {
            self.send_to(lines.job.node(), lines.into());
        }
        for id in finished {
            self.send_whether_more(id, false);
            self.jobs.remove(&id);
            self.logs.kick();
        }
    }

    /// Tells the node of a driver whether workers of this node may print for it.
    pub(super) fn send_whether_more(&mut self, job: WorkerId, more: bool) {
        let lines = LogLines { job, is_stderr: false, text: String::new(), more: Some(more) };
        self.send_to(job.node(), lines.into());
    }

    /// Workers of another node printed something for a local driver.
    pub(super) fn on_remote_lines(&mut self, node: NodeId, lines: &LogLines) {
        let bytes = lines.text.len() as u64;
        let job = self.jobs.get_mut(&lines.job).filter(|job| !job.is_remote_job());
        if let Some(job) = job {
            match lines.more {
                Some(true) => drop(job.printing.insert(node)),
                Some(false) => drop(job.printing.swap_remove(&node)),
                None => {}
            }
            if let Some(left) = &mut job.left {
                left.on_moved(now());
            }
            if lines.text.is_empty() {
                return;
            }
            if let Some(sink) = job.sink() {
                sink.show(lines.is_stderr, &lines.text);
            }
            if job.reader.is_some() && job.sink().is_some_and(|sink| sink.is_full()) {
                return job.owed.push((node, bytes));
            }
        }
        self.send_taken(node, lines.job, bytes);
    }

    pub(super) fn send_taken(&mut self, node: NodeId, job: WorkerId, bytes: u64) {
        self.send_to(node, LinesTaken { job, bytes }.into());
    }

    /// The node of a driver has taken lines of local workers.
    pub(super) fn on_lines_taken(&mut self, node: NodeId, taken: &LinesTaken) {
        if let Some(job) = self.jobs.get_mut(&taken.job).filter(|_| taken.job.node() == node) {
            job.untaken = job.untaken.saturating_sub(taken.bytes);
        }
    }

    /// The connection to that node is lost for good: lines under way were not taken, and will not be.
    pub(super) fn on_lines_lost(&mut self, node: NodeId) {
        for (id, job) in &mut self.jobs {
            job.owed.retain(|(other, _)| *other != node);
            job.printing.swap_remove(&node);
            if id.node() == node && std::mem::take(&mut job.untaken) > 0 {
                self.notes.write_rationed(&format!(
                    "lines for the driver {:016x} may be lost: its node cannot be reached",
                    id.0
                ));
            }
        }
    }

    fn send_to(&mut self, node: NodeId, message: Message) {
        let (from, to) = (WorkerId(self.options.node.0), WorkerId(node.0));
        if let Some(cluster) = &mut self.cluster {
            cluster.route(from, to, Box::new(message));
        }
    }
}
