//! Sessions: the counters at the last query of each `kumi top`, from which the rates follow.
//!
//! A session keeps the counters by the position of the record, because records are never removed.
//! From the kept positions a query also knows which records follow. It prefetches them, since the
//! list of records leads from page to page.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::kernel_thread::no_events::lock;
use crate::memory::pool;
use crate::microprocess::prefetch::prefetch_counted;
use crate::microprocess::protocol::state::Phase;
use crate::microprocess::record::Ref;
use crate::resource::threads::Threads;
use crate::resource::top::seen::Seen;

/// Number of sessions whose last query is kept.
const SESSIONS: usize = 4;

/// Number of records between the one that is read and the one that is prefetched. Each takes five
/// cache lines, and a core has room for 10 to 20 lines on their way.
const AHEAD: usize = 4;

/// The counters of a microprocess at the last query.
#[derive(Clone, Copy)]
struct Counted {
    who: Ref,
    switches: u64,
    cpu_ns: u64,
    /// Growth between the last two queries.
    switches_grown: u64,
    cpu_grown: u64,
}

/// The counters at the last query of a session.
struct Session {
    number: u64,
    at: Instant,
    /// Time between the last two queries.
    interval: Option<Duration>,
    seen: Vec<Counted>,
}

/// State of the runtime at the time of a query.
pub(super) struct Moment {
    /// Time on the instance's clock.
    pub(super) now: u64,
    /// CPU time by ID that no counter has yet: see [`Instance::unfinished_turns`].
    ///
    /// [`Instance::unfinished_turns`]: crate::scheduler::instance::Instance::unfinished_turns
    pub(super) turns: Vec<(u64, u64)>,
}

/// The sessions, the most recent one last.
static KEPT: Mutex<Vec<Session>> = Mutex::new(Vec::new());

/// Reads every living microprocess. Returns them with the seconds since the last query of the
/// session, if there was one. `again` repeats the rates of that query instead.
pub(super) fn pass(
    number: u64,
    again: bool,
    threads: &Threads,
    moment: &Moment,
) -> (Vec<Seen>, Option<f64>) {
    let mut kept = lock(&KEPT);
    let before = kept.iter().position(|one| one.number == number).map(|at| kept.remove(at));
    let at = Instant::now();
    let again = again && before.is_some();
    let interval = match &before {
        Some(before) if again => before.interval,
        before => before.as_ref().map(|before| at.duration_since(before.at)),
    };
    let last: &[Counted] = before.as_ref().map_or(&[], |before| &before.seen);
    let (mut all, mut seen) = (Vec::with_capacity(last.len()), Vec::with_capacity(last.len()));
    let mut position = 0;
    pool::for_each(|mp| {
        if let Some(ahead) = last.get(position + AHEAD) {
            prefetch_counted(ahead.who.mp);
        }
        let who = mp.reference();
        let phase = mp.state.phase();
        let state = threads.state(who, phase);
        let turn = moment.turns.iter().find(|(of, _)| *of == who.id());
        let cpu_ns = mp.counters.cpu_ns.load(Ordering::Relaxed) + turn.map_or(0, |turn| turn.1);
        let switches = mp.switches();
        let then = last.get(position).copied().filter(|then| then.who == who);
        position += 1;
        let counted = match then {
            Some(then) if again => then,
            // A microprocess that has begun since has no rate yet.
            None if again => {
                Counted { who, switches: 0, cpu_ns: 0, switches_grown: 0, cpu_grown: 0 }
            }
            // A microprocess that has begun since has all its counters from the interval.
            then => {
                let (switches_then, cpu_then) = then.map_or((0, 0), |t| (t.switches, t.cpu_ns));
                Counted {
                    who,
                    switches,
                    cpu_ns,
                    switches_grown: switches.saturating_sub(switches_then),
                    cpu_grown: cpu_ns.saturating_sub(cpu_then),
                }
            }
        };
        if !again {
            seen.push(counted);
        }
        if let Some(state) = state.filter(|_| who.is_current()) {
            let waiting_ns = (phase == Phase::Parked)
                .then(|| moment.now.saturating_sub(mp.waits_since.load(Ordering::Relaxed)));
            all.push(Seen {
                who,
                state,
                cpu_ns,
                switches,
                cpu_grown: counted.cpu_grown,
                switches_grown: counted.switches_grown,
                waiting_ns,
            });
        }
    });
    if kept.len() >= SESSIONS {
        kept.remove(0);
    }
    kept.push(match before {
        Some(before) if again => before,
        _ => Session { number, at, interval, seen },
    });
    let seconds = interval.map(|interval| interval.as_secs_f64());
    (all, seconds.filter(|seconds| *seconds > 0.0))
}
