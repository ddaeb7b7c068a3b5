//! Waiting for the first of several events: the machinery behind [`select!`](crate::select!).
//!
//! A select first tries every arm, beginning anywhere so that none is preferred. If none is ready,
//! it links one node per channel into their wait lists, all with one signal, and parks: the first
//! event wins the signal, and with it exactly one arm. If an arm became ready while the nodes were
//! being linked, the select wins its own signal and begins anew.

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

/// Waits for the first of several events and runs that arm; its value is the value of the arm.
///
/// ```text
/// select! {
///     recv(receiver) -> result => expression,      // Result<T, RecvError>, of mpsc or mpmc
///     send(sender, value) -> result => expression, // Result<(), SendError<T>>, of any sender
///     after(duration) => expression,
///     at(instant) => expression,
///     cancelled => expression,                     // the caller was asked to end
///     default => expression,                       // nothing else is ready: do not wait
/// }
/// ```
///
/// Any number of arms of each kind but `cancelled` and `default`, in any order; a block needs no
/// comma behind it. Of several ready channels one is taken at random; timers and cancellation come
/// after channels, `default` last. An arm whose channel is closed is ready, with an error. The
/// arguments are evaluated once, before waiting, in order; the value of a `send` that is not taken
/// is dropped.
///
/// *Blocks* the microprocess (or the kernel thread) unless there is a `default`. A *cancellation
/// point* where it waits, unless there is a `cancelled` arm, which is run instead of unwinding
/// (also while cancellation is masked).
///
/// ```
/// use kumihimo_sync::{mpsc, select};
/// use std::time::Duration;
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
#[macro_export]
macro_rules! select {
    // Each step takes one arm off the front. The name `arm` of each step is another one, by
    // hygiene.
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
        // A match, so that temporaries in the arguments live as long as the arms.
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

/// One arm of a select. The macro makes them; not for direct use.
#[doc(hidden)]
#[allow(private_interfaces)]
pub trait Arm {
    /// Tries at once. True: done, the result is kept.
    fn attempt(&self) -> bool;
    /// When to try again without having been woken.
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

/// An arm that links a node into a wait list.
trait ChannelArm {
    /// Where a waker puts or takes the message, from now to `ended`.
    fn begin(&self) -> *mut ();
    /// Links the node. False: the arm is ready, the node is not linked.
    ///
    /// # Safety
    /// The node stays where it is until it is unlinked; its slot is what `begin` returned.
    unsafe fn watch(&self, node: &Node) -> bool;
    fn unwatch(&self, node: &Node);
    /// The node is unlinked. `code`: a waker has ended the wait through it.
    fn ended(&self, code: Option<u32>);
    /// As `ended`, but the select unwinds: a message that was delivered goes back.
    fn undo(&self, code: Option<u32>);
}

/// See [`select!`](crate::select!). In cells, as a waker changes it while it is borrowed.
#[doc(hidden)]
pub struct RecvArm<'a, T> {
    chan: &'a Chan<T>,
    slot: UnsafeCell<MaybeUninit<T>>,
    result: Cell<Option<Result<T, RecvError>>>,
}

/// See [`select!`](crate::select!). In cells, as a waker changes it while it is borrowed.
#[doc(hidden)]
pub struct SendArm<'a, T> {
    chan: &'a Chan<T>,
    /// The message, except between `begin` and `ended`, where it is in the slot.
    value: Cell<Option<T>>,
    slot: UnsafeCell<MaybeUninit<T>>,
    result: Cell<Option<Result<(), SendError<T>>>>,
}

/// See [`select!`](crate::select!).
#[doc(hidden)]
pub struct TimerArm {
    deadline: Option<Instant>,
}

/// See [`select!`](crate::select!).
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
    /// Does nothing: this case has no value.
    pub fn take(&self) {}
}

#[doc(hidden)]
#[allow(missing_docs)]
impl CancelArm {
    /// Does nothing: this case has no value.
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
        // SAFETY: the caller's promise; the slot is ours and has room for a `T`.
        unsafe { self.chan.watch_recv(node) }
    }
    fn unwatch(&self, node: &Node) {
        self.chan.unwatch_recv(node);
    }
    fn ended(&self, code: Option<u32>) {
        self.result.set(code.map(|code| match code {
            // SAFETY: the code says that the slot was filled.
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
        // SAFETY: nobody else knows the slot yet.
        unsafe { (*self.slot.get()).write(value) };
        self.slot.get().cast()
    }
    unsafe fn watch(&self, node: &Node) -> bool {
        // SAFETY: the caller's promise; the slot is ours and holds a `T`.
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
        // SAFETY: `begin` put the message there, and nobody has taken it.
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

/// What a `recv` arm takes.
#[doc(hidden)]
#[allow(missing_docs)]
pub trait Receive {
    type Message;
    fn arm(&self) -> RecvArm<'_, Self::Message>;
}

/// What a `send` arm takes.
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

/// Tries every arm once, channels first, beginning anywhere.
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

/// Waits until an arm is done.
#[doc(hidden)]
pub fn wait<const N: usize>(arms: [&dyn Arm; N]) -> usize {
    loop {
        if let Some(i) = poll(arms).or_else(|| wait_once(arms)) {
            return i;
        }
    }
}

/// None: something may have become ready.
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

/// The nodes of one wait, to be unlinked however it ends.
struct Registration<'a, const N: usize> {
    arms: [&'a dyn Arm; N],
    nodes: &'a [Node; N],
    signal: &'a Signal,
    watched: usize,
}

impl<const N: usize> Registration<'_, N> {
    /// Links the nodes. False: an arm was ready.
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

    /// Unlinks the nodes and tells the arms how it ended.
    fn end(&mut self, unwinding: bool) -> Option<usize> {
        // From here on no waker can win the signal.
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
