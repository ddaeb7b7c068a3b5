//! Spawn of a microprocess: takes a slot from the pool, moves the closure onto its stack, prepares
//! a context that calls the closure, and queues it. And its end.

use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Result as Outcome;
use std::time::Instant;

use kumihimo_arch::cpu::Context;
use kumihimo_policy::{Priority, Why};
use kumihimo_queue::Origin;
use kumihimo_resource::id::Kind;
use kumihimo_resource::table::Table;

use crate::config::PanicHook;
use crate::kernel_thread::attributes;
use crate::kernel_thread::gs_record::current_mp;
use crate::lifecycle::body::{Named, Run, Unnamed, begin, finish_block};
use crate::lifecycle::join;
use crate::lifecycle::scope_data::ScopeData;
use crate::memory::pool::{self, SlotKind};
use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::record::{Account, Mp, Ref};
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::{self, Instance};
use crate::scheduler::vp::bump;
use crate::trace_hooks;
use crate::upcall::sticky_return;
use crate::wait::{cancel, tracing_spans};

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
    let large =
        size_of::<Packet<Unnamed<F>, T>>() > PACKET_MAX || align_of::<Packet<Unnamed<F>, T>>() > 64;
    let started = match &order.name {
        // A lean microprocess has the kernel thread's handle of std, with that thread's name.
        Some(name) if !order.kind.lean => spawn_named(order, scope, name, f)?,
        _ if large => spawn_boxed(order, scope, f)?,
        _ => spawn_small(order, scope, Unnamed(f))?,
    };
    tracing_spans::spawned(started.who, order.name.as_deref());
    Ok(started)
}

#[cold]
fn spawn_named<F: FnOnce() -> T, T>(
    order: &SpawnRequest<'_>,
    scope: Option<&ScopeData>,
    name: &str,
    f: F,
) -> io::Result<Started<T>> {
    check_outcome::<T>(order)?;
    // Before std prepares a thread, which is in vain if none may start.
    instance::visit(|instance| instance.map_or(Ok(()), Instance::admit))?;
    spawn_small(order, scope, Named::new(name, f))
}

fn spawn_boxed<F: FnOnce() -> T, T>(
    order: &SpawnRequest<'_>,
    scope: Option<&ScopeData>,
    f: F,
) -> io::Result<Started<T>> {
    check_outcome::<T>(order)?;
    spawn_small(order, scope, Unnamed(Box::new(f)))
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

#[inline]
fn spawn_small<B, T>(
    order: &SpawnRequest<'_>,
    scope: Option<&ScopeData>,
    body: B,
) -> io::Result<Started<T>>
where
    B: Run<T>,
{
    match Carrier::current() {
        Some(carrier) => {
            let vp = carrier.vp();
            vp.instance().admit()?;
            let started = open(vp.instance().table, order, scope, body, |kind| vp.pool.take(kind))?;
            let mp = started.who.mp;
            if let Some(parent) = carrier.running() {
                mp.inherit_attributes(parent);
            }
            bump(&vp.counters.spawned);
            trace_hooks::spawned(&vp.trace, mp);
            launch(carrier, mp, order.child_first);
            Ok(started)
        }
        None => instance::visit(|instance| {
            let instance = instance
                .ok_or_else(|| io::Error::other("the runtime has ended: nothing can be spawned"))?;
            instance.admit()?;
            let started = open(instance.table, order, scope, body, pool::take_outside)?;
            let mp = started.who.mp;
            inherit_outside(mp);
            instance.spawned_outside.fetch_add(1, Ordering::Release);
            let to = instance.next_vp();
            mp.home.store(to as u16, Ordering::Relaxed);
            trace_hooks::spawned_outside(&instance.trace, mp);
            instance.inject(to, mp);
            Ok(started)
        }),
    }
}

/// Gives `mp` the attributes of a child of the caller, which has no VP.
fn inherit_outside(mp: &Mp) {
    match current_mp() {
        Some(parent) => mp.inherit_attributes(parent),
        None => mp.inherit_foreign_attributes(attributes::of_foreign_parent()),
    }
}

/// Opens a microprocess and its parts. Calls the procedures of three rows of the resource table,
/// resolved statically.
#[inline]
fn open<B, T>(
    table: &Table,
    order: &SpawnRequest<'_>,
    scope: Option<&ScopeData>,
    body: B,
    take: impl FnOnce(SlotKind) -> io::Result<&'static Mp>,
) -> io::Result<Started<T>>
where
    B: Run<T>,
{
    let mp = {
        let _held = table.enter(Kind::STACK);
        take(order.kind)?
    };
    {
        let _held = table.enter_own(Kind::SHARE, &mp.claim);
        mp.priority.store(order.priority.get(), Ordering::Relaxed);
        mp.account.set(Account { due_ns: order.due_ns, ..Account::default() });
    }
    let _held = table.enter_own(Kind::MICROPROCESS, &mp.claim);
    Ok(prepare(mp, order, scope, body))
}

/// Writes closure and context, and begins the life of the record.
#[inline]
fn prepare<B, T>(
    mp: &'static Mp,
    order: &SpawnRequest<'_>,
    scope: Option<&ScopeData>,
    body: B,
) -> Started<T>
where
    B: Run<T>,
{
    #[cfg(kumihimo_asan)]
    pool::forget_frames(mp);
    let top = mp.stack_top() as usize;
    let align = align_of::<Packet<B, T>>().max(64);
    let at = (top - size_of::<Packet<B, T>>()) & !(align - 1);
    let packet = std::ptr::with_exposed_provenance_mut::<Packet<B, T>>(at);
    // SAFETY: the packet fits (checked by the callers) on the stack of a slot that the caller owns,
    // and nothing runs on it yet. The frame of the context is below it, 64-aligned.
    unsafe {
        packet.write(Packet { record: mp, body: Body { closure: ManuallyDrop::new(body) } });
        *mp.context.get() = Context::prepare(packet.cast(), entry::<B, T>, packet.cast());
    }
    mp.deadline.set(order.deadline);
    if let Some(name) = &order.name {
        mp.set_label(Some(name));
        // SAFETY: the microprocess does not run yet, so the caller owns its name.
        unsafe { *mp.name.get() = Some(name.clone()) };
    }
    mp.scope.set(scope.map(ScopeData::head));
    mp.bounded.set(scope.is_some_and(|scope| scope.deadline().is_some()));
    mp.outcome_dropped.set(false);
    mp.sticky.begin(order.bound);
    if let Some(on_block) = order.on_block {
        on_block(mp.fs.get());
    }
    join::begin(mp);
    mp.state.begin();
    // SAFETY: the packet is live; taking the outcome's address reads nothing.
    let outcome = unsafe { (&raw mut (*packet).body.outcome).cast::<Outcome<T>>() };
    Started { who: mp.reference(), outcome }
}

#[inline]
fn launch(carrier: Carrier, mp: &'static Mp, child_first: bool) {
    let vp = carrier.vp();
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
    // SAFETY: `prepare` put the body there, and it is read only here.
    let (mp, body) = unsafe { ((*packet).record, ManuallyDrop::take(&mut (*packet).body.closure)) };
    begin(mp);
    // SAFETY: this is the first code of the microprocess, and its kernel thread is masked.
    unsafe { body.run(mp, packet.cast(), conclude::<B, T>) };
    // SAFETY: called on the block of a microprocess that runs no user code afterwards, except for
    // the drop of its outcome.
    unsafe { finish_block(mp) };
    loop {
        // Obtained in each round, because the destructors may have switched.
        sticky_return::return_to_end().end(mp);
        // SAFETY: `conclude` wrote the outcome, and no handle is left to take it.
        unsafe { drop_outcome(packet) };
    }
}

/// Stores the outcome of the microprocess with this packet, or drops it if no handle is left.
///
/// # Safety
/// `packet` is the `Packet<B, T>` of the caller, whose body is consumed. Called once.
unsafe fn conclude<B, T>(packet: *mut u8, outcome: Outcome<T>) {
    let packet = packet.cast::<Packet<B, T>>();
    // SAFETY: the caller's promise.
    let mp = unsafe { (*packet).record };
    // The hook of the runtime, not of the VP, which may have been taken over while the panic was
    // reported.
    let hook = || instance::visit(|i| i.and_then(|i| i.settings.on_panic.clone()));
    mp.panicked.set(outcome.as_ref().is_err_and(|payload| note_panic(hook, payload.as_ref())));
    // SAFETY: the body is consumed; the handle reads the outcome only after the join word has
    // become DONE.
    unsafe { (*packet).body.outcome = ManuallyDrop::new(MaybeUninit::new(outcome)) };
    if join::is_detached(mp) {
        // SAFETY: written above, and no handle is left to take it.
        unsafe { drop_outcome(packet) };
    }
}

/// Drops the outcome of a microprocess without a handle.
///
/// # Safety
/// The outcome is written, not dropped yet, and no handle will take it.
unsafe fn drop_outcome<B, T>(packet: *mut Packet<B, T>) {
    // SAFETY: the caller's promise.
    unsafe {
        drop_unwanted(|| (*(*packet).body.outcome).assume_init_drop());
        (*packet).record.outcome_dropped.set(true);
    }
}

/// Drops a result. Aborts if the drop panics, since no thread is left to receive the panic.
pub(crate) fn drop_unwanted(drop_it: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(drop_it)).is_err() {
        eprintln!(
            "kumihimo: the result of a detached microprocess panicked when it was dropped: aborting"
        );
        std::process::abort();
    }
}

#[cold]
pub(crate) fn note_panic(
    hook: impl FnOnce() -> Option<PanicHook>,
    payload: &(dyn std::any::Any + Send),
) -> bool {
    if payload.is::<cancel::Cancelled>() {
        return false;
    }
    if let Some(hook) = hook() {
        let guarded = catch_unwind(AssertUnwindSafe(|| hook(payload)));
        if guarded.is_err() {
            eprintln!("kumihimo: the runtime's on_panic hook panicked; ignored");
        }
    }
    true
}

/// Takes the outcome of `mp`.
///
/// # Safety
/// `spawn` returned `outcome` for the current life of `mp`; `join::wait` or `join::detach` returned
/// true; and this is the only call.
pub(crate) unsafe fn take<T>(mp: &'static Mp, outcome: *mut Outcome<T>) -> Outcome<T> {
    // SAFETY: DONE was observed with acquire, so the outcome is written. The slot is not reused
    // before `taken`.
    let outcome = unsafe { outcome.read() };
    join::taken(mp);
    outcome
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
