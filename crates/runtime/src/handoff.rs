//! A kernel thread goes away with its microprocess, and the virtual processor goes on under a spare.
//!
//! `blocking` puts the VP into the kernel thread's slot, unmasks it and calls a spare; the spare claims the VP. Whoever is
//! first has it: a call that returns before the spare got to run goes on as if nothing had happened (protocol and model:
//! `kumihimo_events::slot`). A kernel thread that lost its VP hands its microprocess to the VP's injector, as anything woken from
//! outside, and waits in the pool.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use kumihimo_arch::overflow;
use kumihimo_arch::x86_64;
use kumihimo_events::Claim;

use crate::carrier::{Carrier, KernelThread, Standing, set_standing};
use crate::futex;
use crate::instance::Instance;
use crate::park::Wait;
use crate::record::Mp;
use crate::vp::Vp;

/// Stack of a kernel thread: the loop's idle part, signal frames and what std's thread start needs.
const KERNEL_STACK: usize = 256 << 10;

/// A pooled kernel thread that waits to be called.
#[derive(Default)]
pub(crate) struct Spare {
    word: AtomicU32,
    lender: Mutex<Option<Arc<KernelThread>>>,
}

/// The pool of kernel threads.
pub(crate) struct Spares {
    /// Unbound kernel threads that the pool keeps (P0: set_concurrency).
    pub(crate) keep: AtomicUsize,
    max: usize,
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    idle: Vec<Arc<Spare>>,
    /// Kernel threads of this runtime, those with VPs included.
    threads: usize,
    dismissed: bool,
}

impl Spares {
    pub(crate) fn new(keep: usize, max: usize) -> Spares {
        Spares {
            keep: AtomicUsize::new(keep),
            max,
            state: Mutex::new(State { idle: Vec::new(), threads: 0, dismissed: false }),
            ended: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kernel threads: all, and those that wait in the pool.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.lock();
        (state.threads, state.idle.len())
    }

    /// A spare to call; none if the limit is reached, the kernel refuses another thread, or the runtime ends.
    fn take(&self, instance: &Instance) -> Option<Arc<Spare>> {
        let mut state = self.lock();
        if state.dismissed {
            return None;
        }
        if let Some(spare) = state.idle.pop() {
            return Some(spare);
        }
        if state.threads >= self.max {
            return None;
        }
        state.threads += 1;
        drop(state);
        let spare = Arc::new(Spare::default());
        match start(instance, Start::Spare(spare.clone())) {
            Ok(()) => Some(spare),
            Err(_) => {
                self.lock().threads -= 1;
                None
            }
        }
    }

    /// Keeps fewer from now on: those too many end.
    pub(crate) fn shrink(&self) {
        let keep = self.keep.load(Ordering::Relaxed);
        let mut state = self.lock();
        let excess = state.idle.len().saturating_sub(keep);
        for spare in state.idle.drain(..excess) {
            spare.wake();
        }
    }

    pub(crate) fn dismiss_all(&self) {
        let mut state = self.lock();
        state.dismissed = true;
        for spare in state.idle.drain(..) {
            spare.wake();
        }
    }

    /// Waits until at most `rest` kernel threads are left, or the time is over.
    pub(crate) fn await_end(&self, rest: impl Fn() -> usize, time: std::time::Duration) -> usize {
        let deadline = std::time::Instant::now() + time;
        let mut state = self.lock();
        while state.threads > rest() {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.threads
    }

    fn note_end(&self) {
        self.lock().threads -= 1;
        self.ended.notify_all();
    }
}

impl Spare {
    fn wake(&self) {
        self.word.store(1, Ordering::Release);
        futex::wake_one(&self.word);
    }

    fn call(&self, lender: Arc<KernelThread>) {
        *self.lender.lock().unwrap_or_else(PoisonError::into_inner) = Some(lender);
        self.wake();
    }

    /// Blocks the kernel thread until it is called. None: dismissed.
    fn wait(&self) -> Option<Arc<KernelThread>> {
        while self.word.swap(0, Ordering::Acquire) == 0 {
            futex::wait(&self.word, 0, None);
        }
        self.lender.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What a kernel thread begins as.
pub(crate) enum Start {
    Carrier(usize),
    Spare(Arc<Spare>),
}

/// Starts the kernel threads that carry the VPs.
pub(crate) fn start_carriers(instance: &Arc<Instance>) -> io::Result<()> {
    // Every hand-off, that of `blocking` too, may meet a carrier that is inside `Slot::enter`, which has no fence of its own.
    kumihimo_events::barrier::probe().map_err(|refused| io::Error::new(io::ErrorKind::PermissionDenied, refused))?;
    for vp in 0..instance.vps.len() {
        instance.spares.lock().threads += 1;
        if let Err(e) = start(instance, Start::Carrier(vp)) {
            instance.spares.lock().threads -= 1;
            return Err(io::Error::new(
                e.kind(),
                format!(
                    "kernel thread for virtual processor {vp} of {}: {e}; use fewer (Builder::vps) or raise the limit (ulimit -u)",
                    instance.vps.len()
                ),
            ));
        }
    }
    if std::env::var("KUMI_EVENTS").is_ok_and(|s| s == "watch") {
        let watched = instance.counted();
        let watcher =
            std::thread::Builder::new().name("kumihimo-watch".into()).spawn(move || crate::watcher::watch(&watched))?;
        instance.threads.lock().unwrap_or_else(PoisonError::into_inner).push(watcher);
    }
    Ok(())
}

fn start(instance: &Instance, begin: Start) -> io::Result<()> {
    let instance = instance.counted();
    let threads = instance.clone();
    let handle = std::thread::Builder::new()
        .name("kumihimo".into())
        .stack_size(KERNEL_STACK)
        .spawn(move || kernel_thread(&instance, begin))?;
    let mut list = threads.threads.lock().unwrap_or_else(PoisonError::into_inner);
    // Ended spares are let go of here, so that the list does not grow with the number of calls.
    list.retain(|t| !t.is_finished());
    list.push(handle);
    Ok(())
}

/// The life of a kernel thread: carry a VP, lose it, wait in the pool, take over another.
fn kernel_thread(instance: &Arc<Instance>, begin: Start) {
    // No memory for it is no reason to end: in a Rust program std has given this kernel thread an alternate stack, which takes its place;
    // under a `main` that is not Rust's an overflow would then end in a bare SIGSEGV.
    let _alt_stack = overflow::alt_stack_for_this_thread().ok();
    // SAFETY: integers only. Timers are coalesced over 50 us otherwise (prctl(2), PR_SET_TIMERSLACK).
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
    let kt = KernelThread::attach();
    let mut spare = Arc::new(Spare::default());
    match begin {
        Start::Carrier(i) => carry(&kt, &raw const instance.vps[i]),
        Start::Spare(s) => {
            spare = s;
            wait_for_vp(instance, &kt, &spare);
        }
    }
    while kt.slot.has_vp() {
        // SAFETY: attached, so GS is set.
        std::mem::forget(unsafe { Carrier::here() }.run());
        if kt.slot.has_vp() {
            break;
        }
        publish_bound(instance, &kt);
        if !go_to_pool(instance, &spare) {
            break;
        }
        wait_for_vp(instance, &kt, &spare);
    }
    kt.detach();
    instance.spares.note_end();
}

/// Waits for calls until one of them yields a VP, or the pool dismisses this kernel thread.
fn wait_for_vp(instance: &Instance, kt: &Arc<KernelThread>, spare: &Arc<Spare>) {
    while let Some(lender) = spare.wait() {
        if lender.away.load(Ordering::Relaxed) || lender.is_blocked() {
            // Before the claim: the lender, if it loses its VP, takes itself off the count.
            instance.bound.fetch_add(1, Ordering::Relaxed);
            if let Claim::Taken(vp) = lender.slot.claim() {
                carry(kt, std::ptr::with_exposed_provenance(vp));
                instance.hand_offs.fetch_add(1, Ordering::Relaxed);
                return;
            }
            instance.bound.fetch_sub(1, Ordering::Release);
        }
        if !go_to_pool(instance, spare) {
            return;
        }
    }
}

fn carry(kt: &Arc<KernelThread>, vp: *const Vp) {
    kt.slot.install(vp.expose_provenance());
    // SAFETY: a VP of the running instance.
    unsafe { &*vp }.set_carried_by(Some(kt.clone()));
}

/// Calls a spare for the VP of a kernel thread that sleeps in the kernel with it.
pub(crate) fn hand_over(instance: &Instance, lender: Arc<KernelThread>) {
    if let Some(spare) = instance.spares.take(instance) {
        spare.call(lender);
    }
}

fn go_to_pool(instance: &Instance, spare: &Arc<Spare>) -> bool {
    let spares = &instance.spares;
    let mut state = spares.lock();
    if state.dismissed || state.idle.len() >= spares.keep.load(Ordering::Relaxed) {
        return false;
    }
    state.idle.push(spare.clone());
    true
}

/// The microprocess that came back without a VP has left its stack: it is runnable, like one that was woken from outside.
fn publish_bound(instance: &Instance, kt: &KernelThread) {
    // SAFETY: null or a record.
    if let Some(mp) = unsafe { kt.current.replace(std::ptr::null()).as_ref() } {
        instance.inject(usize::from(mp.home.load(Ordering::Relaxed)), mp);
        instance.bound.fetch_sub(1, Ordering::Release);
    }
}

/// Runs `f`, which may block the kernel thread, while the VP goes on elsewhere with the other microprocesses.
///
/// Blocks the kernel thread for as long as `f` does, and the microprocess with it; nobody else. Inside, waiting on Kumihimo's own types
/// blocks the kernel thread. On a foreign kernel thread, or where no further kernel thread is to be had (limit reached; counted in the
/// metrics), `f` simply runs. Not a cancellation point.
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    let Some(carrier) = Carrier::current() else { return f() };
    let Some(mp) = carrier.running() else { return f() };
    let instance = carrier.vp().instance();
    let Some(spare) = instance.spares.take(instance) else {
        instance.blocking_inline.fetch_add(1, Ordering::Relaxed);
        // Not masked while it runs.
        drop(carrier);
        return f();
    };
    lend(carrier, mp, &spare);
    // The microprocess must be back on a VP before anything unwinds through it.
    let outcome = catch_unwind(AssertUnwindSafe(f));
    take_back(mp);
    outcome.unwrap_or_else(|payload| resume_unwind(payload))
}

fn lend(carrier: Carrier, mp: &'static Mp, spare: &Spare) {
    let kt = carrier.kernel_thread();
    let vp = carrier.vp();
    vp.note_wait(mp, Wait::Blocking.encode());
    vp.account_for(mp);
    set_standing(Standing::Bound);
    // SAFETY: the record is inside an `Arc` that its kernel thread, this one, holds.
    let lender = unsafe {
        Arc::increment_strong_count(kt);
        Arc::from_raw(kt)
    };
    kt.away.store(true, Ordering::Relaxed);
    kt.slot.unmask();
    std::mem::forget(carrier);
    spare.call(lender);
}

/// The caller's VP was taken over while it was away in the kernel without saying so.
#[cold]
pub(crate) fn come_back() -> Carrier {
    // SAFETY: the caller's standing is `OnVp`: GS is set.
    let kt = unsafe { KernelThread::here() };
    debug_assert_eq!(kt.slot.depth(), 0);
    if kt.slot.mask() {
        // SAFETY: masked just now.
        return unsafe { Carrier::here() };
    }
    // SAFETY: the kernel thread's own stack has no VP, so a microprocess runs.
    let mp = unsafe { crate::carrier::running_here() }.expect("a microprocess lost its VP");
    // SAFETY: it is bound and its kernel thread has no VP.
    unsafe { leave_bound(mp) }
}

fn take_back(mp: &'static Mp) {
    // SAFETY: Bound, so GS is set; a bound microprocess stays on its kernel thread.
    let kt = unsafe { KernelThread::here() };
    kt.away.store(false, Ordering::Relaxed);
    if kt.slot.mask() {
        // SAFETY: as above; only now the slot's VP is ours to look at.
        let carrier = unsafe { Carrier::here() };
        let vp = carrier.vp();
        vp.level.set(mp.level.get());
        set_standing(Standing::OnVp);
        return;
    }
    // In the microprocess's own block (a lean one's: the kernel thread's, for which it is right too): on a VP when it continues.
    set_standing(Standing::OnVp);
    // SAFETY: bound, and the slot says that the VP is gone.
    drop(unsafe { leave_bound(mp) });
}

/// A bound microprocess gives its kernel thread up and continues when it has its turn on a VP.
///
/// # Safety
/// The caller is `mp`; its kernel thread has no VP.
unsafe fn leave_bound(mp: &'static Mp) -> Carrier {
    // SAFETY: a microprocess: GS is set.
    let kt = unsafe { KernelThread::here() };
    let (save, to, fs) = (mp.context.get(), kt.idle.get(), kt.fs);
    let own_fs = if mp.fs.get() == 0 { fs } else { mp.fs.get() };
    // SAFETY: the kernel thread's own context waits in `Carrier::run`; it publishes this microprocess (`current`) only after it was
    // left. Continued on a VP by whoever takes it from the injector.
    unsafe {
        if fs == own_fs {
            x86_64::switch_same(save, *to);
        } else if x86_64::fsgsbase() {
            x86_64::switch_fs(save, *to, fs);
        } else {
            x86_64::switch_prctl(save, *to, fs);
        }
        Carrier::here().arrive()
    }
}
