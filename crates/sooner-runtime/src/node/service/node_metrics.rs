//! The metrics of a node, a row each. A new row needs a line in `docs/state.md`, too.
//!
//! It only reads: nothing is counted here.

use sooner_wire::message::state::{MemoryRow, MetricKind, Series};

use crate::node::data::Moved;
use crate::node::spiller::OnDisk;

/// What the rows read.
pub(super) struct Figures {
    /// `None` on a node without other nodes.
    pub(super) moved: Option<Moved>,
    /// `None` where values are not spilled.
    pub(super) on_disk: Option<OnDisk>,
    pub(super) memory: MemoryRow,
}

/// A metric; there is none where `read` gives `None`.
struct Metric {
    kind: MetricKind,
    name: &'static str,
    help: &'static str,
    read: fn(&Figures) -> Option<u64>,
}

#[rustfmt::skip]
const METRICS: [Metric; 13] = {
    use MetricKind::{Counter, Gauge};
    const fn row(kind: MetricKind, name: &'static str, help: &'static str, read: fn(&Figures) -> Option<u64>) -> Metric {
        Metric { kind, name, help, read }
    }
    [
        row(Counter, "sooner_node_values_sent_bytes", "Bytes of values sent to other nodes", |f| f.moved.map(|m| m.sent)),
        row(Counter, "sooner_node_values_received_bytes", "Bytes of values got from other nodes", |f| f.moved.map(|m| m.came)),
        row(Counter, "sooner_node_values_copied_bytes", "Those of the received bytes that were copied from memory of the same machine", |f| f.moved.map(|m| m.copied)),
        row(Counter, "sooner_node_spilled_written_bytes", "Bytes of values written to disk", |f| f.on_disk.map(|d| d.written)),
        row(Counter, "sooner_node_spilled_read_bytes", "Bytes of values read back from disk", |f| f.on_disk.map(|d| d.read)),
        row(Gauge, "sooner_node_pinned_bytes", "Bytes of values that are in memory only", |f| Some(f.memory.pinned)),
        row(Gauge, "sooner_node_cached_bytes", "Bytes of copies of values that are also elsewhere", |f| Some(f.memory.cached)),
        row(Gauge, "sooner_node_incoming_bytes", "Bytes of memory for values that are being brought", |f| Some(f.memory.incoming)),
        row(Gauge, "sooner_node_outgoing_bytes", "Bytes of values that are being written to disk", |f| Some(f.memory.outgoing)),
        row(Gauge, "sooner_node_spilled_bytes", "Bytes of values that are on disk", |f| Some(f.memory.spilled)),
        row(Gauge, "sooner_node_spilled_values", "Values that are on disk", |f| Some(f.memory.spilled_values)),
        row(Gauge, "sooner_node_spill_files_bytes", "Bytes of spill files, with what is dead in them", |f| Some(f.memory.spill_files)),
        row(Gauge, "sooner_node_fallback_bytes", "Bytes of values in the file behind the memory", |f| Some(f.memory.fallback)),
    ]
};

impl Metric {
    fn series(&self, figures: &Figures) -> Option<Series> {
        let value = (self.read)(figures)?;
        Some(Series::of_engine(self.kind, self.name, self.help, value))
    }
}

impl Figures {
    /// The metrics that there are.
    pub(super) fn series(&self) -> impl Iterator<Item = Series> {
        METRICS.iter().filter_map(|metric| metric.series(self))
    }
}
