//! Microprocesses for Linux: user-level threads that cooperate with the kernel.
//!
//! Write plain blocking code, one thread per connection, request or actor, as with `std::thread`; a
//! million of them. Porting a program is changing `use std::thread` to `use kumihimo::thread`.
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
//! the calling *microprocess*; its virtual processor goes on with the others. Called from a kernel
//! thread that is no microprocess (`main`, `std::thread::spawn`), it blocks that kernel thread;
//! both kinds mix freely. What is not Kumihimo's (std's locks, C libraries) blocks the kernel
//! thread: wrap it in [`thread::blocking`].
//!
//! # Where things are
//! [`thread`]: spawning, scopes, sleeping, priorities, cancellation. [`sync`]: locks, channels,
//! messages. [`net`]: sockets. [`future`]: async crates. [`fs`], [`io`], [`process`], [`signal`],
//! [`fuse`]: files, standard streams and pipes, child processes, signals, the kernel's channel to
//! servers of files. [`runtime`]: settings, metrics, the end. [`policy`]: scheduling policies.
//! [`machine`]: every microprocess of the machine, seen and steered. [`resource`]: the table of
//! what the runtime manages; ids, names, kinds of one's own.
//!
//! # Where it runs
//! | target | what `thread::spawn` begins |
//! |---|---|
//! | x86_64 Linux, glibc | a microprocess |
//! | other Linux: aarch64, musl | a kernel thread, behind the same API |
//! | other systems | a thread of std |
//!
//! `runtime::mode()` tells the first two apart, and why. In the second, `gate` and `fuse` are
//! `Unsupported`. In the third, `thread`, `sync`, `time`, `net` and `fs` are std's own modules, and
//! the others are absent.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod future;

#[cfg(target_os = "linux")]
pub use kumihimo_io::{fs, fuse, io, net, process, signal};
#[cfg(target_os = "linux")]
pub use kumihimo_sync as sync;
/// As std's, so that the same path leads to it on every system.
pub use std::time;
#[cfg(not(target_os = "linux"))]
pub use std::{fs, net, sync, thread};

#[cfg(target_os = "linux")]
/// Microprocesses: `std::thread`, and what goes beyond it.
pub mod thread {
    pub use kumihimo_policy::{Priority, PriorityError};
    pub use kumihimo_runtime::cancel::{
        Cancelled, deadline, masked as without_cancellation, point as cancellation_point,
        requested as cancel_requested,
    };
    pub use kumihimo_runtime::thread::*;
}

#[cfg(target_os = "linux")]
/// The runtime itself: settings, metrics, start and end.
pub mod runtime {
    pub use kumihimo_runtime::NoEvents;
    pub use kumihimo_runtime::runtime::*;
}

#[cfg(target_os = "linux")]
/// Every microprocess of the machine, seen and steered from outside; `kumi ps`, `kumi suspend` and
/// their like are the same as commands.
///
/// A process joins with its first microprocess: it takes a number in its user's run-time directory,
/// which is part of all its ids, and answers at a socket there, on a kernel thread of its own.
/// There is no daemon. `KUMI_DIR` names the directory, `KUMI_DIR=off` keeps out of it. The same
/// user, root, and those that [`allow`](machine::allow) lets in may ask.
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
/// // From here on as any other process of the user's would do it.
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
///
/// A [`Neighbour`](machine::Neighbour) blocks its kernel thread while it waits, for 2 s at most
/// unless told: use [`thread::blocking`] in a microprocess where event source `off` runs.
pub mod machine {
    pub use kumihimo_machine::handler::{
        Action, Done, Metric, Microprocess, Refused, Resource, Space, State,
    };
    pub use kumihimo_machine::{Error, Machine, Neighbour};
    pub use kumihimo_runtime::membership::{allow, disallow, number};
}

#[cfg(target_os = "linux")]
/// The resource table of this address space: everything that the runtime manages, behind five
/// operations, with ids and names.
///
/// Microprocesses, their parts, virtual processors, [`Region`](resource::Region)s, mailboxes,
/// files, sockets, gates and links are there; an application adds a kind by a
/// [`Row`](resource::Row), whose resources [`Entries`](resource::Entries) can keep.
/// `kumi resources` shows the table from outside.
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
///
/// How the table keeps two from using one resource at once is chosen by the first runtime of the
/// process: [`Builder::locking`](runtime::Builder::locking), `KUMI_LAB=locking=...`.
pub mod resource {
    pub use kumihimo_resource::id::{Id, IdError, Kind, Serial};
    pub use kumihimo_resource::locking::{Locking, LockingError};
    pub use kumihimo_resource::names::{Change, Name, NameError, Watch};
    pub use kumihimo_resource::slots::{Missing, Slots};
    pub use kumihimo_resource::table::{Command, Error, Operation, Row, Table, Usage};
    pub use kumihimo_runtime::builtin_kinds::Begin;
    pub use kumihimo_runtime::kind_table::Entries;
    pub use kumihimo_runtime::membership::table;
    pub use kumihimo_runtime::region::Region;
}

#[cfg(target_os = "linux")]
/// Calls between address spaces at the price of a hand-off.
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
/// // Another one calls.
/// let sum = Gate::<(u32, u32), u32>::connect("adder")?.call(&(2, 3))?;
/// assert_eq!(sum, 5);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok(())
/// # }
/// ```
pub mod gate {
    pub use kumihimo_gate::{
        Context, Error, ErrorKind, Gate, Item, Options, Placement, RawGate, Region, RegionMut,
        Server, Serving, Sink, Stream,
    };
}

#[cfg(target_os = "linux")]
/// Scheduling policies: where a runnable microprocess is placed.
pub mod policy {
    pub use kumihimo_policy::*;
}
