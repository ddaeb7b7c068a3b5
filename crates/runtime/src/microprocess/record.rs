//! The record of a microprocess, and references that detect when the microprocess has ended.

use std::cell::{Cell, UnsafeCell};
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::time::Instant;

use kumihimo_arch::cpu::Context;
use kumihimo_arch::stack::{self, Class};
use kumihimo_events::return_queue::Ticket;
use kumihimo_queue::{Links, Node};
use kumihimo_resource::id::{Printed, Serial};
use kumihimo_resource::locking::Claim;

use crate::microprocess::attributes::{self, OwnAttributes};
use crate::microprocess::counters::{Counters, FurtherWaits, NO_WAITS, WaitCounters};
use crate::microprocess::id_prefix;
use crate::microprocess::protocol::state::{Phase, State, Wake};
use crate::microprocess::protocol::wake_flag::WakeFlag;
use crate::microprocess::sticky_state::Sticky;
use crate::microprocess::wait_reason::Wait;

const NO_INHERITANCE: u8 = 0xff;

/// The record of a microprocess.
///
/// It is in the microprocess's stack slot, between stack and TLS block, so that the memory that a
/// switch accesses is close together. It is never unmapped. A [`Ref`] to a former life can
/// therefore be dereferenced without a fault, and its generation reveals that it is stale.
///
/// Only the holder of the microprocess accesses its cells: its carrier while it runs, the owner of
/// the queue while it is queued, or the waker that moved it out of PARKED.
#[repr(C, align(64))]
pub(crate) struct Mp {
    pub(crate) context: UnsafeCell<Context>,
    /// FS base; 0 for a lean microprocess, which uses that of its kernel thread.
    pub(crate) fs: Cell<usize>,
    pub(crate) state: State,
    pub(crate) links: Links<Mp>,
    // The second cache line: fields that a placement and a wait access.
    /// The microprocess's own priority, 0..=63.
    pub(crate) priority: AtomicU8,
    pub(crate) inherited: AtomicU8,
    /// Priority level of the last placement.
    pub(crate) level: Cell<u8>,
    /// Whether it is being handed over from one VP's queue to another's, with its place.
    pub(crate) handed: Cell<bool>,
    pub(crate) wait_kind: AtomicU8,
    /// Whether the waker has read the clock: see [`Counters::woken_at`].
    pub(crate) wake_is_timed: Cell<bool>,
    /// VP on which it last ran.
    pub(crate) home: AtomicU16,
    pub(crate) wait_object: AtomicUsize,
    /// Nesting depth of [`crate::wait::cancel::masked`].
    pub(crate) cancel_masked: Cell<u32>,
    /// The user's park token: see [`crate::api::thread::park`].
    pub(crate) token: AtomicU32,
    /// Number of its waits of the first kind: see [`WaitCounters`].
    first_waits: AtomicU32,
    pub(crate) class: Cell<Class>,
    /// Whether a counter besides the waits is not zero.
    pub(crate) is_counted: AtomicBool,
    /// Kind of its first wait, or [`NO_WAITS`].
    pub(crate) first_wait_kind: AtomicU8,
    /// Whether `deadline` is set, which each blocking call asks.
    pub(crate) has_deadline: Cell<bool>,
    first_waits_ns: AtomicU64,
    /// Start of its current or last wait, on the instance's clock.
    pub(crate) waits_since: AtomicU64,
    /// Whether it dropped its outcome itself, because no handle will take it.
    pub(crate) outcome_dropped: Cell<bool>,
    pub(crate) panicked: Cell<bool>,
    /// Whether its scope has a deadline.
    pub(crate) bounded: Cell<bool>,
    /// Lock of this resource, for the lock designs with one lock per resource.
    pub(crate) claim: Claim,
    /// Number of switches away from the microprocess, modulo 2^32: see [`Mp::count_switch`].
    pub(crate) switches: AtomicU32,
    /// Version of its attributes: see [`crate::microprocess::attributes`].
    pub(crate) attributes_version: Cell<u64>,
    /// See [`crate::lifecycle::join`].
    pub(crate) join: AtomicUsize,
    /// The scope that waits for its end.
    pub(crate) scope: AtomicPtr<ScopeHead>,
    /// Number of the current timer. Timer entries with another number are stale.
    pub(crate) timer: AtomicU32,
    /// When its timer is due, on the instance's clock. For reports.
    pub(crate) timer_at: AtomicU64,
    /// The next record in a pool, while this one is in a pool.
    pub(crate) next_free: Cell<*const Mp>,
    pub(crate) name: UnsafeCell<Option<Arc<str>>>,
    /// Copy of the name, truncated to fit, for readers that may not take a lock (the overflow
    /// handler) or hold no reference (reports).
    pub(crate) label_len: AtomicU8,
    pub(crate) label: [AtomicU8; 47],
    /// The kernel thread on which it waits for its turn, where `context` is [`Context::NULL`]. Only
    /// for debuggers, since the thread may have ended.
    pub(crate) waits_on: Cell<*const ()>,
    /// Ticket of its queue entry on that thread.
    pub(crate) ticket: Cell<Ticket>,
    /// Number of dlopen and dlclose calls in progress. Accessed by the running microprocess.
    pub(crate) linking: Cell<i32>,
    /// Set by the wakers of the future that the microprocess drives.
    pub(crate) wake_flag: WakeFlag,
    // A spawn writes from here to the account. Processors fetch lines in pairs, so the counters,
    // which it seldom writes, are behind.
    pub(crate) sticky: Sticky,
    /// Deadline that it inherits from the innermost scope: see [`Mp::set_deadline`].
    deadline: Cell<Option<Instant>>,
    /// Accounting for policies that are not static: see [`crate::priority::placement`].
    pub(crate) account: Cell<Account>,
    pub(crate) counters: Counters,
    pub(crate) own_attributes: OwnAttributes,
    pub(crate) slot_end: Cell<*mut u8>,
    /// The record that was created after this one: see [`crate::memory::pool::for_each`].
    pub(crate) newer: AtomicPtr<Mp>,
}

/// The part of a scope to which the records of its children refer: the first field of the scope's
/// data.
pub(crate) struct ScopeHead {
    pub(crate) deadline: Option<Instant>,
}

/// Accounting data that a non-static policy gets.
#[derive(Clone, Copy, Default)]
pub(crate) struct Account {
    pub(crate) ran_ns: u64,
    pub(crate) quantum_ns: u64,
    pub(crate) due_ns: Option<NonZeroU64>,
    /// The key of its last placement, or 0. It keeps it while it is outranked.
    pub(crate) key: u64,
}

// loom's types have other sizes.
const _: () = assert!(cfg!(loom) || size_of::<Mp>() <= stack::RECORD);
// A park accesses both, so they share a cache line.
const _: () = assert!(
    cfg!(loom)
        || std::mem::offset_of!(Mp, bounded) / 64 == std::mem::offset_of!(Mp, wait_kind) / 64
);
const _: () = assert!(
    cfg!(loom)
        || std::mem::offset_of!(Mp, has_deadline) / 64 == std::mem::offset_of!(Mp, wait_kind) / 64
);
// A switch accesses both.
const _: () = assert!(
    cfg!(loom)
        || std::mem::offset_of!(Mp, attributes_version) / 64
            == std::mem::offset_of!(Mp, level) / 64
);
// A switch writes it.
const _: () = assert!(
    cfg!(loom) || std::mem::offset_of!(Mp, switches) / 64 == std::mem::offset_of!(Mp, level) / 64
);
// The end of a wait writes it.
const _: () = assert!(
    cfg!(loom)
        || std::mem::offset_of!(Mp, first_waits_ns) / 64
            == std::mem::offset_of!(Mp, wait_kind) / 64
);
// The counters of its other kinds are within one line.
const _: () = assert!(
    cfg!(loom) || std::mem::offset_of!(Mp, counters) % 64 + size_of::<FurtherWaits>() <= 64
);

/// Returns the number of bytes by which the top of a slot is shifted (cache colouring). Slots are
/// whole pages apart. Unshifted, all records, block headers and stack tops would fall into the same
/// few cache sets, which hold hardly a dozen of them.
fn colour(slot_end: usize, class: Class) -> usize {
    let hash = (slot_end >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    hash % (colour_max(class.slot_size()) / 64 + 1) * 64
}

/// Returns the largest shift of [`colour`] for a slot of that size. Small slots get less than a
/// page of shift, because a page of shift would cost a page of memory.
pub(crate) const fn colour_max(slot_size: usize) -> usize {
    if slot_size < 128 << 10 { 15 * 64 } else { 63 * 64 }
}

/// Returns the address in the slot below which TLS block and record are placed.
pub(crate) fn coloured_end(slot_end: *mut u8, class: Class) -> *mut u8 {
    slot_end.wrapping_sub(colour(slot_end as usize, class))
}

// SAFETY: only the queue accesses `links`; records are never moved; the holder rule (see `Mp`) is
// the one that the queue requires.
unsafe impl Node for Mp {
    #[inline]
    fn links(&self) -> &Links<Mp> {
        &self.links
    }
}

// SAFETY: the cells follow the holder rule in the type's documentation. Hand-overs go through
// `State` or a queue, which order them.
unsafe impl Sync for Mp {}

impl Mp {
    /// Whether it has no context to switch to, because its kernel thread waits for a VP in a signal
    /// handler or continued without one. Called by the holder of its queue entry.
    #[inline(always)]
    pub(crate) fn waits_elsewhere(&self) -> bool {
        // SAFETY: the record lives for ever, and a context is one word.
        let context = unsafe { AtomicPtr::from_ptr(self.context.get().cast::<*mut u8>()) };
        // Acquire: pairs with the store in `leaves_its_thread`, and orders the contents of the
        // stack.
        context.load(Ordering::Acquire).is_null()
    }

    /// Publishes the context, so that the holder of its queue entry can switch to it. Called by its
    /// kernel thread after it has left the microprocess's stack.
    pub(crate) fn leaves_its_thread(&self, to: Context) {
        // SAFETY: as in `waits_elsewhere`: both are one word, a stack pointer.
        let (context, to) = unsafe {
            (
                AtomicPtr::from_ptr(self.context.get().cast::<*mut u8>()),
                (&raw const to).cast::<*mut u8>().read(),
            )
        };
        context.store(to, Ordering::Release);
    }

    /// Counts a switch away from it. Its carrier only.
    #[inline(always)]
    pub(crate) fn count_switch(&self) {
        let n = self.switches.load(Ordering::Relaxed).wrapping_add(1);
        self.switches.store(n, Ordering::Relaxed);
        if n == 0 {
            self.counters.carry_switches(&self.is_counted);
        }
    }

    #[inline(always)]
    pub(crate) fn wait_counters(&self) -> WaitCounters<'_> {
        WaitCounters {
            kind: &self.first_wait_kind,
            count: &self.first_waits,
            nanoseconds: &self.first_waits_ns,
            carries: &self.counters.wait_carries,
            further: &self.counters.further_waits,
        }
    }

    /// Returns the number of switches away from it.
    pub(crate) fn switches(&self) -> u64 {
        self.counters.switches_above() + u64::from(self.switches.load(Ordering::Relaxed))
    }

    /// Writes the record of a fresh slot below `top`.
    ///
    /// # Safety
    /// `slot_end` is the end of an unused slot of `class`; `top` is a 64-aligned address in it with
    /// nothing below.
    pub(crate) unsafe fn create(
        slot_end: *mut u8,
        class: Class,
        top: *mut u8,
        fs: usize,
        serial: Serial,
    ) -> &'static Mp {
        let mp = Mp {
            context: UnsafeCell::new(Context::NULL),
            fs: Cell::new(fs),
            state: State::new(serial.bits()),
            links: Links::new(),
            priority: AtomicU8::new(0),
            inherited: AtomicU8::new(NO_INHERITANCE),
            level: Cell::new(0),
            handed: Cell::new(false),
            wake_is_timed: Cell::new(false),
            is_counted: AtomicBool::new(false),
            first_wait_kind: AtomicU8::new(NO_WAITS),
            first_waits: AtomicU32::new(0),
            first_waits_ns: AtomicU64::new(0),
            has_deadline: Cell::new(false),
            switches: AtomicU32::new(0),
            waits_since: AtomicU64::new(0),
            counters: Counters::new(),
            home: AtomicU16::new(0),
            class: Cell::new(class),
            slot_end: Cell::new(slot_end),
            cancel_masked: Cell::new(0),
            join: AtomicUsize::new(0),
            outcome_dropped: Cell::new(false),
            panicked: Cell::new(false),
            bounded: Cell::new(false),
            attributes_version: Cell::new(attributes::USUAL),
            scope: AtomicPtr::new(std::ptr::null_mut()),
            token: AtomicU32::new(0),
            timer: AtomicU32::new(0),
            timer_at: AtomicU64::new(0),
            next_free: Cell::new(std::ptr::null()),
            waits_on: Cell::new(std::ptr::null()),
            ticket: Cell::new(Ticket::NONE),
            linking: Cell::new(0),
            wake_flag: WakeFlag::new(),
            sticky: Sticky::new(),
            wait_kind: AtomicU8::new(0),
            wait_object: AtomicUsize::new(0),
            name: UnsafeCell::new(None),
            label_len: AtomicU8::new(0),
            label: [const { AtomicU8::new(0) }; 47],
            deadline: Cell::new(None),
            account: Cell::new(Account::default()),
            own_attributes: OwnAttributes::new(),
            claim: Claim::new(),
            newer: AtomicPtr::new(std::ptr::null_mut()),
        };
        // SAFETY: within the new slot, 64-aligned, and live for ever: neither a record nor the
        // memory above it is ever unmapped.
        unsafe {
            let place = top.sub(size_of::<Mp>()).cast::<Mp>();
            place.write(mp);
            &*place
        }
    }

    /// Returns the end of its slot.
    pub(crate) fn slot_end(&self) -> *mut u8 {
        self.slot_end.get()
    }

    /// Returns the top of the usable stack, 64-aligned; the stack grows down from it.
    #[inline]
    pub(crate) fn stack_top(&self) -> *mut u8 {
        std::ptr::from_ref(self).cast::<u8>().cast_mut()
    }

    #[inline]
    pub(crate) fn reference(&'static self) -> Ref {
        Ref { mp: self, generation: self.state.generation() }
    }

    /// Returns the ID, as a [`kumihimo_resource::id::Id`]. The top bit is clear; IDs with the top
    /// bit set belong to kernel threads.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        id_prefix::id(self.state.generation())
    }

    /// Returns the effective priority: the maximum of its own and the inherited priority.
    #[inline]
    pub(crate) fn effective(&self) -> u8 {
        let own = self.priority.load(Ordering::Relaxed);
        let inherited = self.inherited.load(Ordering::Relaxed);
        if inherited == NO_INHERITANCE { own } else { own.max(inherited) }
    }

    pub(crate) fn inherited(&self) -> Option<u8> {
        Some(self.inherited.load(Ordering::Relaxed)).filter(|&p| p != NO_INHERITANCE)
    }

    pub(crate) fn set_inherited(&self, p: Option<u8>) {
        self.inherited.store(p.unwrap_or(NO_INHERITANCE), Ordering::Relaxed);
    }

    /// Returns the scope that waits for its end. Its carrier may follow the pointer; others compare
    /// it only, since the scope may have ended.
    #[inline]
    pub(crate) fn scope(&self) -> Option<NonNull<ScopeHead>> {
        NonNull::new(self.scope.load(Ordering::Relaxed))
    }

    /// Sets or clears the scope. The holder of the microprocess only.
    #[inline]
    pub(crate) fn set_scope(&self, scope: Option<NonNull<ScopeHead>>) {
        let scope = scope.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        self.scope.store(scope, Ordering::Relaxed);
    }

    /// Sets the deadline that it inherits from the innermost scope. Called by the microprocess
    /// itself, or by the holder before it runs.
    #[inline]
    pub(crate) fn set_deadline(&self, deadline: Option<Instant>) {
        self.has_deadline.set(deadline.is_some());
        self.deadline.set(deadline);
    }

    /// Returns the deadline that it inherits from the innermost scope. Without one, accesses only
    /// the line that a wait accesses anyway. Called by the microprocess itself.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.has_deadline.get() { self.deadline.get() } else { None }
    }

    /// Returns the deadline at which its scope cancels it. Called by the microprocess itself.
    #[inline]
    pub(crate) fn scope_deadline(&self) -> Option<Instant> {
        // SAFETY: the scope waits for its child, which calls this and so is alive.
        self.scope()
            .filter(|_| self.bounded.get())
            .and_then(|scope| unsafe { scope.as_ref() }.deadline)
    }

    /// Returns the object of its current or last wait.
    pub(crate) fn waits_for(&self) -> Option<Wait> {
        Wait::decode(
            self.wait_kind.load(Ordering::Relaxed),
            self.wait_object.load(Ordering::Relaxed),
        )
    }

    /// Returns the label as text, for reports.
    pub(crate) fn name_text(&self) -> String {
        let mut label = [0; 47];
        let n = self.label(&mut label);
        if n == 0 { "(no name)".into() } else { String::from_utf8_lossy(&label[..n]).into_owned() }
    }

    pub(crate) fn set_label(&self, name: Option<&str>) {
        let name = name.unwrap_or("");
        let mut n = name.len().min(self.label.len());
        while !name.is_char_boundary(n) {
            n -= 1;
        }
        self.set_label_bytes(&name.as_bytes()[..n]);
    }

    pub(crate) fn set_label_bytes(&self, bytes: &[u8]) {
        let n = bytes.len().min(self.label.len());
        for (to, from) in self.label.iter().zip(&bytes[..n]) {
            to.store(*from, Ordering::Relaxed);
        }
        self.label_len.store(n as u8, Ordering::Release);
    }

    /// Copies the label into `out` and returns its length.
    pub(crate) fn label(&self, out: &mut [u8]) -> usize {
        let n = usize::from(self.label_len.load(Ordering::Acquire))
            .min(self.label.len())
            .min(out.len());
        for (to, from) in out.iter_mut().zip(&self.label[..n]) {
            *to = from.load(Ordering::Relaxed);
        }
        n
    }
}

/// A reference to one life of a microprocess record.
#[derive(Clone, Copy)]
pub(crate) struct Ref {
    pub(crate) mp: &'static Mp,
    pub(crate) generation: u64,
}

impl Ref {
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self.mp.state.generation() == self.generation
    }

    pub(crate) fn id(self) -> u64 {
        id_prefix::id(self.generation)
    }

    #[inline]
    pub(crate) fn wake(self) -> Wake {
        match self.mp.state.wake(self.generation) {
            // It waits on its kernel thread, and continues there.
            Wake::Queue if self.mp.sticky.parker.wake() => Wake::Permit,
            done => done,
        }
    }

    pub(crate) fn is_alive(self) -> bool {
        self.is_current()
            && matches!(self.mp.state.phase(), Phase::Live | Phase::Parked | Phase::Suspended)
    }

    pub(crate) fn item(self) -> NonNull<Mp> {
        NonNull::from(self.mp)
    }
}

impl PartialEq for Ref {
    fn eq(&self, other: &Ref) -> bool {
        std::ptr::eq(self.mp, other.mp) && self.generation == other.generation
    }
}

impl Eq for Ref {}

impl std::fmt::Debug for Ref {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", Printed(self.id()))
    }
}
