//! A complete thread package on events and the shared page: an example of a user scheduler.
//!
//! It runs microprocesses with priorities on some virtual processors (VPs), with one run queue for
//! all. They may call std, libc or any code that blocks. The kernel's half (`kumihimo_events`) then
//! moves their VP to another kernel thread, which runs the others.
//!
//! ```text
//!  a kernel thread's own stack: `resumed`              a microprocess's stack
//!    next(): from the queue by priority  ── run ──>    user code, unmasked
//!    settle(): queue it, free it, ...   <── leave ──   enter(): masked, the VP is here
//!    nothing to run: mark the VP, put it down, back to the pool
//! ```
//! 1. *Masked inside the scheduler, unmasked outside.* A masked kernel thread keeps its VP, so it
//!    may hold the queue's lock. It allocates nothing and takes no other lock: a stopped
//!    microprocess may hold such a lock anywhere in user code.
//! 2. *A microprocess that returns from the kernel without a VP waits in place* (`await_turn`), on
//!    its own kernel thread, until a VP is handed over. It waits in the handler of SIGTRAP if the
//!    event source reports returns, otherwise where it next enters the scheduler. It is queued like
//!    any other microprocess.
//! 3. *A thread that makes a microprocess runnable announces it* (`announce`) to a VP without a
//!    carrier, or to the VP that runs the lowest priority.

#[path = "handle.rs"] // // Found whichever file includes this one.
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

/// The first function on a microprocess's stack.
extern "C" fn first(mp: *mut u8) -> ! {
    // SAFETY: `mp` is the pointer that `spawn` passed; microprocesses live for ever. Only this
    // function reads the body of this use.
    let body = unsafe {
        tls::get().first_run();
        (*(*mp.cast::<Mp>()).body.get()).take()
    };
    IS_ONE.set(true);
    // The microprocess that switched here was masked.
    drop(Masked(PhantomData));
    body.expect("every life has one")();
    // SAFETY: on the microprocess's own block; no value with a destructor is used afterwards.
    unsafe { tls::get().exit_current() };
    enter().expect("it is one").leave(Left::Ended);
    unreachable!("an ended microprocess was continued");
}

/// What the scheduler must do with a microprocess that has left its stack.
#[derive(Clone, Copy)]
enum Left {
    Yielded,
    Preempted,
    /// It waits for the end of the other microprocess, in the use with that ID.
    Joins(&'static Mp, u64),
    Ended,
}

/// The record of a kernel thread of the pool. GS points to it.
#[repr(C)]
struct Carrier {
    this: Cell<*const Carrier>,
    scheduler: &'static Scheduler,
    /// The offset of this field is fixed: the signal handlers of the kernel's half read it.
    thread: &'static KernelThread,
    /// The thread's own context in `resumed`, while a microprocess runs on the thread.
    own: UnsafeCell<Context>,
    fs: usize,
    current: Cell<Option<&'static Mp>>,
    left: Cell<Left>,
}

const _: () = assert!(std::mem::offset_of!(Carrier, thread) == trap::GS_THREAD);

thread_local! {
    /// Whether the calling code runs in a microprocess: each has its own block. GS may be read only
    /// there.
    static IS_ONE: Cell<bool> = const { Cell::new(false) };
}

impl Carrier {
    /// Returns the record of the calling kernel thread. The result must not be kept across a
    /// switch.
    ///
    /// # Safety
    /// The caller is a microprocess, or is called by the kernel's half on a kernel thread of the
    /// pool.
    unsafe fn here<'a>() -> &'a Carrier {
        // SAFETY: the caller guarantees that GS points to a record that lives as long as the kernel
        // thread.
        unsafe { &*cpu::gs_word::<0>().cast::<Carrier>() }
    }

    /// Runs `next` until it leaves. Called on the kernel thread's own stack.
    fn run(&self, next: &'static Mp) -> Left {
        self.current.set(Some(next));
        // SAFETY: `next` came out of the queue: its context is complete and belongs to this thread
        // alone.
        unsafe { switch(self.own.get(), *next.context.get(), next.fs) };
        self.current.set(None);
        self.left.get()
    }
}

/// Saves the current context in `save` and switches to `to`.
///
/// # Safety
/// As for [`cpu::switch_fs`].
unsafe fn switch(save: *mut Context, to: Context, fs: usize) {
    let switch = if cpu::fsgsbase() { cpu::switch_fs } else { cpu::switch_prctl };
    // SAFETY: the caller guarantees the contexts.
    unsafe { switch(save, to, fs) }
}

/// A guard: while it exists, the calling microprocess is masked and has a VP.
struct Masked(PhantomData<*const ()>);

/// Masks the calling microprocess. A microprocess whose VP was taken over during a block waits for
/// a VP first. Returns `None` if the caller is no microprocess.
fn enter() -> Option<Masked> {
    if !IS_ONE.get() {
        return None;
    }
    // SAFETY: the caller is a microprocess, which stays on its kernel thread until it leaves by
    // itself.
    let here = unsafe { Carrier::here() };
    if !here.thread.slot().enter(here.thread.token()) {
        here.scheduler.await_turn(here, false);
    }
    Some(Masked(PhantomData))
}

impl Masked {
    /// Switches to the kernel thread's own stack. Returns when the microprocess is continued,
    /// perhaps on another kernel thread.
    fn leave(&self, left: Left) {
        // SAFETY: the caller is a microprocess.
        let here = unsafe { Carrier::here() };
        let mp = here.current.get().expect("it runs");
        here.left.set(left);
        // SAFETY: the kernel thread's own context waits in `run`. The microprocess is queued only
        // after its context was saved (`settle`).
        unsafe { switch(mp.context.get(), *here.own.get(), here.fs) };
    }
}

/// Unmasks, and delivers the events that were held back.
impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: the caller is a microprocess.
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
    /// Signalled under the lock of `queue` when a microprocess has ended.
    ended: Condvar,
    /// The non-empty levels of `queue`, one bit each. Written under its lock.
    levels: AtomicU64,
    /// Microprocesses that have returned and wait for a VP, as a linked list. The next holder of
    /// the lock queues them, since signal handlers cannot take the lock.
    returned: AtomicPtr<Mp>,
    /// VPs without a carrier, one bit each: there was nothing to run.
    unattended: AtomicU64,
}

impl Scheduler {
    /// Starts the kernel threads.
    ///
    /// # Errors
    /// The reason why this machine cannot run the scheduler.
    ///
    /// # Panics
    /// If the number of VPs is not 1 to 64.
    pub fn open(settings: Settings) -> io::Result<Arc<Scheduler>> {
        assert!((1..=64).contains(&settings.vps), "{} VPs: expected 1 to 64", settings.vps);
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
            // One thread at least stays in the pool, so that it can be called.
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
        // The carriers find nothing to run and put their VPs down.
        (0..settings.vps)
            .try_for_each(|vp| scheduler.kernel.resume(vp, None))
            .inspect_err(|_| scheduler.wait())?;
        Ok(scheduler)
    }

    /// Returns the kernel's half.
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.kernel
    }

    /// Waits until no microprocess is left and the kernel threads have ended. Must not be called
    /// from a microprocess. Blocks the kernel thread.
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

    /// Announces that a microprocess of `priority` was queued or pushed to `returned`.
    /// Async-signal-safe.
    fn announce(&self, priority: u8) {
        // Pairs with the fences in `next_level` and `bind`: a thread that marks a VP or runs a
        // microprocess after this fence sees the queued microprocess.
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

    /// Returns the highest level with a runnable microprocess. Otherwise marks `vp` as unattended
    /// and returns `None`: any thread may take it from then on.
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

    /// Returns the next microprocess for the calling kernel thread's VP. Puts the VP down and
    /// returns `None` if there is none.
    fn next(&self, thread: &KernelThread) -> Option<&'static Mp> {
        let mut queue = lock(&self.queue);
        let Some(level) = self.next_level(&mut queue, thread.vp()?) else {
            // Another thread may have the VP already: this only clears it here.
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

    /// Notes that `mp` runs on `thread` from now on. Async-signal-safe.
    fn bind(&self, thread: &KernelThread, mp: &Mp) {
        thread.bind(mp.id.load(Relaxed), mp.priority());
        // Pairs with the fences in `announce` and `set_priority`.
        fence(SeqCst);
        thread.slot().priority.store(i32::from(mp.priority()), Relaxed);
        let outranked = self.levels.load(Relaxed) >> mp.priority() > 1;
        if outranked || !self.returned.load(Relaxed).is_null() {
            thread.slot().pending.fetch_or(Event::Preempted.bit(), Relaxed);
        }
    }

    /// Queues or frees a microprocess that has left its stack.
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

    /// Waits until the running microprocess, which is masked and has lost its VP, has a VP again.
    /// Async-signal-safe.
    ///
    /// `in_user_code`: the microprocess may hold a lock that every VP waits for, such as malloc's
    /// lock for the start of a kernel thread. In that case it continues without a VP until it next
    /// enters the scheduler.
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
        // Not detached: no entry of the microprocess is left in the queue.
        mp.waits_on.set(None);
        self.kernel.unbind();
        self.bind(thread, mp);
    }
}

impl UserScheduler for Scheduler {
    fn thread(&self, thread: &KernelThread, live: &mut dyn FnMut()) {
        // For the handler of SIGTRAP. Without memory, std's alternate stack is used.
        let _alt_stack = overflow::alt_stack_for_this_thread().ok();
        // SAFETY: both outlive the kernel thread. They are used there, and by a thread that hands
        // it a VP, while the kernel thread waits.
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
        // SAFETY: restores the initial value.
        unsafe { cpu::set_gs_base(0) };
    }

    fn blocked(&self, vp: u32) -> Answer {
        // The sleeping microprocess needs no bookkeeping: it is in no queue, and stays bound to its
        // kernel thread.
        let next = self.next_level(&mut lock(&self.queue), vp);
        self.kernel.record(Step::Answered, 0, next);
        next.map_or(Answer::Nothing, |priority| Answer::Next(Some(priority)))
    }

    fn resumed(&self, _vp: u32, thread: &KernelThread) {
        // SAFETY: a kernel thread of the pool.
        let here = unsafe { Carrier::here() };
        // Read the VP from `thread`: a microprocess that lost this VP may return with another one.
        while let Some(next) = self.next(thread) {
            if let Some(ticket) = next.waits_on.get() {
                self.kernel.record(Step::Continued, ticket.thread(), Some(next.priority()));
                if self.kernel.hand(ticket, thread) == Offer::Accepted {
                    return;
                }
                continue; // // It continued without a VP, and will return.
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
        // Events that were raised meanwhile are delivered at the next switch point, not in a signal
        // handler.
        let _ = here.thread.slot().exit();
    }

    fn outranked(&self, _vp: u32, priority: i32) -> Option<u64> {
        let above = u32::try_from(priority + 1).unwrap_or(0);
        self.levels.load(Relaxed).checked_shr(above).is_some_and(|levels| levels != 0).then_some(0)
    }

    fn notified(&self, _events: u32) {
        // Preempted, Changed or both: the microprocess of the highest priority runs next.
        if let Some(masked) = enter() {
            masked.leave(Left::Preempted);
        }
    }
}

/// Locks the queue. Called only while masked, or by threads without a VP.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` masked: no event is delivered, and the VP stays even if `f` blocks. Called in a
/// microprocess.
pub fn masked<R>(f: impl FnOnce(&KernelThread) -> R) -> R {
    let _masked = enter().expect("a microprocess");
    // SAFETY: the caller is a microprocess.
    f(unsafe { Carrier::here() }.thread)
}

/// Passes a switch point: lets runnable microprocesses of higher priority run first.
pub fn check() {
    drop(enter());
}

/// Lets other microprocesses of the caller's priority or above run first.
pub fn yield_now() {
    enter().map_or_else(std::thread::yield_now, |masked| masked.leave(Left::Yielded));
}
