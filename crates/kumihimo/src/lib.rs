//! Microprocesses for Linux: user-level threads that cooperate with the kernel.
//!
//! Programs are plain blocking code with one thread per connection, request or actor, as with
//! `std::thread`, but with up to millions of threads. To port a program, change `use std::thread`
//! to `use kumihimo::thread`.
//!
//! # Examples
//!
//! ```
//! use kumihimo::thread;
//! use kumihimo::sync::mpsc;
//!
//! let (sender, receiver) = mpsc::channel();
//! for i in 0..1000u64 {
//!     let sender = sender.clone();
//!     thread::spawn(move || sender.send(i).unwrap());
//! }
//! drop(sender);
//! assert_eq!(receiver.iter().sum::<u64>(), 499_500);
//! ```
//!
//! # What blocks what
//! Everything in [`sync`], [`net`], [`fs`], [`io`], [`process`], [`signal`] and [`thread`] blocks
//! the calling *microprocess*; its virtual processor continues with other microprocesses. Called
//! from a plain kernel thread (`main`, `std::thread::spawn`), it blocks that kernel thread. Both
//! kinds of thread can use the same objects.
//!
//! Other blocking calls (std's locks, C libraries) block the kernel thread: wrap them in
//! [`thread::blocking`].
//!
//! # Modules
//! - [`thread`]: spawning, scopes, sleeping, priorities, cancellation.
//! - [`sync`]: locks, channels, messages.
//! - [`net`]: TCP, UDP and UNIX sockets.
//! - [`fs`], [`io`], [`process`], [`signal`]: files, standard streams and pipes, child processes,
//!   signals.
//! - [`fuse`]: the kernel's channel to file servers.
//! - [`future`]: async crates.
//! - `futures` (feature `futures`): streams, timers and an executor for them; with the feature
//!   `hyper`, for hyper.
//! - [`runtime`]: settings, metrics, start and end.
//! - [`policy`]: scheduling policies.
//! - [`machine`]: observing and controlling every microprocess of the machine.
//! - [`resource`]: the table of the runtime's resources, with IDs, names and user-defined kinds.
//! - [`gate`]: calls between address spaces.
//!
//! # Platforms
//! | target | what `thread::spawn` starts |
//! |---|---|
//! | x86_64 Linux, glibc | a microprocess |
//! | other Linux: aarch64, musl | a kernel thread, behind the same API |
//! | other systems | a thread of std |
//!
//! `runtime::mode()` reports which of the first two applies, and the reason. In the second, `gate`
//! and `fuse` are `Unsupported`. In the third, `thread`, `sync`, `time`, `net` and `fs` are std's
//! own modules, and the others are absent.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod future;

/// Defines the C library's threads, locks and waits anew for the whole program, so that
/// `std::thread`, `std::sync` and `std::net` wait as microprocesses in all of its crates,
/// unchanged.
///
/// Stands once, at the root of a program that is linked dynamically to glibc. The book has a guide:
/// `guides/unmodified.md`.
///
/// # Examples
///
/// ```
/// kumihimo::interpose!();
///
/// #[kumihimo::main]
/// fn main() {
///     std::thread::spawn(|| println!("a microprocess")).join().unwrap();
/// }
/// ```
#[cfg(all(
    feature = "interpose",
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu"
))]
#[doc(inline)]
pub use kumihimo_interpose::interpose;

/// Replaces the C library's threads, locks and waits: on x86_64 Linux with glibc only.
#[cfg(all(
    feature = "interpose",
    not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))
))]
#[macro_export]
macro_rules! interpose {
    () => {
        compile_error!("kumihimo::interpose!() needs x86_64 Linux with glibc");
    };
}

#[cfg(target_os = "linux")]
#[doc(inline)]
pub use kumihimo_macros::main;

/// Streams, timers and an executor for futures, on the runtime's own readiness.
///
/// The feature `futures` has the traits of `futures-io`, the feature `hyper` those of hyper's `rt`,
/// so hyper serves HTTP/1 and HTTP/2 without another runtime. [`future::block_on`] drives a
/// connection, and each stream of HTTP/2 has a microprocess of its own, which may block.
///
/// Everything here works in every microprocess, on a foreign kernel thread, and in the tasks of
/// another runtime. No kernel thread waits for a stream or a timer of a microprocess. For futures
/// that are polled on foreign kernel threads, one kernel thread of the process waits in epoll(7).
///
/// # Examples
///
/// ```
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// use futures_lite::future::try_zip;
/// use kumihimo::future::block_on;
/// use kumihimo::futures::Polled;
/// use kumihimo::net::UnixStream;
///
/// let (near, far) = UnixStream::pair()?;
/// let (mut near, mut far) = (Polled::new(near), Polled::new(far));
/// let mut answer = [0; 4];
/// let ask = async {
///     near.write_all(b"ping").await?;
///     near.read_exact(&mut answer).await
/// };
/// let reply = async {
///     far.read_exact(&mut [0; 4]).await?;
///     far.write_all(b"pong").await
/// };
/// block_on(try_zip(ask, reply))?;
/// assert_eq!(&answer, b"pong");
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(all(target_os = "linux", feature = "futures"))]
pub mod futures {
    #[doc(inline)]
    pub use kumihimo_futures::*;
}

#[cfg(target_os = "linux")]
#[doc(inline)]
pub use kumihimo_io::{fs, fuse, io, net, process, signal};
/// Locks, channels and other synchronisation for microprocesses and kernel threads, in any mixture.
///
/// The types of `std::sync`, and semaphores, channels with several receivers,
/// [`select!`](sync::select) and synchronous messages. A call that blocks suspends the calling
/// microprocess; of a plain kernel thread it blocks that thread.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::{Arc, Mutex};
/// use kumihimo::thread;
///
/// let sum = Arc::new(Mutex::new(0));
/// let add = |n| {
///     let sum = sum.clone();
///     thread::spawn(move || *sum.lock().unwrap() += n)
/// };
/// let both = [add(1), add(2)];
/// both.into_iter().for_each(|one| one.join().unwrap());
/// assert_eq!(*sum.lock().unwrap(), 3);
/// ```
#[cfg(target_os = "linux")]
pub mod sync {
    #[doc(inline)]
    pub use kumihimo_sync::*;
}
/// Re-export of [`std::time`], so that the same path exists on every system.
pub use std::time;
#[cfg(not(target_os = "linux"))]
pub use std::{fs, net, sync, thread};

#[cfg(target_os = "linux")]
/// Microprocesses: the interface of `std::thread`, with priorities, scopes with deadlines, and
/// cancellation.
///
/// # Examples
///
/// ```
/// use kumihimo::thread::{self, Cancelled};
/// use std::time::{Duration, Instant};
///
/// // The first child returns. The second one waits, and is cancelled at the deadline.
/// let deadline = Instant::now() + Duration::from_millis(20);
/// let (first, second) = thread::scope_until(deadline, |s| {
///     let (first, second) = (s.spawn(|| 6 * 7), s.spawn(thread::park));
///     (first.join(), second.join())
/// });
/// assert_eq!(first.unwrap(), 42);
/// assert!(second.unwrap_err().is::<Cancelled>());
/// ```
pub mod thread {
    #[doc(inline)]
    pub use kumihimo_policy::{Priority, PriorityError};
    #[doc(inline)]
    pub use kumihimo_runtime::cancel::{
        Cancelled, deadline, masked as without_cancellation, point as cancellation_point,
        requested as cancel_requested,
    };
    #[doc(inline)]
    pub use kumihimo_runtime::thread::*;
}

#[cfg(target_os = "linux")]
/// The runtime itself: settings, metrics, start and end.
///
/// A program that builds no runtime gets one with the default settings at the first
/// [`thread::spawn`].
///
/// # Examples
///
/// ```
/// use kumihimo::policy::FixedPriority;
/// use kumihimo::runtime::{Runtime, metrics};
/// use kumihimo::thread;
///
/// fn main() -> std::io::Result<()> {
///     let runtime = Runtime::builder().vps(2).policy(FixedPriority).build()?;
///     let living = runtime.run(|| {
///         let waiting: Vec<_> = (0..1000).map(|_| thread::spawn(thread::park)).collect();
///         let living = metrics().map_or(0, |metrics| metrics.living);
///         waiting.iter().for_each(|one| one.thread().unpark());
///         living
///     });
///     assert_eq!(living, 1001);
///     Ok(())
/// }
/// ```
pub mod runtime {
    #[doc(inline)]
    pub use kumihimo_runtime::NoEvents;
    #[doc(inline)]
    pub use kumihimo_runtime::runtime::*;
}

#[cfg(target_os = "linux")]
/// Counters of single microprocesses: switches, waits, wake-up latency, CPU time; and locks with
/// their holders and waiters. `kumi top` and `kumi locks` show them for a running program;
/// [`runtime::metrics`](runtime::metrics()) has counters of the whole.
///
/// # Examples
///
/// ```
/// use kumihimo::{observe, thread};
///
/// let one = thread::spawn(thread::park);
/// let id = one.thread().id().resource().expect("it is a microprocess");
/// while observe::counters(id).is_some_and(|of| of.stack_in_use.is_none()) {
///     thread::yield_now();
/// }
/// one.thread().unpark();
/// one.join().unwrap();
/// ```
pub mod observe {
    #[doc(inline)]
    pub use kumihimo_machine::locks::{
        Because, Chain, Holder, Link, Lock, LockTotals, LockWaiter, Locks,
    };
    #[doc(inline)]
    pub use kumihimo_runtime::counters::{Counters, Waits, account, counters};
    #[doc(inline)]
    pub use kumihimo_runtime::locks::locks;
    #[doc(inline)]
    pub use kumihimo_runtime::profile::{Profile, pprof};
}

#[cfg(target_os = "linux")]
/// Observation and control of every microprocess of the machine, as by the commands `kumi ps`,
/// `kumi suspend` and others.
///
/// A process joins with its first microprocess. It takes a number in the run-time directory of its
/// user, which becomes part of all its IDs, and answers at a socket there, on a kernel thread of
/// its own. There is no daemon. `KUMI_DIR` names the directory; with `KUMI_DIR=off` the process
/// does not join. Access is granted to the same user, to root, and to users given to
/// [`allow`](machine::allow).
///
/// A [`Neighbour`](machine::Neighbour) blocks its kernel thread while it waits, for 2 s by default:
/// use [`thread::blocking`] in a microprocess where the event source is `off`.
///
/// # Examples
///
/// ```
/// use kumihimo::machine::{self, Action, Done, Machine, State};
/// use kumihimo::thread;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let one = thread::spawn(thread::park);
/// let id = one.thread().id().resource().expect("it is a microprocess");
/// # if machine::number().is_err() { one.thread().unpark(); return Ok(()); }
///
/// // Any other process of the same user could make the following calls.
/// let mut space = Machine::mine()?.neighbour(id.location().space())?;
/// assert_eq!(space.act(id, Action::Suspend)?, Done::Now);
/// one.thread().unpark();
/// assert_eq!(space.microprocess(id)?.state, State::Suspended);
/// assert_eq!(space.act(id, Action::Resume)?, Done::Now);
///
/// one.join().expect("no panic");
/// assert!(space.microprocess(id).is_err(), "ids never lead to a successor");
/// # Ok(())
/// # }
/// ```
pub mod machine {
    #[doc(inline)]
    pub use kumihimo_machine::handler::{
        Action, Done, Metric, Microprocess, Refused, Resource, Space, State,
    };
    #[doc(inline)]
    pub use kumihimo_machine::{Error, Machine, Neighbour};
    #[doc(inline)]
    pub use kumihimo_runtime::membership::{allow, disallow, number};
}

#[cfg(target_os = "linux")]
/// The resource table of this address space: everything that the runtime manages, with five
/// operations, IDs and names.
///
/// It contains microprocesses, their parts, virtual processors, [`Region`](resource::Region)s,
/// mailboxes, files, sockets, gates and links. An application adds a kind with a
/// [`Row`](resource::Row); [`Entries`](resource::Entries) can store its resources.
/// `kumi resources` prints the table of another process.
///
/// The first runtime of the process chooses how the table excludes simultaneous use of one
/// resource: [`Builder::locking`](runtime::Builder::locking), `KUMI_LAB=locking=...`.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Kind, Name, Region, table};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut region = Region::new(4096)?;
/// region[0] = 7;
/// table().name(&Name::new(Kind::REGION, "scratch")?, region.id())?;
///
/// let found = table().names().find(&Name::parse("/region/scratch")?)?;
/// let mut said = Vec::new();
/// table().read(found, &mut said)?;
/// assert_eq!(said, b"4096 bytes");
///
/// drop(region);
/// assert!(table().read(found, &mut said).is_err(), "its id is stale");
/// let name = Name::parse("/region/scratch")?;
/// assert!(table().names().find(&name).is_err(), "and its name is gone");
/// # Ok(())
/// # }
/// ```
pub mod resource {
    #[doc(inline)]
    pub use kumihimo_resource::id::{Id, IdError, Kind, Serial};
    #[doc(inline)]
    pub use kumihimo_resource::locking::{Locking, LockingError};
    #[doc(inline)]
    pub use kumihimo_resource::names::{Change, Name, NameError, Watch};
    #[doc(inline)]
    pub use kumihimo_resource::slots::{Missing, Slots};
    #[doc(inline)]
    pub use kumihimo_resource::table::{Command, Error, Operation, Row, Table, Usage};
    #[doc(inline)]
    pub use kumihimo_runtime::builtin_kinds::Begin;
    #[doc(inline)]
    pub use kumihimo_runtime::kind_table::Entries;
    #[doc(inline)]
    pub use kumihimo_runtime::membership::table;
    #[doc(inline)]
    pub use kumihimo_runtime::region::Region;
}

#[cfg(target_os = "linux")]
/// Calls between address spaces at the price of a hand-off.
///
/// # Examples
///
/// ```
/// use kumihimo::gate::Gate;
///
/// # fn main() -> Result<(), kumihimo::gate::Error> {
/// # let folder = std::env::temp_dir().join(format!("kumihimo-gate-tour-{}", std::process::id()));
/// # // SAFETY: nothing else runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// // One process serves. Each request is handled by a microprocess of its own, at the caller's
/// // priority.
/// let _serving = Gate::serve("adder", |(a, b): (u32, u32)| a + b)?;
///
/// // Another process calls.
/// let sum = Gate::<(u32, u32), u32>::connect("adder")?.call(&(2, 3))?;
/// assert_eq!(sum, 5);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok(())
/// # }
/// ```
pub mod gate {
    #[doc(inline)]
    pub use kumihimo_gate::{
        Context, Error, ErrorKind, Gate, Item, Options, Placement, Quotas, RawGate, Region,
        RegionMut, Server, Serving, Sink, Stream,
    };
}

#[cfg(target_os = "linux")]
/// Scheduling policies: where a runnable microprocess is placed.
///
/// - [`RoundRobin`](policy::RoundRobin), the default: fixed priorities, and turns of one quantum
///   among microprocesses of the same priority.
/// - [`FixedPriority`](policy::FixedPriority): a microprocess runs until it blocks, yields or ends,
///   or a higher one becomes runnable.
/// - [`Feedback`](policy::Feedback): a microprocess that computes gets longer and rarer turns.
/// - A type of the program that implements [`Policy`](policy::Policy).
///
/// # Examples
///
/// ```
/// use kumihimo::policy::RoundRobin;
/// use kumihimo::runtime::{Runtime, metrics};
/// use std::time::Duration;
///
/// let policy = RoundRobin::with_quantum(Duration::from_millis(5));
/// let runtime = Runtime::builder().policy(policy).build()?;
/// assert_eq!(runtime.run(|| metrics().unwrap().policy), "round-robin");
/// # Ok::<(), std::io::Error>(())
/// ```
pub mod policy {
    #[doc(inline)]
    pub use kumihimo_policy::*;
}
