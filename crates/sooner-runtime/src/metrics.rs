//! What user code measures in this process, until it is sent to the node.
//!
//! Counters and histograms hold what was added since the last report, so reports of several processes add up
//! and a later session starts from there. The lock is held for one addition, and never during other work.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sooner_wire::limits::{METRIC_SERIES_MAX, METRICS_NANOS};
use sooner_wire::message::state::{MetricKind, Series};

use crate::clock::now;

struct Measure {
    /// `series` has the values of the next report.
    series: Series,
    is_dirty: bool,
}

static MEASURES: Mutex<Vec<Measure>> = Mutex::new(Vec::new());
/// Sequentially consistent, as [`crate::client::Client::rouse_for_metrics`] asks for.
static IS_DIRTY: AtomicBool = AtomicBool::new(false);
/// No thread has been roused for the next report yet.
static IS_FIRST: AtomicBool = AtomicBool::new(true);
static LAST_REPORT: AtomicU64 = AtomicU64::new(0);

/// A new series; `None` when there are too many.
#[must_use]
pub fn define(series: Series) -> Option<usize> {
    let mut measures = MEASURES.lock();
    if measures.len() >= METRIC_SERIES_MAX {
        return None;
    }
    let values = match series.kind {
        MetricKind::Counter | MetricKind::Gauge => 1,
        MetricKind::Histogram => series.boundaries.len() + 2,
    };
    measures.push(Measure { series: Series { values: vec![0.0; values], ..series }, is_dirty: false });
    Some(measures.len() - 1)
}

/// Adds to a counter, sets a gauge, or observes a value.
pub fn record(number: usize, value: f64) {
    let mut measures = MEASURES.lock();
    let Some(measure) = measures.get_mut(number) else { return };
    let Series { kind, boundaries, values, .. } = &mut measure.series;
    match kind {
        MetricKind::Counter => values[0] += value,
        MetricKind::Gauge => values[0] = value,
        MetricKind::Histogram => {
            // A bucket includes its upper end.
            let bucket = boundaries.partition_point(|end| *end < value);
            values[bucket] += 1.0;
            let sum = values.len() - 1;
            values[sum] += value;
        }
    }
    measure.is_dirty = true;
    drop(measures);
    IS_DIRTY.store(true, Ordering::SeqCst);
}

/// Nanoseconds until the next report to the node is due; `None`: there is nothing to report.
#[inline]
pub fn nanos_until_due() -> Option<u64> {
    if !IS_DIRTY.load(Ordering::SeqCst) {
        return None;
    }
    let since = now().0.saturating_sub(LAST_REPORT.load(Ordering::Acquire));
    Some(METRICS_NANOS.saturating_sub(since))
}

/// Whether this is the first measurement since the last report.
#[inline]
#[must_use]
pub fn is_first() -> bool {
    IS_FIRST.load(Ordering::Relaxed) && IS_FIRST.swap(false, Ordering::AcqRel)
}

/// What changed since the last time.
pub fn take() -> Vec<Series> {
    LAST_REPORT.store(now().0, Ordering::Release);
    IS_DIRTY.store(false, Ordering::SeqCst);
    IS_FIRST.store(true, Ordering::Release);
    let mut measures = MEASURES.lock();
    let take = |measure: &mut Measure| {
        measure.is_dirty = false;
        let told = measure.series.clone();
        if measure.series.kind != MetricKind::Gauge {
            measure.series.values.fill(0.0);
        }
        told
    };
    measures.iter_mut().filter(|measure| measure.is_dirty).map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, kind: MetricKind, boundaries: &[f64]) -> Series {
        Series {
            name: name.to_owned(),
            kind,
            description: String::new(),
            tags: Vec::new(),
            boundaries: boundaries.to_vec(),
            values: Vec::new(),
        }
    }

    #[test]
    fn deltas_are_told_once_and_gauges_stay() {
        let counter = define(series("c", MetricKind::Counter, &[])).expect("few");
        let gauge = define(series("g", MetricKind::Gauge, &[])).expect("few");
        let histogram = define(series("h", MetricKind::Histogram, &[1.0, 10.0])).expect("few");
        record(counter, 2.0);
        record(counter, 3.0);
        record(gauge, 7.0);
        for value in [1.0, 5.0, 50.0] {
            record(histogram, value);
        }
        assert!(nanos_until_due().is_some());
        let told: Vec<Vec<f64>> = take().into_iter().map(|series| series.values).collect();
        assert_eq!(told, [vec![5.0], vec![7.0], vec![1.0, 1.0, 1.0, 56.0]]);
        assert_eq!((take(), nanos_until_due()), (Vec::new(), None));
        record(counter, 1.0);
        assert_eq!(take()[0].values, [1.0]);
    }
}
