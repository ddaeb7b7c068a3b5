//! The start of the runtime, at the first thread that the program creates.
//!
//! [`phase`] says whether it has started; [`options`] of `kumi run`; the [`count`] of threads and
//! its [`report`]; [`linked`]: this crate inside the program.

pub(crate) mod count;
mod fork;
pub(crate) mod linked;
pub(crate) mod options;
pub(crate) mod phase;
pub(crate) mod report;

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use kumihimo_arch::overflow;
use kumihimo_policy::{Feedback, RoundRobin};
use kumihimo_runtime::runtime::{Builder, Events, Mode, OnDeadlock, Runtime, mode};

use crate::real::libc;
use crate::start::phase::Phase;
use crate::thread::{last, scheduling};
use crate::{descriptor, raw_call, signal};

/// Starts the runtime if that has not been tried yet. Returns whether it runs.
pub(crate) fn start() -> bool {
    match phase::get() {
        Phase::NotYet => start_once(),
        phase => phase == Phase::Started,
    }
}

#[cold]
fn start_once() -> bool {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        if !phase::is_linked() {
            prepare();
        }
        let failure = match little_room().map_or_else(build, Err) {
            Ok(runtime) => {
                // It ends with the process.
                std::mem::forget(runtime);
                overflow::give_way_to_previous_handler();
                match mode() {
                    Mode::Microprocesses => None,
                    Mode::KernelThreads { why } => Some(why.to_owned()),
                }
            }
            Err(error) => Some(error.to_string()),
        };
        if options::get().prints_counts() {
            count::report_at_exit();
        }
        let state = match failure {
            None if phase::is_linked() => return,
            None => Phase::Started,
            Some(why) if options::get().strict => {
                eprintln!("kumi run: {why}; --strict allows no kernel threads");
                // SAFETY: an integer. The program's own handlers of its exit do not run.
                unsafe { libc::_exit(125) }
            }
            Some(why) => {
                eprintln!("{}: {why}; the program's threads are kernel threads", speaker());
                Phase::Off
            }
        };
        begin(state);
    });
    phase::has_started()
}

fn builder() -> Builder {
    // A program whose threads all wait may go on when a signal arrives, or another process writes
    // to memory that it shares.
    let builder = Builder::new().on_deadlock(OnDeadlock::Ignore);
    match options::get().round_robin {
        true => builder.policy(RoundRobin::default()),
        // Threads that wait come first: those of a server that answer, before those that compute.
        false => builder.policy(Feedback::with_quantum(FIRST_QUANTUM, DELAY)),
    }
}

/// Builds the runtime with the requested event source, or else with the best one that the process
/// may use: a server may give up its privileges in a child before it creates threads there.
fn build() -> io::Result<Runtime> {
    let refused = match builder().build() {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => error,
        built => return built,
    };
    // Not `off`, with which each wait that the runtime does not know holds a virtual processor.
    for other in [Events::Perf, Events::Watch] {
        if let Ok(runtime) = builder().events(other).build() {
            eprintln!("{}: {refused}; event source {} is used", speaker(), other.name());
            return Ok(runtime);
        }
    }
    Err(refused)
}

/// The begin of a line on standard error.
fn speaker() -> &'static str {
    if phase::is_linked() { "kumihimo" } else { "kumi run" }
}

/// What comes before the runtime installs handlers of its own, which call earlier ones.
pub(crate) fn prepare() {
    fork::register();
    descriptor::open::note_inherited();
    descriptor::open::make_room();
    scheduling::note_class();
    signal::handlers::take_over();
    kumihimo_runtime::interrupt::end_waits_when(|| signal::section::is_interrupted(true));
    signal::section::watch_events();
}

/// What comes when the runtime runs, or cannot.
pub(crate) fn begin(state: Phase) {
    phase::set(state);
    if state == Phase::Started {
        last::begin();
        raw_call::begin();
        signal::process::listen();
    }
}

/// The quantum of a thread that has computed little. Those that compute all the time have sixteen
/// times as much, about the kernel's slice: that passes before one that has waited runs, if the
/// computing one has waited for so long that it precedes it.
const FIRST_QUANTUM: Duration = Duration::from_micros(250);
/// The delay for each doubling of the quantum. Six threads which compute on one processor have all
/// run again, for 4 ms each, before one of them has waited for so long that it precedes a new
/// thread, even if new threads use three quarters of the processor.
const DELAY: Duration = Duration::from_millis(30);

/// The least address space that the runtime can live in, in bytes: its stacks are slots of regions
/// that it reserves as a whole.
const ROOM: u64 = 1 << 30;

/// Why the runtime cannot start, if the process may have little address space (RLIMIT_AS,
/// getrlimit(2)). It would start, and then nobody could allocate.
fn little_room() -> Option<io::Error> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live structure.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } == 0;
    (known && limit.rlim_cur < ROOM).then(|| {
        io::Error::other(format!(
            "the limit on address space is {} MB, too little for the runtime: raise it to 1024 MB or more (ulimit -v)",
            limit.rlim_cur >> 20
        ))
    })
}
