//! Settings of a runtime, from its builder and the environment.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kumihimo_arbiter::share::Share;
use kumihimo_batch::{Backend, Policy as BatchPolicy};
use kumihimo_events::limit::Limit;
use kumihimo_events::preempt::Means as Preemption;
use kumihimo_events::source::Kind as Events;
use kumihimo_events::watchdog::Distrust;
use kumihimo_queue::{Capacity, Design};
use kumihimo_resource::locking::Locking;

/// The runtime's panic hook, called with the payload by the microprocess that panicked.
pub(crate) type PanicHook = Arc<dyn Fn(&(dyn Any + Send)) + Send + Sync>;

/// Constructor of a batch back end, for tests and experiments.
pub type MakeBackend = Arc<dyn Fn() -> Box<dyn Backend> + Send + Sync>;

/// The default run-queue design, chosen by measurement; see `kumi bench queues`.
pub const DEFAULT_DESIGN: Design = Design::Ring;

/// Default usable stack of a microprocess in bytes (`Builder::stack_size`). A slot of 256 KiB costs
/// 514 bytes of page tables while it is in use, and a slot of 1 MiB four times that. 64 KiB is too
/// little for many functions of C libraries.
pub const DEFAULT_STACK: usize = 160 << 10;

/// Time that a call waits for its batch at most, by default.
pub(crate) const BATCH_DEADLINE: Duration = Duration::from_micros(50);

/// Maximum number of VPs.
pub(crate) const MAX_VPS: usize = kumihimo_queue::MAX_VPS;

/// Action when all microprocesses wait for each other.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{OnDeadlock, Runtime};
///
/// assert_eq!(OnDeadlock::default(), OnDeadlock::Report);
/// // A test fails at once, instead of waiting for ever.
/// let runtime = Runtime::builder().on_deadlock(OnDeadlock::Abort).build()?;
/// assert_eq!(runtime.run(|| 7), 7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnDeadlock {
    /// Reports the object of each wait on stderr, once.
    #[default]
    Report,
    /// Reports and aborts the process.
    Abort,
    /// Does nothing.
    Ignore,
}

/// Order in which microprocesses of one level run whose descriptors became ready.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{ReadyOrder, Runtime};
///
/// assert_eq!(ReadyOrder::default(), ReadyOrder::Arrival);
/// let runtime = Runtime::builder().ready_order(ReadyOrder::Recent).build()?;
/// assert_eq!(runtime.run(|| 7), 7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReadyOrder {
    /// In the order of arrival: behind those that are runnable already.
    #[default]
    Arrival,
    /// In front of the others of their level for three quarters of the time, and in the order of
    /// arrival for the fourth quarter. A connection that was served a moment ago is then served
    /// again while its data is cached. A server with thousands of busy connections answers more
    /// requests, and those at the end of its queue wait several times as long.
    Recent,
}

impl From<kumihimo_config::Ready> for ReadyOrder {
    fn from(ready: kumihimo_config::Ready) -> ReadyOrder {
        match ready {
            kumihimo_config::Ready::Arrival => ReadyOrder::Arrival,
            kumihimo_config::Ready::Recent => ReadyOrder::Recent,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Settings {
    /// Number of VPs for which there is room: all of them, or one for each online core if the
    /// number in use follows the cores.
    pub(crate) vps: usize,
    /// Number of VPs in use at the start.
    pub(crate) open: usize,
    /// Whether the number of VPs in use follows the cores that the process may use: not if the
    /// program or its user has set it.
    pub(crate) follows_cores: bool,
    pub(crate) design: Design,
    pub(crate) capacity: Capacity,
    pub(crate) stack_size: usize,
    pub(crate) concurrency: Option<usize>,
    /// The limit on kernel threads. `None`: the limit of the machine.
    pub(crate) limit: Option<Limit>,
    pub(crate) events: Option<Events>,
    pub(crate) preempt: Option<Preemption>,
    pub(crate) max_microprocesses: u64,
    pub(crate) max_stacks: usize,
    pub(crate) max_stack_memory: u64,
    pub(crate) grace: Duration,
    pub(crate) on_panic: Option<PanicHook>,
    pub(crate) on_deadlock: OnDeadlock,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) trace_buffer: Option<usize>,
    pub(crate) dump_signal: Option<i32>,
    pub(crate) distrust: Option<Distrust>,
    pub(crate) sticky: bool,
    pub(crate) ready_order: ReadyOrder,
    /// As requested. [`kumihimo_resource::table::Table::locking`] has the actual design of the
    /// process.
    pub(crate) locking: Option<Locking>,
    pub(crate) share: Option<Share>,
    pub(crate) batch: BatchPolicy,
    pub(crate) batch_back_end: Option<MakeBackend>,
    pub(crate) batch_deadline: Duration,
}
