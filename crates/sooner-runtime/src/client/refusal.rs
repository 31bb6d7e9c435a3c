//! The text for a refused block: what there is no room for, why, and which processes hold the memory.
//!
//! When the node is asked again, and when no longer, is not decided here
//! ([`sooner_protocol::worker::memory::Allocation`]).

use sooner_wire::message::{Allocated, BlockHolder};
use sooner_wire::size;

/// Why there is no room for a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoom {
    /// A sentence on why, and on who holds the room.
    pub text: String,
    /// There would be room if the disk took more.
    pub is_for_disk: bool,
}

impl NoRoom {
    /// The session has ended.
    pub(super) fn session_ended() -> Self {
        Self { text: "the session has ended".to_owned(), is_for_disk: false }
    }

    /// No room for a value of `bytes`, according to the node's last answer.
    pub(super) fn of(bytes: u64, answer: &Allocated) -> Self {
        let Allocated { used, capacity, .. } = *answer;
        let holders = BlockHolder::list(answer.holders.as_deref().unwrap_or_default());
        let value = format!("a value of {} ({bytes} bytes)", size(bytes));
        // If the machine lacks memory, room on disk does not help.
        let is_for_disk = answer.trouble.is_some() && answer.machine_left.is_none();
        let trouble = answer.trouble.as_ref().map(|why| format!(". Nothing could be written to disk: {why}"));
        let trouble = trouble.unwrap_or_default();
        let store = format!("{used} of {capacity} bytes are in use ({} of {})", size(used), size(capacity));
        let text = match answer.machine_left {
            Some(left) if bytes <= capacity => format!(
                "there is no memory for {value}: the machine, or the control group of this session, has {} left, some of which is kept for processes. {store}. Drop references that are not needed, or end other programs{trouble}{holders}",
                size(left)
            ),
            _ => format!(
                "{value} does not fit into the object store: {store}. Drop references that are not needed, or start with a larger store: sooner.init(object_store_memory={}){trouble}{holders}",
                (used + 2 * bytes).next_multiple_of(1 << 20)
            ),
        };
        Self { text, is_for_disk }
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::WorkerId;

    use super::*;

    fn answer(machine_left: Option<u64>) -> Allocated {
        let holder = |pid, objects, title: &str| BlockHolder {
            process: WorkerId(u64::from(pid)),
            pid,
            title: title.to_owned(),
            bytes: 3 << 20,
            objects,
        };
        let holders = Some(vec![holder(7, 1, "worker"), holder(0, 2, "a process of another node")]);
        Allocated {
            request: 1,
            block: None,
            used: 6 << 20,
            capacity: 8 << 20,
            moves: None,
            holders,
            machine_left,
            is_reserving: None,
            trouble: None,
            ahead: None,
        }
    }

    #[test]
    fn a_refusal_names_sizes_and_holders() {
        assert_eq!(
            NoRoom::of(4 << 20, &answer(None)).text,
            "a value of 4.00 MiB (4194304 bytes) does not fit into the object store: 6291456 of 8388608 bytes are in use (6.00 MiB of 8.00 MiB). Drop references that are not needed, or start with a larger store: sooner.init(object_store_memory=14680064). Largest holders: worker (process 7): 3.00 MiB in 1 object; a process of another node: 3.00 MiB in 2 objects"
        );
    }

    #[test]
    fn a_refusal_says_why_nothing_goes_to_disk() {
        let troubled = |machine_left| {
            let trouble = Some("the disk is full".to_owned());
            Allocated { trouble, ..answer(machine_left) }
        };
        let NoRoom { text, is_for_disk } = NoRoom::of(4 << 20, &troubled(None));
        assert!(is_for_disk);
        assert!(!NoRoom::of(4 << 20, &answer(None)).is_for_disk);
        assert!(
            NoRoom::of(9 << 20, &troubled(None)).is_for_disk,
            "what is larger than the store goes to disk, too"
        );
        assert!(!NoRoom::of(4 << 20, &troubled(Some(0))).is_for_disk, "the machine has no memory");
        assert!(
            text.contains("Nothing could be written to disk: the disk is full. Largest holders"),
            "{text}"
        );
    }

    #[test]
    fn a_machine_without_memory_is_not_a_full_store() {
        let text = NoRoom::of(1 << 20, &answer(Some(65 << 20))).text;
        assert!(
            text.starts_with("there is no memory for a value of 1.00 MiB (1048576 bytes): the machine"),
            "{text}"
        );
        assert!(text.contains("has 65.00 MiB left") && text.contains("Largest holders: worker"), "{text}");
        assert!(!text.contains("object_store_memory"), "a larger store would not help: {text}");
    }
}
