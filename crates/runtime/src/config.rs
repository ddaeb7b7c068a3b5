//! Settings of a runtime, as its builder and the environment make them.

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

/// The runtime's panic hook, called with the payload on the microprocess that panicked.
pub(crate) type PanicHook = Arc<dyn Fn(&(dyn Any + Send)) + Send + Sync>;

/// How batches are made: for tests and experiments, a back end of one's own.
pub type MakeBackend = Arc<dyn Fn() -> Box<dyn Backend> + Send + Sync>;

/// The run-queue design that measurements choose; see `kumi bench queues`.
pub const DEFAULT_DESIGN: Design = Design::Ring;

/// Usable stack of a microprocess unless `Builder::stack_size` says otherwise, in bytes: a slot of
/// 256 KiB costs 514 bytes of page tables while it is in use, one of 1 MiB four times that, and 64
/// KiB is too little for much that C libraries do.
pub const DEFAULT_STACK: usize = 160 << 10;

/// Most VPs.
pub(crate) const MAX_VPS: usize = kumihimo_queue::MAX_VPS;

/// What happens when all microprocesses wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnDeadlock {
    /// Reports on stderr what each one waits for, once.
    #[default]
    Report,
    /// Says it and aborts the process.
    Abort,
    /// Nothing.
    Ignore,
}

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) vps: usize,
    pub(crate) design: Design,
    pub(crate) capacity: Capacity,
    pub(crate) stack_size: usize,
    pub(crate) concurrency: Option<usize>,
    /// The limit on kernel threads. `None`: what the machine allows.
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
    /// As asked for. What the process has: [`kumihimo_resource::table::Table::locking`].
    pub(crate) locking: Option<Locking>,
    pub(crate) share: Option<Share>,
    pub(crate) batch: BatchPolicy,
    pub(crate) batch_back_end: Option<MakeBackend>,
}
