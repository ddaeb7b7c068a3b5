//! Configuration of batched system calls of an instance: the policy, and the measured cost of
//! calls.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use kumihimo_batch::{Backend, Batch, Costs, KINDS, Kind, LARGEST, Plain, Policy};

use crate::config::MakeBackend;

/// Minimum number of calls (waiting, runnable, and the caller's) from which on a batch is
/// considered for a call of each kind. Costs one load per call.
pub(crate) static WORTHWHILE_FROM: [AtomicU8; KINDS] = [const { AtomicU8::new(NEVER) }; KINDS];

pub(crate) const NEVER: u8 = u8::MAX;

/// The minimum while the costs are unknown. A program that never reaches it pays for no
/// measurement.
const MEASURE_FROM: u8 = 8;

/// Policy and costs of an instance.
pub(crate) struct BatchConfig {
    /// [`Policy::to_word`]. Relaxed: each call is decided on its own.
    policy: AtomicU32,
    /// Number of times that the policy was set.
    pub(crate) settings: AtomicU32,
    make: Option<MakeBackend>,
    pub(crate) costs: OnceLock<Costs>,
    /// Why io_uring is unavailable, if it is.
    pub(crate) refused: OnceLock<String>,
    /// Superfluous batches, for the next VP that needs one. The lock is held while a batch is
    /// opened, so there are few of them. No batch is closed while the runtime runs: closing a uring
    /// makes the kernel wake every kernel thread that ever used it (`io_ring_exit_work`). A sleep
    /// that is interrupted in that way ends early (EINTR) if a trap reports the return of its
    /// kernel thread.
    spares: Mutex<Vec<Batch>>,
}

impl BatchConfig {
    /// Whether the program makes the back ends itself.
    pub(crate) fn is_custom(&self) -> bool {
        self.make.is_some()
    }

    pub(crate) fn new(policy: Policy, make: Option<MakeBackend>) -> BatchConfig {
        let batch_config = BatchConfig {
            policy: AtomicU32::new(0),
            settings: AtomicU32::new(0),
            make,
            costs: OnceLock::new(),
            refused: OnceLock::new(),
            spares: Mutex::default(),
        };
        batch_config.set_policy(policy);
        batch_config
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy::of_word(self.policy.load(Ordering::Relaxed))
    }

    /// Sets the policy, from the next call on.
    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy.to_word(), Ordering::Relaxed);
        self.settings.fetch_add(1, Ordering::Relaxed);
        for kind in Kind::ALL {
            let gate = match policy {
                _ if kind.is_always_plain() => NEVER,
                Policy::Off => NEVER,
                Policy::Adaptive => self.pays_from(kind),
                Policy::Fixed(_) | Policy::Paper => 0,
            };
            WORTHWHILE_FROM[kind as usize].store(gate, Ordering::Relaxed);
        }
    }

    /// Whether calls are gathered even if each of them might be served sooner alone.
    pub(crate) fn gathers(&self) -> bool {
        matches!(self.policy(), Policy::Fixed(_) | Policy::Paper)
    }

    /// Returns the number of calls of a kind from which on a batch is cheaper than plain calls.
    pub(crate) fn pays_from(&self, kind: Kind) -> u8 {
        let Some(costs) = self.costs.get() else { return MEASURE_FROM };
        let pays = Policy::Adaptive.gathers_from(kind, costs);
        pays.filter(|&n| n <= LARGEST).map_or(NEVER, |n| n as u8)
    }

    /// Opens a batch for one VP. Allocates, makes system calls, and waits while another one is
    /// opened, so it must not be called while masked.
    pub(crate) fn open(&self) -> Box<Batch> {
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(batch) = spares.pop() {
            return Box::new(batch);
        }
        let backend: Box<dyn Backend> = match &self.make {
            Some(make) => make(),
            None if kumihimo_config::get().lab.uring == Some(false) => {
                let _ = self.refused.set("KUMI_LAB=uring=off".to_owned());
                Box::new(Plain)
            }
            None => {
                let (backend, refused) = kumihimo_batch::open(LARGEST as u32);
                if let Some(why) = refused {
                    let _ = self.refused.set(why.to_string());
                }
                backend
            }
        };
        let mut batch = Box::new(Batch::new(backend));
        if self.lacks_costs() {
            // If no descriptors are available, the costs stay unknown, and batches are used for
            // merging only.
            self.costs.get_or_init(|| Costs::measure(&mut batch).unwrap_or_else(|_| Costs::none()));
            self.set_policy(self.policy());
        }
        batch
    }

    /// Keeps a batch that its VP did not need.
    pub(crate) fn keep(&self, batch: Box<Batch>) {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner).push(*batch);
    }

    pub(crate) fn lacks_costs(&self) -> bool {
        self.costs.get().is_none() && matches!(self.policy(), Policy::Adaptive | Policy::Paper)
    }

    /// Returns the costs of calls. Before the measurement no batch is worth while.
    pub(crate) fn costs(&self) -> &Costs {
        static UNKNOWN: Costs = Costs { entry: 0.0, kinds: [None; KINDS] };
        self.costs.get().unwrap_or(&UNKNOWN)
    }
}
