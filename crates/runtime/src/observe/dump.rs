//! Text dump of the state of every microprocess.
//!
//! The dump is not a consistent snapshot. Each line is correct for the moment at which that
//! microprocess was examined, and the moments differ. The state of a waiting or queued microprocess
//! is accurate ([`kumihimo_backtrace::unwind`]); a running one is interrupted to obtain it.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use kumihimo_arch::signal_mask;
use kumihimo_backtrace::unwind::call_of;
use kumihimo_backtrace::{From, STACK, Symbols, Trace, Walker};
use kumihimo_resource::id::Printed;

use crate::kernel_thread::no_events::lock;
use crate::memory::pool;
use crate::microprocess::protocol::state::Phase;
use crate::microprocess::record::{Mp, Ref};
use crate::scheduler::instance::{self, Instance};
use crate::scheduler::thread_place;
use crate::scheduler::thread_place::ThreadPlace;
use crate::wait::blocking::blocking;

/// Writes the state of every microprocess of the running runtime: ID, name, state (the object of
/// its wait, or the kernel thread on which it runs or is blocked), priority and backtrace.
///
/// The text is meant for people, and its format may change. Microprocesses that run on a core at
/// that moment are interrupted for their backtrace, by the means of preemption; without preemption
/// they have none. The others continue meanwhile, so the lines are of different moments. Where
/// microprocesses are kernel threads (1:1), only their number is written.
///
/// The work, including `out`, is done on a kernel thread of its own, because it needs more stack
/// than a microprocess may have. The calling microprocess is blocked meanwhile, as in
/// [`thread::blocking`](crate::thread::blocking), but its VP is not. If no kernel thread is
/// available, the caller does the work, without backtraces. Must not be called in signal handlers
/// (use `Builder::dump_signal`) or inside [`NoEvents`](crate::NoEvents).
///
/// # Errors
/// The errors of `out`.
///
/// # Panics
/// If `out` panics.
///
/// # Examples
///
/// ```
/// use kumihimo::{runtime, thread};
///
/// let handle = thread::Builder::new().name("acceptor".into()).spawn(thread::park)?;
/// let mut text = Vec::new();
/// runtime::dump(&mut text)?;
/// assert!(String::from_utf8_lossy(&text).contains("acceptor"));
/// handle.thread().unpark();
/// handle.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn dump(out: &mut (impl Write + Send)) -> io::Result<()> {
    blocking(|| apart(|walks| write_all(out, walks)))
}

/// Runs `f` on a kernel thread of its own, with `true`; if none is available, on the caller, with
/// `false`. Blocks the kernel thread.
pub(crate) fn apart<R: Send>(f: impl FnOnce(bool) -> R + Send) -> R {
    let work = Mutex::new(Some(f));
    let take = || work.lock().ok().and_then(|mut work| work.take());
    let run = |walks| take().map(|f| f(walks));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("kumihimo-dump".into()).stack_size(STACK);
        match signal_mask::while_blocked(|| thread.spawn_scoped(scope, || run(true))) {
            Ok(thread) => {
                thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
            }
            Err(_) => run(false),
        }
    })
    .expect("taken once")
}

/// The observed state of a microprocess.
struct Observed {
    who: Ref,
    text: String,
    trace: Option<Trace>,
}

/// Writes the dump on the calling kernel thread, which must not belong to the runtime.
pub(crate) fn write_all(out: &mut impl Write, walks: bool) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    if Instance::one_to_one() {
        let n = instance::visit(|instance| instance.map(|i| i.one_to_one_threads().len()));
        let n = n.map_or_else(|| "no runtime runs".to_owned(), |n| format!("{n} of them"));
        writeln!(
            out,
            "kumihimo: microprocesses are kernel threads here, which a debugger shows: {n}"
        )?;
        return out.flush();
    }
    let mut walker = walks.then(Walker::of_all_loaded);
    let mut symbols = walker.as_ref().map(|walker| Symbols::new(walker.modules.clone()));
    let Some(head) = instance::visit(|instance| instance.map(head)) else {
        writeln!(out, "kumihimo: no runtime runs in this process")?;
        return out.flush();
    };
    writeln!(out, "{head}")?;
    let mut all = Vec::new();
    pool::for_each(|mp| all.push(mp));
    let mut n = 0u64;
    for mp in all {
        // Visited separately for each microprocess, because the runtime may end meanwhile and must
        // not wait for the lookup of symbols.
        let Some(seen) =
            instance::visit(|instance| instance.and_then(|i| see(i, mp, walker.as_mut())))
        else {
            continue;
        };
        n += 1;
        let Observed { who, text, trace } = seen;
        writeln!(out, "microprocess {} {}: {text}", Printed(who.id()), mp.name_text())?;
        if let (Some(trace), Some(symbols)) = (trace, &mut symbols) {
            out.write_all(render(&trace, symbols).as_bytes())?;
        }
    }
    writeln!(out, "kumihimo: {n} microprocesses")?;
    out.flush()
}

/// Returns the line and the backtrace of one microprocess, or `None` if it has ended. Blocks the
/// kernel thread, which must not belong to the runtime.
pub(crate) fn one(who: Ref) -> Option<String> {
    let mut walker = Walker::of_all_loaded();
    let mut symbols = Symbols::new(walker.modules.clone());
    let seen =
        instance::visit(|instance| instance.and_then(|i| see(i, who.mp, Some(&mut walker))))?;
    let trace = seen.trace.map_or_else(String::new, |trace| render(&trace, &mut symbols));
    (seen.who == who).then(|| {
        format!("microprocess {} {}: {}\n{trace}", Printed(who.id()), who.mp.name_text(), seen.text)
    })
}

/// Returns the backtraces of waiting microprocesses as text; one that is unavailable is empty.
/// Blocks the kernel thread.
pub(crate) fn backtraces(of: &[Ref]) -> Vec<String> {
    apart(|walks| {
        if !walks {
            return vec![String::new(); of.len()];
        }
        let mut walker = Walker::of_all_loaded();
        let mut symbols = Symbols::new(walker.modules.clone());
        let one = |who: &Ref| {
            still(*who, &mut walker).map_or_else(String::new, |trace| render(&trace, &mut symbols))
        };
        of.iter().map(one).collect()
    })
}

pub(crate) fn render(trace: &Trace, symbols: &mut Symbols) -> String {
    let mut text = String::new();
    if let Some(address) = trace.begins_with {
        let _ = writeln!(text, "     has not begun: {}", symbols.name(address));
    }
    symbols.render(&trace.frames, &mut text);
    if trace.cut {
        text.push_str("     ... and frames that cannot be unwound\n");
    }
    text
}

fn head(instance: &Instance) -> String {
    let counts = instance.kernel.counts();
    let limit = instance.kernel.limit();
    let then = instance
        .kernel
        .fallback()
        .map_or_else(String::new, |other| format!(", for some from {other}"));
    format!(
        "kumihimo: {} virtual processors, {} of at most {limit}, events from {}{then}",
        instance.open(),
        counts.threads,
        instance.kernel.source()
    )
}

fn see(instance: &Instance, mp: &'static Mp, walker: Option<&mut Walker>) -> Option<Observed> {
    let who = mp.reference();
    let phase = mp.state.phase();
    if !matches!(phase, Phase::Live | Phase::Parked | Phase::Suspended) {
        return None;
    }
    let (state, trace) = if phase == Phase::Suspended {
        ("suspended until it is resumed".into(), walker.and_then(|walker| still(who, walker)))
    } else if phase == Phase::Parked {
        let what = mp.waits_for().map_or_else(|| "nothing known".into(), |wait| wait.to_string());
        // A sticky microprocess waits on its kernel thread, which has its registers.
        let place = thread_place::on(instance, who).filter(|_| mp.sticky.parker.is_asleep());
        let trace = walker.and_then(|walker| match place {
            Some(place) => place.trace(instance, who, walker),
            None => still(who, walker),
        });
        (format!("waits for {what}"), trace)
    } else {
        match thread_place::on(instance, who) {
            Some(place) => {
                (place.to_string(), walker.and_then(|walker| place.trace(instance, who, walker)))
            }
            None if waits_for_its_turn(mp) => {
                ("back from the kernel, waits for its turn".into(), None)
            }
            None => ("queued".into(), walker.and_then(|walker| still(who, walker))),
        }
    };
    let (own, inherited) = (mp.priority.load(Ordering::Relaxed), mp.inherited());
    let priority = match inherited {
        Some(inherited) if inherited > own => format!("{own} (inherits {inherited})"),
        _ => own.to_string(),
    };
    let home = mp.home.load(Ordering::Relaxed);
    let cancelled = if mp.state.is_cancelled() { ", cancelled" } else { "" };
    let suspended = if mp.state.is_suspended() { ", suspended" } else { "" };
    let sticky =
        mp.sticky.reason().map_or_else(String::new, |why| format!(", sticky: {}", why.name()));
    // Otherwise the record belongs to another life by now.
    who.is_current().then(|| Observed {
        who,
        text: format!("{state}; priority {priority}, VP {home}{cancelled}{suspended}{sticky}"),
        trace,
    })
}

/// Returns the saved stack pointer. Other threads write it while they switch, so it is read as in
/// [`crate::microprocess::prefetch::prefetch_stack`].
pub(crate) fn context(mp: &'static Mp) -> usize {
    // SAFETY: records live for ever, and a context is one word.
    unsafe { AtomicPtr::from_ptr(mp.context.get().cast::<*mut u8>()) }
        .load(Ordering::Acquire)
        .addr()
}

pub(crate) fn waits_for_its_turn(mp: &'static Mp) -> bool {
    context(mp) == 0
}

/// Returns the backtrace of a waiting or queued microprocess, from its saved context.
pub(crate) fn still(who: Ref, walker: &mut Walker) -> Option<Trace> {
    let (low, top) = (pool::bounds(who.mp).0.addr(), who.mp.stack_top().addr());
    walker.walk(low..top, || who.is_alive().then(|| From::Saved(context(who.mp))))
}

impl ThreadPlace {
    /// Returns the backtrace of a microprocess on its thread. For a sleeping thread the kernel
    /// shows the registers; a running thread is sampled in a signal handler.
    pub(crate) fn trace(
        &self,
        instance: &Instance,
        who: Ref,
        walker: &mut Walker,
    ) -> Option<Trace> {
        let (low, top) = (pool::bounds(who.mp).0.addr(), who.mp.stack_top().addr());
        if self.call.is_some() {
            return walker.walk(low..top, || {
                call_of(self.tid).map(|(from, _)| from).filter(|_| who.is_alive())
            });
        }
        let stack = instance.kernel.sample_stack(self.tid as i32)?;
        // Another microprocess, or the scheduler, may run there by now.
        (who.is_alive() && (low..top).contains(&stack.pointer())).then(|| stack.trace(walker))
    }
}

/// Writes the dump for [`crate::observe::dump_signal`] to standard error, in one piece.
pub(crate) fn to_standard_error() {
    // One dump at a time.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE);
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = write_all(&mut text, true);
    // The error cannot be reported anywhere.
    let _ = io::stderr().write_all(&text);
}
