//! Dead processes: what they were and why they ended, for processes that ask for them later.

use std::collections::VecDeque;

use sooner_wire::WorkerId;
use sooner_wire::limits::ENDED_MAX;
use sooner_wire::message::WorkerDead;

/// The processes that died last, the latest last.
#[derive(Debug, Default)]
pub(in crate::node) struct Departed {
    news: VecDeque<WorkerDead>,
}

impl Departed {
    /// A process is dead.
    pub(in crate::node) fn note(&mut self, gone: &WorkerDead) {
        if self.news.len() == ENDED_MAX {
            self.news.pop_front();
        }
        self.news.push_back(WorkerDead { last_started: None, memory: None, ..gone.clone() });
    }

    /// Whether a process is among the latest dead ones.
    pub(in crate::node) fn has(&self, worker: WorkerId) -> bool {
        self.news.iter().any(|gone| gone.worker == worker)
    }

    /// The message for a process that wants to speak with one that is not there.
    pub(in crate::node) fn of(&self, worker: WorkerId) -> WorkerDead {
        let found = self.news.iter().rev().find(|gone| gone.worker == worker).cloned();
        let reason = "it had ended before".to_owned();
        found.unwrap_or(WorkerDead {
            worker,
            reason,
            last_started: None,
            what: None,
            all_begun: None,
            unreachable: None,
            memory: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered() {
        let mut departed = Departed::default();
        for number in 0..=ENDED_MAX as u64 {
            let reason = format!("reason {number}");
            let what = Some("worker (pid 7)".to_owned());
            departed.note(&WorkerDead {
                worker: WorkerId(number),
                reason,
                last_started: None,
                what,
                all_begun: None,
                unreachable: None,
                memory: None,
            });
        }
        assert_eq!(departed.of(WorkerId(0)).reason, "it had ended before");
        assert_eq!(departed.of(WorkerId(5)).reason, "reason 5");
        assert_eq!(departed.news.len(), ENDED_MAX);
    }
}
