//! Jobs of drivers on other nodes, for the tables of this one: as long as one is open, its workers are kept like those of a
//! driver here.

use sooner_wire::WorkerId;

use crate::node::NodeCore;

impl NodeCore {
    /// There may be work for the job of a driver elsewhere.
    pub(crate) fn open_job(&mut self, job: WorkerId) {
        self.open_jobs.insert(job);
    }

    /// There is none any more.
    pub(crate) fn close_job(&mut self, job: WorkerId) {
        self.open_jobs.swap_remove(&job);
        self.unable.forget_job(job);
    }

    /// Its driver leaves: nothing more begins for it.
    pub(crate) fn on_guest_leaves(&mut self, driver: WorkerId) {
        if let Some(asker) = self.askers.get_mut(&driver) {
            asker.demands.clear();
        }
        self.drop_placements_of(driver);
    }

    /// The control service hears of the end of this process.
    pub(crate) fn make_known(&mut self, process: WorkerId) {
        if let Some(client) = self.clients.get_mut(&process) {
            client.is_known_to_control = true;
        }
    }
}
