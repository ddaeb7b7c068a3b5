//! Spawn of a microprocess: takes a slot from the pool, prepares a context that calls the closure,
//! moves the closure onto the stack, and queues the microprocess. And its end.

use std::alloc::Layout;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Result as Outcome;
use std::time::Instant;

use kumihimo_arch::cpu::Context;
use kumihimo_policy::{Priority, Why};
use kumihimo_queue::Origin;
use kumihimo_resource::id::Kind;
use kumihimo_resource::table::Table;

use crate::kernel_thread::attributes;
use crate::kernel_thread::gs_record::current_mp;
use crate::lifecycle::body::{Boxed, Named, Run, Unnamed, begin, finish_block};
use crate::lifecycle::scope_data::ScopeData;
use crate::lifecycle::{join, outcome};
use crate::memory::pool::{self, SlotKind};
use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::counters::NO_WAITS;
use crate::microprocess::record::{Account, Mp, Ref};
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::{self, Instance, Visit};
use crate::scheduler::vp::bump;
use crate::trace_hooks;
use crate::upcall::sticky_return;
use crate::wait::tracing_spans;

/// Parameters of a new microprocess.
pub(crate) struct SpawnRequest<'a> {
    pub(crate) kind: SlotKind,
    pub(crate) priority: Priority,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) child_first: bool,
    /// Whether it gets a kernel thread of its own: see [`crate::upcall::bind`].
    pub(crate) bound: bool,
    pub(crate) deadline: Option<Instant>,
    pub(crate) due_ns: Option<u64>,
    /// Receives the address of the thread-local block before the microprocess may run.
    pub(crate) on_block: Option<&'a dyn Fn(usize)>,
}

/// The closure and, later, the result, at the top of the microprocess's stack. Entry and handle
/// refer to it by address.
#[repr(C, align(16))]
pub(crate) struct Packet<B, T> {
    record: &'static Mp,
    body: Body<B, T>,
}

union Body<B, T> {
    closure: ManuallyDrop<B>,
    outcome: ManuallyDrop<MaybeUninit<Outcome<T>>>,
}

/// A started microprocess whose outcome can still be taken.
pub(crate) struct Started<T> {
    pub(crate) who: Ref,
    pub(crate) outcome: *mut Outcome<T>,
}

/// Size in bytes above which closures and results are boxed, because the smallest stack must hold
/// them.
const PACKET_MAX: usize = 1024;

/// Starts a microprocess that runs `f`.
///
/// # Errors
/// No memory, address space or room within the limits for its stack; or the runtime is ending.
pub(crate) fn spawn<F, T>(
    order: &SpawnRequest<'_>,
    scope: Option<&ScopeData>,
    f: F,
) -> io::Result<Started<T>>
where
    F: FnOnce() -> T,
{
    let started = match &order.name {
        // A lean microprocess has the kernel thread's handle of std, with that thread's name.
        Some(name) if !order.kind.lean => spawn_named(order, scope, name, Box::new(f))?,
        // A constant, so that nothing is compiled for the other arm.
        _ if const { is_large::<Packet<Unnamed<F>, T>>() } => {
            check_outcome::<T>(order)?;
            spawn_body(order, scope, Unnamed(Box::new(f) as Boxed<'_, T>))?
        }
        _ => spawn_body(order, scope, Unnamed(f))?,
    };
    tracing_spans::spawned(started.who, order.name.as_deref());
    Ok(started)
}

const fn is_large<P>() -> bool {
    size_of::<P>() > PACKET_MAX || align_of::<P>() > 64
}

#[cold]
fn spawn_named<T>(
    order: &SpawnRequest<'_>,
    scope: Option<&ScopeData>,
    name: &str,
    f: Boxed<'_, T>,
) -> io::Result<Started<T>> {
    check_outcome::<T>(order)?;
    // Before std prepares a thread, which is in vain if none may start.
    instance::visit(|instance| instance.map_or(Ok(()), Instance::admit))?;
    spawn_body(order, scope, Named::new(name, f))
}

/// Checks that the outcome fits on the stack. It is never boxed, because `Started<T>` refers to it.
fn check_outcome<T>(order: &SpawnRequest<'_>) -> io::Result<()> {
    let bytes = size_of::<Packet<Unnamed<fn() -> T>, T>>();
    if bytes > order.kind.class.slot_size() / 4 || align_of::<T>() > 64 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "the result type takes {} bytes, too large for a stack slot of {} bytes: return a Box or set Builder::stack_size",
                size_of::<T>(),
                order.kind.class.slot_size()
            ),
        ));
    }
    Ok(())
}

/// Starts a microprocess with this body, which fits on its stack. The compiler makes a copy of this
/// for each closure in a program, so it has only what depends on the closure's type.
///
/// In a release build it contains the rest as well: three calls, with the settings in memory, cost
/// a tenth of a spawn and its join [measured: docs/src/decisions/075-one-copy-of-a-spawn.md].
#[inline]
fn spawn_body<B, T>(
    order: &SpawnRequest<'_>,
    scope: Option<&ScopeData>,
    body: B,
) -> io::Result<Started<T>>
where
    B: Run<T>,
{
    let opened = Opened::new(order, scope, const { &Shape::of::<B, T>() })?;
    let packet = opened.packet.cast::<Packet<B, T>>();
    let body = Body { closure: ManuallyDrop::new(body) };
    // SAFETY: the place is for a packet of this shape, and nothing runs on the stack yet. Taking
    // the outcome's address reads nothing.
    let outcome = unsafe {
        packet.write(Packet { record: opened.mp, body });
        (&raw mut (*packet).body.outcome).cast::<Outcome<T>>()
    };
    Ok(Started { who: opened.launch(order.child_first), outcome })
}

/// What depends on the types of a packet.
struct Shape {
    packet: Layout,
    entry: extern "C" fn(*mut u8) -> !,
}

impl Shape {
    const fn of<B: Run<T>, T>() -> Shape {
        Shape { packet: Layout::new::<Packet<B, T>>(), entry: entry::<B, T> }
    }
}

/// A new microprocess without its packet. The caller writes the packet, then calls
/// [`Opened::launch`].
#[must_use = "its slot is lost unless it is launched"]
struct Opened {
    mp: &'static Mp,
    /// Where its packet belongs.
    packet: *mut u8,
    creator: Creator,
}

enum Creator {
    Vp(Carrier),
    /// A kernel thread without a VP, and a bound microprocess.
    Outside(Visit),
}

impl Opened {
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn new(
        order: &SpawnRequest<'_>,
        scope: Option<&ScopeData>,
        shape: &Shape,
    ) -> io::Result<Opened> {
        let Some(carrier) = Carrier::current() else { return Opened::outside(order, scope, shape) };
        let vp = carrier.vp();
        vp.instance().admit()?;
        let take = || vp.pool.take(order.kind);
        let (mp, packet) = open(vp.instance().table, order, scope, shape, take)?;
        if let Some(parent) = carrier.running() {
            mp.inherit_attributes(parent);
        }
        Ok(Opened { mp, packet, creator: Creator::Vp(carrier) })
    }

    #[cold]
    #[inline(never)]
    fn outside(
        order: &SpawnRequest<'_>,
        scope: Option<&ScopeData>,
        shape: &Shape,
    ) -> io::Result<Opened> {
        let visit = Visit::begin();
        let instance = visit
            .instance()
            .ok_or_else(|| io::Error::other("the runtime has ended: nothing can be spawned"))?;
        instance.admit()?;
        let take = || pool::take_outside(order.kind);
        let (mp, packet) = open(instance.table, order, scope, shape, take)?;
        match current_mp() {
            Some(parent) => mp.inherit_attributes(parent),
            None => mp.inherit_foreign_attributes(attributes::of_foreign_parent()),
        }
        Ok(Opened { mp, packet, creator: Creator::Outside(visit) })
    }

    /// Makes the microprocess runnable. May switch to it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn launch(self, child_first: bool) -> Ref {
        let mp = self.mp;
        // It may end, and its slot serve another one, before this returns.
        let who = mp.reference();
        match self.creator {
            Creator::Vp(carrier) => launch_here(carrier, mp, child_first),
            Creator::Outside(visit) => {
                let instance = visit.instance().expect("`outside` has found it");
                instance.spawned_outside.fetch_add(1, Ordering::Release);
                let to = instance.next_vp();
                mp.home.store(to as u16, Ordering::Relaxed);
                trace_hooks::spawned_outside(&instance.trace, mp);
                instance.inject(to, mp);
            }
        }
        who
    }
}

/// Opens a microprocess and its parts. Calls the procedures of three rows of the resource table,
/// resolved statically.
#[cfg_attr(not(debug_assertions), inline(always))]
fn open(
    table: &Table,
    order: &SpawnRequest<'_>,
    scope: Option<&ScopeData>,
    shape: &Shape,
    take: impl FnOnce() -> io::Result<&'static Mp>,
) -> io::Result<(&'static Mp, *mut u8)> {
    let mp = {
        let _held = table.enter(Kind::STACK);
        take()?
    };
    {
        let _held = table.enter_own(Kind::SHARE, &mp.claim);
        mp.priority.store(order.priority.get(), Ordering::Relaxed);
        let due_ns = order.due_ns.and_then(NonZeroU64::new);
        mp.account.set(Account { due_ns, ..Account::default() });
    }
    let _held = table.enter_own(Kind::MICROPROCESS, &mp.claim);
    Ok((mp, prepare(mp, order, scope, shape)))
}

/// Writes the context, and begins the life of the record. Returns where the packet belongs.
#[cfg_attr(not(debug_assertions), inline(always))]
fn prepare(
    mp: &'static Mp,
    order: &SpawnRequest<'_>,
    scope: Option<&ScopeData>,
    shape: &Shape,
) -> *mut u8 {
    #[cfg(kumihimo_asan)]
    pool::forget_frames(mp);
    let top = mp.stack_top() as usize;
    let at = (top - shape.packet.size()) & !(shape.packet.align().max(64) - 1);
    let packet = std::ptr::with_exposed_provenance_mut::<u8>(at);
    // SAFETY: the packet fits (checked by the callers) on the stack of a slot that the caller owns,
    // and nothing runs on it yet. The frame of the context is below it, 64-aligned.
    unsafe { *mp.context.get() = Context::prepare(packet, shape.entry, packet) };
    mp.set_deadline(order.deadline);
    if let Some(name) = &order.name {
        mp.set_label(Some(name));
        // SAFETY: the microprocess does not run yet, so the caller owns its name.
        unsafe { *mp.name.get() = Some(name.clone()) };
    }
    mp.set_scope(scope.map(ScopeData::head));
    mp.bounded.set(scope.is_some_and(|scope| scope.deadline().is_some()));
    mp.outcome_dropped.set(false);
    mp.sticky.begin(order.bound);
    mp.switches.store(0, Ordering::Relaxed);
    mp.wake_is_timed.set(false);
    mp.first_wait_kind.store(NO_WAITS, Ordering::Relaxed);
    if mp.is_counted.load(Ordering::Relaxed) {
        mp.is_counted.store(false, Ordering::Relaxed);
        mp.counters.reset();
    }
    if let Some(on_block) = order.on_block {
        on_block(mp.fs.get());
    }
    join::begin(mp);
    mp.state.begin();
    packet
}

#[cfg_attr(not(debug_assertions), inline(always))]
fn launch_here(carrier: Carrier, mp: &'static Mp, child_first: bool) {
    let vp = carrier.vp();
    bump(&vp.counters.spawned);
    trace_hooks::spawned(&vp.trace, mp);
    mp.home.store(vp.index as u16, Ordering::Relaxed);
    if child_first && carrier.is_running() {
        let _ = vp.instance().placer.place(mp, Why::Spawned, || vp.instance().now());
        carrier.switch(mp, AfterSwitch::RequeueFront);
    } else {
        vp.make_ready(mp, Why::Spawned, Origin::Spawn);
        if vp.resched.get().is_some() {
            carrier.switch_point();
        }
    }
}

/// First function on a microprocess's stack.
extern "C" fn entry<B, T>(packet: *mut u8) -> !
where
    B: Run<T>,
{
    let packet = packet.cast::<Packet<B, T>>();
    // SAFETY: `spawn_body` put the body there, and it is read only here.
    let (mp, body) = unsafe { ((*packet).record, ManuallyDrop::take(&mut (*packet).body.closure)) };
    // SAFETY: the packet is live; taking an address reads nothing.
    let place = unsafe { (&raw mut (*packet).body.outcome).cast() };
    begin(mp);
    // SAFETY: this is the first code of the microprocess, and its kernel thread is masked. The
    // body, whose place is the outcome's, has been taken.
    unsafe {
        body.run(mp, place);
        end(mp, place)
    }
}

/// The end of a microprocess, whose outcome is at `place`.
///
/// # Safety
/// The caller is `mp`, which has stored its outcome.
#[cfg_attr(not(debug_assertions), inline(always))]
unsafe fn end<T>(mp: &'static Mp, place: outcome::Place<T>) -> ! {
    // SAFETY: called on the block of a microprocess that runs no user code afterwards, except for
    // the drop of its outcome.
    unsafe { finish_block(mp) };
    loop {
        // Obtained in each round, because the destructors may have switched.
        sticky_return::return_to_end().end(mp);
        // SAFETY: the caller's promise, and no handle is left to take it.
        unsafe { outcome::drop_in_place(mp, place) };
    }
}

impl Instance {
    /// Checks whether another microprocess may start.
    #[inline]
    pub(crate) fn admit(&self) -> io::Result<()> {
        if self.settings.max_microprocesses == u64::MAX && !self.ending() {
            return Ok(());
        }
        self.admit_slow()
    }

    #[cold]
    fn admit_slow(&self) -> io::Result<()> {
        if self.ending() {
            return Err(io::Error::other("the runtime is ending: nothing can be spawned any more"));
        }
        let living = self.living();
        if living >= self.settings.max_microprocesses {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!(
                    "{living} microprocesses live, the limit is {}: end some or raise Builder::max_microprocesses",
                    self.settings.max_microprocesses
                ),
            ));
        }
        Ok(())
    }
}
