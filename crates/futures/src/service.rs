//! The service: one microprocess that calls the wakers of timers, and those of descriptors that are
//! code of the program.
//!
//! A waker may run any code. A VP that reports an edge must not: it could wait for a lock whose
//! holder needs that VP. The service is a microprocess of its own, of the highest priority, so it
//! may wait as any other. It begins with the first future that needs it, and ends when none has
//! needed it for a while. If that future is polled on a foreign kernel thread, or at the end of a
//! runtime, the service is a kernel thread: it must not start a runtime.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::task::Waker;
use std::time::{Duration, Instant};

use kumihimo_arch::signal_mask;
use kumihimo_policy::Priority;
use kumihimo_runtime::park::{self, Wait, Waiter};
use kumihimo_runtime::{cancel, lock, thread, waker_service};

use crate::timers::{Key, Timers};

const NAME: &str = "kumi-wakers";
/// How long the service stays without being needed.
const LINGER: Duration = Duration::from_millis(100);
/// A service that has not begun by then never will: its runtime has ended.
const LONGEST_START: Duration = Duration::from_secs(10);
/// Number of timers whose wakers are taken at once.
const BATCH: usize = 64;

#[derive(Debug)]
enum Server {
    None,
    Starting { number: u64, since: Instant },
    Running { number: u64, waiter: Waiter },
}

struct State {
    timers: Timers,
    server: Server,
    /// Number of services so far.
    number: u64,
}

static STATE: Mutex<State> =
    Mutex::new(State { timers: Timers::new(), server: Server::None, number: 0 });

/// Enters a timer, or replaces its waker.
///
/// # Errors
/// If no thread can begin to serve.
pub(crate) fn enter_timer(key: Key, waker: &Waker) -> io::Result<()> {
    // Cloned before and dropped after the lock is held: a waker's own code runs then.
    let waker = waker.clone();
    let former = {
        let mut state = lock(&STATE);
        let former = state.timers.enter(key, waker);
        if state.timers.next() == Some(key.0)
            && let Server::Running { waiter, .. } = &state.server
        {
            waiter.wake();
        }
        former
    };
    drop(former);
    ensure()
}

/// Removes a timer. Returns its waker, if it was not called yet.
pub(crate) fn remove_timer(key: Key) -> Option<Waker> {
    lock(&STATE).timers.remove(key)
}

/// Begins the service if it is not running. To be called after a waker was entered.
///
/// # Errors
/// If no thread can begin to serve.
pub(crate) fn ensure() -> io::Result<()> {
    let number = {
        let mut state = lock(&STATE);
        match &state.server {
            Server::Running { waiter, .. } if waiter.is_alive() => return Ok(()),
            Server::Starting { since, .. } if since.elapsed() < LONGEST_START => return Ok(()),
            _ => {}
        }
        state.number += 1;
        state.server = Server::Starting { number: state.number, since: Instant::now() };
        state.number
    };
    begin(number)
}

fn begin(number: u64) -> io::Result<()> {
    let builder = thread::Builder::new().name(NAME.into()).priority(Priority::HIGHEST);
    if park::is_microprocess() && builder.spawn(move || serve(number)).is_ok() {
        return Ok(());
    }
    begin_on_kernel_thread(number)
}

fn begin_on_kernel_thread(number: u64) -> io::Result<()> {
    let builder = std::thread::Builder::new().name(NAME.into());
    let begun = signal_mask::spawn_blocked(builder, move || serve(number));
    if begun.is_err() {
        end(number);
    }
    begun.map(drop)
}

/// Withdraws the service, if it is still the one with that number.
fn end(number: u64) {
    let mut state = lock(&STATE);
    if state.server.has(number) {
        state.server = Server::None;
        waker_service::set_server(None);
    }
}

impl Server {
    fn has(&self, its: u64) -> bool {
        match self {
            Server::None => false,
            Server::Starting { number, .. } | Server::Running { number, .. } => *number == its,
        }
    }
}

/// The running service. It is replaced if it unwinds, which the end of a runtime makes it do.
struct Serving(u64);

impl Drop for Serving {
    fn drop(&mut self) {
        end(self.0);
        if waker_service::is_needed() || lock(&STATE).timers.next().is_some() {
            let number = {
                let mut state = lock(&STATE);
                if !matches!(state.server, Server::None) {
                    return;
                }
                state.number += 1;
                state.server = Server::Starting { number: state.number, since: Instant::now() };
                state.number
            };
            // Without a thread, the next future that waits tries again.
            let _ = begin_on_kernel_thread(number);
        }
    }
}

fn serve(number: u64) {
    let me = park::current();
    {
        let mut state = lock(&STATE);
        if !state.server.has(number) {
            return;
        }
        state.server = Server::Running { number, waiter: me.clone() };
        waker_service::set_server(Some(me));
    }
    let _serving = Serving(number);
    let mut unneeded_since = None;
    loop {
        let mut due = waker_service::take_ready();
        let next = {
            let mut state = lock(&STATE);
            state.timers.take_due(Instant::now(), due.len() + BATCH, &mut due);
            state.timers.next()
        };
        if !due.is_empty() {
            due.into_iter().for_each(call);
            unneeded_since = None;
            cancel::point();
            continue;
        }
        let until = if next.is_some() || waker_service::is_needed() {
            unneeded_since = None;
            next
        } else {
            let since = *unneeded_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= LINGER && ended_unneeded(number) {
                return;
            }
            Some(since + LINGER)
        };
        park::park(Wait::Future, until);
        cancel::point();
    }
}

/// Withdraws the service unless it is needed. A future that is entered later begins another one.
fn ended_unneeded(number: u64) -> bool {
    let mut state = lock(&STATE);
    if state.timers.next().is_some() || waker_service::is_needed() {
        return false;
    }
    if state.server.has(number) {
        state.server = Server::None;
        waker_service::set_server(None);
    }
    true
}

/// Calls a waker. Its panic, which the hook has reported, is its own affair: other wakers follow.
fn call(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}
