//! Jobs: what a driver configures for its workers, and the workers' output on its way to the driver.

use minicbor::{Decode, Encode};

use super::{Ends, Route};
use crate::{Blob, WorkerId};

/// A driver's configuration for the workers of its job. Comes with its [`super::Hello`].
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct JobConfig {
    /// Program and arguments of the job's template; the node appends its directory.
    #[n(0)]
    pub template: Vec<String>,
    /// Directory in which the template, and so the workers, begin.
    #[n(1)]
    pub working_directory: String,
    /// Default namespace of actor names.
    #[n(2)]
    pub namespace: String,
    /// Values up to this size (bytes) travel in messages.
    #[n(3)]
    pub inline_bytes: u64,
    /// Memory for events of tasks, per process (bytes); zero records nothing.
    #[n(4)]
    pub events_bytes: u64,
    /// Memory for descriptions of tasks whose results may have to be computed again, per process (bytes).
    #[n(5)]
    pub lineage_bytes: u64,
    /// What other nodes make the job's template from: they may lack the programs and paths of the driver's
    /// machine.
    #[n(6)]
    pub setup: Option<Box<TemplateSetup>>,
    /// The driver's secret for hashes of strings.
    #[n(7)]
    pub hashes: Option<Box<HashSecret>>,
}

/// The secret that hashes of strings begin with in an interpreter, and in others that are given it.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct HashSecret {
    /// CPython's secret, 24 bytes. With it, strings can be found whose hashes collide.
    #[n(0)]
    pub secret: Blob,
    /// On the driver's machine: the library that gives the secret to an interpreter. Empty if there is none.
    #[n(1)]
    pub library: String,
}

impl std::fmt::Debug for HashSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashSecret").field("library", &self.library).finish_non_exhaustive()
    }
}

/// How the template of a job is set up, whichever interpreter runs it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(array)]
pub struct TemplateSetup {
    /// The driver's module search path, in order. An empty entry stands for the standard library of the
    /// interpreter that runs the template.
    #[n(0)]
    pub path: Vec<String>,
    /// Modules that the template imports.
    #[n(1)]
    pub preload: Vec<String>,
    /// Workers record from which line a task was submitted.
    #[n(2)]
    pub call_sites: bool,
    /// Modules are found by import hooks that `site` sets up.
    #[n(3)]
    pub needs_site: bool,
    /// Options of the interpreter that hold for the driver: "-O", "-Wignore".
    #[n(4)]
    pub options: Vec<String>,
    /// What the driver's `sys.flags` has, by name: what an interpreter is started with here does not say all
    /// of it.
    #[n(5)]
    pub flags: Vec<(String, i64)>,
}

/// The phase of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum JobState {
    /// Its driver lives.
    #[n(0)]
    Started,
    /// A node has work for the job and does not know it.
    #[n(1)]
    Asked,
    /// Its driver is about to end in order: its workers are to end, but for actors that outlive it.
    #[n(2)]
    Leaving,
    /// Its driver has ended, and no actor of it is left.
    #[n(3)]
    Ended,
}

/// Between nodes and the control service: a job (`docs/adr/0030`).
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Job {
    /// Its driver.
    #[n(0)]
    pub job: WorkerId,
    #[n(1)]
    pub state: JobState,
    /// What its workers need; of a job that has started.
    #[n(2)]
    pub config: Option<Box<JobConfig>>,
}

row! {
    116 Job: [node -> directory, directory -> node, node => node]; no values;
    only if Job::is_for_control, else "it says of a job what the control service decides";
    only if Job::is_of_own_driver, else "it speaks for a process that is not its own";
    only if Job::is_between_nodes, else "it speaks of a job that is not one of its drivers'";
}

impl Job {
    /// A node may report to the control service that a job starts, or that it does not know a job.
    fn is_for_control(&self, ends: &Ends) -> bool {
        ends.route != Route::NodeToDirectory
            || match self.state {
                JobState::Asked => true,
                JobState::Started => self.config.is_some(),
                JobState::Leaving | JobState::Ended => false,
            }
    }

    fn is_of_own_driver(&self, ends: &Ends) -> bool {
        ends.route != Route::NodeToDirectory || self.state == JobState::Asked || ends.speaks_for(self.job)
    }

    /// While the control service cannot be reached, nodes ask the driver's node what a job needs.
    fn is_between_nodes(&self, ends: &Ends) -> bool {
        ends.route != Route::NodeToOtherNode
            || match self.state {
                JobState::Asked => self.job.node() == ends.to.node(),
                JobState::Started => self.job.node() == ends.from.node() && self.config.is_some(),
                JobState::Leaving | JobState::Ended => false,
            }
    }
}

/// Whole lines that workers of the job printed: node to driver, on a connection of [`super::role::LOGS`], and
/// node to the driver's node.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct LogLines {
    /// The job: its driver.
    #[n(0)]
    pub job: WorkerId,
    #[n(1)]
    pub is_stderr: bool,
    #[n(2)]
    pub text: String,
    /// Between nodes: whether workers of the sender may print more for the driver. Sent when the first of
    /// them is to start, and behind the last line.
    #[n(3)]
    pub more: Option<bool>,
}

row! { 170 LogLines: [node -> process, node => node]; no values; }

/// The driver's node, to a node that sent [`LogLines`]: the lines are on their way to the driver, and the
/// node may send more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct LinesTaken {
    /// The job: its driver.
    #[n(0)]
    pub job: WorkerId,
    /// Bytes of the lines' text.
    #[n(1)]
    pub bytes: u64,
}

row! { 173 LinesTaken: [node => node]; no values; }
