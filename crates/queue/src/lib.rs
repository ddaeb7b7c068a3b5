//! Run queues of virtual processors (VPs).
//!
//! A [`Set`] owns the queues of all VPs, in the design [`Design::Ring`] (the papers' P4: no lock,
//! no read-modify-write on the way of a context switch). With the feature `lab` there are two more
//! for comparison, chosen at run time: `locked` (P4's conventional design) and `steal` (Chase-Lev
//! deques). What the owner of a queue does goes through an [`Owner`]; everybody else uses the
//! `Set`.
//!
//! # The course of a context switch
//! ```text
//! for item in owner.take_injected() { owner.push(item, ..) }  // only if !injector_is_empty()
//! wake(owner.exchange());                                     // takes the neighbour's surplus
//! let next = owner.pop();                                     // on yield: pop_at_least(level)
//! ... switch; then, on the other side, for the one that was left:
//! owner.push(old, place, Origin::Yield)
//! wake(owner.surplus(someone_idle));                          // after the push
//! ```
//! and of an idle VP:
//! ```text
//! loop { if injected or owner.exchange().. or owner.pull() { break }  spin a little }
//! say "I sleep" (any store);  if owner.has_visible_work() { take it back } else { sleep }
//! ```
//! `exchange` and `surplus` return a [`Taker`] when something became visible to other VPs; the
//! caller then reads which ones sleep and wakes one. They end in a sequentially consistent fence in
//! that case, `has_visible_work` begins with one, so a VP that goes to sleep and one that gives
//! work away never miss each other. (In `steal` a push makes work visible without a fence: an idle
//! VP may miss it until the owner's next `surplus`.)
//!
//! # Items
//! are pointers to records that carry their own [`Links`]; nothing is allocated when one is queued
//! (except that heaps of keyed levels and deques grow). An item is in one queue at a time and has
//! one holder at a time.
//!
//! # Capacity
//! How much a VP keeps before it gives away is [`Capacity`]. It is looked at when the queue
//! outgrows the limit computed last, and at every 16th exchange (more rarely with more than 16
//! VPs).
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

use core::{marker::PhantomData, ptr::NonNull};

mod atomic;
#[cfg(feature = "lab")]
pub mod deque;
pub mod injector;
#[cfg(feature = "lab")]
pub mod locked;
mod node;
pub mod offer;
pub mod protect;
pub mod ring;
mod row;
#[cfg(all(feature = "lab", not(loom)))]
pub mod steal;
#[cfg(all(test, not(loom)))]
mod tests;
pub mod waiver;

pub use injector::Chain;
pub use node::{LEVELS, Links, Node, Origin, Place};
pub use row::{Capacity, Stats};
pub use waiver::WAIVER_PLACES;

use injector::Injector;
#[cfg(feature = "lab")]
use locked::LockedQueue;
use ring::RingQueue;
use row::{Member, Row};
#[cfg(all(feature = "lab", not(loom)))]
use steal::StealQueue;

/// Most VPs that a [`Set`] has.
pub const MAX_VPS: usize = kumihimo_config::MAX_VPS;

/// Which design of run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Design {
    /// P4: Protect and Waiver Queues in a ring, no locks.
    Ring,
    /// P4's conventional design: removal from Waiver Queues under a lock.
    #[cfg(feature = "lab")]
    Locked,
    /// Work stealing.
    #[cfg(feature = "lab")]
    Steal,
}

impl Design {
    /// All designs of this build.
    #[cfg(feature = "lab")]
    pub const ALL: [Design; 3] = [Design::Ring, Design::Locked, Design::Steal];
    /// All designs of this build: without the feature `lab`, one.
    #[cfg(not(feature = "lab"))]
    pub const ALL: [Design; 1] = [Design::Ring];

    /// As written on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Design::Ring => "ring",
            #[cfg(feature = "lab")]
            Design::Locked => "locked",
            #[cfg(feature = "lab")]
            Design::Steal => "steal",
        }
    }

    /// Whether other threads take items straight out of an owner's queue.
    pub const fn has_thieves(self) -> bool {
        match self {
            Design::Ring => false,
            #[cfg(feature = "lab")]
            Design::Locked => false,
            #[cfg(feature = "lab")]
            Design::Steal => true,
        }
    }

    /// The design of that name, if this build has it.
    pub fn from_name(name: &str) -> Option<Design> {
        Design::ALL.into_iter().find(|d| d.name() == name)
    }
}

/// The VPs that can take what has just become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    /// This VP only.
    Vp(usize),
    /// Any idle VP.
    Any,
}

/// One VP's run queue, as its owner uses it. All but `has_visible_work`, `injector`, `shown` and
/// `stats` are for the owner only (see [`Set::local`]).
pub trait RunQueue<T: Node> {
    /// Queues an item here.
    ///
    /// # Safety
    /// `item` is live and stays so while it is queued; the caller holds it; it is in no queue. Its
    /// context has been left: others may run it at once.
    unsafe fn push(&self, item: NonNull<T>, place: Place, origin: Origin);
    /// Takes the next item and its level: the highest level first.
    fn pop(&self) -> Option<(NonNull<T>, u8)>;
    /// As `pop`, but only from this level upwards.
    fn pop_at_least(&self, level: u8) -> Option<(NonNull<T>, u8)>;
    /// Takes this item out; what is on offer, or given away and within reach, is taken back for
    /// that. `false`: it is not here, or not within reach of the owner (in `ring`'s Waiver Queue;
    /// or, in `steal`, behind more than 1,024 others of its level), and stays where it is.
    ///
    /// # Safety
    /// `item` is live. It may be anywhere.
    unsafe fn remove(&self, item: NonNull<T>) -> bool;
    /// What happens at a context switch besides: `ring` takes over what the neighbour gave away and
    /// passes on what is too much.
    #[must_use]
    fn exchange(&self) -> Option<Taker>;
    /// Gives surplus away if the capacity rule says so, or if `someone_idle`. Items of
    /// [`Origin::Wake`] stay (`steal`: thieves take them all the same).
    #[must_use]
    fn surplus(&self, someone_idle: bool) -> Option<Taker>;
    /// An idle VP tries to get others' surplus into its own queue, and what it has itself on offer
    /// back. `true`: `pop` will most likely find something.
    fn pull(&self) -> bool;
    /// Whether there is anything that this VP could get: by `pull` or from its injector. What an
    /// idle VP asks after it has said that it sleeps, and before it does.
    fn has_visible_work(&self) -> bool;
    /// Items queued here that the owner can pop without a race (`steal`: those in the deques too).
    fn len(&self) -> usize;
    /// Whether `len` is 0.
    fn is_empty(&self) -> bool {
        self.levels() == 0
    }
    /// Bit n: level n has an item (`steal`: may have).
    fn levels(&self) -> u64;
    /// Whether a level above this one has an item (`steal`: may have). Cheaper than `levels`.
    fn has_above(&self, level: u8) -> bool;
    /// The item that `pop` would take next, if that is cheap to know: for prefetching.
    fn peek(&self) -> Option<NonNull<T>>;
    /// The item that is next to run may be given away, even if it is of [`Origin::Wake`].
    fn loosen(&self);
    /// The highest level of what waits here, what was given away and not yet taken included
    /// (`steal`: may say so although thieves took it).
    fn waiting(&self) -> Option<u8>;
    /// Takes the item that is next to run, if it is of at least this level, for another VP to
    /// [`adopt`](RunQueue::adopt): it keeps its place.
    fn hand(&self, level: u8) -> Option<NonNull<T>>;
    /// Queues, by the place that it still has, what another VP has [`hand`](RunQueue::hand)ed over.
    ///
    /// # Safety
    /// As [`push`](RunQueue::push); and the item came from `hand`.
    unsafe fn adopt(&self, item: NonNull<T>);
    /// What was given away and only the VP `.0` can take: its level.
    fn given(&self) -> Option<(usize, u8)> {
        None
    }
    /// What was given away and a VP is about to take, which keeps all others from it meanwhile: its
    /// level, if nothing as high waits here besides.
    fn held(&self) -> Option<u8> {
        None
    }
    /// Where others put items for this VP.
    fn injector(&self) -> &Injector<T>;
    /// Runnable items here, the running one included, and bitmap of levels, as last published: at
    /// every 16th exchange, or when it idled.
    fn shown(&self) -> (usize, u64);
    /// Counters.
    fn stats(&self) -> Stats;
}

/// A run queue of any design.
pub enum AnyQueue<'a, T: Node> {
    /// P4.
    Ring(&'a RingQueue<T>),
    /// P4's conventional design.
    #[cfg(feature = "lab")]
    Locked(&'a LockedQueue<T>),
    /// Work stealing.
    #[cfg(all(feature = "lab", not(loom)))]
    Steal(&'a StealQueue<T>),
}

impl<T: Node> Clone for AnyQueue<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Node> Copy for AnyQueue<'_, T> {}

macro_rules! each {
    ($self:expr, $q:ident => $e:expr) => {
        match $self {
            AnyQueue::Ring($q) => $e,
            #[cfg(feature = "lab")]
            AnyQueue::Locked($q) => $e,
            #[cfg(all(feature = "lab", not(loom)))]
            AnyQueue::Steal($q) => $e,
        }
    };
}

impl<T: Node> RunQueue<T> for AnyQueue<'_, T> {
    #[inline(always)]
    unsafe fn push(&self, item: NonNull<T>, place: Place, origin: Origin) {
        // SAFETY: as the caller promises.
        each!(self, q => unsafe { q.push(item, place, origin) })
    }
    #[inline]
    fn pop(&self) -> Option<(NonNull<T>, u8)> {
        each!(self, q => q.pop())
    }
    #[inline]
    fn pop_at_least(&self, level: u8) -> Option<(NonNull<T>, u8)> {
        each!(self, q => q.pop_at_least(level))
    }
    #[inline]
    unsafe fn remove(&self, item: NonNull<T>) -> bool {
        // SAFETY: as the caller promises.
        each!(self, q => unsafe { q.remove(item) })
    }
    #[inline]
    fn exchange(&self) -> Option<Taker> {
        each!(self, q => q.exchange())
    }
    #[inline]
    fn surplus(&self, someone_idle: bool) -> Option<Taker> {
        each!(self, q => q.surplus(someone_idle))
    }
    fn pull(&self) -> bool {
        each!(self, q => q.pull())
    }
    fn has_visible_work(&self) -> bool {
        each!(self, q => q.has_visible_work())
    }
    #[inline]
    fn len(&self) -> usize {
        each!(self, q => q.len())
    }
    #[inline]
    fn levels(&self) -> u64 {
        each!(self, q => q.levels())
    }
    #[inline]
    fn has_above(&self, level: u8) -> bool {
        each!(self, q => q.has_above(level))
    }
    #[inline]
    fn peek(&self) -> Option<NonNull<T>> {
        each!(self, q => q.peek())
    }
    fn loosen(&self) {
        each!(self, q => q.loosen())
    }
    fn waiting(&self) -> Option<u8> {
        each!(self, q => q.waiting())
    }
    fn hand(&self, level: u8) -> Option<NonNull<T>> {
        each!(self, q => q.hand(level))
    }
    unsafe fn adopt(&self, item: NonNull<T>) {
        // SAFETY: as the caller promises.
        each!(self, q => unsafe { q.adopt(item) })
    }
    fn given(&self) -> Option<(usize, u8)> {
        each!(self, q => q.given())
    }
    fn held(&self) -> Option<u8> {
        each!(self, q => q.held())
    }
    #[inline]
    fn injector(&self) -> &Injector<T> {
        each!(self, q => q.injector())
    }
    fn shown(&self) -> (usize, u64) {
        each!(self, q => q.shown())
    }
    fn stats(&self) -> Stats {
        each!(self, q => q.stats())
    }
}

enum Rows<T: Node> {
    Ring(Row<RingQueue<T>>),
    #[cfg(feature = "lab")]
    Locked(Row<LockedQueue<T>>),
    #[cfg(all(feature = "lab", not(loom)))]
    Steal(Row<StealQueue<T>>),
}

/// The run queues of all VPs. Dropping it does not touch items that are still queued.
pub struct Set<T: Node> {
    rows: Rows<T>,
    n: usize,
}

impl<T: Node> Set<T> {
    /// Empty queues for `n_vps` VPs.
    ///
    /// # Panics
    /// If `n_vps` is not 1..=[`MAX_VPS`]. (Under loom, `steal` is not there and panics.)
    pub fn new(design: Design, n_vps: usize, capacity: Capacity) -> Set<T> {
        Set::with_places(design, n_vps, capacity, WAIVER_PLACES)
    }

    /// As [`Set::new`], with Waiver Queues of `places`.
    ///
    /// # Panics
    /// As [`Set::new`]; or if `places` is not a power of two.
    pub fn with_places(design: Design, n_vps: usize, capacity: Capacity, places: usize) -> Set<T> {
        assert!((1..=MAX_VPS).contains(&n_vps), "{n_vps} VPs: 1 to {MAX_VPS} are possible");
        let rows = match design {
            Design::Ring => Rows::Ring(Row::new(
                n_vps,
                |vp| RingQueue::new(vp, n_vps, capacity, places),
                RingQueue::join,
            )),
            #[cfg(feature = "lab")]
            Design::Locked => Rows::Locked(Row::new(
                n_vps,
                |vp| LockedQueue::new(vp, n_vps, capacity, places),
                LockedQueue::join,
            )),
            #[cfg(all(feature = "lab", not(loom)))]
            Design::Steal => {
                Rows::Steal(Row::new(n_vps, |vp| StealQueue::new(vp, capacity), StealQueue::join))
            }
            #[cfg(all(feature = "lab", loom))]
            Design::Steal => panic!("crossbeam-deque is not modelled"),
        };
        Set { rows, n: n_vps }
    }

    /// Number of VPs.
    #[inline]
    pub fn vps(&self) -> usize {
        self.n
    }

    /// The design in use.
    pub fn design(&self) -> Design {
        match self.rows {
            Rows::Ring(_) => Design::Ring,
            #[cfg(feature = "lab")]
            Rows::Locked(_) => Design::Locked,
            #[cfg(all(feature = "lab", not(loom)))]
            Rows::Steal(_) => Design::Steal,
        }
    }

    #[inline]
    fn queue(&self, vp: usize) -> AnyQueue<'_, T> {
        match &self.rows {
            Rows::Ring(row) => AnyQueue::Ring(row.get(vp)),
            #[cfg(feature = "lab")]
            Rows::Locked(row) => AnyQueue::Locked(row.get(vp)),
            #[cfg(all(feature = "lab", not(loom)))]
            Rows::Steal(row) => AnyQueue::Steal(row.get(vp)),
        }
    }

    /// The owner's side of VP `vp`'s queue. Handles are copies of one pointer: get one and keep it
    /// with the VP.
    ///
    /// # Panics
    /// If there is no such VP.
    ///
    /// # Safety
    /// The user of the handle is the carrier of that VP: at most one kernel thread at a time,
    /// successive ones with a happens-before edge between them, and not from within (a signal
    /// handler interrupting) another operation of the same VP. The `Set` outlives its handles.
    #[inline]
    pub unsafe fn local(&self, vp: usize) -> Owner<T> {
        // SAFETY: (of the longer lifetime) a row's queues have a fixed address, and by the caller's
        // promise the set outlives its handles.
        let queue = unsafe {
            core::mem::transmute::<AnyQueue<'_, T>, AnyQueue<'static, T>>(self.queue(vp))
        };
        Owner { queue, not_send: PhantomData }
    }

    /// Hands a runnable item to a VP from any kernel thread. `true`: the VP's injector was empty,
    /// so see to it that the VP looks (a fence is the caller's affair: the compare-exchange within
    /// is one on x86).
    ///
    /// # Safety
    /// As [`Injector::push`].
    #[inline]
    pub unsafe fn inject(&self, vp: usize, item: NonNull<T>) -> bool {
        // SAFETY: as the caller promises.
        each!(self.queue(vp), q => unsafe { q.injector().push(item) })
    }

    /// Whether something was injected for a VP that it has not taken yet, by anyone.
    pub fn has_injected(&self, vp: usize) -> bool {
        each!(self.queue(vp), q => !q.injector().is_empty())
    }

    /// [`RunQueue::has_visible_work`] of any VP, by anyone.
    pub fn has_visible_work(&self, vp: usize) -> bool {
        self.queue(vp).has_visible_work()
    }

    /// [`RunQueue::shown`] of any VP: runnable items and bitmap of levels.
    pub fn shown(&self, vp: usize) -> (usize, u64) {
        self.queue(vp).shown()
    }

    /// Says, by anyone, that VP `vp` takes no steps, or does again: meanwhile nothing is given to
    /// it that it alone could take.
    pub fn set_stuck(&self, vp: usize, is: bool) {
        each!(self.queue(vp), q => q.face().shown.stuck.store(is, atomic::Ordering::Relaxed));
    }

    /// What [`set_stuck`](Set::set_stuck) said last.
    pub fn is_stuck(&self, vp: usize) -> bool {
        each!(self.queue(vp), q => q.face().is_stuck())
    }

    /// Counters of any VP.
    pub fn stats(&self, vp: usize) -> Stats {
        self.queue(vp).stats()
    }
}

/// The owner's side of one VP's queue. Not `Send`: the VP's record, which moves between kernel
/// threads, answers for that.
pub struct Owner<T: Node + 'static> {
    queue: AnyQueue<'static, T>,
    not_send: PhantomData<*mut T>,
}

impl<T: Node> Clone for Owner<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Node> Copy for Owner<T> {}

impl<T: Node> Owner<T> {
    /// [`RunQueue::push`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn push(self, item: NonNull<T>, place: Place, origin: Origin) {
        // SAFETY: as the caller promises.
        unsafe { self.queue.push(item, place, origin) }
    }

    /// [`RunQueue::pop`].
    #[inline]
    pub fn pop(self) -> Option<(NonNull<T>, u8)> {
        self.queue.pop()
    }

    /// [`RunQueue::pop_at_least`].
    #[inline]
    pub fn pop_at_least(self, level: u8) -> Option<(NonNull<T>, u8)> {
        self.queue.pop_at_least(level)
    }

    /// [`RunQueue::remove`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn remove(self, item: NonNull<T>) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.queue.remove(item) }
    }

    /// Moves an item that is queued here to another place, say after a change of its priority.
    /// `false`: it is not within reach (see [`RunQueue::remove`]); it is served by its old place
    /// once more.
    ///
    /// # Safety
    /// `item` is live. It may be anywhere.
    pub unsafe fn requeue(self, item: NonNull<T>, place: Place, origin: Origin) -> bool {
        // SAFETY: as the caller promises; once removed it is ours and in no queue.
        unsafe {
            let here = self.queue.remove(item);
            if here {
                self.queue.push(item, place, origin);
            }
            here
        }
    }

    /// [`RunQueue::exchange`].
    #[inline]
    #[must_use]
    pub fn exchange(self) -> Option<Taker> {
        self.queue.exchange()
    }

    /// [`RunQueue::surplus`].
    #[inline]
    #[must_use]
    pub fn surplus(self, someone_idle: bool) -> Option<Taker> {
        self.queue.surplus(someone_idle)
    }

    /// [`RunQueue::pull`].
    pub fn pull(self) -> bool {
        self.queue.pull()
    }

    /// [`RunQueue::has_visible_work`].
    pub fn has_visible_work(self) -> bool {
        self.queue.has_visible_work()
    }

    /// Whether nothing was injected: one relaxed load.
    #[inline]
    pub fn injector_is_empty(self) -> bool {
        self.queue.injector().is_empty()
    }

    /// Takes all that was injected, in the order in which it came. Each item is then held by the
    /// caller.
    #[inline]
    pub fn take_injected(self) -> Chain<T> {
        self.queue.injector().take()
    }

    /// [`RunQueue::len`].
    #[inline]
    pub fn len(self) -> usize {
        self.queue.len()
    }

    /// Whether nothing is queued here (`steal`: may be `false` although thieves emptied it).
    #[inline]
    pub fn is_empty(self) -> bool {
        self.queue.is_empty()
    }

    /// [`RunQueue::levels`].
    #[inline]
    pub fn levels(self) -> u64 {
        self.queue.levels()
    }

    /// Whether something is queued here on a higher level than this (`steal`: may say so although
    /// thieves took it): what a running one of this level is outranked by.
    #[inline]
    pub fn has_above(self, level: u8) -> bool {
        self.queue.has_above(level)
    }

    /// [`RunQueue::peek`].
    #[inline]
    pub fn peek(self) -> Option<NonNull<T>> {
        self.queue.peek()
    }

    /// [`RunQueue::loosen`].
    pub fn loosen(self) {
        self.queue.loosen()
    }

    /// [`RunQueue::waiting`].
    pub fn waiting(self) -> Option<u8> {
        self.queue.waiting()
    }

    /// [`RunQueue::hand`].
    pub fn hand(self, level: u8) -> Option<NonNull<T>> {
        self.queue.hand(level)
    }

    /// [`RunQueue::adopt`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn adopt(self, item: NonNull<T>) {
        // SAFETY: as the caller promises.
        unsafe { self.queue.adopt(item) }
    }

    /// [`RunQueue::given`].
    pub fn given(self) -> Option<(usize, u8)> {
        self.queue.given()
    }

    /// [`RunQueue::held`].
    pub fn held(self) -> Option<u8> {
        self.queue.held()
    }

    /// [`RunQueue::stats`].
    pub fn stats(self) -> Stats {
        self.queue.stats()
    }
}
