//! The lot: where threads wait for an address, until another thread wakes the waiters of that
//! address.
//!
//! A waiter is a node on its stack, in the list of a bucket that the address selects. The waiter
//! enters the list and then looks once more, under the bucket's lock, whether it must wait. A waker
//! changes the object first and then takes waiters out of the list. So no wake-up is lost, and
//! nothing is written to the object after the change that may free it.
//!
//! Kernel threads may wait here as well (`park::current` is either).

#[cfg(not(loom))]
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::loom::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::loom::park::{self, Wait, Waiter};
use crate::loom::{
    Cell, Instant, Locked, Mutex, after_lock_prefix, compiler_fence, lock, try_lock,
};

use crate::signal::section::{Section, handle_interruption, is_interrupted};
use crate::thread::record::own_signals;

/// What a waiter waits for at its address. Waiters of different kinds at the same address, where an
/// object was freed and another one made, do not wake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Condition,
    Reader,
    Writer,
    Semaphore,
    Barrier,
    Spin,
    /// A futex, and the bits of `FUTEX_WAIT_BITSET`.
    Futex(u32),
}

impl Kind {
    /// Whether a cancellation ends the caller's wait; pthreads(7).
    fn is_cancellation_point(self) -> bool {
        match self {
            Kind::Condition | Kind::Semaphore => true,
            Kind::Mutex => own_signals().cancel.is_asynchronous(),
            _ => false,
        }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Woken,
    TimedOut,
    /// The second look found that there is nothing to wait for.
    NotNeeded,
    /// There are signals to handle, or the caller is cancelled. It has left the lot.
    Interrupted,
}

struct Node {
    /// Written under the lock of the bucket that it selects.
    key: AtomicUsize,
    kind: Kind,
    /// Under the bucket's lock, as the links.
    who: Cell<Option<Waiter>>,
    /// 1 once it was taken out of the list by a waker. The node may cease to exist then.
    woken: AtomicU32,
    next: Cell<Option<NonNull<Node>>>,
    previous: Cell<Option<NonNull<Node>>>,
}

impl Node {
    fn new(key: usize, kind: Kind) -> Node {
        Node {
            key: AtomicUsize::new(key),
            kind,
            who: Cell::new(Some(park::current())),
            woken: AtomicU32::new(0),
            next: Cell::new(None),
            previous: Cell::new(None),
        }
    }
}

struct List {
    first: Option<NonNull<Node>>,
    last: Option<NonNull<Node>>,
}

// SAFETY: the nodes are accessed under the bucket's lock, but for `woken`.
unsafe impl Send for List {}

#[repr(align(64))]
struct Bucket {
    /// Number of nodes in the list.
    waiting: AtomicU32,
    /// Address whose waiters at a futex are to be woken by a thread that has the lock, [`NONE`], or
    /// [`ALL`] of the bucket.
    posted: AtomicUsize,
    list: Mutex<List>,
}

/// No address: a futex is aligned.
const NONE: usize = 0;
const ALL: usize = 1;

/// The lock of a bucket. The thread that releases it looks for what was posted meanwhile.
struct Held<'a> {
    bucket: &'a Bucket,
    list: Option<Locked<'a, List>>,
}

impl Bucket {
    fn lock(&self) -> Held<'_> {
        Held { bucket: self, list: Some(lock(&self.list)) }
    }

    /// Wakes the waiters at the posted address. If another thread has the lock, that one does.
    fn serve_posted(&self) {
        while self.posted.load(Ordering::Relaxed) != NONE {
            let Some(mut list) = try_lock(&self.list) else { return };
            let key = self.posted.swap(NONE, Ordering::AcqRel);
            list.0.for_each(|list, node| {
                let is_meant = key == ALL || node.key.load(Ordering::Relaxed) == key;
                if is_meant && matches!(node.kind, Kind::Futex(_)) {
                    self.take_out(list, node);
                }
                true
            });
            drop(list);
            after_lock_prefix();
        }
    }

    /// Takes a waiter out of the list, and wakes it.
    fn take_out(&self, list: &mut List, node: &Node) {
        list.remove(node);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        // Before the node may end.
        let waiter = node.who.take();
        // Release: pairs with `is_woken`. The node may end from here on.
        node.woken.store(1, Ordering::Release);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl Deref for Held<'_> {
    type Target = List;
    fn deref(&self) -> &List {
        self.list.as_ref().expect("until the end")
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut List {
        self.list.as_mut().expect("until the end")
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.list = None;
        // The release is an instruction with a LOCK prefix. Either this load finds what was posted,
        // or the poster finds the lock free.
        after_lock_prefix();
        self.bucket.serve_posted();
    }
}

macro_rules! empty_bucket {
    () => {
        Bucket {
            waiting: AtomicU32::new(0),
            posted: AtomicUsize::new(NONE),
            list: Mutex::new(List { first: None, last: None }),
        }
    };
}

#[cfg(not(loom))]
const BITS: u32 = 10;

#[cfg(not(loom))]
struct Lot(UnsafeCell<[Bucket; 1 << BITS]>);

#[cfg(not(loom))]
// SAFETY: buckets are Sync; `forget` replaces them while there is one thread.
unsafe impl Sync for Lot {}

#[cfg(not(loom))]
static LOT: Lot = Lot(UnsafeCell::new([const { empty_bucket!() }; 1 << BITS]));

#[cfg(not(loom))]
fn bucket(key: usize) -> &'static Bucket {
    // Objects are 4-aligned at least. Fibonacci hashing: the upper bits depend on all others.
    let index = (key >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - BITS);
    // SAFETY: never written but in `forget`.
    unsafe { &(*LOT.0.get())[index] }
}

#[cfg(loom)]
loom::lazy_static! {
    static ref LOT: [Bucket; 2] = [empty_bucket!(), empty_bucket!()];
}

/// Two buckets. A bit of the address selects one, so that each execution of a model has the same.
#[cfg(loom)]
fn bucket(key: usize) -> &'static Bucket {
    &LOT[key / crate::model::STRIDE % 2]
}

/// A node that a waker still accesses must not end: loom reports the two accesses.
#[cfg(loom)]
impl Drop for Node {
    fn drop(&mut self) {
        self.who.set(None);
        self.next.set(None);
    }
}

impl List {
    fn push(&mut self, node: &Node) {
        let at = Some(NonNull::from(node));
        node.next.set(None);
        node.previous.set(self.last);
        match self.last {
            // SAFETY: nodes in the list are alive.
            Some(last) => unsafe { last.as_ref() }.next.set(at),
            None => self.first = at,
        }
        self.last = at;
    }

    fn remove(&mut self, node: &Node) {
        let (previous, next) = (node.previous.get(), node.next.get());
        match previous {
            // SAFETY: nodes in the list are alive.
            Some(previous) => unsafe { previous.as_ref() }.next.set(next),
            None => self.first = next,
        }
        match next {
            // SAFETY: as above.
            Some(next) => unsafe { next.as_ref() }.previous.set(previous),
            None => self.last = previous,
        }
    }

    /// Calls `f` for each node from the first one, until it returns false. It may remove the node.
    fn for_each(&mut self, mut f: impl FnMut(&mut List, &Node) -> bool) {
        let mut at = self.first;
        while let Some(node) = at {
            // SAFETY: nodes in the list are alive, and `f` removes this one at most.
            let node = unsafe { node.as_ref() };
            at = node.next.get();
            if !f(self, node) {
                return;
            }
        }
    }
}

/// A waiter in the lot that has not begun to wait. It must end by [`wait`](Entered::wait) or
/// [`leave`](Entered::leave).
pub(crate) struct Entered<'a> {
    node: &'a Node,
}

/// Enters the lot and runs `f`, which waits or leaves. For objects whose state changes between the
/// two, as a condition variable's mutex is released.
pub(crate) fn enter<R>(key: usize, kind: Kind, f: impl FnOnce(Entered<'_>) -> R) -> R {
    let node = Node::new(key, kind);
    let bucket = bucket(key);
    {
        let mut list = bucket.lock();
        bucket.waiting.fetch_add(1, Ordering::SeqCst);
        list.push(&node);
    }
    f(Entered { node: &node })
}

/// Those that wait already, for a waiter that must not pass them.
pub(crate) struct Waiting<'a>(&'a List);

impl Waiting<'_> {
    /// Whether anybody of this kind waits at `key`.
    pub(crate) fn has(&self, key: usize, kind: Kind) -> bool {
        let mut at = self.0.first;
        while let Some(node) = at {
            // SAFETY: nodes in the list are alive, and the lock is held.
            let node = unsafe { node.as_ref() };
            if node.kind == kind && node.key.load(Ordering::Relaxed) == key {
                return true;
            }
            at = node.next.get();
        }
        false
    }
}

/// Waits at `key` until a waker takes the caller out, or until the deadline. Blocks the
/// microprocess, or the kernel thread that is none. `must_wait` is called under a lock: it must be
/// short and must not switch. It returns false if the object has changed meanwhile.
pub(crate) fn wait(
    key: usize,
    kind: Kind,
    why: Wait,
    deadline: Option<Instant>,
    must_wait: impl FnOnce(&Waiting<'_>) -> bool,
) -> End {
    let node = Node::new(key, kind);
    let bucket = bucket(key);
    {
        let mut list = bucket.lock();
        // SeqCst, and the look after it: a waker changes the object and then reads the count
        // (`wake`). One of both sees what the other has written.
        bucket.waiting.fetch_add(1, Ordering::SeqCst);
        after_lock_prefix();
        if !must_wait(&Waiting(&list)) {
            bucket.waiting.fetch_sub(1, Ordering::Relaxed);
            return End::NotNeeded;
        }
        list.push(&node);
    }
    Entered { node: &node }.wait(why, deadline)
}

impl Entered<'_> {
    fn is_woken(&self) -> bool {
        // Acquire: what the waker did before is visible to the woken.
        self.node.woken.load(Ordering::Acquire) != 0
    }

    /// Waits until a waker takes the caller out, or until the deadline.
    pub(crate) fn wait(self, why: Wait, deadline: Option<Instant>) -> End {
        loop {
            if self.is_woken() {
                return End::Woken;
            }
            park::park(why, deadline);
            if self.is_woken() {
                return End::Woken;
            }
            if is_interrupted(self.node.kind.is_cancellation_point()) {
                if self.node.kind == Kind::Barrier {
                    // It is counted in the barrier.
                    handle_interruption();
                    continue;
                }
                return if self.leave() { End::Interrupted } else { End::Woken };
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return if self.leave() { End::TimedOut } else { End::Woken };
            }
        }
    }

    /// Waits until somebody nudges the caller, or until the deadline, and stays in the lot. May
    /// return spuriously.
    pub(crate) fn pause(&self, why: Wait, deadline: Option<Instant>) {
        park::park(why, deadline);
    }

    /// Leaves the lot. Returns false if a waker has taken the caller out already.
    pub(crate) fn leave(&self) -> bool {
        // A requeue may move the node to another bucket meanwhile.
        loop {
            let at = bucket(self.node.key.load(Ordering::Relaxed));
            let mut list = at.lock();
            if self.is_woken() {
                return false;
            }
            if std::ptr::eq(at, bucket(self.node.key.load(Ordering::Relaxed))) {
                list.remove(self.node);
                at.waiting.fetch_sub(1, Ordering::Relaxed);
                return true;
            }
        }
    }
}

/// Whether anybody may wait at `key`. A hint that costs one load: false only if every waiter that
/// entered before the caller's last change of the object has left.
#[inline]
pub(crate) fn may_wait(key: usize) -> bool {
    // The change of the object is an instruction with a LOCK prefix, in the C library's function,
    // which orders it before this load on x86 (Intel SDM 3A, 9.2.3.9).
    compiler_fence(Ordering::SeqCst);
    bucket(key).waiting.load(Ordering::Relaxed) != 0
}

/// Takes up to `most` waiters at `key` that `is_meant` accepts out of the lot, first come first
/// served, and wakes them. Returns their number.
#[inline]
pub(crate) fn wake(key: usize, most: usize, is_meant: impl FnMut(Kind) -> bool) -> usize {
    if may_wait(key) { wake_waiting(key, most, is_meant) } else { 0 }
}

#[cold]
fn wake_waiting(key: usize, most: usize, mut is_meant: impl FnMut(Kind) -> bool) -> usize {
    let _section = Section::enter();
    let bucket = bucket(key);
    let mut list = bucket.lock();
    let mut woken = 0;
    list.for_each(|list, node| {
        if woken == most {
            return false;
        }
        if node.key.load(Ordering::Relaxed) == key && is_meant(node.kind) {
            bucket.take_out(list, node);
            woken += 1;
        }
        true
    });
    woken
}

/// Wakes all waiters at the futex `key`, for a caller in a section without events: it may hold
/// locks that a waker needs, so it does not wait for the bucket's.
#[cold]
pub(crate) fn post(key: usize) {
    if !may_wait(key) {
        return;
    }
    let bucket = bucket(key);
    let mut now = NONE;
    loop {
        let wanted = if now == NONE || now == key { key } else { ALL };
        // AcqRel: the thread that serves it has what this one has written.
        match bucket.posted.compare_exchange(now, wanted, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(other) => now = other,
        }
    }
    after_lock_prefix();
    bucket.serve_posted();
}

/// Wakes the first waiter at `key` if it is of this kind, and leaves it in the lot. Returns whether
/// it is.
pub(crate) fn nudge_first(key: usize, kind: Kind) -> bool {
    if !may_wait(key) {
        return false;
    }
    let _section = Section::enter();
    let mut is_first = false;
    bucket(key).lock().for_each(|_, node| {
        if node.key.load(Ordering::Relaxed) != key {
            return true;
        }
        if node.kind == kind {
            is_first = true;
            if let Some(who) = node.who.take() {
                who.wake();
                node.who.set(Some(who));
            }
        }
        false
    });
    is_first
}

/// Moves up to `most` waiters at `from` that `is_meant` accepts to `to`. Returns their number.
pub(crate) fn requeue(
    from: usize,
    to: usize,
    most: usize,
    mut is_meant: impl FnMut(Kind) -> bool,
) -> usize {
    let _section = Section::enter();
    let (source, target) = (bucket(from), bucket(to));
    let mut moved = 0;
    if std::ptr::eq(source, target) {
        source.lock().for_each(|_, node| {
            if moved < most && node.key.load(Ordering::Relaxed) == from && is_meant(node.kind) {
                node.key.store(to, Ordering::Relaxed);
                moved += 1;
            }
            moved < most
        });
        return moved;
    }
    // Two buckets are locked in the order of their addresses.
    let first = std::ptr::from_ref(source) < std::ptr::from_ref(target);
    let (low, high) = if first { (source, target) } else { (target, source) };
    let mut low = low.lock();
    let mut high = high.lock();
    let (source_list, target_list) =
        if first { (&mut *low, &mut *high) } else { (&mut *high, &mut *low) };
    source_list.for_each(|list, node| {
        if moved == most {
            return false;
        }
        if node.key.load(Ordering::Relaxed) == from && is_meant(node.kind) {
            list.remove(node);
            source.waiting.fetch_sub(1, Ordering::Relaxed);
            node.key.store(to, Ordering::Relaxed);
            target.waiting.fetch_add(1, Ordering::SeqCst);
            target_list.push(node);
            moved += 1;
        }
        true
    });
    moved
}

/// Forgets all waiters, in the child of a fork, where none of them exists. Another thread may have
/// held any lock.
#[cfg(not(loom))]
pub(crate) fn forget() {
    // SAFETY: the child has one thread.
    for bucket in unsafe { &mut *LOT.0.get() } {
        *bucket = empty_bucket!();
    }
}
