//! The processor time of a run on this machine: in the cores of the head and of the nodes, and to encode and
//! decode their messages. It decides nothing, and differs from run to run.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sooner_wire::frame::{HEAD_BYTES, whole_frame};
use sooner_wire::message::Message;

use super::counts::Way;
use super::net::HEAD;
use super::world::{Event, World};

/// Whose work is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The head.
    Head,
    /// Some node.
    Node,
}

/// How many reads of the clock are made to measure the time of one.
const LOOKS: u32 = 1000;

/// When a measurement began, and the value of `coded` then.
#[derive(Debug, Clone, Copy)]
pub struct Begun(Duration, Duration);

/// The processor time of this thread: other threads do not count.
fn clock() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or_default();
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Meter {
    /// The head's core, and its encoding and decoding.
    pub head: Duration,
    /// The same for all nodes together.
    pub nodes: Duration,
    /// Time in codecs, of the head and the nodes, and in reads of the clock.
    coded: Duration,
    /// The time of one read of the clock.
    look: Duration,
}

impl Meter {
    /// A meter at zero.
    #[must_use]
    pub fn new() -> Self {
        let begun = clock();
        (0..LOOKS).for_each(|_| {
            std::hint::black_box(clock());
        });
        Self { look: (clock() - begun) / LOOKS, ..Self::default() }
    }

    /// Begins a measurement.
    #[must_use]
    pub fn begin(&self) -> Begun {
        Begun(clock(), self.coded)
    }

    /// Ends a measurement.
    pub fn end(&mut self, whose: Whose, begun: Begun) {
        let inside = self.coded.saturating_sub(begun.1) + self.look;
        let took = (clock() - begun.0).saturating_sub(inside);
        match whose {
            Whose::Head => self.head += took,
            Whose::Node => self.nodes += took,
        }
    }

    /// Adds the time of a message that was encoded since `begun`, and of its receiver's decoding.
    ///
    /// # Panics
    /// If it cannot be decoded.
    pub fn coded(&mut self, way: Way, frame: &[u8], begun: Begun) {
        let encoded = (clock() - begun.0).saturating_sub(self.look);
        let before = clock();
        let head = whole_frame(frame).expect("it fits").expect("it is whole");
        drop(Message::decode(head.kind, &frame[HEAD_BYTES..]).expect("what was written can be read"));
        let decoded = (clock() - before).saturating_sub(self.look);
        let (by_head, by_node) = match way {
            Way::FromHead => (encoded, decoded),
            Way::ToHead => (decoded, encoded),
            Way::Between => (Duration::ZERO, encoded + decoded),
        };
        self.head += by_head;
        self.nodes += by_node;
        self.coded += encoded + decoded + 4 * self.look;
    }

    /// The times since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            head: self.head - earlier.head,
            nodes: self.nodes - earlier.nodes,
            coded: self.coded - earlier.coded,
            look: self.look,
        }
    }
}

impl World {
    /// Whose work an event is, if it is measured.
    pub(super) fn whose(&self, event: &Event) -> Option<Whose> {
        match event {
            Event::Carry(_, HEAD) | Event::HeadTurn(_) | Event::HeadWake(..) | Event::Written(..) => {
                Some(Whose::Head)
            }
            Event::Carry(..) | Event::Turn(_) | Event::Wake(..) | Event::FromClient(..) => Some(Whose::Node),
            _ => None,
        }
    }
}
