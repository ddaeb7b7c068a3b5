//! Counters of one microprocess, for the program and for the control socket.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kumihimo_resource::id::{Id, Kind};

use crate::memory::pool;
use crate::microprocess::counters::{OTHERS, WaitCount};
use crate::microprocess::identity;
use crate::microprocess::protocol::state::Phase;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::wait_reason;
use crate::observe::{dump, exact};
use crate::scheduler::instance;
use crate::scheduler::thread_place;

/// Counters of one microprocess since its start.
///
/// # Examples
///
/// ```
/// use kumihimo::{observe, sync::mpsc, thread};
///
/// let (end, ended) = mpsc::channel::<()>();
/// let worker = thread::spawn(move || ended.recv());
/// let id = worker.thread().id().resource().expect("it is a microprocess");
/// // Until it waits.
/// while observe::counters(id).expect("it has not ended").switches == 0 {
///     thread::yield_now();
/// }
/// drop(end);
/// worker.join().unwrap().expect_err("nothing was sent");
/// assert_eq!(observe::counters(id), None, "it has ended");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Number of times that a virtual processor switched away from it.
    pub switches: u64,
    /// Number of those times at which it was made to give way: its quantum had expired, or a higher
    /// priority was runnable.
    pub preemptions: u32,
    /// CPU time. Sampled about every 5 ms, unless [`account`] is on: the sum over all
    /// microprocesses is exact, the part of each one an estimate. Zero without preemption
    /// (`KUMI_PREEMPT=off`), which is the source of the samples.
    pub cpu: Duration,
    /// Finished waits by kind, in the order of their first occurrence. The first three kinds are
    /// counted apart. The entry `others` has several kinds.
    pub waits: Vec<Waits>,
    /// Time between wake-up and run, in total over [`timed_wakes`](Counters::timed_wakes).
    pub wake_latency: Duration,
    /// Number of wake-ups that were timed: one of about 100 us on each virtual processor.
    pub timed_wakes: u32,
    /// Bytes of its stack in use. `None` while it runs.
    pub stack_in_use: Option<usize>,
}

/// Finished waits of one kind.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use kumihimo::{observe, thread};
///
/// let worker = thread::spawn(|| {
///     thread::sleep(Duration::from_millis(1));
///     thread::park();
/// });
/// let id = worker.thread().id().resource().expect("it is a microprocess");
/// let waits = loop {
///     match observe::counters(id).expect("it lives").waits.pop() {
///         Some(waits) => break waits,
///         None => thread::yield_now(),
///     }
/// };
/// assert_eq!((waits.kind, waits.count), ("clock", 1));
/// worker.thread().unpark();
/// worker.join().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// Kind of the object: `mutex`, `channel`, `descriptor`, `clock` and others.
    pub kind: &'static str,
    /// Number of waits.
    pub count: u64,
    /// Total time. Each wait is accurate to about 50 us while the virtual processor switches, and
    /// to 10 ms beside microprocesses that compute.
    pub time: Duration,
}

/// Returns the counters of a living microprocess, or `None` if it has ended or is none. The
/// microprocess continues meanwhile, so the counters may be of slightly different moments.
///
/// # Examples
///
/// ```
/// use kumihimo::{observe, thread};
///
/// let worker = thread::spawn(thread::park);
/// let id = worker.thread().id().resource().expect("it is a microprocess");
/// let counters = observe::counters(id).expect("it lives");
/// assert_eq!(counters.preemptions, 0);
/// worker.thread().unpark();
/// worker.join().unwrap();
/// ```
#[must_use]
pub fn counters(id: Id) -> Option<Counters> {
    if id.kind() != Kind::MICROPROCESS {
        return None;
    }
    let mp = identity::find(id.bits().get())?;
    let who = mp.reference();
    let (place, turns) = instance::visit(|i| {
        i.map(|i| (thread_place::on(i, who), i.unfinished_turns())).unwrap_or_default()
    });
    let mut counters = of(mp, place.is_some());
    let turn = turns.iter().find(|(of, _)| *of == who.id());
    counters.cpu += Duration::from_nanos(turn.map_or(0, |(_, time)| *time));
    (who.id() == id.bits().get() && who.is_alive()).then_some(counters)
}

/// Turns exact accounting of CPU time on or off, for the whole process, and returns the previous
/// setting. It is off at the start. While a `kumi top` has turned it on, it stays on.
///
/// While it is on, every switch reads the clock, which makes a switch slower by about the time of
/// two readings (some 40 to 50 ns). Time for which the kernel ran other threads on the core is
/// subtracted if it was 100 us or more at a time.
///
/// # Examples
///
/// ```
/// use kumihimo::observe;
///
/// assert!(!observe::account(true), "it was off");
/// assert!(observe::account(false));
/// ```
pub fn account(on: bool) -> bool {
    exact::set_by_program(on)
}

/// Reads the counters of `mp`.
pub(crate) fn of(mp: &'static Mp, is_on_thread: bool) -> Counters {
    let all = &mp.counters;
    Counters {
        switches: mp.switches(),
        preemptions: all.preemptions.load(Ordering::Relaxed),
        cpu: Duration::from_nanos(all.cpu_ns.load(Ordering::Relaxed)),
        waits: mp.wait_counters().read().map(Waits::from).collect(),
        wake_latency: Duration::from_nanos(all.latency_ns.load(Ordering::Relaxed)),
        timed_wakes: all.timed_wakes.load(Ordering::Relaxed),
        stack_in_use: if is_on_thread { None } else { stack_in_use(mp.reference()) },
    }
}

/// Returns the depth of the saved stack of a microprocess that is on no kernel thread.
pub(crate) fn stack_in_use(who: Ref) -> Option<usize> {
    let is_saved = matches!(who.mp.state.phase(), Phase::Live | Phase::Parked | Phase::Suspended);
    let pointer = dump::context(who.mp);
    let (low, top) = (pool::bounds(who.mp).0.addr(), who.mp.stack_top().addr());
    (is_saved && (low..=top).contains(&pointer)).then(|| top - pointer)
}

impl From<WaitCount> for Waits {
    fn from(one: WaitCount) -> Waits {
        Waits {
            kind: if one.kind == OTHERS { "others" } else { wait_reason::kind_name(one.kind) },
            count: one.count,
            time: Duration::from_nanos(one.nanoseconds),
        }
    }
}
