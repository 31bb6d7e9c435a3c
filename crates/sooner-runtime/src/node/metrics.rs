//! The metrics of a session: what its processes report, added up.

use std::collections::BTreeMap;

use sooner_wire::WorkerId;
use sooner_wire::limits::METRIC_SERIES_MAX;
use sooner_wire::message::state::{MetricKind, Series};

/// Name, tags, and, for a gauge, the process that set it.
type Key = (String, Vec<(String, String)>, Option<WorkerId>);

/// The tag that tells the gauges of several processes apart.
const WORKER_TAG: &str = "WorkerId";

/// See the module.
#[derive(Debug, Default)]
pub struct Metrics {
    series: BTreeMap<Key, Series>,
    /// Reports of series that found no room.
    refused: u64,
}

impl Metrics {
    /// Adds what a process reports.
    pub fn add(&mut self, from: WorkerId, reported: Vec<Series>) {
        for series in reported {
            let worker = (series.kind == MetricKind::Gauge).then_some(from);
            let key = (series.name.clone(), series.tags.clone(), worker);
            if let Some(known) = self.series.get_mut(&key) {
                merge(known, series);
            } else if self.series.len() < METRIC_SERIES_MAX {
                self.series.insert(key, series);
            } else {
                self.refused += 1;
            }
        }
    }

    /// A process has ended: its gauges mean nothing any more.
    pub fn forget(&mut self, worker: WorkerId) {
        self.series.retain(|(_, _, of), _| *of != Some(worker));
    }

    /// All series.
    pub fn report(&self) -> Vec<Series> {
        let named = |((_, _, worker), series): (&Key, &Series)| {
            let mut series = series.clone();
            if let Some(worker) = worker {
                series.tags.push((WORKER_TAG.to_owned(), format!("{:016x}", worker.0)));
            }
            series
        };
        let (name, help) =
            ("sooner_metrics_refused_total", "Reports of series beyond the number that a node keeps");
        let refused =
            (self.refused > 0).then(|| Series::of_engine(MetricKind::Counter, name, help, self.refused));
        self.series.iter().map(named).chain(refused).collect()
    }
}

fn merge(known: &mut Series, new: Series) {
    if known.kind != new.kind || known.values.len() != new.values.len() || known.boundaries != new.boundaries
    {
        // Processes disagree on what the name means: the later definition counts.
        *known = new;
        return;
    }
    match new.kind {
        MetricKind::Gauge => known.values = new.values,
        MetricKind::Counter | MetricKind::Histogram => {
            known.values.iter_mut().zip(new.values).for_each(|(sum, delta)| *sum += delta);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(kind: MetricKind, values: &[f64]) -> Series {
        Series {
            name: "m".to_owned(),
            kind,
            description: String::new(),
            tags: vec![("k".to_owned(), "v".to_owned())],
            boundaries: Vec::new(),
            values: values.to_vec(),
        }
    }

    #[test]
    fn counters_add_up_and_gauges_belong_to_their_process() {
        let mut metrics = Metrics::default();
        metrics.add(WorkerId(1), vec![series(MetricKind::Counter, &[2.0])]);
        metrics.add(WorkerId(2), vec![series(MetricKind::Counter, &[3.0])]);
        assert_eq!(metrics.report()[0].values, [5.0]);
        let mut gauges = Metrics::default();
        gauges.add(WorkerId(1), vec![series(MetricKind::Gauge, &[2.0])]);
        gauges.add(WorkerId(2), vec![series(MetricKind::Gauge, &[3.0])]);
        gauges.add(WorkerId(2), vec![series(MetricKind::Gauge, &[4.0])]);
        assert_eq!(gauges.report().iter().map(|s| s.values[0]).collect::<Vec<_>>(), [2.0, 4.0]);
        gauges.forget(WorkerId(1));
        assert_eq!(gauges.report()[0].tags[1].1, "0000000000000002");
    }
}
