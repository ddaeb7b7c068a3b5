//! A whole thread package on events and shared page: bring your own user scheduler.
//!
//! Microprocesses with priorities on some virtual processors (VPs), one run queue for all. They
//! call std, libc or whatever blocks; the kernel's half (`kumihimo_events`) sees to it that their
//! VP goes on with the others.
//!
//! ```text
//!  a kernel thread's own stack: `resumed`              a microprocess's stack
//!    next(): from the queue by priority  ── run ──>    user code, unmasked
//!    settle(): queue it, free it, ...   <── leave ──   enter(): masked, the VP is here
//!    nothing to run: mark the VP, put it down, back to the pool
//! ```
//! 1. *Masked in here, unmasked outside.* A masked kernel thread keeps its VP, so here it may
//!    hold the queue's lock. It allocates nothing and takes no other lock: a microprocess may have
//!    been stopped anywhere in user code, holding it.
//! 2. *A microprocess that returns from the kernel without a VP waits where it stands*
//!    (`await_turn`), on its own kernel thread, until a VP is handed over: in the handler of
//!    SIGTRAP if the event source tells of returns, else where it next enters here. It is queued
//!    like any other.
//! 3. *A thread that makes something runnable announces it* (`announce`) to a VP without a carrier,
//!    or to the VP that runs the lowest priority.

#[path = "handle.rs"] // wherever this file is taken from
pub mod handle;
#[path = "list.rs"]
mod list;
#[path = "microprocess.rs"]
mod microprocess;

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kumihimo_arch::cpu::{self, Context};
use kumihimo_arch::stack::{self, Class};
use kumihimo_arch::{overflow, tls};
use kumihimo_events::kernel::Settings;
use kumihimo_events::return_queue::Offer;
use kumihimo_events::sched::{Answer, Event, UserScheduler};
use kumihimo_events::{Kernel, KernelThread, Step, trap};
use list::List;
use microprocess::{LEVELS, Mp, NOT_QUEUED};

const STACK: usize = 64 << 10;

/// First thing on a microprocess's stack.
extern "C" fn first(mp: *mut u8) -> ! {
    // SAFETY: what `spawn` gave; microprocesses live for ever. We are the only reader of this
    // life's body.
    let body = unsafe {
        tls::get().first_run();
        (*(*mp.cast::<Mp>()).body.get()).take()
    };
    IS_ONE.set(true);
    // The microprocess that switched here was masked.
    drop(Masked(PhantomData));
    body.expect("every life has one")();
    // SAFETY: on its own block; nothing that has a destructor is used afterwards.
    unsafe { tls::get().exit_current() };
    enter().expect("it is one").leave(Left::Ended);
    unreachable!("an ended microprocess was continued");
}

/// What the one that left its kernel thread wants done with itself.
#[derive(Clone, Copy)]
enum Left {
    Yielded,
    Preempted,
    /// It waits for the end of the other one, in the life of that number.
    Joins(&'static Mp, u64),
    Ended,
}

/// What we know of a kernel thread of the pool. GS points here.
#[repr(C)]
struct Carrier {
    this: Cell<*const Carrier>,
    scheduler: &'static Scheduler,
    /// Where the kernel's half looks for it, in its signal handler.
    thread: &'static KernelThread,
    /// Its own context, in `resumed`, while a microprocess runs here.
    own: UnsafeCell<Context>,
    fs: usize,
    current: Cell<Option<&'static Mp>>,
    left: Cell<Left>,
}

const _: () = assert!(std::mem::offset_of!(Carrier, thread) == trap::GS_THREAD);

thread_local! {
    /// In each microprocess's own block: it is one. Elsewhere GS must not be asked.
    static IS_ONE: Cell<bool> = const { Cell::new(false) };
}

impl Carrier {
    /// That of the calling kernel thread. Not to be kept across a switch.
    ///
    /// # Safety
    /// The caller is a microprocess, or called by the kernel's half on a kernel thread of the pool.
    unsafe fn here<'a>() -> &'a Carrier {
        // SAFETY: the caller's promise: GS is set, to a record that lives as long as the kernel
        // thread.
        unsafe { &*cpu::gs_word::<0>().cast::<Carrier>() }
    }

    /// On the kernel thread's own stack: `next` runs here until it leaves.
    fn run(&self, next: &'static Mp) -> Left {
        self.current.set(Some(next));
        // SAFETY: `next` came out of the queue: its context is complete, and ours alone.
        unsafe { switch(self.own.get(), *next.context.get(), next.fs) };
        self.current.set(None);
        self.left.get()
    }
}

/// # Safety
/// As for [`cpu::switch_fs`].
unsafe fn switch(save: *mut Context, to: Context, fs: usize) {
    let switch = if cpu::fsgsbase() { cpu::switch_fs } else { cpu::switch_prctl };
    // SAFETY: the caller's promise.
    unsafe { switch(save, to, fs) }
}

/// As long as it exists, the calling microprocess is masked, and has a VP.
struct Masked(PhantomData<*const ()>);

/// Masks. None: the caller is no microprocess. One whose VP was taken over while it was away in the
/// kernel waits for its turn first.
fn enter() -> Option<Masked> {
    if !IS_ONE.get() {
        return None;
    }
    // SAFETY: a microprocess, which stays on its kernel thread until it leaves by itself.
    let here = unsafe { Carrier::here() };
    if !here.thread.slot().enter(here.thread.token()) {
        here.scheduler.await_turn(here, false);
    }
    Some(Masked(PhantomData))
}

impl Masked {
    /// To the kernel thread's own stack. Returns when the caller is continued, perhaps on another
    /// kernel thread.
    fn leave(&self, left: Left) {
        // SAFETY: a microprocess.
        let here = unsafe { Carrier::here() };
        let mp = here.current.get().expect("it runs");
        here.left.set(left);
        // SAFETY: the kernel thread's own context waits in `run`. Ours is queued only after it was
        // left (`settle`).
        unsafe { switch(mp.context.get(), *here.own.get(), here.fs) };
    }
}

/// Unmasks. What was held back is told at once.
impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: a microprocess.
        let thread = unsafe { Carrier::here() }.thread;
        if thread.slot().exit() {
            thread.deliver();
        }
    }
}

struct Queue {
    levels: [List; LEVELS],
    free: List,
    living: usize,
    last_id: u64,
}

/// The thread package.
pub struct Scheduler {
    kernel: Arc<Kernel>,
    vps: u32,
    class: Class,
    queue: Mutex<Queue>,
    /// With the lock of `queue`: one has ended.
    ended: Condvar,
    /// The levels of `queue` that are not empty, one bit each. Written under its lock.
    levels: AtomicU64,
    /// Microprocesses that have returned and wait for their turn, linked: the next holder of the
    /// lock queues them, since signal handlers cannot take it.
    returned: AtomicPtr<Mp>,
    /// VPs that nobody carries, one bit each: there was nothing to run.
    unattended: AtomicU64,
}

impl Scheduler {
    /// Starts the kernel threads. An error says what is refused here; a number of VPs but 1 to 64
    /// panics.
    pub fn open(settings: Settings) -> io::Result<Arc<Scheduler>> {
        assert!((1..=64).contains(&settings.vps), "{} VPs: 1 to 64 can be had", settings.vps);
        if tls::get().kind() == tls::Kind::Kernel {
            return Err(io::Error::new(io::ErrorKind::Unsupported, tls::get().why()));
        }
        let queue = Queue {
            levels: [List::default(); LEVELS],
            free: List::default(),
            living: 0,
            last_id: 0,
        };
        let scheduler = Arc::new(Scheduler {
            // One stays in the pool at least, to be called when there is something to run again.
            kernel: Kernel::open(Settings {
                concurrency: settings.concurrency.max(1),
                ..settings
            })?,
            vps: settings.vps,
            class: stack::class_for(STACK, tls::get().bytes())?,
            queue: Mutex::new(queue),
            ended: Condvar::new(),
            levels: AtomicU64::new(0),
            returned: AtomicPtr::new(ptr::null_mut()),
            unattended: AtomicU64::new(0),
        });
        let user: Arc<dyn UserScheduler> = scheduler.clone();
        scheduler.kernel.init_sched(Arc::downgrade(&user));
        // They find nothing to run and put their VPs down.
        (0..settings.vps)
            .try_for_each(|vp| scheduler.kernel.resume(vp, None))
            .inspect_err(|_| scheduler.wait())?;
        Ok(scheduler)
    }

    /// The kernel's half.
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.kernel
    }

    /// Waits until no microprocess is left, and for the kernel threads' end. Not from a
    /// microprocess. Blocks the kernel thread.
    pub fn wait(&self) {
        drop(self.ended.wait_while(lock(&self.queue), |queue| queue.living > 0));
        self.kernel.dismiss();
        while self.kernel.await_end(|| 0, Duration::from_secs(1)) > 0 {}
        self.kernel.join();
    }

    fn push(&self, queue: &mut Queue, mp: &'static Mp) {
        mp.level.set(mp.priority());
        queue.levels[usize::from(mp.level.get())].push(mp);
        self.levels.fetch_or(1 << mp.level.get(), Relaxed);
    }

    /// Something of `priority` was queued, or pushed to `returned`. Async-signal-safe.
    fn announce(&self, priority: u8) {
        // Pairs with the fences in `next_level` and `bind`: a thread that marks a VP, or begins to
        // run something, after this sees what was queued.
        fence(SeqCst);
        if let Some(vp) = self.take_unattended() {
            return self.kernel.call(vp, Some(priority));
        }
        let runs = |vp: &u32| {
            self.kernel.carrier(*vp).map_or(i32::MAX, |slot| slot.priority.load(Relaxed))
        };
        if let Some(vp) = (0..self.vps).min_by_key(runs).filter(|vp| runs(vp) < i32::from(priority))
        {
            self.kernel.raise(vp, Event::Preempted);
        }
    }

    fn take_unattended(&self) -> Option<u32> {
        loop {
            let vp = self.unattended.load(SeqCst).trailing_zeros();
            if vp == u64::BITS || self.unattended.fetch_and(!(1 << vp), SeqCst) & 1 << vp != 0 {
                return (vp != u64::BITS).then_some(vp);
            }
        }
    }

    /// The highest level with something to run. None: `vp` is marked, and anybody's from here.
    fn next_level(&self, queue: &mut Queue, vp: u32) -> Option<u8> {
        loop {
            // SAFETY: null or a microprocess, which lives for ever.
            let mut back = unsafe { self.returned.swap(ptr::null_mut(), SeqCst).as_ref() };
            while let Some(mp) = back {
                back = mp.next.take();
                self.push(queue, mp);
            }
            if let Some(level) = self.levels.load(Relaxed).checked_ilog2() {
                return Some(level as u8);
            }
            self.unattended.fetch_or(1 << vp, SeqCst);
            // Threads that return without the lock may have missed the mark.
            let none_back = self.returned.load(SeqCst).is_null();
            if none_back || self.unattended.fetch_and(!(1 << vp), SeqCst) & 1 << vp == 0 {
                return None;
            }
        }
    }

    /// What runs next on the calling kernel thread's VP. None: nothing; the VP was put down.
    fn next(&self, thread: &KernelThread) -> Option<&'static Mp> {
        let mut queue = lock(&self.queue);
        let Some(level) = self.next_level(&mut queue, thread.vp()?) else {
            // Somebody may have it by now: here it only has to be forgotten.
            thread.release_vp();
            return None;
        };
        let list = &mut queue.levels[usize::from(level)];
        let next = list.pop();
        if list.first.is_none() {
            self.levels.fetch_and(!(1 << level), Relaxed);
        }
        next.inspect(|mp| mp.level.set(NOT_QUEUED))
    }

    /// `mp` runs here from now on. Async-signal-safe.
    fn bind(&self, thread: &KernelThread, mp: &Mp) {
        thread.bind(mp.id.load(Relaxed), mp.priority());
        // See `announce` and `set_priority`.
        fence(SeqCst);
        thread.slot().priority.store(i32::from(mp.priority()), Relaxed);
        let outranked = self.levels.load(Relaxed) >> mp.priority() > 1;
        if outranked || !self.returned.load(Relaxed).is_null() {
            thread.slot().pending.fetch_or(Event::Preempted.bit(), Relaxed);
        }
    }

    /// What the one that has left its stack wanted.
    fn settle(&self, mp: &'static Mp, left: Left) {
        let mut queue = lock(&self.queue);
        match left {
            Left::Joins(other, id) if other.id.load(Relaxed) == id => other.joiner.set(Some(mp)),
            Left::Yielded | Left::Preempted | Left::Joins(..) => self.push(&mut queue, mp),
            Left::Ended => {
                mp.id.store(0, Relaxed);
                queue.free.push(mp);
                queue.living -= 1;
                self.ended.notify_all();
                if let Some(joiner) = mp.joiner.take() {
                    self.push(&mut queue, joiner);
                    drop(queue);
                    self.announce(joiner.priority());
                }
            }
        }
    }

    /// Masked: the running microprocess has no VP, and waits where it stands until it has one.
    /// Async-signal-safe. `in_user_code`: it may hold what every VP waits for, perhaps malloc's
    /// lock, for a kernel thread to be started. Then it goes on without, until it enters here.
    fn await_turn(&self, here: &Carrier, in_user_code: bool) {
        let (mp, thread) = (here.current.get().expect("it runs"), here.thread);
        thread.note_lost();
        let unattended = if thread.waiter().is_detached() { None } else { self.take_unattended() };
        if let Some(vp) = unattended {
            thread.acquire_vp(vp);
        } else {
            if let Some(ticket) = thread.begin_wait(None) {
                mp.waits_on.set(Some(ticket));
                let _ = self.returned.fetch_update(SeqCst, SeqCst, |newest| {
                    // SAFETY: null or a microprocess, which lives for ever.
                    mp.next.set(unsafe { newest.as_ref() });
                    Some(ptr::from_ref(mp).cast_mut())
                });
            }
            self.announce(mp.priority());
            if !thread.wait_for_vp(|| {
                in_user_code && (0..self.vps).all(|vp| self.kernel.is_vp_stalled(vp))
            }) {
                return;
            }
        }
        // Not detached: no entry of it is left.
        mp.waits_on.set(None);
        self.kernel.unbind();
        self.bind(thread, mp);
    }
}

impl UserScheduler for Scheduler {
    fn thread(&self, thread: &KernelThread, live: &mut dyn FnMut()) {
        // For the handler of SIGTRAP. Without memory for it there is std's.
        let _alt_stack = overflow::alt_stack_for_this_thread().ok();
        // SAFETY: both outlive the kernel thread. Used there, and by the thread that hands it a VP,
        // for which it waits.
        let (scheduler, thread) = unsafe { (&*ptr::from_ref(self), &*ptr::from_ref(thread)) };
        let here = Carrier {
            this: Cell::new(ptr::null()),
            scheduler,
            thread,
            own: UnsafeCell::new(Context::NULL),
            fs: cpu::fs_base(),
            current: Cell::new(None),
            left: Cell::new(Left::Yielded),
        };
        here.this.set(&here);
        // SAFETY: the record stays until GS is reset.
        unsafe { cpu::set_gs_base((&raw const here).addr()) };
        live();
        // SAFETY: as it was before.
        unsafe { cpu::set_gs_base(0) };
    }

    fn blocked(&self, vp: u32) -> Answer {
        // Of the one that sleeps there is nothing to note: it is in no queue, and stays bound to
        // its kernel thread.
        let next = self.next_level(&mut lock(&self.queue), vp);
        self.kernel.record(Step::Answered, 0, next);
        next.map_or(Answer::Nothing, |priority| Answer::Next(Some(priority)))
    }

    fn resumed(&self, _vp: u32, thread: &KernelThread) {
        // SAFETY: a kernel thread of the pool.
        let here = unsafe { Carrier::here() };
        // `thread` knows the VP: a microprocess that lost this one may bring another one back.
        while let Some(next) = self.next(thread) {
            if let Some(ticket) = next.waits_on.get() {
                self.kernel.record(Step::Continued, ticket.thread(), Some(next.priority()));
                if self.kernel.hand(ticket, thread) == Offer::Accepted {
                    return;
                }
                continue; // It went on without, and will be back.
            }
            self.bind(thread, next);
            self.kernel.record(Step::Loaded, thread.index(), Some(next.priority()));
            let left = here.run(next);
            thread.unbind();
            if matches!(left, Left::Preempted) {
                self.kernel.record(Step::Yields, thread.index(), Some(next.priority()));
            }
            self.settle(next, left);
        }
    }

    fn unblocked(&self) {
        // SAFETY: a kernel thread of the pool.
        let here = unsafe { Carrier::here() };
        if here.thread.slot().is_masked() {
            return;
        }
        if !here.thread.slot().enter(here.thread.token()) {
            self.await_turn(here, true);
        }
        // What was raised meanwhile is told at the next switch point: not in a signal handler.
        let _ = here.thread.slot().exit();
    }

    fn outranked(&self, _vp: u32, priority: i32) -> Option<u64> {
        let above = u32::try_from(priority + 1).unwrap_or(0);
        self.levels.load(Relaxed).checked_shr(above).is_some_and(|levels| levels != 0).then_some(0)
    }

    fn notified(&self, _events: u32) {
        // Preempted, Changed or both: the highest one now goes on.
        if let Some(masked) = enter() {
            masked.leave(Left::Preempted);
        }
    }
}

/// Only masked, or off the VPs, where it is the queue's.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` masked: no event is told, and the VP stays even if `f` blocks. On a microprocess.
pub fn masked<R>(f: impl FnOnce(&KernelThread) -> R) -> R {
    let _masked = enter().expect("a microprocess");
    // SAFETY: a microprocess.
    f(unsafe { Carrier::here() }.thread)
}

/// A switch point: those of higher priority go first, if there are any.
pub fn check() {
    drop(enter());
}

/// Lets the others of the caller's priority, or above, go first.
pub fn yield_now() {
    enter().map_or_else(std::thread::yield_now, |masked| masked.leave(Left::Yielded));
}
