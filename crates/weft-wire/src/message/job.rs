//! Jobs: what a driver brings along for its workers, and what they print on their way to it.

use minicbor::{Decode, Encode};

use crate::WorkerId;

/// What a driver wants of the workers of its job. Comes with its greeting.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct JobConfig {
    /// Program and arguments of the job's template; the node appends its directory.
    #[n(0)]
    pub template: Vec<String>,
    /// Where the template, and with it the workers, begin.
    #[n(1)]
    pub working_directory: String,
    /// Default namespace of actor names.
    #[n(2)]
    pub namespace: String,
    /// Values up to this size (bytes) travel in messages.
    #[n(3)]
    pub inline_bytes: u64,
    /// Memory for what happens to tasks, per process (bytes); zero records nothing.
    #[n(4)]
    pub events_bytes: u64,
    /// Memory for descriptions of tasks whose results may have to be computed again, per process (bytes).
    #[n(5)]
    pub lineage_bytes: u64,
}

/// Node to driver, on a connection of [`super::role::LOGS`]: whole lines that workers of the job printed.
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
}
