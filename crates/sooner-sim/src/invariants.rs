//! The properties that must hold, one file each, under the numbers of the project's list of invariants.
//!
//! | number | what | when it is checked |
//! |---|---|---|
//! | I1 | every wait ends | when nothing can happen any more |
//! | I2 | a value is one that a legal execution gives; a failure is one that this run justifies | at every read |
//! | I3 | a lost value comes back as long as its task may be executed again | at every read of a failure |
//! | I4 | nothing is left | at the end |
//! | I5 | a block is not freed while somebody may read it | at every read; when a block is freed, on a sample |
//! | I6 | counts end at zero | in the cores, and at the end |
//! | I7 | an actor has one process at a time; its calls run in order, after its constructor | when one begins |
//! | I8 | a state has each call once and in order, and no answered one is missing | when a call of an actor with checkpoints begins |
//! | I9 | resources are conserved | every so many steps, and at the end |
//! | I11 | what a control service wrote, the next one can read | when one begins |
//! | I13 | queues are bounded | every so many steps |
//! | I14 | no message makes a core panic | always: a panic ends the run |
//! | I15 | a seed repeats a run | by the runner, on a sample |
//! | I16 | failures are named | at every read |
//!
//! W3 of the worker is checked here, too: when a task begins.

mod i01_every_wait_ends;
mod i02_legal_values;
mod i03_lineage;
mod i04_nothing_is_left;
mod i05_no_early_free;
mod i07_one_instance;
mod i08_once_in_state;
mod i09_resources;
mod w03_executions;

use crate::world::World;

impl World {
    /// Called after every step: once in 251 steps, checks resources and bounds.
    pub fn check_step(&mut self) {
        if self.steps.is_multiple_of(251) {
            self.check_resources();
            self.check_bounds();
        }
    }
}
