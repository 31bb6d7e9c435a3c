//! The background thread: leads when no other thread does.
//!
//! It naps for a millisecond at a time. If another thread attended to the sockets meanwhile, it goes on
//! napping. If another thread leads for long, it rests until that thread gives up the lead. If no thread did
//! anything, it takes the lead and blocks until a message comes or another thread wants the lead. In a
//! worker, taking the lead means that the main thread has been busy for about a millisecond: tasks queued
//! behind the running one go back to their callers.
//!
//! The leader may sleep for as long as no message comes. What other threads leave meanwhile (messages that
//! wait to be sent with others, dropped handles, a deadline earlier than the leader knows) is for this
//! thread, and they wake it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::Client;
use super::lead::{Led, Look};
use super::receiving::Lead;
use super::rest::Rest;

const NAP_NANOS: u64 = 1_000_000;
const NAP: Duration = Duration::from_nanos(NAP_NANOS);
/// Naps during which another thread leads before this thread rests.
const NAPS_BEFORE_REST: u32 = 10;
/// The longest rest if no thread ends it (nanoseconds).
const REST_NANOS_MAX: u64 = 3_600_000_000_000;

#[derive(Default)]
pub(super) struct Background {
    reserved: Mutex<Option<Reserved>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    rest: Rest,
    leads: AtomicBool,
    /// The background thread leads, and blocks until a message comes.
    sleeps: AtomicBool,
}

impl Background {
    pub(super) fn leads(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }

    /// Whether queued messages would wait for long: this thread leads and sleeps for longer than a nap.
    pub(super) fn sleeps(&self) -> bool {
        self.sleeps.load(Ordering::SeqCst)
    }

    /// Whether this thread looks only when it is woken, or at the time that [`Shared::looks_at`] says.
    ///
    /// [`Shared::looks_at`]: super::shared::Shared::looks_at
    pub(super) fn is_away(&self) -> bool {
        self.sleeps() || self.rest.is_resting()
    }

    /// No thread leads any more: this thread must look for itself.
    pub(super) fn on_lead_left(&self) {
        self.rest.end_after();
    }

    pub(super) fn stop(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// The thread, before it has a client. It is started early, so that the node learns of this process only if
/// the thread could be made.
pub(super) struct Reserved {
    thread: JoinHandle<()>,
    client: SyncSender<Arc<Client>>,
}

pub(super) fn reserve() -> io::Result<Reserved> {
    let (client, given) = mpsc::sync_channel::<Arc<Client>>(1);
    let own = move || {
        if let Ok(client) = given.recv() {
            run(&client);
        }
    };
    let thread = std::thread::Builder::new().name("sooner-io".into()).stack_size(512 << 10).spawn(own)?;
    Ok(Reserved { thread, client })
}

impl Background {
    pub(super) fn new(reserved: Reserved) -> Self {
        Self { reserved: Mutex::new(Some(reserved)), ..Self::default() }
    }
}

pub(super) fn start(client: &Arc<Client>) {
    let Some(reserved) = client.background.reserved.lock().take() else { return };
    client.background.rest.of(reserved.thread.thread().clone());
    let _ = reserved.client.send(client.clone());
    *client.background.thread.lock() = Some(reserved.thread);
}

fn run(client: &Client) {
    let state = &client.background;
    let mut attention = 0;
    let mut idle_naps = 0;
    while !client.is_closed() {
        std::thread::park_timeout(NAP);
        if client.in_loop.load(Ordering::Acquire) {
            beside_loop(client, &mut idle_naps);
            continue;
        }
        let latest = client.attention.load(Ordering::Acquire);
        if latest != attention {
            attention = latest;
            idle_naps = 0;
            client.flush_now();
            continue;
        }
        let Some(mut lead) = client.lead.try_lock() else {
            beside_other(client, &mut idle_naps, || client.lead.is_locked());
            continue;
        };
        idle_naps = 0;
        state.leads.store(true, Ordering::Release);
        client.step(|core, out| core.return_queued(out));
        let mut is_quiet = false;
        while !client.is_closed() && client.wanted.load(Ordering::Acquire) == 0 {
            // Before the flush: a thread that adds a message later sees that it must wake this thread.
            state.sleeps.store(is_quiet, Ordering::SeqCst);
            let has_sent = client.flush_now();
            let deadline = client.shared.lock().looks_next().map(|at| at.since(crate::clock::now()));
            let nap = (!is_quiet).then_some(NAP_NANOS);
            let look = client.look(
                &mut lead,
                [deadline, nap, crate::metrics::nanos_until_due()].into_iter().flatten().min(),
            );
            is_quiet = look == Look::Nothing && !has_sent;
            client.step(|core, out| core.return_queued(out));
        }
        state.sleeps.store(false, Ordering::Release);
        client.flush_now();
        state.leads.store(false, Ordering::Release);
        attention = client.attention.load(Ordering::Acquire);
        drop(lead);
    }
}

/// Another thread leads, or runs an event loop that reads, for as long as `attends` is true, and may sleep
/// all the while.
fn beside_other(client: &Client, idle_naps: &mut u32, attends: impl FnOnce() -> bool) {
    let has_sent = client.flush_now();
    client.run_timer();
    if has_sent {
        *idle_naps = 0;
        return;
    }
    *idle_naps += 1;
    if *idle_naps < NAPS_BEFORE_REST {
        return;
    }
    client.background.rest.begin(|| {
        let is_needed = client.is_closed() || !attends() || client.has_dropped.load(Ordering::SeqCst);
        if is_needed {
            return None;
        }
        let mut shared = client.shared.lock();
        if shared.outbox.is_dirty() {
            return None;
        }
        // The leader knows of most deadlines, and attends to them first.
        let due = shared.looks_next().map(|at| at.since(crate::clock::now()).saturating_add(NAP_NANOS));
        let nanos =
            [due, crate::metrics::nanos_until_due(), Some(REST_NANOS_MAX)].into_iter().flatten().min()?;
        Some(Duration::from_nanos(nanos))
    });
    // If the leader was only disturbed and sleeps again, so does this thread.
    *idle_naps -= 1;
}

/// The main thread runs an event loop, which reads by itself when it waits. This thread reads for it only
/// when the loop is busy for long.
fn beside_loop(client: &Client, idle_naps: &mut u32) {
    if client.loop_waits.load(Ordering::SeqCst) {
        return beside_other(client, idle_naps, || client.loop_waits.load(Ordering::SeqCst));
    }
    client.flush_now();
    *idle_naps = 0;
    if let Some(mut lead) = client.lead.try_lock()
        && !client.loop_waits.load(Ordering::SeqCst)
    {
        client.look_while_more(&mut lead);
    }
}

/// Looks in a row on behalf of an event loop, which has other work, too.
const LOOKS_IN_A_ROW: u32 = 64;

impl Client {
    /// Lets the core do what is due by now.
    fn run_timer(&self) {
        let mut shared = self.shared.lock();
        let time = crate::clock::now();
        if shared.core.next_deadline().is_some_and(|at| at <= time) {
            self.step_locked(&mut shared, |core, out| core.on_timer(time, out));
            shared.outbox.flush();
        }
        let lines_are_due = shared.outbox.remotes.due().is_some_and(|at| at <= time);
        let aftermath = self.take_aftermath(&mut shared);
        drop(shared);
        if lines_are_due {
            // The rest of this work is for the thread that holds the receiving halves.
            self.kick();
        }
        self.finish(aftermath);
    }

    /// Makes the background thread look soon, although no message came. The caller's change must have been
    /// made under the core's lock, or ended in a sequentially consistent write.
    pub(super) fn rouse(&self) {
        if self.background.sleeps() {
            self.kick();
        } else {
            self.background.rest.end();
        }
    }

    /// One of several executing threads took a task: another may find one, too.
    pub fn rouse_followers(&self) {
        if self.shared.lock().core.execution().can_take() {
            self.wake_followers();
        }
    }

    /// The main thread runs an event loop that watches [`Client::loop_descriptor`].
    pub fn enter_loop(&self) {
        self.in_loop.store(true, Ordering::Release);
        // The background thread may lead since the constructor took long; from now on it only looks.
        self.wanted.fetch_add(1, Ordering::AcqRel);
        self.kick();
        drop(Led::of(self, self.lead.lock()));
        self.wanted.fetch_sub(1, Ordering::AcqRel);
    }

    /// The event loop begins or ends a wait. Before a wait, queued messages leave, and the sockets are read
    /// for a short while. True if there are calls to take, also those that the background thread read while
    /// the loop was busy; never true if the loop takes no calls now.
    pub fn loop_waits(&self, waits: bool, takes_calls: bool) -> bool {
        if !waits {
            self.loop_waits.store(false, Ordering::SeqCst);
            self.background.rest.end();
            return false;
        }
        self.flush_now();
        let mut lead = Led::of(self, self.lead.lock());
        let has_calls = || self.shared.lock().core.execution().can_take() || self.is_closed();
        let mut spinner = std::mem::take(&mut lead.spinner);
        let mut found = has_calls();
        if !found {
            found = spinner.spin(|| self.look(&mut lead, Some(0)) == Look::Something) && has_calls();
        }
        lead.spinner = spinner;
        if found && takes_calls {
            return true;
        }
        // Under the lead: the background thread reads nothing more until the loop is back.
        self.loop_waits.store(true, Ordering::SeqCst);
        false
    }

    /// Reads what is there, for an event loop whose watch on [`Client::loop_descriptor`] fired.
    pub fn poll(&self) {
        if let Some(lead) = self.lead.try_lock() {
            self.look_while_more(&mut Led::of(self, lead));
        }
    }

    /// Reads until nothing is there, or [`LOOKS_IN_A_ROW`] times: if messages come faster than they are read,
    /// the rest is left for the next time.
    fn look_while_more(&self, lead: &mut Lead) {
        let mut looks = 0;
        while looks < LOOKS_IN_A_ROW && self.look(lead, Some(0)) == Look::Something {
            looks += 1;
        }
    }
}
