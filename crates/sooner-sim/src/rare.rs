//! The list of rare states that runs count, and the marks of those seen in messages and in ends.
//!
//! A test compares the list with the marks in the sources of the cores and of the simulator, and with the
//! table in `docs/rare-states.md`. Names that begin with `OPEN` are findings: no run has to reach them, and
//! they are not listed.

use sooner_protocol::probes::hit;
use sooner_wire::message::{Message, TaskKind};

use crate::world::{Item, World, is_node};

/// States of one theme.
#[derive(Debug)]
pub struct Theme {
    /// Its subject.
    pub name: &'static str,
    /// The features and faults without which none of its states is reached.
    pub needs: &'static [&'static str],
    /// The names of the states.
    pub states: &'static [&'static str],
}

/// Every rare state.
pub const THEMES: &[Theme] = &[
    Theme {
        name: "borrowing",
        needs: &[],
        states: &[
            "a borrowed reference was kept beyond its task",
            "a borrower cancelled a task",
            "a borrower lent a reference to a process that goes on holding it",
            "a borrower lent a reference to several tasks of a process",
            "a borrower returned a reference before it was registered",
            "a borrower was registered for an object that was gone",
            "a borrower's registration died with its sender",
            "a borrower's return died with its sender",
            "a dead process was registered as a borrower",
            "a failure came from an argument",
            "a reference was found inside a value",
            "a reply with borrowed references had no reader",
            "a value came for a reference that had been dropped",
            "an actor returned a reference of its state",
            "an argument contained a reference",
            "a task waited for values behind references",
            "a value that a task waited for behind a reference failed",
            "an object was freed while a reference to it was left",
            "a process died while the death of another one was being settled",
            "a process held references of a dead one",
            "a reference that was lent was handed on",
            "an idle worker did not end because others need what it owns",
            "a reference was returned whose giver's death had been settled",
            "several borrowers waited for one value",
            "what is held of a dead process was said later, for a line that was not there yet",
            "what was held of a dead process was returned before its death was settled",
        ],
    },
    Theme {
        name: "owners that die",
        needs: &[],
        states: &[
            "a question for a value was lost with its owner",
            "a task of a dead caller went on",
            "a value died on its way to a borrower",
            "an owner died while its borrower was borrowing on",
            "an owner died while this process borrowed from it",
            "an owner was killed while others borrowed from it",
            "the readers of a dead owner's blocks were asked for",
        ],
    },
    Theme {
        name: "shared memory",
        needs: &[],
        states: &[
            "a block was given to a process that never heard of it",
            "a block was used again by its process",
            "a process died before it had given its block away",
        ],
    },
    Theme {
        name: "values on disk",
        needs: &["full"],
        states: &[
            "a node without room asked for blocks",
            "a value went to disk",
            "a value that others borrow went to disk",
            "a value that lies inside another one, or that nobody has read, went to disk",
            "a value went because its task can make it again",
            "a copy went, and its value stayed",
            "a value was brought back from disk",
            "a value stayed in its block because the disk was full",
            "a value could not be written",
            "a value that could not be written was read in its block",
            "a value that could not be written was tried again",
            "there was no room for a value that was to be brought",
            "a value was brought to the file behind the memory",
            "a pull overtook one that found no room",
            "a task had to give way to an older one",
            "a task that waited for its arguments gave way to an older one",
            "a task was held back because others lacked room for their arguments",
            "a call waited at its caller because of the size of its arguments",
            "a copy that nobody needed stayed",
            "a copy that nobody needed went for want of room",
            "a value was freed while it was written",
            "a block was freed while the node waited to hear whether it could have it",
        ],
    },
    Theme {
        name: "tasks",
        needs: &[],
        states: &[
            "a cancelled task came back unexecuted",
            "a process was killed while its task waited",
            "a process was killed with tasks of its own",
            "a reply came from a worker that was gone",
            "a reply died with its sender",
            "a running task was interrupted",
            "a task died on its way to its worker",
            "a task raised what its get raised",
            "a task was cancelled by ending its process",
            "a task was executed again",
            "a task was executed four times",
            "a task was interrupted while it waited",
            "a worker died before it began a task that was pushed to it",
            "a worker died with a cancelled task",
            "a worker died with several tasks in flight",
        ],
    },
    Theme {
        name: "leases and workers",
        needs: &[],
        states: &[
            "a lease ended while its worker was blocked",
            "a lease was granted to a process that had nothing to run any more",
            "a lease was granted to a process that was gone",
            "a message waited in a stalled channel when its sender died",
            "a message was read after its sender was known to be gone",
            "a message went to a process that was gone",
            "a process ended that held leases",
            "a process ended with tasks queued behind a running one",
            "a process was killed with messages in its buffers",
            "a stopped process was killed",
            "a stopped process was sent a task",
            "a task took long with others queued behind it",
            "a task waited and lent its CPU",
            "a task waited with others queued behind it",
            "a worker ended after its task with others queued",
            "a worker process did not come up",
            "a worker process died before it said hello",
            "tasks came back unexecuted",
            "what waited for workers that could not be started was refused",
            "the node asked for leases back",
            "two processes were killed at once",
        ],
    },
    Theme {
        name: "actors",
        needs: &[],
        states: &[
            "a call came before the constructor of its actor",
            "a constructor died on its way",
            "a constructor raised",
            "a name was looked up whose actor was gone",
            "a process ended with several calls running",
            "a task ended an actor that it was given",
            "an actor died with calls of this process to make",
            "an actor ended itself",
            "an actor ended with references in its state",
            "an actor restarted before its constructor had ended",
            "an actor restarted with several calls in flight",
            "an actor was constructed a third time",
            "an actor was constructed again",
            "an actor was ended while it was starting again",
            "an actor was found by its name",
            "an actor was placed on a worker that had just ended",
            "actors held all CPUs but one",
            "the process of an actor ended before anything of it had begun there",
        ],
    },
    Theme {
        name: "streams",
        needs: &[],
        states: &[
            "a process ended that read a stream",
            "a reader left a stream before its end",
            "a streaming task waited for its reader",
            "an item came after its reader had left",
            "an item came again in a second execution",
            "an item died with its sender",
        ],
    },
    Theme {
        name: "checkpoints",
        needs: &["checkpoints"],
        states: &[
            "a call that may have ended its actor's process was given up",
            "a checkpoint contained references",
            "a checkpoint died with its process",
            "a checkpoint was put off",
            "a process ended while an answered call was made again",
            "a process ended with a checkpoint due",
            "an actor went on from a checkpoint",
            "a reply came for a task that was not out any more",
            "an answered call was made again for its effect",
            "several callers had to make calls again",
        ],
    },
    Theme {
        name: "lines that are cut",
        needs: &["cuts"],
        states: &[
            "a line could not be made",
            "a line was cut with messages on their way",
            "what a process had sent was lost with its connection",
        ],
    },
    Theme {
        name: "lost values",
        needs: &["lost-blocks"],
        states: &[
            "a lost item came again",
            "a lost value could not be computed again",
            "a lost value was computed again",
            "a task came back and waited for an argument that was lost meanwhile",
            "a value was lost while a task had it as an argument",
            "a worker died while it computed a lost value again",
            "a restored actor ended for want of an argument",
            "an item was lost that the execution had passed",
            "several values were lost at once",
        ],
    },
    Theme {
        name: "several nodes",
        needs: &["nodes"],
        states: &[
            "a lease was lent and withdrawn",
            "a node granted what was not asked of it any more",
            "a process asked its own node for a value that lies there",
            "a copy of a value that was out of reference stayed",
            "a copy was lent whose value was lost where it came from",
            "a value was asked for before its block was given away",
            "a value was pulled from a copy",
            "a value was asked for where it was still arriving",
            "a node goes on pulling from another one",
            "a value was brought from another node",
            "the control service started again",
            "what is held of a dead process was said later, for a line to another node",
            "what waited at another node ran here",
            "what waited at one node went to another",
            "an actor that waited at one node went to another",
            "an actor gave its resources back until an argument of its constructor was made again",
            "a worker lent its CPU because its tasks wait for lost arguments",
            "a node was told that the value that it pulls is being made again",
            "a process asked for one that had been dead for so long that nobody here knew",
            "a retired worker did not end because others need what it owns",
            "a death that no other node knew of left something of theirs behind",
            "a node asked to be told of the end of a process that was gone",
            "a node turned out to have to do with a process whose death had been settled",
            "a process died while the death of one of another node was being settled",
            "a process was ended because one of another node could not be reached",
            "a block whose giver was gone before it told the node was kept for reuse",
            "a node without room had values brought elsewhere",
            "a node without room asked owners at other nodes for blocks",
            "a value went to the disk of another node",
            "a value was read from disk for another node",
            "a value on its way to disk was read in its block for another node",
            "a value left the node that it was made at, and nobody read it there",
        ],
    },
    Theme {
        name: "copies that become values",
        needs: &["nodes", "lost-blocks"],
        states: &[
            "a copy became the value",
            "a copy was held for an owner that did not want it any more",
            "a copy that was to become the value was not there",
            "a copy came that was to become the value",
        ],
    },
];

/// The states that runs without these features and faults can reach.
pub fn reachable(without: &[String]) -> impl Iterator<Item = &'static str> {
    let is_in = |theme: &&Theme| theme.needs.iter().all(|word| !without.iter().any(|left| left == word));
    THEMES.iter().filter(is_in).flat_map(|theme| theme.states.iter().copied())
}

/// An item is lost with its sender or its receiver.
pub fn record_lost(item: &Item) {
    match item {
        Item::Push(..) => hit("a task died on its way to its worker"),
        Item::End => {}
        Item::Message(message) => match &**message {
            Message::Push(push) if push.spec.kind() == TaskKind::Creation => {
                hit("a constructor died on its way")
            }
            Message::Push(_) => hit("a task died on its way to its worker"),
            Message::AddBorrow(_) => hit("a borrower's registration died with its sender"),
            Message::Reply(reply) => {
                hit("a reply died with its sender");
                if !reply.held.is_empty() {
                    hit("a reply with borrowed references had no reader");
                }
            }
            Message::Item(_) => hit("an item died with its sender"),
            Message::Value(_) => hit("a value died on its way to a borrower"),
            Message::Fetch(_) => hit("a question for a value was lost with its owner"),
            Message::RemoveBorrow(_) => hit("a borrower's return died with its sender"),
            Message::GiveBlock(_) => hit("a process died before it had given its block away"),
            Message::LeaseGranted(_) => hit("a lease was granted to a process that was gone"),
            Message::Checkpoint(_) => hit("a checkpoint died with its process"),
            _ => {}
        },
    }
}

impl World {
    /// A process is about to read a message.
    pub fn record_read(&self, to: u32, message: &Message) {
        let core = &self.process(to).core;
        let knows = |object| core.ownership().record(object).is_some();
        match message {
            Message::AddBorrow(add) if add.object.owner() == core.me() && !knows(add.object) => {
                hit("a borrower was registered for an object that was gone");
            }
            Message::Value(value) if !knows(value.object) => {
                hit("a value came for a reference that had been dropped");
            }
            Message::Item(item) if self.oracle.left_streams.contains(&item.task) => {
                hit("an item came after its reader had left");
            }
            Message::LeaseGranted(_) if core.pending_tasks() == 0 => {
                hit("a lease was granted to a process that had nothing to run any more");
            }
            Message::ReclaimLease(_) => hit("the node asked for leases back"),
            Message::ReadersOf(_) => hit("the readers of a dead owner's blocks were asked for"),
            Message::ActorDead(dead) if core.pending_calls(dead.actor) > 0 => {
                hit("an actor died with calls of this process to make");
            }
            Message::Restore(restore) if restore.callers.len() > 1 => {
                hit("several callers had to make calls again");
            }
            _ => {}
        }
    }

    /// A process ends.
    pub fn record_end(&self, number: u32) {
        let process = self.process(number);
        let is_lent_on = process
            .core
            .ownership()
            .objects()
            .any(|(object, record)| object.owner() == process.id && record.is_handed_on());
        if is_lent_on {
            hit("an owner died while its borrower was borrowing on");
        }
        if self.channels.iter().any(|channel| {
            channel.from == number && channel.is_stalled && channel.sent > 0 && !is_node(channel.to)
        }) {
            hit("a message waited in a stalled channel when its sender died");
        }
        let Some(instance) = &process.instance else { return };
        if !instance.is_constructed {
            hit("an actor restarted before its constructor had ended");
        }
        if instance.is_due {
            hit("a process ended with a checkpoint due");
        }
        let is_answered = |task| self.oracle.facts.get(&task).is_some_and(|fact| fact.is_answered);
        if instance.has_checkpoints && process.frames.iter().any(|frame| frame.task.is_some_and(is_answered))
        {
            hit("a process ended while an answered call was made again");
        }
    }
}
