//! The background thread: leads when nobody else does.
//!
//! It naps for a millisecond at a time. If somebody attended to the sockets meanwhile it goes on napping; if somebody
//! leads for long it parks until that one leaves; if nobody did anything it takes the lead and blocks until something
//! comes or somebody wants the lead. In a worker, taking the lead means that the main thread has been busy for about a
//! millisecond: tasks queued behind the running one go back to their callers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use parking_lot::Mutex;

use super::Client;
use super::lead::Look;
use super::receiving::Lead;

const NAP_NANOS: u64 = 1_000_000;
const NAP: Duration = Duration::from_nanos(NAP_NANOS);
/// Naps during which somebody else leads before this thread parks.
const NAPS_BEFORE_PARKING: u32 = 10;

#[derive(Default)]
pub(super) struct Background {
    reserved: Mutex<Option<Reserved>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    handle: std::sync::OnceLock<Thread>,
    parked: AtomicBool,
    leads: AtomicBool,
    /// It leads and blocks until something comes.
    sleeps: AtomicBool,
}

impl Background {
    pub(super) fn leads(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }

    /// Whether what waits to be sent would wait for long: nobody looks within a nap.
    pub(super) fn sleeps(&self) -> bool {
        self.sleeps.load(Ordering::SeqCst)
    }

    pub(super) fn attend_if_parked(&self) {
        if self.parked.load(Ordering::Acquire)
            && let Some(thread) = self.handle.get()
        {
            thread.unpark();
        }
    }

    pub(super) fn stop(&self) {
        if let Some(thread) = self.handle.get() {
            thread.unpark();
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// The thread, before it has a client: whether there can be one is known before the node counts on this process.
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
    let _ = client.background.handle.set(reserved.thread.thread().clone());
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
            idle_naps += 1;
            if idle_naps >= NAPS_BEFORE_PARKING {
                park(client);
                idle_naps = 0;
            }
            continue;
        };
        state.leads.store(true, Ordering::Release);
        client.step(|core, out| core.return_queued(out));
        let mut is_quiet = false;
        while !client.is_closed() && client.wanted.load(Ordering::Acquire) == 0 {
            // Before the flush: who adds something after it sees that this thread must be woken for it.
            state.sleeps.store(is_quiet, Ordering::SeqCst);
            let has_sent = client.flush_now();
            let deadline = client.shared.lock().next_deadline().map(|at| at.since(crate::clock::now()));
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

/// Sleeps until the leader leaves or a handle is dropped.
fn park(client: &Client) {
    let state = &client.background;
    state.parked.store(true, Ordering::Release);
    // The leader may have left before it could see the flag.
    if client.lead.is_locked() && !client.is_closed() {
        std::thread::park();
    }
    state.parked.store(false, Ordering::Release);
}

/// The main thread runs an event loop that reads by itself when it waits; only when it is busy for long does this
/// thread read for it.
fn beside_loop(client: &Client, idle_naps: &mut u32) {
    client.flush_now();
    if client.loop_waits.load(Ordering::Acquire) {
        *idle_naps += 1;
        // The loop knows neither when metrics are due nor when the core wants to look again.
        let has_timer = client.run_timer();
        if *idle_naps >= NAPS_BEFORE_PARKING && !has_timer && crate::metrics::nanos_until_due().is_none() {
            client.background.parked.store(true, Ordering::Release);
            if client.loop_waits.load(Ordering::Acquire) && !client.is_closed() {
                std::thread::park();
            }
            client.background.parked.store(false, Ordering::Release);
            *idle_naps = 0;
        }
        return;
    }
    *idle_naps = 0;
    if let Some(mut lead) = client.lead.try_lock()
        && !client.loop_waits.load(Ordering::Acquire)
    {
        client.look_while_more(&mut lead);
    }
}

/// Looks at the sockets in a row on behalf of an event loop, which has other things to do, too.
const LOOKS_IN_A_ROW: u32 = 64;

impl Client {
    /// Lets the core do what is due by now. True if it wants to be asked again at some time.
    fn run_timer(&self) -> bool {
        let mut shared = self.shared.lock();
        let time = crate::clock::now();
        if shared.core_deadline().is_some_and(|at| at <= time) {
            shared.deadline = self.step_locked(&mut shared, |core, out| core.on_timer(time, out));
            shared.outbox.flush();
        }
        let has_timer = shared.next_deadline().is_some();
        let lines_are_due = shared.outbox.remotes.due().is_some_and(|at| at <= time);
        let aftermath = self.take_aftermath(&mut shared);
        drop(shared);
        if lines_are_due {
            // What follows is for the loop, which holds the receiving halves.
            self.kick();
        }
        self.finish(aftermath);
        has_timer
    }

    /// Makes the background thread look soon, although nothing came.
    pub(super) fn rouse(&self) {
        if self.background.sleeps() {
            self.kick();
        } else {
            self.background.attend_if_parked();
        }
    }

    /// One of several executing threads took a task: another may find one too.
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
        drop(self.lead.lock());
        self.wanted.fetch_sub(1, Ordering::AcqRel);
    }

    /// The event loop begins or ends a wait. Before it begins, what waits to be sent leaves, and the sockets are
    /// looked at for a short while. True if there are calls to take, which may also have been read by the background
    /// thread while the loop was busy; never true when the loop takes no calls now.
    pub fn loop_waits(&self, waits: bool, takes_calls: bool) -> bool {
        if !waits {
            self.loop_waits.store(false, Ordering::Release);
            self.background.attend_if_parked();
            return false;
        }
        self.flush_now();
        let mut lead = self.lead.lock();
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
        self.loop_waits.store(true, Ordering::Release);
        false
    }

    /// Reads what is there, for an event loop whose watch on [`Client::loop_descriptor`] fired.
    pub fn poll(&self) {
        if let Some(mut lead) = self.lead.try_lock() {
            self.look_while_more(&mut lead);
        }
    }

    /// Reads until nothing is there, or many times: what comes faster than it is read is left for the next time.
    fn look_while_more(&self, lead: &mut Lead) {
        let mut looks = 0;
        while looks < LOOKS_IN_A_ROW && self.look(lead, Some(0)) == Look::Something {
            looks += 1;
        }
    }
}
