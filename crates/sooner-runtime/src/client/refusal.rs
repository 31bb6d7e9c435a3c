//! The last attempt to get a block, and the words in which it is refused.
//!
//! The node is asked who has the memory in the last attempt only: to find that out takes it longer than to
//! say that there is no room.

use std::time::Duration;

use sooner_wire::limits::STORE_RESERVE_BYTES;
use sooner_wire::message::{Allocate, Allocated, BlockHolder, Location, Message};
use sooner_wire::size;

use super::Client;

/// Why there is no room for a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoom {
    /// A sentence on why, and who has the room.
    pub text: String,
    /// There would be room if the disk took more.
    pub is_for_disk: bool,
}

impl NoRoom {
    /// Nobody has a room any more.
    pub(super) fn session_ended() -> Self {
        Self { text: "the session has ended".to_owned(), is_for_disk: false }
    }
}

/// Between two rounds, in which others have their turn in the node's loop.
const RESERVING_PAUSE: Duration = Duration::from_millis(1);

impl Client {
    /// Asks the node once more. Must be called without the GIL.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub(super) fn allocate_at_last(&self, bytes: u64) -> Result<Location, NoRoom> {
        let mut rounds = 0;
        loop {
            let ask = |request| Allocate { request, bytes, is_last: Some(true), ahead: None }.into();
            let Ok(Message::Allocated(answer)) = self.ask(ask) else {
                return Err(NoRoom::session_ended());
            };
            if let Some(offset) = answer.offset {
                self.shared.lock().written.insert(offset);
                return Ok(Location { offset, length: bytes });
            }
            if !goes_on(&answer, &mut rounds) {
                return Err(refusal(bytes, &answer));
            }
        }
    }
}

/// Whether the node is reserving the pages of the block, so that it is to be asked again, now. Each round
/// brings the block nearer, unless other processes take what was reserved, or the machine does: that is why
/// rounds are counted.
pub(super) fn goes_on(answer: &Allocated, rounds: &mut u64) -> bool {
    *rounds += 1;
    let goes_on =
        answer.is_reserving == Some(true) && *rounds <= 16 + 2 * answer.capacity / STORE_RESERVE_BYTES;
    if goes_on {
        std::thread::sleep(RESERVING_PAUSE);
    }
    goes_on
}

fn refusal(bytes: u64, answer: &Allocated) -> NoRoom {
    let Allocated { used, capacity, .. } = *answer;
    let holders = BlockHolder::list(answer.holders.as_deref().unwrap_or_default());
    let value = format!("a value of {} ({bytes} bytes)", size(bytes));
    // A machine without memory is another matter.
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
    NoRoom { text, is_for_disk }
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
            offset: None,
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
            refusal(4 << 20, &answer(None)).text,
            "a value of 4.00 MiB (4194304 bytes) does not fit into the object store: 6291456 of 8388608 bytes are in use (6.00 MiB of 8.00 MiB). Drop references that are not needed, or start with a larger store: sooner.init(object_store_memory=14680064). Largest holders: worker (process 7): 3.00 MiB in 1 object; a process of another node: 3.00 MiB in 2 objects"
        );
    }

    #[test]
    fn a_refusal_says_why_nothing_goes_to_disk() {
        let troubled = |machine_left| {
            let trouble = Some("the disk is full".to_owned());
            Allocated { trouble, ..answer(machine_left) }
        };
        let NoRoom { text, is_for_disk } = refusal(4 << 20, &troubled(None));
        assert!(is_for_disk);
        assert!(!refusal(4 << 20, &answer(None)).is_for_disk);
        assert!(
            refusal(9 << 20, &troubled(None)).is_for_disk,
            "what is larger than the store goes to disk, too"
        );
        assert!(!refusal(4 << 20, &troubled(Some(0))).is_for_disk, "the machine has no memory");
        assert!(
            text.contains("Nothing could be written to disk: the disk is full. Largest holders"),
            "{text}"
        );
    }

    #[test]
    fn rounds_end() {
        let (refused, reserving) = (answer(None), Allocated { is_reserving: Some(true), ..answer(None) });
        assert!(!goes_on(&refused, &mut 0));
        let mut rounds = 0;
        let gone_on = (0..100).take_while(|_| goes_on(&reserving, &mut rounds)).count();
        assert_eq!(gone_on, 16);
    }

    #[test]
    fn a_machine_without_memory_is_not_a_full_store() {
        let text = refusal(1 << 20, &answer(Some(65 << 20))).text;
        assert!(
            text.starts_with("there is no memory for a value of 1.00 MiB (1048576 bytes): the machine"),
            "{text}"
        );
        assert!(text.contains("has 65.00 MiB left") && text.contains("Largest holders: worker"), "{text}");
        assert!(!text.contains("object_store_memory"), "a larger store would not help: {text}");
    }
}
