//! Waiting and waking: the one place where a microprocess, or a foreign kernel thread, stops and
//! starts again.
//!
//! Everything in `sync` and `io` is built on [`park`] and [`Waiter::wake`]. The permit here is the
//! runtime's own: it may be left over or consumed spuriously, so callers always loop on a condition
//! of their own. The user's `thread::park` token is a separate word (`thread.rs`), as in std, where
//! a mutex never eats a token that `unpark` left.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use kumihimo_policy::Priority;
use kumihimo_resource::id::{Kind, Printed};

use crate::microprocess::foreign_thread;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::state::Wake;
use crate::microprocess::wake_flag::WakeFlag;
use crate::scheduler::carrier::{self, Carrier, Standing};
use crate::scheduler::instance;
use crate::scheduler::vp::AfterSwitch;
use crate::upcall::sticky;
use crate::wait::tracing_spans;

/// What a parked one waits for. Shown in the deadlock report.
///
/// The `usize` is the address of the object, `u64` the id of a microprocess, `i32` a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Wait {
    Park,
    Sleep,
    Join(u64),
    Mutex(usize),
    RwLock(usize),
    Condvar(usize),
    Barrier(usize),
    Once(usize),
    Semaphore(usize),
    Channel(usize),
    Select,
    Message(usize),
    Io(i32),
    /// As `Io`, for so long that what was not in use of the stack has been given back.
    Idle(i32),
    Scope,
    Blocking,
    Batch,
    Future,
    /// The number of the other side's address space, or 0.
    Gate(u16),
}

/// Marks: a record's address in units of its alignment (user addresses end at 2^47), then as much
/// of its generation as fits.
const MARK_ALIGN: u32 = align_of::<Mp>().trailing_zeros();
const MARK_GENERATION: u64 = 1 << (47 - MARK_ALIGN);
const NO_MARK: u64 = 1 << 62;

#[inline]
fn mark_of(mp: &Mp) -> u64 {
    mark(std::ptr::from_ref(mp).expose_provenance(), mp.state.generation())
}

#[inline]
fn mark(address: usize, generation: u64) -> u64 {
    // Wraps: a generation has more bits than there is room for.
    address as u64 >> MARK_ALIGN | generation.wrapping_mul(MARK_GENERATION) & (NO_MARK - 1)
}

const EMPTY: u32 = 0;
const PERMIT: u32 = 1;
const PARKED: u32 = 2;

/// The parker of a kernel thread that runs no virtual processor.
#[derive(Debug)]
pub(crate) struct ForeignThread {
    word: AtomicU32,
    /// The user's park token, as a microprocess has one.
    pub(crate) token: AtomicU32,
    /// By the wakers of the future that it drives.
    pub(crate) wake_flag: WakeFlag,
    pub(crate) id: u64,
    pub(crate) one_to_one: foreign_thread::OneToOne,
}

impl ForeignThread {
    fn new() -> ForeignThread {
        // The top bit is never set in a microprocess's id.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
        ForeignThread {
            word: AtomicU32::new(EMPTY),
            token: AtomicU32::new(0),
            wake_flag: WakeFlag::new(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            one_to_one: foreign_thread::OneToOne::new(),
        }
    }

    fn park(&self, deadline: Option<Instant>) {
        if self.word.compare_exchange(PERMIT, EMPTY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        // As in `park_micro`.
        let bound = foreign_thread::scope_deadline().filter(|b| deadline.is_none_or(|d| *b < d));
        if self.word.compare_exchange(EMPTY, PARKED, Ordering::Acquire, Ordering::Acquire).is_ok() {
            crate::process::futex::wait(&self.word, PARKED, bound.or(deadline));
        }
        if bound.is_some_and(|b| Instant::now() >= b) {
            foreign_thread::cancel_self();
        }
        // Permit or timeout or spurious: whatever is there is consumed.
        self.word.swap(EMPTY, Ordering::Acquire);
    }

    pub(crate) fn wake(&self) {
        if self.word.swap(PERMIT, Ordering::Release) == PARKED {
            crate::process::futex::wake_one(&self.word);
        }
    }
}

thread_local! {
    static FOREIGN: Cell<Option<Arc<ForeignThread>>> = const { Cell::new(None) };
}

pub(crate) fn foreign() -> Arc<ForeignThread> {
    FOREIGN
        .try_with(|slot| {
            let parker = slot.take().unwrap_or_else(|| Arc::new(ForeignThread::new()));
            slot.set(Some(parker.clone()));
            parker
        })
        // During the thread's TLS destruction a fresh one serves: nobody else can hold the old
        // one's permit.
        .unwrap_or_else(|_| Arc::new(ForeignThread::new()))
}

#[derive(Clone, Debug)]
pub(crate) enum Who {
    Micro(Ref),
    Foreign(Arc<ForeignThread>),
}

/// A waiter: a microprocess or a foreign kernel thread.
///
/// Waking one that has ended does nothing.
#[derive(Clone)]
pub struct Waiter(Who);

impl PartialEq for Waiter {
    fn eq(&self, other: &Waiter) -> bool {
        match (&self.0, &other.0) {
            (Who::Micro(a), Who::Micro(b)) => a == b,
            (Who::Foreign(a), Who::Foreign(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Eq for Waiter {}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiter({})", Printed(self.id()))
    }
}

/// The caller as a waiter that can be woken.
///
/// Inside `blocking` the kernel thread itself waits, so there it is the kernel thread that is
/// woken.
#[inline]
pub fn current() -> Waiter {
    match if waits_as_microprocess() { carrier::current_mp() } else { None } {
        Some(mp) => Waiter(Who::Micro(mp.reference())),
        None => Waiter(Who::Foreign(foreign())),
    }
}

/// Whether the caller runs on a virtual processor, so that waiting blocks the microprocess only.
#[inline]
pub fn on_vp() -> bool {
    carrier::standing() == Standing::OnVp
}

/// Whether the caller, if it waits, is woken as a microprocess: not on a foreign kernel thread, nor
/// inside `blocking`.
#[inline]
pub fn waits_as_microprocess() -> bool {
    matches!(carrier::standing(), Standing::OnVp | Standing::Sticky)
}

/// How many virtual processors the runtime has that carries the caller; `None` where [`on_vp`] is
/// false.
#[inline]
pub fn vps() -> Option<usize> {
    match Carrier::current() {
        Some(carrier) => Some(carrier.vp().instance().vps.len()),
        // Its VP was taken over while it was away in the kernel.
        None if on_vp() => instance::visit(|i| i.map(|i| i.vps.len())),
        None => None,
    }
}

/// Whether a kernel thread that sleeps in a system call gives its virtual processor up by itself,
/// so that nobody need say before: an event source tells of it, or the caller has no virtual
/// processor that it could hold up. False with event source `off`.
#[inline]
pub fn sleeps_are_told() -> bool {
    instance::hears_of_sleeps() || Carrier::current().is_none()
}

/// Blocks the caller until it is woken, the deadline passes, or spuriously.
///
/// Blocks the microprocess; on a foreign kernel thread, inside `blocking`, and of one that blocks
/// often in calls that the runtime does not know ([`crate::api::runtime::Builder::sticky`]), the
/// kernel thread. Not a cancellation point, but a cancel request ends the wait. `why` is for
/// reports only. What the waker did before `wake` happens before the return.
#[inline]
pub fn park(why: Wait, deadline: Option<Instant>) {
    let _told = tracing_spans::WaitSpan::begin(why);
    let why = why.encode();
    match Carrier::regain_to_wait() {
        Some(carrier) if carrier.is_running() => {
            if deadline.is_none() && !runner(&carrier).bounded.get() {
                park_micro(carrier, why);
            } else {
                park_micro_until(carrier, why, deadline);
            }
        }
        _ => park_on_kernel_thread(why, deadline),
    }
}

#[cold]
fn park_on_kernel_thread(why: (u8, usize), deadline: Option<Instant>) {
    match sticky::current() {
        Some((kt, mp)) => sticky::park(kt, mp, why, deadline),
        None => foreign().park(deadline),
    }
}

/// The running microprocess's record.
#[inline(always)]
fn runner(carrier: &Carrier) -> &'static Mp {
    // SAFETY: not null (checked by the callers): the running microprocess's record, which lives for
    // ever.
    unsafe { &*carrier.kernel_thread().current.get() }
}

// One frame with the switch in it: its lines have to be there when this one continues.
#[inline(never)]
fn park_micro(carrier: Carrier, why: (u8, usize)) {
    let mp = runner(&carrier);
    if !mp.state.take_permit() {
        carrier.vp().note_wait(mp, why);
        carrier.leave(AfterSwitch::Park);
    }
}

#[cold]
fn park_micro_until(carrier: Carrier, why: (u8, usize), deadline: Option<Instant>) {
    let vp = carrier.vp();
    let mp = runner(&carrier);
    // A scope's deadline cancels its children where they wait. Not twice: one that puts its end off
    // (a lock, `masked`) may wait on.
    let bound =
        mp.scope_deadline().filter(|b| deadline.is_none_or(|d| *b < d) && !mp.state.is_cancelled());
    let Some(deadline) = bound.or(deadline) else { return park_micro(carrier, why) };
    if mp.state.take_permit() {
        return;
    }
    vp.note_wait(mp, why);
    let at = vp.instance().at(deadline);
    if at <= vp.instance().now() {
        if bound.is_some() {
            mp.state.cancel(mp.state.generation());
            return;
        }
        // Others get their turn all the same: a caller that polls with deadlines in the past would
        // starve them.
        carrier.give_way(kumihimo_policy::Why::Yielded);
        return;
    }
    let armed_at = vp.index;
    {
        // A timer is a resource: opened here, closed by the VP that finds it due or stale.
        let _held = vp.instance().table.enter_own(Kind::TIMER, &mp.claim);
        vp.timers().arm(mp.reference(), at);
    }
    vp.turn_clock.sooner(at);
    mp.wait_kind.store(mp.wait_kind.load(Ordering::Relaxed) | Wait::TIMED, Ordering::Relaxed);
    let number = mp.timer.load(Ordering::Relaxed);
    let carrier = carrier.leave(AfterSwitch::Park);
    if carrier.vp().instance().now() < at {
        mp.timer.store(number.wrapping_add(1), Ordering::Relaxed);
        if carrier.vp().index == armed_at {
            carrier.vp().timers().disarmed();
        }
    } else if bound.is_some() {
        mp.state.cancel(mp.state.generation());
    }
}

/// A switch point: gives way if something of a higher level has become runnable here, or the
/// policy's quantum is over.
///
/// Call it where no lock is held, after having woken others. Nothing on foreign threads.
#[inline]
pub fn switch_point() {
    if let Some(carrier) = Carrier::regain()
        && carrier.is_running()
    {
        carrier.switch_point();
    }
}

/// Asks the processor for a line of memory, and does not wait for it. Any address will do.
#[inline(always)]
pub(crate) fn prefetch(line: *const u8) {
    kumihimo_arch::cpu::prefetch(line);
}

/// Asks for the lines that a microprocess will touch first when it runs on.
#[inline]
pub(crate) fn prefetch_stack(mp: &'static Mp) {
    // SAFETY: records live for ever. It waits or is about to, so its context is written, if at all,
    // by the switch of another VP at this moment: one word, which is only taken for an address to
    // ask for.
    let stack =
        unsafe { AtomicPtr::from_ptr(mp.context.get().cast::<*mut u8>()) }.load(Ordering::Relaxed);
    for line in 0..5 {
        prefetch(stack.wrapping_add(line * 64));
    }
    prefetch(std::ptr::with_exposed_provenance(mp.fs.get()));
}

impl Waiter {
    pub(crate) fn of(who: Ref) -> Waiter {
        Waiter(Who::Micro(who))
    }

    /// A number for the calling microprocess: not 0, below 2^62, of nobody else among the living.
    /// For the words of locks; [`of_mark`](Waiter::of_mark) leads back. Only where
    /// [`waits_as_microprocess`] is true.
    #[inline]
    pub fn mark() -> u64 {
        debug_assert!(waits_as_microprocess());
        carrier::current_mp().map_or(NO_MARK, mark_of)
    }

    /// The living microprocess with this mark. None for any number of 2^62 or more.
    ///
    /// Smaller numbers must have come from [`mark`](Waiter::mark).
    pub fn of_mark(mark: u64) -> Option<Waiter> {
        if mark == 0 || mark >= NO_MARK {
            return None;
        }
        let at = ((mark & (MARK_GENERATION - 1)) as usize) << MARK_ALIGN;
        // SAFETY: `mark_of` made it from a record's address; records live for ever.
        let mp: &'static Mp = unsafe { &*std::ptr::with_exposed_provenance::<Mp>(at) };
        let who = mp.reference();
        (mark_of(mp) == mark && who.is_alive()).then(|| Waiter::of(who))
    }

    pub(crate) fn of_foreign(who: Arc<ForeignThread>) -> Waiter {
        Waiter(Who::Foreign(who))
    }

    pub(crate) fn who(&self) -> &Who {
        &self.0
    }

    /// Ends the wait, or leaves one permit that ends the next. Everything before happens before the
    /// return of `park`.
    ///
    /// Does not switch, so it may be called with a short lock held. Lock-free.
    #[inline]
    pub fn wake(&self) {
        match &self.0 {
            Who::Micro(who) => match Carrier::current() {
                Some(carrier) => carrier.vp().wake(*who),
                None => wake_from_outside(*who),
            },
            Who::Foreign(f) => f.wake(),
        }
    }

    /// As [`wake`](Waiter::wake), with the hint that the caller is about to block: the woken one
    /// runs next, here.
    #[inline]
    pub fn wake_sync(&self) {
        match &self.0 {
            Who::Micro(who) => match Carrier::current() {
                Some(carrier) => carrier.vp().wake_next(*who),
                None => wake_from_outside(*who),
            },
            Who::Foreign(f) => f.wake(),
        }
    }

    /// Asks for the lines of memory that waking it will touch.
    #[inline]
    pub(crate) fn prefetch_record(&self) {
        if let Who::Micro(who) = &self.0 {
            prefetch(std::ptr::from_ref(who.mp).cast());
        }
    }

    /// [`prefetch_stack`] of a microprocess. Its record should be there by now.
    #[inline]
    pub(crate) fn prefetch_stack(&self) {
        if let Who::Micro(who) = &self.0
            && who.is_alive()
        {
            prefetch_stack(who.mp);
        }
    }

    /// Unique among the living; never 0.
    pub fn id(&self) -> u64 {
        match &self.0 {
            Who::Micro(who) => who.id(),
            Who::Foreign(f) => f.id,
        }
    }

    /// Effective priority, 0..=63. Foreign threads count as 32.
    pub fn priority(&self) -> u8 {
        match &self.0 {
            Who::Micro(who) => who.mp.effective(),
            Who::Foreign(_) => kumihimo_policy::Priority::DEFAULT.get(),
        }
    }

    /// Priority inheritance: the effective priority becomes the larger of its own and `p`. Nothing
    /// on foreign threads, and on one that has ended.
    pub fn set_inherited(&self, p: Option<u8>) {
        if let Who::Micro(who) = &self.0
            && who.is_alive()
            && who.mp.inherited() != p
        {
            who.mp.set_inherited(p.map(|p| p.min(kumihimo_policy::Priority::HIGHEST.get())));
            crate::lifecycle::priority::changed(*who);
        }
    }

    /// Sets its own priority, as `Thread::set_priority` does, and is no switch point: for a holder
    /// of a lock, or a virtual processor's step. Nothing on foreign threads.
    pub fn set_priority(&self, priority: Priority) {
        if let Who::Micro(who) = &self.0
            && who.is_alive()
        {
            crate::lifecycle::priority::set(*who, priority);
        }
    }

    /// The same for one that waits, and is about to be woken by the caller: it is placed by its new
    /// priority then. One that has not gone to sleep yet runs on as before, until it sets its own.
    pub fn set_priority_asleep(&self, priority: Priority) {
        if let Who::Micro(who) = &self.0
            && who.is_alive()
        {
            who.mp.priority.store(priority.get(), Ordering::Relaxed);
        }
    }

    /// False for a foreign kernel thread.
    pub fn is_microprocess(&self) -> bool {
        matches!(self.0, Who::Micro(_))
    }
}

/// A wake-up by a kernel thread that carries no VP: through the injector of the VP where it last
/// ran.
#[cold]
fn wake_from_outside(who: Ref) {
    instance::visit(|instance| {
        // No instance: whatever was parked in it has been abandoned.
        if let Some(instance) = instance
            && who.wake() == Wake::Queue
        {
            instance.inject(usize::from(who.mp.home.load(Ordering::Relaxed)), who.mp);
        }
    });
}

impl Wait {
    /// In the encoded kind: the wait has a deadline. Gone with the next wait.
    pub(crate) const TIMED: u8 = 0x80;
    /// The same: a VP that idles has seen it before: see [`crate::memory::stack_trim`].
    pub(crate) const LONG: u8 = 0x40;
    /// The same: [`Wait::Idle`].
    const TRIMMED: u8 = 0x20;
    /// What is not one of these.
    pub(crate) const KIND: u8 = !(Wait::TIMED | Wait::LONG | Wait::TRIMMED);
    /// For a descriptor, with the stack as it was left.
    pub(crate) const IO: u8 = 13;

    #[inline(always)]
    pub(crate) fn encode(self) -> (u8, usize) {
        match self {
            Wait::Park => (1, 0),
            Wait::Sleep => (2, 0),
            Wait::Join(id) => (3, id as usize),
            Wait::Mutex(a) => (4, a),
            Wait::RwLock(a) => (5, a),
            Wait::Condvar(a) => (6, a),
            Wait::Barrier(a) => (7, a),
            Wait::Once(a) => (8, a),
            Wait::Semaphore(a) => (9, a),
            Wait::Channel(a) => (10, a),
            Wait::Select => (11, 0),
            Wait::Message(a) => (12, a),
            Wait::Io(fd) => (Wait::IO, fd as usize),
            Wait::Idle(fd) => (Wait::IO | Wait::TRIMMED, fd as usize),
            Wait::Scope => (14, 0),
            Wait::Blocking => (15, 0),
            Wait::Batch => (16, 0),
            Wait::Future => (17, 0),
            Wait::Gate(space) => (20, usize::from(space)),
        }
    }

    pub(crate) fn decode(kind: u8, object: usize) -> Option<Wait> {
        Some(match kind & Wait::KIND {
            1 => Wait::Park,
            2 => Wait::Sleep,
            3 => Wait::Join(object as u64),
            4 => Wait::Mutex(object),
            5 => Wait::RwLock(object),
            6 => Wait::Condvar(object),
            7 => Wait::Barrier(object),
            8 => Wait::Once(object),
            9 => Wait::Semaphore(object),
            10 => Wait::Channel(object),
            11 => Wait::Select,
            12 => Wait::Message(object),
            Wait::IO => Wait::Io(object as i32),
            14 => Wait::Scope,
            15 => Wait::Blocking,
            16 => Wait::Batch,
            17 => Wait::Future,
            20 => Wait::Gate(object as u16),
            _ => return None,
        })
    }
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wait::Park => write!(f, "an unpark"),
            Wait::Sleep => write!(f, "the clock"),
            Wait::Join(id) => write!(f, "the end of microprocess {}", Printed(*id)),
            Wait::Mutex(a) => write!(f, "the mutex at {a:#x}"),
            Wait::RwLock(a) => write!(f, "the rwlock at {a:#x}"),
            Wait::Condvar(a) => write!(f, "the condition variable at {a:#x}"),
            Wait::Barrier(a) => write!(f, "the barrier at {a:#x}"),
            Wait::Once(a) => write!(f, "the initialisation at {a:#x}"),
            Wait::Semaphore(a) => write!(f, "the semaphore at {a:#x}"),
            Wait::Channel(a) => write!(f, "the channel at {a:#x}"),
            Wait::Select => write!(f, "one of several channels"),
            Wait::Message(a) => write!(f, "a message at {a:#x}"),
            Wait::Io(fd) | Wait::Idle(fd) => write!(f, "descriptor {fd}"),
            Wait::Scope => write!(f, "the end of its scope's children"),
            Wait::Blocking => write!(f, "a blocking call"),
            Wait::Batch => write!(f, "its batch of system calls"),
            Wait::Future => write!(f, "a future"),
            Wait::Gate(0) => write!(f, "a call from another address space"),
            Wait::Gate(space) => write!(f, "address space {space}, through a gate"),
        }
    }
}

#[cfg(test)]
mod tests;
