//! When system calls are batched in an instance: the policy, and what calls cost on this machine.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use kumihimo_batch::{Backend, Batch, Costs, KINDS, Kind, LARGEST, Plain, Policy};

use crate::config::MakeBackend;

/// How many have to be there (waiting, runnable, the caller) before a call of each kind is worth a
/// thought: one load on the way of every call.
pub(crate) static WORTHWHILE_FROM: [AtomicU8; KINDS] = [const { AtomicU8::new(NEVER) }; KINDS];

pub(crate) const NEVER: u8 = u8::MAX;

/// As long as costs are not known: a program that never has as many pays for no measurement.
const MEASURE_FROM: u8 = 8;

/// The instance's part: policy, and what calls cost here.
pub(crate) struct BatchConfig {
    /// [`Policy::to_word`]. Relaxed: it decides about each call alone.
    policy: AtomicU32,
    /// How often the policy was set.
    pub(crate) settings: AtomicU32,
    make: Option<MakeBackend>,
    pub(crate) costs: OnceLock<Costs>,
    /// Why there is no uring.
    pub(crate) refused: OnceLock<String>,
    /// Batches that came second to their virtual processor, for the next one that has none. Held
    /// while one is opened, so that there are few; and none is closed while the runtime runs: the
    /// kernel wakes every kernel thread that ever used a uring when that is closed
    /// (`io_ring_exit_work`), and a sleep that is interrupted so ends early (EINTR) if its kernel
    /// thread's return is told by a trap.
    spares: Mutex<Vec<Batch>>,
}

impl BatchConfig {
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

    /// From the next call on.
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

    /// Whether calls are gathered, though each by itself might be served sooner.
    pub(crate) fn gathers(&self) -> bool {
        matches!(self.policy(), Policy::Fixed(_) | Policy::Paper)
    }

    /// How many make a batch that is cheaper than plain calls.
    pub(crate) fn pays_from(&self, kind: Kind) -> u8 {
        let Some(costs) = self.costs.get() else { return MEASURE_FROM };
        let pays = Policy::Adaptive.gathers_from(kind, costs);
        pays.filter(|&n| n <= LARGEST).map_or(NEVER, |n| n as u8)
    }

    /// A batch for one virtual processor. Allocates, makes system calls, and waits while another
    /// one is opened: not while masked.
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
            // Without descriptors nothing is known, and nothing is batched but for merging.
            self.costs.get_or_init(|| Costs::measure(&mut batch).unwrap_or_else(|_| Costs::none()));
            self.set_policy(self.policy());
        }
        batch
    }

    /// One that its virtual processor had no need of.
    pub(crate) fn keep(&self, batch: Box<Batch>) {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner).push(*batch);
    }

    pub(crate) fn lacks_costs(&self) -> bool {
        self.costs.get().is_none() && matches!(self.policy(), Policy::Adaptive | Policy::Paper)
    }

    /// What calls cost, once that was measured; before, nothing is known to pay.
    pub(crate) fn costs(&self) -> &Costs {
        static UNKNOWN: Costs = Costs { entry: 0.0, kinds: [None; KINDS] };
        self.costs.get().unwrap_or(&UNKNOWN)
    }
}
