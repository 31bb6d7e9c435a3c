//! What a run takes on this machine: time of a processor in the cores of the head and of the nodes, and to
//! encode and decode what they say. It decides nothing, and differs from run to run.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sooner_wire::frame::{HEAD_BYTES, whole_frame};
use sooner_wire::message::Message;

use super::counts::Way;
use super::net::HEAD;
use super::world::{Event, World};

/// Who did something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The head.
    Head,
    /// Some node.
    Node,
}

/// Looks at the clock that are made to find out what one takes.
const LOOKS: u32 = 1000;

/// When something began, and how much time had gone into codecs and into looks at the clock by then.
#[derive(Debug, Clone, Copy)]
pub struct Begun(Duration, Duration);

/// How long this thread has been on a processor: what others do meanwhile does not count.
fn clock() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or_default();
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Meter {
    /// The head: its cores, and what it encodes and decodes.
    pub head: Duration,
    /// The same of all nodes together.
    pub nodes: Duration,
    /// In codecs, of whoever, and in looks at the clock.
    coded: Duration,
    /// What one look takes.
    look: Duration,
}

impl Meter {
    /// Nothing was done yet.
    #[must_use]
    pub fn new() -> Self {
        let begun = clock();
        (0..LOOKS).for_each(|_| {
            std::hint::black_box(clock());
        });
        Self { look: (clock() - begun) / LOOKS, ..Self::default() }
    }

    /// Something begins.
    #[must_use]
    pub fn begin(&self) -> Begun {
        Begun(clock(), self.coded)
    }

    /// It is over.
    pub fn end(&mut self, whose: Whose, begun: Begun) {
        let inside = self.coded.saturating_sub(begun.1) + self.look;
        let took = (clock() - begun.0).saturating_sub(inside);
        match whose {
            Whose::Head => self.head += took,
            Whose::Node => self.nodes += took,
        }
    }

    /// A message has been encoded since then. Its receiver decodes it.
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

    /// What was taken since an earlier look.
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
    /// Whose work an event is, if it is that of a core that is measured.
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
