//! Tasks that take next to no time: handing one over costs more than running it. The user is warned once.
//!
//! Only tasks that are handed over count, and none is remembered: there is only a number.

use sooner_wire::message::Define;

/// A task that runs shorter than this (nanoseconds) costs more to hand over than to run.
const TINY_NANOS: u64 = 2_000;
/// After this many of them the user is warned.
const TINY_TASKS: u32 = 500_000;

/// Tasks of this process that took next to no time; counted until the user was warned.
#[derive(Debug, Default)]
pub struct TinyTasks {
    seen: u32,
}

impl TinyTasks {
    /// A task took `nanos` nanoseconds. True: warn the user.
    #[inline]
    pub fn note(&mut self, nanos: u64) -> bool {
        if nanos >= TINY_NANOS || self.seen >= TINY_TASKS {
            return false;
        }
        self.seen += 1;
        self.seen == TINY_TASKS
    }
}

/// The warning; the last of the tasks was of this function.
pub fn warning(define: &Define) -> String {
    let place = define.place.as_ref().map_or(String::new(), |place| format!("{}: ", place.as_str()));
    format!(
        "{place}{TINY_TASKS} tasks took less than {} us each, the last of them {}(); handing such a task over takes as long. Let one task do many of them, or use sooner.Executor().map(..., chunksize=n)",
        TINY_NANOS / 1000,
        define.name.as_str()
    )
}

#[cfg(test)]
mod tests {
    use sooner_wire::{Blob, FunctionId, Name};

    use super::*;

    #[test]
    fn very_many_tiny_tasks_are_noticed_once() {
        let mut tiny = TinyTasks::default();
        assert!((1..TINY_TASKS).all(|_| !tiny.note(TINY_NANOS - 1)));
        assert!(!tiny.note(TINY_NANOS));
        assert!(tiny.note(0) && !tiny.note(0));
    }

    #[test]
    fn the_user_hears_where_the_function_is() {
        let text = warning(&Define {
            function: FunctionId(3),
            name: Name::from("f"),
            code: Blob::default(),
            references: Vec::new(),
            place: Some(Name::from("x.py:3")),
        });
        assert!(
            text.starts_with("x.py:3: 500000 tasks took less than 2 us each, the last of them f();"),
            "{text}"
        );
    }
}
