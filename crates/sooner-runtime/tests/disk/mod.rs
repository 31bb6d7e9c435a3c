//! A disk in memory for the tests of the control store: it records what is written, and fails when it is told
//! to.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;
use sooner_protocol::time::Instant;
use sooner_runtime::control::embedded::{Redb, open_on};
use sooner_runtime::control::memory::Local;
use sooner_runtime::control::store::StoreError;

/// What reached the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Write(u64, Vec<u8>),
    SetLength(u64),
    /// All before it is there for good.
    Sync,
}

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    steps: Vec<Step>,
    /// So many steps work, and the others fail with that error of the system.
    failing: Option<(usize, i32)>,
}

/// See the module. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

pub const PATH: &str = "/cluster/control.redb";
pub const NO_SPACE: i32 = 28;
pub const IO_ERROR: i32 = 5;

impl Disk {
    #[must_use]
    pub fn with(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State { bytes, ..State::default() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics inside")
    }

    /// A store on it.
    pub fn open(&self, now: Instant) -> Result<Local<Redb>, StoreError> {
        let disk = self.clone();
        Local::open_with(PathBuf::from(PATH), Box::new(move || open_on(disk.clone())), None, now)
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    pub fn steps(&self) -> Vec<Step> {
        self.state().steps.clone()
    }

    pub fn step_count(&self) -> usize {
        self.state().steps.len()
    }

    /// After so many steps everything fails.
    pub fn fail_after(&self, steps: usize, error: i32) {
        self.state().failing = Some((steps, error));
    }

    pub fn mend(&self) {
        self.state().failing = None;
    }

    fn step(&self, step: Step) -> io::Result<()> {
        let mut state = self.state();
        if let Some((left, error)) = &mut state.failing {
            if *left == 0 {
                return Err(io::Error::from_raw_os_error(*error));
            }
            *left -= 1;
        }
        apply(&mut state.bytes, &step);
        state.steps.push(step);
        Ok(())
    }
}

/// What a step makes of the bytes.
pub fn apply(bytes: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write(offset, data) => {
            let from = usize::try_from(*offset).expect("small");
            let needed = from + data.len();
            if bytes.len() < needed {
                bytes.resize(needed, 0);
            }
            bytes[from..needed].copy_from_slice(data);
        }
        Step::SetLength(length) => bytes.resize(usize::try_from(*length).expect("small"), 0),
        Step::Sync => {}
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let from = usize::try_from(offset).expect("small");
        let found = state.bytes.get(from..from + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.step(Step::SetLength(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.step(Step::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.step(Step::Write(offset, data.to_vec()))
    }
}
