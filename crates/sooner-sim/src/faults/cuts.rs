//! A process dies while it performs the actions of one step: only the first ones take effect.

use crate::plan::Fault;
use crate::world::World;

impl World {
    /// The number of actions of this step after which the process dies, if it does.
    pub fn cut_in(&mut self, number: u32, actions: usize) -> Option<usize> {
        if actions < 2
            || self.process(number).is_driver
            || !self.has_faults()
            || !self.plan.breaks(Fault::KillMidStep)
        {
            return None;
        }
        let one_in = self.plan.fault_every as u64;
        if !self.process(number).is_running() || !self.random.chance(1, one_in) {
            return None;
        }
        self.kills += 1;
        Some(1 + self.random.below(actions - 1))
    }
}
