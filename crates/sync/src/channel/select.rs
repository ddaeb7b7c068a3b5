//! Implementation of [`select!`](crate::select!), the wait for the first of several events.
//!
//! A select first tries every arm, starting at a random arm so that no arm is preferred. If no arm
//! is ready, it links one node per channel into the wait lists, all with one signal, and parks. The
//! first event wins the signal and thereby selects exactly one arm. If an arm becomes ready while
//! the nodes are being linked, the select ends its own signal and starts again.

use crate::channel::chan::{Chan, DONE, TAG_SHIFT, TryError};
use crate::channel::receiver::Receiver;
use crate::channel::{mpmc, mpsc};
use crate::loom::{Wait, cancel, current, park, point};
use crate::wait::deadline;
use crate::wait::waitlist::{Node, Signal};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::mpsc::{RecvError, SendError};
use std::time::{Duration, Instant};

/// Waits for the first of several events and runs its arm. The value of `select!` is the value of
/// that arm.
///
/// ```text
/// select! {
///     recv(receiver) -> result => expression,      // Result<T, RecvError>, of mpsc or mpmc
///     send(sender, value) -> result => expression, // Result<(), SendError<T>>, of any sender
///     after(duration) => expression,
///     at(instant) => expression,
///     cancelled => expression,                     // the caller's cancellation was requested
///     default => expression,                       // no other arm is ready: do not wait
/// }
/// ```
///
/// `cancelled` and `default` may each appear once, all other arms any number of times, in any
/// order. An arm whose body is a block needs no comma. If several channels are ready, one of them
/// is chosen at random. Timers and cancellation have lower precedence than channels, and `default`
/// has the lowest. An arm whose channel is closed is ready, with an error. The arguments are
/// evaluated once, in order, before the wait. The value of a `send` arm that is not chosen is
/// dropped.
///
/// *Blocks* the microprocess, or the kernel thread if the caller is not a microprocess, unless
/// there is a `default` arm. A *cancellation point* if it waits. With a `cancelled` arm it does not
/// unwind on cancellation but runs that arm, even while cancellation is masked.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::{mpsc, select};
/// use std::time::Duration;
///
/// let (requests, inbox) = mpsc::channel();
/// let (stop, stopped) = mpsc::channel::<()>();
/// requests.send(7).unwrap();
/// let n = select! {
///     recv(inbox) -> n => n.unwrap(),
///     recv(stopped) -> _ => 0,
///     after(Duration::from_secs(10)) => panic!("too late"),
/// };
/// assert_eq!(n, 7);
/// let n = select! { recv(inbox) -> n => n.unwrap(), default => -1 };
/// assert_eq!(n, -1);
/// # drop(stop);
/// ```
///
/// A microprocess that ends in order when it is cancelled:
///
/// ```
/// use kumihimo::sync::{mpsc, select};
/// use kumihimo::thread;
///
/// let (jobs, inbox) = mpsc::channel();
/// let (report, started) = mpsc::channel();
/// let worker = thread::spawn(move || {
///     report.send(()).unwrap();
///     let mut sum = 0;
///     loop {
///         select! {
///             recv(inbox) -> job => sum += job.unwrap(),
///             cancelled => return sum,
///         }
///     }
/// });
/// started.recv().unwrap();
/// jobs.send(40).unwrap();
/// worker.cancel();
/// assert_eq!(worker.join().unwrap(), 40);
/// ```
#[macro_export]
macro_rules! select {
    // Each step removes the first arm from the input. Macro hygiene makes the `arm` of every step a
    // different variable.
    (@step [$($done:tt)*] ($n:expr) $default:tt; recv($r:expr) -> $p:pat => $body:block, $($rest:tt)*) => {
        $crate::select!(@take [$($done)*] ($n) $default arm ($crate::select::Receive::arm(&$r)) ($p) ($body) $($rest)*)
    };
    (@step [$($done:tt)*] ($n:expr) $default:tt; recv($r:expr) -> $p:pat => $body:block $($rest:tt)*) => {
        $crate::select!(@take [$($done)*] ($n) $default arm ($crate::select::Receive::arm(&$r)) ($p) ($body) $($rest)*)
    };
    (@step [$($done:tt)*] ($n:expr) $default:tt; recv($r:expr) -> $p:pat => $body:expr $(, $($rest:tt)*)?) => {
        $crate::select!(@take [$($done)*] ($n) $default arm ($crate::select::Receive::arm(&$r)) ($p) ($body) $($($rest)*)?)
    };
    (@step [$($done:tt)*] ($n:expr) $default:tt; send($s:expr, $v:expr $(,)?) -> $p:pat => $body:block, $($rest:tt)*) => {
        $crate::select!(@take [$($done)*] ($n) $default arm ($crate::select::SendTo::arm(&$s, $v)) ($p) ($body) $($rest)*)
    };
    (@step [$($done:tt)*] ($n:expr) $default:tt; send($s:expr, $v:expr $(,)?) -> $p:pat => $body:block $($rest:tt)*) => {
        $crate::select!(@take [$($done)*] ($n) $default arm ($crate::select::SendTo::arm(&$s, $v)) ($p) ($body) $($rest)*)
    };
    (@step [$($done:tt)*] ($n:expr) $default:tt; send($s:expr, $v:expr $(,)?) -> $p:pat => $body:expr $(, $($rest:tt)*)?) => {
        $crate::select!(@take [$($done)*] ($n) $default arm ($crate::select::SendTo::arm(&$s, $v)) ($p) ($body) $($($rest)*)?)
    };
    (@step [$($done:tt)*] ($n:expr) $default:tt; $timer:ident($t:expr) => $body:block, $($rest:tt)*) => {
        $crate::select!(@take [$($done)*] ($n) $default arm ($crate::select::$timer($t)) (()) ($body) $($rest)*)
    };
    (@step [$($done:tt)*] ($n:expr) $default:tt; $timer:ident($t:expr) => $body:block $($rest:tt)*) => {
        $crate::select!(@take [$($done)*] ($n) $default arm ($crate::select::$timer($t)) (()) ($body) $($rest)*)
    };
    (@step [$($done:tt)*] ($n:expr) $default:tt; $timer:ident($t:expr) => $body:expr $(, $($rest:tt)*)?) => {
        $crate::select!(@take [$($done)*] ($n) $default arm ($crate::select::$timer($t)) (()) ($body) $($($rest)*)?)
    };
    (@step [$($done:tt)*] ($n:expr) $default:tt; cancelled => $body:block, $($rest:tt)*) => {
        $crate::select!(@take [$($done)*] ($n) $default arm ($crate::select::cancelled()) (()) ($body) $($rest)*)
    };
    (@step [$($done:tt)*] ($n:expr) $default:tt; cancelled => $body:block $($rest:tt)*) => {
        $crate::select!(@take [$($done)*] ($n) $default arm ($crate::select::cancelled()) (()) ($body) $($rest)*)
    };
    (@step [$($done:tt)*] ($n:expr) $default:tt; cancelled => $body:expr $(, $($rest:tt)*)?) => {
        $crate::select!(@take [$($done)*] ($n) $default arm ($crate::select::cancelled()) (()) ($body) $($($rest)*)?)
    };
    (@step $done:tt ($n:expr) (); default => $body:block, $($rest:tt)*) => {
        $crate::select!(@step $done ($n) ($body); $($rest)*)
    };
    (@step $done:tt ($n:expr) (); default => $body:block $($rest:tt)*) => {
        $crate::select!(@step $done ($n) ($body); $($rest)*)
    };
    (@step $done:tt ($n:expr) (); default => $body:expr $(, $($rest:tt)*)?) => {
        $crate::select!(@step $done ($n) ($body); $($($rest)*)?)
    };
    (@take [$($done:tt)*] ($n:expr) $default:tt $arm:ident $make:tt $p:tt $body:tt $($rest:tt)*) => {
        $crate::select!(@step [$($done)* { $arm ($n) $make $p $body }] ($n + 1) $default; $($rest)*)
    };
    (@step [$({ $arm:ident ($n:expr) ($make:expr) ($p:pat) ($body:expr) })*] ($count:expr) (); ) => {
        // A `match`, so that temporaries in the arguments live as long as the arms.
        match ($($make,)*) { ($($arm,)*) => {
        let chosen = $crate::select::wait::<{ $count }>([$(&$arm),*]);
        $(if chosen == $n {
            let $p = $arm.take();
            $body
        } else)* {
            unreachable!("an arm was chosen")
        }
        } }
    };
    (@step [$({ $arm:ident ($n:expr) ($make:expr) ($p:pat) ($body:expr) })*] ($count:expr) ($default:expr); ) => {
        match ($($make,)*) { ($($arm,)*) => {
        let chosen = $crate::select::poll::<{ $count }>([$(&$arm),*]);
        $(if chosen == Some($n) {
            let $p = $arm.take();
            $body
        } else)* {
            $default
        }
        } }
    };
    (@ $($bad:tt)*) => {
        compile_error!("select!: expected recv(r) -> p => e, send(s, v) -> p => e, after(d) => e, at(t) => e, cancelled => e or default => e")
    };
    ($($arms:tt)*) => {
        $crate::select!(@step [] (0usize) (); $($arms)*)
    };
}

/// One arm of a select. Created by the macro; not for direct use.
#[doc(hidden)]
#[allow(private_interfaces)]
pub trait Arm {
    /// Tries the operation without waiting. Returns true if it completed; the arm stores the
    /// result.
    fn attempt(&self) -> bool;
    /// Returns the time at which the arm must be tried again without a wake-up.
    fn deadline(&self) -> Option<Instant> {
        None
    }
    fn is_cancellation(&self) -> bool {
        false
    }
    fn channel(&self) -> Option<&dyn ChannelArm> {
        None
    }
}

/// Arm that links a node into a channel's wait list.
trait ChannelArm {
    /// Prepares the wait. Returns the slot through which a waker passes the message until `ended`
    /// is called.
    fn begin(&self) -> *mut ();
    /// Links the node. Returns false, without linking it, if the arm is ready.
    ///
    /// # Safety
    /// The node must not move until it is unlinked, and its slot must be the pointer that `begin`
    /// returned.
    unsafe fn watch(&self, node: &Node) -> bool;
    fn unwatch(&self, node: &Node);
    /// Stores the result after the node is unlinked. `code` is the outcome that a waker stored for
    /// this arm, if it did.
    fn ended(&self, code: Option<u32>);
    /// As `ended`, for a select that unwinds: a delivered message goes back to the channel.
    fn undo(&self, code: Option<u32>);
}

/// Receive arm of [`select!`](crate::select!). Its fields are cells, because a waker writes to the
/// slot while the arm is borrowed.
#[doc(hidden)]
pub struct RecvArm<'a, T> {
    chan: &'a Chan<T>,
    slot: UnsafeCell<MaybeUninit<T>>,
    result: Cell<Option<Result<T, RecvError>>>,
}

/// Send arm of [`select!`](crate::select!). Its fields are cells, because a waker reads the slot
/// while the arm is borrowed.
#[doc(hidden)]
pub struct SendArm<'a, T> {
    chan: &'a Chan<T>,
    /// The message, except between `begin` and `ended`, when the slot holds it.
    value: Cell<Option<T>>,
    slot: UnsafeCell<MaybeUninit<T>>,
    result: Cell<Option<Result<(), SendError<T>>>>,
}

/// Timer arm of [`select!`](crate::select!).
#[doc(hidden)]
pub struct TimerArm {
    deadline: Option<Instant>,
}

/// Cancellation arm of [`select!`](crate::select!).
#[doc(hidden)]
pub struct CancelArm;

#[doc(hidden)]
#[allow(missing_docs)]
impl<T> RecvArm<'_, T> {
    /// Takes the received message.
    pub fn take(&self) -> Result<T, RecvError> {
        self.result.take().expect("this arm was chosen")
    }
}

#[doc(hidden)]
#[allow(missing_docs)]
impl<T> SendArm<'_, T> {
    /// Takes the outcome of the send.
    pub fn take(&self) -> Result<(), SendError<T>> {
        self.result.take().expect("this arm was chosen")
    }
}

#[doc(hidden)]
#[allow(missing_docs)]
impl TimerArm {
    /// Returns the unit value of a timer arm.
    pub fn take(&self) {}
}

#[doc(hidden)]
#[allow(missing_docs)]
impl CancelArm {
    /// Returns the unit value of a cancellation arm.
    pub fn take(&self) {}
}

#[allow(private_interfaces)]
impl<T> Arm for RecvArm<'_, T> {
    fn attempt(&self) -> bool {
        let result = match self.chan.try_recv() {
            Ok(value) => Ok(value),
            Err(TryError::Closed(())) => Err(RecvError),
            Err(TryError::WouldBlock(())) => return false,
        };
        self.result.set(Some(result));
        true
    }
    fn channel(&self) -> Option<&dyn ChannelArm> {
        Some(self)
    }
}

impl<T> ChannelArm for RecvArm<'_, T> {
    fn begin(&self) -> *mut () {
        self.slot.get().cast()
    }
    unsafe fn watch(&self, node: &Node) -> bool {
        // SAFETY: the caller keeps the contract of `watch`; the slot is ours and has room for a
        // `T`.
        unsafe { self.chan.watch_recv(node) }
    }
    fn unwatch(&self, node: &Node) {
        self.chan.unwatch_recv(node);
    }
    fn ended(&self, code: Option<u32>) {
        self.result.set(code.map(|code| match code {
            // SAFETY: `DONE` means that a sender filled the slot.
            DONE => Ok(unsafe { (*self.slot.get()).assume_init_read() }),
            _ => Err(RecvError),
        }));
    }
    fn undo(&self, code: Option<u32>) {
        self.ended(code);
        if let Some(Ok(value)) = self.result.take() {
            self.chan.put_back(value);
        }
    }
}

#[allow(private_interfaces)]
impl<T> Arm for SendArm<'_, T> {
    fn attempt(&self) -> bool {
        let value = self.value.take().expect("not sent yet");
        let result = match self.chan.try_send(value) {
            Ok(()) => Ok(()),
            Err(TryError::Closed(value)) => Err(SendError(value)),
            Err(TryError::WouldBlock(value)) => {
                self.value.set(Some(value));
                return false;
            }
        };
        self.result.set(Some(result));
        true
    }
    fn channel(&self) -> Option<&dyn ChannelArm> {
        Some(self)
    }
}

impl<T> ChannelArm for SendArm<'_, T> {
    fn begin(&self) -> *mut () {
        let value = self.value.take().expect("not sent yet");
        // SAFETY: the node is not linked yet, so no other thread has the slot.
        unsafe { (*self.slot.get()).write(value) };
        self.slot.get().cast()
    }
    unsafe fn watch(&self, node: &Node) -> bool {
        // SAFETY: the caller keeps the contract of `watch`; the slot is ours and holds a `T`.
        unsafe { self.chan.watch_send(node) }
    }
    fn unwatch(&self, node: &Node) {
        self.chan.unwatch_send(node);
    }
    fn ended(&self, code: Option<u32>) {
        if code == Some(DONE) {
            self.result.set(Some(Ok(())));
            return;
        }
        // SAFETY: `begin` wrote the message to the slot, and without `DONE` no receiver has taken
        // it.
        let value = unsafe { (*self.slot.get()).assume_init_read() };
        match code {
            Some(_) => self.result.set(Some(Err(SendError(value)))),
            None => self.value.set(Some(value)),
        }
    }
    fn undo(&self, code: Option<u32>) {
        self.ended(code);
    }
}

#[allow(private_interfaces)]
impl Arm for TimerArm {
    fn attempt(&self) -> bool {
        self.deadline.is_some_and(|d| Instant::now() >= d)
    }
    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

#[allow(private_interfaces)]
impl Arm for CancelArm {
    fn attempt(&self) -> bool {
        cancel::requested()
    }
    fn is_cancellation(&self) -> bool {
        true
    }
}

/// Receiver types that a `recv` arm accepts.
#[doc(hidden)]
#[allow(missing_docs)]
pub trait Receive {
    type Message;
    fn arm(&self) -> RecvArm<'_, Self::Message>;
}

/// Sender types that a `send` arm accepts.
#[doc(hidden)]
#[allow(missing_docs)]
pub trait SendTo<T> {
    fn arm(&self, value: T) -> SendArm<'_, T>;
}

impl<R: Receive + ?Sized> Receive for &R {
    type Message = R::Message;
    fn arm(&self) -> RecvArm<'_, R::Message> {
        (**self).arm()
    }
}

impl<T, S: SendTo<T> + ?Sized> SendTo<T> for &S {
    fn arm(&self, value: T) -> SendArm<'_, T> {
        (**self).arm(value)
    }
}

impl<T, S> Receive for Receiver<T, S> {
    type Message = T;
    fn arm(&self) -> RecvArm<'_, T> {
        RecvArm {
            chan: &self.chan,
            slot: UnsafeCell::new(MaybeUninit::uninit()),
            result: Cell::new(None),
        }
    }
}

macro_rules! senders {
    ($($sender:ty),*) => {$(
        impl<T> SendTo<T> for $sender {
            fn arm(&self, value: T) -> SendArm<'_, T> {
                SendArm {
                    chan: &self.chan,
                    value: Cell::new(Some(value)),
                    slot: UnsafeCell::new(MaybeUninit::uninit()),
                    result: Cell::new(None),
                }
            }
        }
    )*};
}
senders!(mpsc::Sender<T>, mpsc::SyncSender<T>, mpmc::Sender<T>);

#[doc(hidden)]
#[allow(missing_docs)]
pub fn after(timeout: Duration) -> TimerArm {
    TimerArm { deadline: deadline::after(timeout) }
}

#[doc(hidden)]
#[allow(missing_docs)]
pub fn at(deadline: Instant) -> TimerArm {
    TimerArm { deadline: Some(deadline) }
}

#[doc(hidden)]
#[allow(missing_docs)]
pub fn cancelled() -> CancelArm {
    CancelArm
}

/// Tries every arm once, channels first, starting at a random arm. Returns the arm that completed.
#[doc(hidden)]
pub fn poll<const N: usize>(arms: [&dyn Arm; N]) -> Option<usize> {
    let start = anywhere();
    for channels in [true, false] {
        for i in 0..N {
            let i = start.wrapping_add(i) % N;
            if arms[i].channel().is_some() == channels && arms[i].attempt() {
                return Some(i);
            }
        }
    }
    None
}

fn anywhere() -> usize {
    if cfg!(loom) {
        return 0;
    }
    thread_local! {
        static STATE: Cell<u32> = const { Cell::new(0x9e37_79b9) };
    }
    STATE.with(|state| {
        let mut x = state.get();
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        state.set(x);
        x as usize
    })
}

/// Waits until an arm has completed and returns its number.
#[doc(hidden)]
pub fn wait<const N: usize>(arms: [&dyn Arm; N]) -> usize {
    loop {
        if let Some(i) = poll(arms).or_else(|| wait_once(arms)) {
            return i;
        }
    }
}

/// Waits once. Returns `None` if the caller must try the arms again.
fn wait_once<const N: usize>(arms: [&dyn Arm; N]) -> Option<usize> {
    let handles_cancellation = arms.iter().any(|arm| arm.is_cancellation());
    let deadline = arms.iter().filter_map(|arm| arm.deadline()).min();
    if !handles_cancellation {
        point();
    }
    let signal = Signal::new();
    let waiter = current();
    let nodes: [Node; N] = std::array::from_fn(|i| {
        let slot = arms[i].channel().map_or(ptr::null_mut(), |arm| arm.begin());
        Node::with(waiter.clone(), &signal, slot, i).shared()
    });
    let mut round = Registration { arms, nodes: &nodes, signal: &signal, watched: 0 };
    if round.watch() {
        while signal.get().is_none() {
            if handles_cancellation {
                if cancel::requested() {
                    break;
                }
            } else {
                point();
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                break;
            }
            park(Wait::Select, deadline);
        }
    }
    let chosen = round.end(false);
    std::mem::forget(round);
    chosen
}

/// Nodes of one wait. Dropping it unlinks them, so that a select that unwinds leaves no node
/// linked.
struct Registration<'a, const N: usize> {
    arms: [&'a dyn Arm; N],
    nodes: &'a [Node; N],
    signal: &'a Signal,
    watched: usize,
}

impl<const N: usize> Registration<'_, N> {
    /// Links the nodes. Returns false if an arm is ready already.
    fn watch(&mut self) -> bool {
        for (arm, node) in self.arms.iter().zip(self.nodes) {
            // SAFETY: `end` unlinks the node before `nodes` is gone; its slot came from `begin`.
            if arm.channel().is_some_and(|arm| !unsafe { arm.watch(node) }) {
                return false;
            }
            self.watched += 1;
        }
        true
    }

    /// Unlinks the nodes, passes the outcome to the arms, and returns the number of the chosen arm.
    fn end(&mut self, unwinding: bool) -> Option<usize> {
        // After this exchange no waker can win the signal.
        let outcome = if self.signal.give_up() { None } else { self.signal.get() };
        for (i, (arm, node)) in self.arms.iter().zip(self.nodes).enumerate() {
            let Some(arm) = arm.channel() else { continue };
            if i < self.watched {
                arm.unwatch(node);
            }
            let code = outcome
                .filter(|o| (o >> TAG_SHIFT) as usize == i)
                .map(|o| o & ((1 << TAG_SHIFT) - 1));
            if unwinding { arm.undo(code) } else { arm.ended(code) }
        }
        outcome.map(|o| (o >> TAG_SHIFT) as usize)
    }
}

impl<const N: usize> Drop for Registration<'_, N> {
    fn drop(&mut self) {
        self.end(true);
    }
}
