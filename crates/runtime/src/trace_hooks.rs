//! Hooks that write trace records ([`kumihimo_trace`]), and the start and end of a trace.
//!
//! Each hook is one branch on a pointer that is null without a trace. The holder of a VP's owner
//! half writes that VP's buffer; other threads write a shared buffer. A hook is called *before* its
//! event becomes visible to others. So by the times of the records, a microprocess leaves a VP
//! before another VP runs it.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use kumihimo_arbiter::seat::{Seat, SlotObserver};
use kumihimo_arbiter::slot::SlotSnapshot;
use kumihimo_policy::Why;
use kumihimo_trace::record::{
    ASKED, Cause, GIVEN, HAS, Holder, Kind, NO_LEVEL, RUNS, Record, Slot, WAIT_KERNEL, WAIT_RESUME,
};
use kumihimo_trace::ring::Ring;
use kumihimo_trace::session::{self, Session};

use crate::config::Settings;
use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::lock_layout::{self, HolderWord};
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::wait_reason::Wait;
use crate::microprocess::waiter::{Waiter, thread_of_mark};
use crate::process::board;

/// The session that the end of the process must finish, if it is not finished before.
static LAST: Mutex<Weak<Session>> = Mutex::new(Weak::new());

/// Starts the trace that `settings` or the environment specify, if any.
pub(crate) fn open(settings: &Settings, policy: &str) -> io::Result<Option<Arc<Session>>> {
    let config = kumihimo_config::get();
    let Some(path) = settings.trace.clone().or_else(|| config.trace.clone()) else {
        return Ok(None);
    };
    // `%p` gives each process its own file if a program starts others.
    let output = match path.to_str() {
        Some(text) => PathBuf::from(text.replace("%p", &std::process::id().to_string())),
        None => path,
    };
    let records =
        settings.trace_buffer.or(config.lab.trace_buffer).unwrap_or(session::DEFAULT_RECORDS);
    let program = std::env::current_exe()
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let about = [
        ("program", program.unwrap_or_else(|| "?".to_owned())),
        ("policy", policy.to_owned()),
        ("queue", settings.design.name().to_owned()),
    ];
    // The board's records of the cores are merged with those of other address spaces at the same
    // board.
    let board = board::seat()
        .map(|(board, row)| [("board", format!("{board:x}")), ("row", row.to_string())]);
    let about = about
        .into_iter()
        .chain(board.into_iter().flatten())
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    let session =
        Arc::new(Session::start(session::Settings { output, vps: settings.vps, records, about })?);
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&session);
    at_exit();
    Ok(Some(session))
}

/// Registers an exit handler that finishes the trace of a runtime that is never ended (the default
/// one; `std::process::exit`).
fn at_exit() {
    extern "C" fn end() {
        // The lock is not waited for: a process that exits during a panic of `open` must be able to
        // end.
        let last = LAST.try_lock().ok().and_then(|last| last.upgrade());
        if let Some(session) = last {
            finish(&session);
        }
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler does not unwind (`finish` prints errors) and uses nothing that `exit`
        // destroys earlier.
        unsafe { libc::atexit(end) };
    });
}

/// Completes the trace. Reports errors on standard error.
pub(crate) fn finish(session: &Session) {
    if let Some(Err(e)) = session.finish() {
        use std::io::Write;
        let _ = writeln!(io::stderr(), "kumihimo: {e}");
    }
}

fn cause(why: Why) -> u8 {
    let cause = match why {
        Why::Spawned => Cause::Spawned,
        Why::Woken => Cause::Woken,
        Why::Yielded => Cause::Yielded,
        Why::QuantumOver => Cause::QuantumOver,
        Why::Outranked => Cause::Outranked,
        Why::Reprioritised => Cause::Reprioritised,
    };
    cause as u8
}

// ---- For the holder of the VP's owner half ----

/// Records a switch: `me` leaves (null: the kernel thread's own stack) and `next` comes.
#[inline(always)]
pub(crate) fn switched(
    ring: &Option<Arc<Ring>>,
    me: *const Mp,
    next: *const Mp,
    after: AfterSwitch,
) {
    if let Some(ring) = ring {
        // SAFETY: null or records, which live for ever.
        let (me, next) = unsafe { (me.as_ref(), next.as_ref()) };
        note_switch(ring, me, next, after);
    }
}

#[cold]
#[inline(never)]
fn note_switch(ring: &Ring, me: Option<&Mp>, next: Option<&Mp>, after: AfterSwitch) {
    use std::sync::atomic::Ordering::Relaxed;
    let gave_way = ring.take_note();
    let (id, level) = next.map_or((0, 0), |next| (next.id(), next.level.get()));
    let mut record = Record { id, level, ..Record::new(Kind::Switch) };
    record.cause = match after {
        // Queued early: see `Carrier::give_way`.
        AfterSwitch::Nothing if me.is_some() => gave_way,
        AfterSwitch::Nothing => Cause::None as u8,
        AfterSwitch::Requeue(why) => cause(why),
        AfterSwitch::RequeueFront => Cause::ChildFirst as u8,
        AfterSwitch::Finish | AfterSwitch::FinishToJoiner => Cause::Ended as u8,
        AfterSwitch::Park => {
            me.into_iter().for_each(|me| note_lock(ring, me));
            record.wait = me.map_or(0, |me| me.wait_kind.load(Relaxed) & Wait::KIND);
            Cause::Parked as u8
        }
        AfterSwitch::Suspend => {
            record.wait = WAIT_RESUME;
            Cause::Parked as u8
        }
    };
    ring.put(record);
}

/// Records the lock that `me` waits for, if it is one, and its holder. On the stack of `me`.
///
/// Every park states its object before (`Vp::note_wait`), so the wait is the present one. A frame
/// of `me` borrows the lock, whose word therefore contains a mark and can be followed.
fn note_lock(ring: &Ring, me: &Mp) {
    let Some(wait) = me.waits_for().filter(|wait| lock_layout::is_lock(*wait)) else { return };
    let (kind, at) = wait.encode();
    ring.put(Record { id: at as u64, wait: kind, ..Record::new(Kind::WaitsFor) });
    // The C library's locks state a number, whose microprocess only a pass over all would find.
    let word = match lock_layout::is_of_c_library(wait) {
        // SAFETY: the frame that borrows the lock lasts until the wait is over.
        false => lock_layout::read(wait, |at, out| unsafe { load(at, out) }),
        true => None,
    };
    let Some(HolderWord::Mark(mark)) = word else { return };
    let held = Record::new(Kind::HeldBy);
    if let Some(thread) = thread_of_mark(mark) {
        ring.put(Record { arg: thread.cast_unsigned(), ..held });
    } else if let Some(holder) = Waiter::of_mark(mark) {
        ring.put(Record { id: holder.id(), ..held });
    }
}

/// Loads words of a lock, each at once, so that a mark is never half of two. Returns the number of
/// bytes: 0 if the address or the length is not that of words.
///
/// # Safety
/// The lock is alive.
unsafe fn load(at: usize, out: &mut [u8]) -> usize {
    use std::ptr::with_exposed_provenance as pointer;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
    if !at.is_multiple_of(align_of::<AtomicU64>()) {
        return 0;
    }
    for (i, part) in out.chunks_mut(8).enumerate() {
        let at = at + 8 * i;
        // SAFETY: the caller's promise; aligned, as checked above. Locks access these words as
        // atomics only.
        unsafe {
            match part.len() {
                8 => part.copy_from_slice(&(*pointer::<AtomicU64>(at)).load(Relaxed).to_ne_bytes()),
                4 => part.copy_from_slice(&(*pointer::<AtomicU32>(at)).load(Relaxed).to_ne_bytes()),
                _ => return 0,
            }
        }
    }
    out.len()
}

/// Notes why the running microprocess gives way; the next switch record gets the reason.
#[inline(always)]
pub(crate) fn gives_way(ring: &Option<Arc<Ring>>, why: Why) {
    if let Some(ring) = ring {
        ring.note(cause(why));
    }
}

/// Records that `mp` enters the VP's queue.
#[inline(always)]
pub(crate) fn ready(ring: &Option<Arc<Ring>>, vp: usize, mp: &Mp, level: u8, why: Why) {
    if let Some(ring) = ring {
        note_ready(ring, vp, mp, level, why);
    }
}

#[cold]
#[inline(never)]
fn note_ready(ring: &Ring, vp: usize, mp: &Mp, level: u8, why: Why) {
    ring.put(Record {
        id: mp.id(),
        level,
        cause: cause(why),
        arg: vp as u32,
        ..Record::new(Kind::Ready)
    });
}

/// Records that `mp` was spawned on the VP.
#[inline(always)]
pub(crate) fn spawned(ring: &Option<Arc<Ring>>, mp: &Mp) {
    if let Some(ring) = ring {
        note_spawn(mp, |record, name| ring.put_named(record, name));
    }
}

#[cold]
#[inline(never)]
fn note_spawn(mp: &Mp, put: impl FnOnce(Record, &[u8])) {
    let mut label = [0; 47];
    let n = mp.label(&mut label);
    put(Record { id: mp.id(), level: mp.effective(), ..Record::new(Kind::Spawn) }, &label[..n]);
}

/// Records that `mp` runs on the VP from here, without a switch.
pub(crate) fn runs(ring: &Option<Arc<Ring>>, mp: &Mp) {
    if let Some(ring) = ring {
        ring.put(Record { id: mp.id(), level: mp.level.get(), ..Record::new(Kind::Runs) });
    }
}

/// Records that the running microprocess has announced a block in the kernel.
pub(crate) fn lent(ring: &Option<Arc<Ring>>) {
    if let Some(ring) = ring {
        ring.put(Record { wait: Wait::Blocking.encode().0, ..Record::new(Kind::Blocked) });
    }
}

/// Records that the running microprocess has blocked in the kernel. Called by the thread that took
/// the VP.
pub(crate) fn blocked(ring: &Option<Arc<Ring>>) {
    if let Some(ring) = ring {
        ring.put(Record { wait: WAIT_KERNEL, ..Record::new(Kind::Blocked) });
    }
}

/// Records that the VP has moved to this kernel thread.
pub(crate) fn carried(ring: &Option<Arc<Ring>>, tid: u32, is_bound: bool) {
    if let Some(ring) = ring {
        // Bound: the microprocess of the thread waited for its turn. Otherwise the kernel-thread
        // half has delivered Resumed.
        let cause = if is_bound { Cause::None } else { Cause::Woken };
        ring.put(Record { cause: cause as u8, arg: tid, ..Record::new(Kind::Carried) });
    }
}

/// Records that the kernel's half has delivered `events` on the VP.
pub(crate) fn told(ring: &Option<Arc<Ring>>, events: u32) {
    use kumihimo_events::sched::Event;
    if let Some(ring) = ring {
        let bit = |event: Event, bit| if events & event.bit() != 0 { bit } else { 0 };
        let arg = bit(Event::Preempted, 1) | bit(Event::Changed, 2);
        ring.put(Record { arg, ..Record::new(Kind::Told) });
    }
}

/// Records that `mp`, from the VP's queue, is about to be suspended.
pub(crate) fn held(ring: &Option<Arc<Ring>>, mp: &Mp) {
    if let Some(ring) = ring {
        ring.put(Record { id: mp.id(), wait: WAIT_RESUME, ..Record::new(Kind::Held) });
    }
}

/// Records that the VP becomes idle, or stops being idle.
pub(crate) fn idles(ring: &Option<Arc<Ring>>, begins: bool) {
    if let Some(ring) = ring {
        ring.put(Record::new(if begins { Kind::IdleBegin } else { Kind::IdleEnd }));
    }
}

/// Records that the VP begins a scheduling step, where levels differ.
#[inline(always)]
pub(crate) fn begins_step(ring: &Option<Arc<Ring>>) {
    if let Some(ring) = ring {
        note_step_begin(ring);
    }
}

#[cold]
#[inline(never)]
fn note_step_begin(ring: &Ring) {
    ring.put(Record::new(Kind::Settles));
}

/// Records the end of the scheduling step: `mp` runs there, rank `waits` is the highest waiting
/// one, and `asked` is whether the VP had been asked to rebalance.
#[inline(always)]
pub(crate) fn step_taken(
    ring: &Option<Arc<Ring>>,
    mp: Option<&Mp>,
    (waits, asked): (u32, bool),
    is_given: impl FnOnce() -> bool,
) {
    if let Some(ring) = ring {
        note_step(ring, mp, waits, asked, is_given());
    }
}

#[cold]
#[inline(never)]
fn note_step(ring: &Ring, mp: Option<&Mp>, waits: u32, asked: bool, is_given: bool) {
    let bit = |is, bit| if is { bit } else { 0 };
    let (id, level) = mp.map_or((0, NO_LEVEL), |mp| (mp.id(), mp.level.get()));
    let cause = bit(is_given, GIVEN) | bit(asked, ASKED);
    ring.put(Record { id, level, cause, wait: waits as u8, ..Record::new(Kind::Settled) });
}

fn slot(saw: SlotSnapshot) -> Slot {
    let holder = saw.holder.map(|(place, mark)| Holder {
        row: place.row,
        vp: place.vp,
        mark: mark.number(),
    });
    Slot { serial: saw.serial, holder, given: saw.given }
}

/// Records that the VP has requested its core at this level. `has` is whether it holds the core.
/// `runs` is whether a microprocess runs there or is the next to run; otherwise the VP waits on its
/// kernel thread's own stack.
#[inline(always)]
pub(crate) fn asked(ring: &Option<Arc<Ring>>, seat: &Seat, level: u8, has: bool, runs: bool) {
    if let Some(ring) = ring {
        note_asked(ring, seat, level, has, runs);
    }
}

#[cold]
#[inline(never)]
fn note_asked(ring: &Ring, seat: &Seat, level: u8, has: bool, runs: bool) {
    let Some((saw, mark)) = seat.sees() else { return };
    let bit = |is, bit| if is { bit } else { 0 };
    let (id, cause) = (slot(saw).bits(), bit(has, HAS) | bit(runs, RUNS));
    ring.put(Record {
        id,
        level,
        cause,
        wait: mark.number(),
        arg: saw.core.into(),
        ..Record::new(Kind::Asked)
    });
}

/// Records that the VP is about to leave its core, because nothing is runnable.
pub(crate) fn leaves_core(ring: &Option<Arc<Ring>>, seat: &Seat) {
    if let Some(ring) = ring
        && let Some((saw, _)) = seat.sees()
    {
        ring.put(Record {
            id: slot(saw).bits(),
            arg: saw.core.into(),
            ..Record::new(Kind::Leaves)
        });
    }
}

/// Returns an observer that records the changes that the VP makes to its core's slot.
pub(crate) fn changes(ring: &Arc<Ring>) -> SlotObserver {
    let ring = ring.clone();
    Box::new(move |saw| {
        ring.put(Record { id: slot(saw).bits(), arg: saw.core.into(), ..Record::new(Kind::Slot) })
    })
}

// ---- Callable from any thread ----

/// Records that `mp` was spawned by a thread without a VP.
pub(crate) fn spawned_outside(session: &Option<Arc<Session>>, mp: &Mp) {
    if let Some(session) = session {
        note_spawn(mp, |record, name| session.outside().put_named(record, name));
    }
}

/// Records that `mp` is handed over to VP `to`. Async-signal-safe.
#[inline]
pub(crate) fn injected(
    session: &Option<Arc<Session>>,
    to: usize,
    mp: &Mp,
    level: impl FnOnce() -> u8,
) {
    if let Some(session) = session {
        let (level, arg) = (level(), to as u32);
        let cause = Cause::Woken as u8;
        session.outside().put(Record {
            id: mp.id(),
            level,
            cause,
            arg,
            ..Record::new(Kind::Ready)
        });
    }
}

/// Records that `id` is about to be sent to VP `to` at `level`, where levels differ.
#[inline]
pub(crate) fn sent(session: &Option<Arc<Session>>, to: usize, id: u64, level: u8) {
    if let Some(session) = session {
        session.outside().put(Record { id, level, arg: to as u32, ..Record::new(Kind::Sent) });
    }
}

/// Records that `id` is in that VP's injector.
#[inline]
pub(crate) fn put(session: &Option<Arc<Session>>, to: usize, id: u64) {
    if let Some(session) = session {
        session.outside().put(Record { id, arg: to as u32, ..Record::new(Kind::Put) });
    }
}

/// Records that the VP is overridden: other VPs hand it nothing from here on.
pub(crate) fn overridden(session: &Option<Arc<Session>>, vp: u32) {
    if let Some(session) = session {
        session.outside().put(Record { arg: vp, ..Record::new(Kind::Overridden) });
    }
}

/// Records that `mp` is back from the kernel without a VP. Async-signal-safe.
pub(crate) fn unblocked(session: &Option<Arc<Session>>, tid: u32, mp: &Mp) {
    if let Some(session) = session {
        session.outside().put(Record { id: mp.id(), arg: tid, ..Record::new(Kind::Unblocked) });
    }
}

/// Records that `mp`, which waited for a VP, continues without one. `tid` returns the ID of the
/// kernel thread on which it waited.
pub(crate) fn went_on(ring: &Option<Arc<Ring>>, mp: &Mp, tid: impl FnOnce() -> u32) {
    if let Some(ring) = ring {
        ring.put(Record { id: mp.id(), arg: tid(), ..Record::new(Kind::WentOn) });
    }
}

/// Records that `mp`, on this kernel thread, becomes sticky, or ceases to be. Async-signal-safe.
pub(crate) fn sticks(session: &Option<Arc<Session>>, tid: u32, mp: &Mp, begins: bool) {
    if let Some(session) = session {
        let kind = if begins { Kind::StickyBegin } else { Kind::StickyEnd };
        session.outside().put(Record { id: mp.id(), arg: tid, ..Record::new(kind) });
    }
}

/// Records that this kernel thread no longer carries a VP.
pub(crate) fn pooled(session: &Option<Arc<Session>>, tid: u32) {
    if let Some(session) = session {
        session.outside().put(Record { arg: tid, ..Record::new(Kind::Pooled) });
    }
}

/// Records that the effective priority of a microprocess may have changed.
pub(crate) fn reprioritised(
    session: &Option<Arc<Session>>,
    who: Ref,
    level: impl FnOnce() -> Option<u8>,
) {
    if let Some(session) = session {
        let level = level().unwrap_or(NO_LEVEL);
        let cause = who.mp.effective();
        session.outside().put(Record { id: who.id(), level, cause, ..Record::new(Kind::Priority) });
    }
}
