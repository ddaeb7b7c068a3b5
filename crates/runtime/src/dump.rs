//! What every microprocess is doing, as text.
//!
//! A picture of something that goes on: each line is right for the moment at which that
//! microprocess was looked at, and no two are of the same moment. What is written of one that waits
//! or is queued is exact ([`kumihimo_backtrace::unwind`]); what runs is interrupted for it.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use kumihimo_backtrace::unwind::call_of;
use kumihimo_backtrace::{From, STACK, Symbols, Trace, Walker};
use kumihimo_events::Slot;
use kumihimo_events::sched::ThreadState;
use kumihimo_resource::id::Printed;

use crate::carrier::ANNOUNCED;
use crate::instance::{self, Instance};
use crate::no_events::lock;
use crate::record::{Mp, Ref};
use crate::state::Phase;
use crate::{deadlock, handoff, pool};

/// Writes what every microprocess of the running runtime is doing: id, name, state (what it waits
/// for, or on which kernel thread it runs or is blocked), priority and backtrace.
///
/// Meant for people; the format may change. Those that run on a core at that moment are interrupted
/// for their backtrace, by the means of preemption: where that is off, they have none. Others go on
/// meanwhile: lines are of different moments. Where microprocesses are kernel threads (1:1) only
/// their number is written.
///
/// The work, `out`'s included, is done on a kernel thread of its own, since it needs more stack
/// than a microprocess may have; the calling microprocess is blocked meanwhile, as in
/// [`thread::blocking`](crate::thread::blocking), its virtual processor is not. If no kernel thread
/// can be had, the caller does it, without backtraces. Not for signal handlers, and not inside
/// [`NoEvents`](crate::NoEvents): `Builder::dump_signal` is for the former.
///
/// # Errors
/// What `out` says.
///
/// # Panics
/// If `out` does.
pub fn dump(out: &mut (impl Write + Send)) -> io::Result<()> {
    handoff::blocking(|| apart(|walks| write_all(out, walks)))
}

/// Runs `f` on a kernel thread of its own, with `true`; if there is none to be had, here, with
/// `false`. Blocks the kernel thread.
fn apart<R: Send>(f: impl FnOnce(bool) -> R + Send) -> R {
    let work = Mutex::new(Some(f));
    let take = || work.lock().ok().and_then(|mut work| work.take());
    let run = |walks| take().map(|f| f(walks));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("kumihimo-dump".into()).stack_size(STACK);
        match thread.spawn_scoped(scope, || run(true)) {
            Ok(thread) => {
                thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
            }
            Err(_) => run(false),
        }
    })
    .expect("taken once")
}

/// What is seen of one.
struct Seen {
    who: Ref,
    text: String,
    trace: Option<Trace>,
}

/// The calling kernel thread does it. It is none of the runtime's.
pub(crate) fn write_all(out: &mut impl Write, walks: bool) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    if Instance::one_to_one() {
        let n = instance::visit(|instance| instance.map(|i| i.stand_ins().len()));
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
        // Visited anew for each: the runtime may end meanwhile, and does not wait for names to be
        // looked up.
        let Some(seen) =
            instance::visit(|instance| instance.and_then(|i| see(i, mp, walker.as_mut())))
        else {
            continue;
        };
        n += 1;
        let Seen { who, text, trace } = seen;
        writeln!(out, "microprocess {} {}: {text}", Printed(who.id()), name(mp))?;
        if let (Some(trace), Some(symbols)) = (trace, &mut symbols) {
            out.write_all(render(&trace, symbols).as_bytes())?;
        }
    }
    writeln!(out, "kumihimo: {n} microprocesses")?;
    out.flush()
}

/// What one microprocess is doing: its line of the dump, and its backtrace. None if it has ended.
/// Blocks the kernel thread, which must be none of the runtime's.
pub(crate) fn one(who: Ref) -> Option<String> {
    let mut walker = Walker::of_all_loaded();
    let mut symbols = Symbols::new(walker.modules.clone());
    let seen =
        instance::visit(|instance| instance.and_then(|i| see(i, who.mp, Some(&mut walker))))?;
    let trace = seen.trace.map_or_else(String::new, |trace| render(&trace, &mut symbols));
    (seen.who == who).then(|| {
        format!("microprocess {} {}: {}\n{trace}", Printed(who.id()), name(who.mp), seen.text)
    })
}

/// Backtraces of some that wait, as text; each is empty if it cannot be had. Blocks the kernel
/// thread.
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

fn render(trace: &Trace, symbols: &mut Symbols) -> String {
    let mut text = String::new();
    if let Some(address) = trace.begins_with {
        let _ = writeln!(text, "     has not begun: {}", symbols.name(address));
    }
    symbols.render(&trace.frames, &mut text);
    if trace.cut {
        text.push_str("     ... and what cannot be followed\n");
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
        instance.vps.len(),
        counts.threads,
        instance.kernel.source()
    )
}

pub(crate) fn name(mp: &Mp) -> String {
    let mut label = [0; 47];
    let n = mp.label(&mut label);
    if n == 0 { "(no name)".into() } else { String::from_utf8_lossy(&label[..n]).into_owned() }
}

fn see(instance: &Instance, mp: &'static Mp, walker: Option<&mut Walker>) -> Option<Seen> {
    let who = mp.reference();
    let phase = mp.state.phase();
    if !matches!(phase, Phase::Live | Phase::Parked | Phase::Held) {
        return None;
    }
    let (state, trace) = if phase == Phase::Held {
        ("held until it is resumed".into(), walker.and_then(|walker| still(who, walker)))
    } else if phase == Phase::Parked {
        let what =
            deadlock::waits_for(mp).map_or_else(|| "nothing known".into(), |wait| wait.to_string());
        // One that is sticky waits on its kernel thread, where its registers are.
        let place = on(instance, who).filter(|_| mp.sticky.berth.is_used());
        let trace = walker.and_then(|walker| match place {
            Some(place) => place.trace(instance, who, walker),
            None => still(who, walker),
        });
        (format!("waits for {what}"), trace)
    } else {
        match on(instance, who) {
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
    // Anything else is of another life.
    who.is_current().then(|| Seen {
        who,
        text: format!("{state}; priority {priority}, VP {home}{cancelled}{suspended}{sticky}"),
        trace,
    })
}

/// The saved stack pointer. Others write it while they switch: read like
/// [`crate::park::fetch_stack`] does.
fn context(mp: &'static Mp) -> usize {
    // SAFETY: records live for ever, and a context is one word.
    unsafe { AtomicPtr::from_ptr(mp.context.get().cast::<*mut u8>()) }
        .load(Ordering::Acquire)
        .addr()
}

pub(crate) fn waits_for_its_turn(mp: &'static Mp) -> bool {
    context(mp) == 0
}

/// The backtrace of one that waits or is queued, from its saved context.
fn still(who: Ref, walker: &mut Walker) -> Option<Trace> {
    let (low, top) = (pool::bounds(who.mp).0.addr(), who.mp.stack_top().addr());
    walker.walk(low..top, || who.is_alive().then(|| From::Saved(context(who.mp))))
}

/// The kernel thread that a microprocess is on.
pub(crate) struct On {
    pub(crate) tid: u32,
    /// The number of its slot.
    pub(crate) index: u32,
    /// The VP under it; none: bound without.
    pub(crate) vp: Option<u32>,
    /// Where in the kernel it is, if it is there.
    pub(crate) call: Option<i64>,
}

impl std::fmt::Display for On {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.vp {
            Some(vp) => write!(f, "runs on kernel thread {} (VP {vp})", self.tid)?,
            None => write!(f, "bound to kernel thread {} without a VP", self.tid)?,
        }
        match self.call {
            Some(-1) => write!(f, ", which is stopped or faults"),
            Some(call) => write!(f, ", blocked in system call {call}"),
            None => Ok(()),
        }
    }
}

impl On {
    /// From the registers that the kernel shows of a thread that sleeps; one that runs is asked, in
    /// a signal handler.
    fn trace(&self, instance: &Instance, who: Ref, walker: &mut Walker) -> Option<Trace> {
        let (low, top) = (pool::bounds(who.mp).0.addr(), who.mp.stack_top().addr());
        if self.call.is_some() {
            return walker.walk(low..top, || {
                call_of(self.tid).map(|(from, _)| from).filter(|_| who.is_alive())
            });
        }
        let stack = instance.kernel.sample_stack(self.tid as i32)?;
        // It may be another's turn by now, or the scheduler's.
        (who.is_alive() && (low..top).contains(&stack.pointer())).then(|| stack.trace(walker))
    }
}

/// Whether a kernel thread that carries no virtual processor has a microprocess all the same:
/// bound, or in user mode, its VP being lent or claimed at this moment. The slot of one that has
/// none to run keeps the last one's id.
pub(crate) fn has_microprocess(slot: &Slot) -> bool {
    let state = ThreadState::read(slot.state.load(Ordering::Relaxed));
    state.is_some_and(|(state, bound)| bound || state == ThreadState::User)
}

/// The VP that a kernel thread's microprocess runs on. None where it is away: a VP that nobody took
/// yet serves it no more than one that somebody did.
pub(crate) fn vp_under(instance: &Instance, slot: &Slot) -> Option<u32> {
    let is_away = ThreadState::read(slot.state.load(Ordering::Relaxed))
        == Some((ThreadState::Sleeping, true));
    (0..instance.vps.len() as u32).find(|vp| slot.carries(*vp)).filter(|_| !is_away)
}

/// Where a LIVE one is, as the shared page has it; none if it is queued.
pub(crate) fn on(instance: &Instance, who: Ref) -> Option<On> {
    shown(instance, |word| word == who.id())
}

/// As [`on`]; also where it is about to run, or to be found suspended.
pub(crate) fn on_or_announced(instance: &Instance, who: Ref) -> Option<On> {
    shown(instance, |word| word & !ANNOUNCED == who.id())
}

fn shown(instance: &Instance, is: impl Fn(u64) -> bool) -> Option<On> {
    instance.kernel.slots().zip(1..).find_map(|(slot, index): (&Slot, u32)| {
        let tid = slot.tid.load(Ordering::Acquire);
        if tid == 0 || !is(slot.microprocess.load(Ordering::Relaxed)) {
            return None;
        }
        // An idle one shows nobody. (To ask whether its VP sleeps would be to ask too late: it may
        // be another one's by then.)
        let vp = vp_under(instance, slot);
        (vp.is_some() || has_microprocess(slot)).then(|| On {
            tid,
            index,
            vp,
            call: call_of(tid).map(|(_, call)| call),
        })
    })
}

/// The dump for [`crate::dump_signal`]: to standard error, in one piece.
pub(crate) fn to_standard_error() {
    // One at a time.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE);
    let mut text = Vec::new();
    // Memory takes all.
    let _ = write_all(&mut text, true);
    // Nobody is left to be told.
    let _ = io::stderr().write_all(&text);
}
