//! Leading: reading the sockets and passing messages through the core, on behalf of all threads that wait.
//!
//! One thread leads at a time. It polls for a short while, then blocks. After each batch it checks its own
//! condition and wakes the others (followers) to check theirs. When its condition holds it gives up the lead;
//! a follower or, after a millisecond, the background thread takes it.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::MutexGuard;
use rustix::io::Errno;
use sooner_protocol::time::Instant;

use super::receiving::Lead;
use super::shared::Shared;
use super::{Client, WAKE_TOKEN};
use crate::clock::now;
use crate::metrics;
use crate::transport::ReadResult;

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The condition holds.
    Done,
    /// The time is over.
    TimedOut,
    /// A signal handler wants the wait to end.
    Interrupted,
    /// The session is over.
    Closed,
}

/// Longest time in one blocking call while signals matter (nanoseconds): the kernel may deliver a signal to
/// another thread.
const SIGNAL_NANOS: u64 = 100_000_000;

/// A sender is busy sending if at least so many bytes leave together (about eight small tasks).
const BURST_BYTES: usize = 512;

/// Time between two looks of a busy sender (nanoseconds). Its workers have work for longer than that.
const BETWEEN_LOOKS_NANOS: u64 = 300_000;

/// What happened to queued messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlushedSoon {
    /// They left, or leave soon.
    Nothing,
    /// Many left together, and it is time to read replies.
    Burst,
    /// The background thread is away. It must be woken for the messages, or for a deadline before its next
    /// look.
    MustRouse,
}

/// What one look at the sockets found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Something,
    Nothing,
    Signal,
}

/// The lead, held for as long as this value lives. The background thread may rest meanwhile, and is woken
/// when this value is dropped.
pub(super) struct Led<'a> {
    client: &'a Client,
    /// `None` while this is dropped.
    lead: Option<MutexGuard<'a, Lead>>,
}

impl<'a> Led<'a> {
    pub(super) fn of(client: &'a Client, lead: MutexGuard<'a, Lead>) -> Self {
        Self { client, lead: Some(lead) }
    }
}

impl Deref for Led<'_> {
    type Target = Lead;

    fn deref(&self) -> &Lead {
        self.lead.as_ref().expect("it is there while this lives")
    }
}

impl DerefMut for Led<'_> {
    fn deref_mut(&mut self) -> &mut Lead {
        self.lead.as_mut().expect("it is there while this lives")
    }
}

impl Drop for Led<'_> {
    fn drop(&mut self) {
        self.lead = None;
        self.client.background.on_lead_left();
    }
}

impl Client {
    /// Waits until `is_done`, leading if no other thread does. Must be called without the GIL. With
    /// `heeds_signals`, signal handlers run and may end the wait.
    pub fn wait_until(
        &self,
        mut is_done: impl FnMut() -> bool,
        deadline: Option<Instant>,
        heeds_signals: bool,
    ) -> Waited {
        loop {
            self.flush_now();
            if is_done() {
                return Waited::Done;
            }
            if self.is_closed() {
                return Waited::Closed;
            }
            let ended = match self.take_lead() {
                Some(lead) => self.lead_until(lead, &mut is_done, deadline, heeds_signals),
                None => self.follow(deadline, heeds_signals),
            };
            if let Some(waited) = ended {
                return waited;
            }
        }
    }

    /// Takes the lead if it is free, or if the background thread has it, which gives it up.
    pub(super) fn take_lead(&self) -> Option<Led<'_>> {
        self.wanted.fetch_add(1, Ordering::AcqRel);
        if self.background.leads() {
            self.kick();
        }
        let patience = Duration::from_micros(if self.background.leads() { 2000 } else { 0 });
        let lead = self.lead.try_lock_for(patience);
        self.wanted.fetch_sub(1, Ordering::AcqRel);
        Some(Led::of(self, lead?))
    }

    /// Leads until the wait is over. `None`: the lead was given up to let signal handlers run.
    fn lead_until(
        &self,
        mut lead: Led<'_>,
        is_done: &mut impl FnMut() -> bool,
        deadline: Option<Instant>,
        heeds_signals: bool,
    ) -> Option<Waited> {
        // When the first message of this wait was read.
        let mut since = None;
        let waited = loop {
            if is_done() {
                break Waited::Done;
            }
            if self.is_closed() {
                break Waited::Closed;
            }
            let mut spinner = std::mem::take(&mut lead.spinner);
            let mut rounds = 0u32;
            let found = spinner.spin(|| {
                rounds += 1;
                self.look_quickly(&mut lead, rounds) == Look::Something
            });
            lead.spinner = spinner;
            if found {
                // Messages may come faster than they are read, for as long as their senders like. This wait
                // must still end.
                let read_at = lead.read_at;
                if deadline.is_some_and(|at| read_at >= at) {
                    break if is_done() { Waited::Done } else { Waited::TimedOut };
                }
                if heeds_signals && read_at.since(*since.get_or_insert(read_at)) >= SIGNAL_NANOS {
                    drop(lead);
                    return self.signal_ends_wait().then_some(Waited::Interrupted);
                }
                continue;
            }
            let limit = self.block_limit(deadline, heeds_signals);
            if limit == Some(0) && deadline.is_some_and(|at| now() >= at) {
                break Waited::TimedOut;
            }
            if let Some(hooks) = self.hooks.get() {
                hooks.on_sleep();
            }
            let look = self.look(&mut lead, limit);
            if heeds_signals && look != Look::Something {
                // A signal handler may use sooner itself, and then needs the lead. Another thread may take it
                // afterwards and keep it for long, so this thread must not insist on getting it back.
                drop(lead);
                return self.signal_ends_wait().then_some(Waited::Interrupted);
            }
        };
        self.attention.fetch_add(1, Ordering::Release);
        drop(lead);
        self.wake_followers();
        Some(waited)
    }

    fn signal_ends_wait(&self) -> bool {
        self.hooks.get().is_some_and(|hooks| hooks.on_signal())
    }

    fn block_limit(&self, deadline: Option<Instant>, heeds_signals: bool) -> Option<u64> {
        let metrics = metrics::nanos_until_due();
        if metrics == Some(0) {
            self.flush_now();
        }
        let time = now();
        let timer = self.shared.lock().next_deadline();
        let metrics = metrics.map(|nanos| time.plus(nanos));
        let signals = heeds_signals.then(|| time.plus(SIGNAL_NANOS));
        let next = [deadline, timer, signals, metrics].into_iter().flatten().min()?;
        Some(next.since(time))
    }

    fn follow(&self, deadline: Option<Instant>, heeds_signals: bool) -> Option<Waited> {
        self.followers.fetch_add(1, Ordering::AcqRel);
        let mut guard = self.progress.0.lock();
        // Bounded, because the leader may leave between our attempt and this wait.
        self.progress.1.wait_for(&mut guard, Duration::from_millis(5));
        drop(guard);
        self.followers.fetch_sub(1, Ordering::AcqRel);
        if heeds_signals && self.signal_ends_wait() {
            return Some(Waited::Interrupted);
        }
        deadline.filter(|at| now() >= *at).map(|_| Waited::TimedOut)
    }

    pub(super) fn wake_followers(&self) {
        if self.followers.load(Ordering::Acquire) > 0 {
            let _guard = self.progress.0.lock();
            self.progress.1.notify_all();
        }
    }

    /// Looks at the socket that was readable last, and at all sockets every few rounds.
    fn look_quickly(&self, lead: &mut Lead, round: u32) -> Look {
        if round.is_multiple_of(8) {
            return self.look(lead, Some(0));
        }
        let Some(inbound) = lead.inbound.get_mut(&lead.last) else { return self.look(lead, Some(0)) };
        let result = inbound.read();
        if result == ReadResult::Nothing {
            return Look::Nothing;
        }
        let last = lead.last;
        self.receive(lead, &[(last, result)]);
        Look::Something
    }

    /// Looks at all sockets, waiting for at most `limit` nanoseconds (`None`: until something comes).
    pub(super) fn look(&self, lead: &mut Lead, limit: Option<u64>) -> Look {
        let Some(poller) = &lead.poller else { return Look::Nothing };
        if poller.wait(&mut lead.events, limit) == Err(Errno::INTR) {
            return Look::Signal;
        }
        let mut reads = Vec::with_capacity(lead.events.len());
        let mut writable = Vec::new();
        for event in &lead.events {
            let token = event.token;
            if token == WAKE_TOKEN {
                let mut count = [0; 8];
                if let Some(wake) = &*self.wake.lock() {
                    let _ = rustix::io::read(wake, &mut count);
                }
                continue;
            }
            if event.is_writable() {
                writable.push(token);
            }
            if let Some(inbound) = lead.inbound.get_mut(&token)
                && event.is_readable()
            {
                let result = inbound.read();
                lead.last = token;
                reads.push((token, result));
            }
        }
        let time = now();
        for token in writable {
            self.shared.lock().outbox.on_writable(token, time);
        }
        let timer_is_due = self.shared.lock().next_deadline().is_some_and(|at| at <= time);
        if reads.is_empty() && !timer_is_due {
            return if lead.events.is_empty() { Look::Nothing } else { Look::Something };
        }
        self.receive(lead, &reads);
        Look::Something
    }

    /// Sends what is queued. True if anything was.
    pub fn flush_now(&self) -> bool {
        let mut shared = self.shared.lock();
        if self.has_dropped.load(Ordering::SeqCst) {
            self.step_locked(&mut shared, |_, _| ());
        }
        if metrics::nanos_until_due() == Some(0) {
            self.notify_metrics(&mut shared);
        }
        let is_dirty = shared.outbox.is_dirty();
        shared.outbox.flush();
        is_dirty
    }

    /// Sends what is queued if it is time. Otherwise makes sure that the background thread does.
    pub(super) fn flush_soon(&self, shared: &mut Shared, time: Option<Instant>) -> FlushedSoon {
        if shared.outbox.should_flush(time) {
            let is_burst = shared.outbox.gathered() >= BURST_BYTES;
            let time = shared.outbox.flush();
            if is_burst && time >= shared.next_look {
                shared.next_look = time.plus(BETWEEN_LOOKS_NANOS);
                return FlushedSoon::Burst;
            }
            return FlushedSoon::Nothing;
        }
        let must_rouse = self.background.is_away() && (shared.outbox.is_dirty() || shared.is_due_sooner());
        if must_rouse { FlushedSoon::MustRouse } else { FlushedSoon::Nothing }
    }

    /// A driver that submits task after task reads the replies itself, between two batches: the background
    /// thread would compete with it for locks, caches and cores. A worker does not: its tasks must not look
    /// as if they attended to the queue behind them.
    pub(super) fn look_between(&self) {
        if self.is_driver
            && let Some(mut lead) = self.take_lead()
        {
            self.look(&mut lead, Some(0));
            self.attention.fetch_add(1, Ordering::Release);
        }
    }

    pub(super) fn kick(&self) {
        if let Some(wake) = &*self.wake.lock() {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }
}
