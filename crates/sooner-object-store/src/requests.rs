//! Waiting for requests, on the thread that makes them: no longer than a limit, and not beyond the end of the
//! session.
//!
//! The executor has no thread of its own, and does nothing while no one waits here. The exception is name
//! lookup: the system's resolver cannot be interrupted, so it has threads that are abandoned at the end.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sooner_store::spill::SpillPulse;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout};

use crate::StoreError;

/// Time between two checks, while waiting, whether the session ends.
const LOOK: Duration = Duration::from_millis(20);

/// Threads for name lookup.
const RESOLVERS_MAX: usize = 2;

/// See the module.
pub struct Requests {
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
    pulse: Arc<SpillPulse>,
    url: String,
}

impl Requests {
    /// # Errors
    /// [`StoreError::NoExecutor`].
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let mut builder = Builder::new_current_thread();
        builder.enable_all().max_blocking_threads(RESOLVERS_MAX).thread_name("sooner-spill-dns");
        let runtime = builder
            .build()
            .map_err(|error| StoreError::NoExecutor { url: url.to_owned(), reason: error.to_string() })?;
        Ok(Self { runtime: Some(runtime), pulse: Arc::default(), url: url.to_owned() })
    }

    /// The pulse, for threads that wait for this one.
    pub fn pulse(&self) -> &Arc<SpillPulse> {
        &self.pulse
    }

    /// Waits for `work`, at most for `limit`, and not beyond the end of the session.
    ///
    /// # Errors
    /// Those of `work`; [`StoreError::Unreachable`] after the limit, and [`StoreError::Ending`].
    pub fn run<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.wait(Some(limit), false, work)
    }

    /// Like [`Self::run`], for any number of requests, each of which has a limit of its own.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_all<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.wait(None, false, work)
    }

    /// Like [`Self::run`], after the end of the session.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_last<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.wait(Some(limit), true, work)
    }

    fn wait<T>(
        &self,
        limit: Option<Duration>,
        is_last: bool,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let runtime = self.runtime.as_ref().expect("it is there until the end");
        runtime.block_on(async {
            let begin = Instant::now();
            let mut work = pin!(work);
            loop {
                if !is_last {
                    self.pulse.check().map_err(|_| StoreError::Ending)?;
                }
                if let Ok(done) = timeout(LOOK, &mut work).await {
                    return done;
                }
                if let Some(limit) = limit.filter(|limit| begin.elapsed() >= *limit) {
                    let reason = format!("no answer within {} s", limit.as_secs());
                    return Err(StoreError::Unreachable { url: self.url.clone(), reason });
                }
            }
        })
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_beyond_the_limit_or_the_end() {
        let requests = Requests::new("s3://b").expect("an executor");
        assert_eq!(requests.run(Duration::from_secs(60), async { Ok(3) }), Ok(3));
        let never = std::future::pending::<Result<(), StoreError>>;
        let late = requests.run(Duration::from_millis(1), never()).expect_err("it never answers");
        assert!(matches!(late, StoreError::Unreachable { .. }), "{late}");
        let pulse = requests.pulse().clone();
        let ends = std::thread::spawn(move || pulse.end());
        assert_eq!(requests.run_all(never()), Err(StoreError::Ending));
        ends.join().expect("it does");
        assert_eq!(requests.run_last(Duration::from_secs(60), async { Ok(4) }), Ok(4));
    }
}
