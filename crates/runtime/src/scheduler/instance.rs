//! A running runtime: its VPs, their queues and the policy. A process has at most one.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use kumihimo_arch::tls;
use kumihimo_events::limit::Limit;
use kumihimo_events::source::Kind as Source;
use kumihimo_events::{Kernel, kernel};
use kumihimo_queue::{Set, Taker};
use kumihimo_resource::table::{Table, table};
use kumihimo_trace::Session;

use crate::config::{ReadyOrder, Settings};
use crate::idle::moved_timers::MovedTimers;
use crate::idle::sleep;
use crate::kernel_thread::no_events::{NoEvents, lock};
use crate::memory::pool::SlotKind;
use crate::memory::stack_trim::StackTrim;
use crate::microprocess::foreign_thread::ForeignThread;
use crate::microprocess::record::Mp;
use crate::microprocess::sticky_state;
use crate::priority::common_level::CommonLevel;
use crate::priority::placement::Placer;
use crate::process::board::BoardSeats;
use crate::process::clock;
use crate::scheduler::core_watch::CoreWatch;
use crate::scheduler::vp::Vp;
use crate::syscall::batch_config::BatchConfig;
use crate::syscall::direct_read::DirectRead;
use crate::trace_hooks;

/// Number of queued microprocesses that justifies waking another VP even if its last wake-up was
/// not worth while.
const MANY: usize = 16;

pub(crate) struct Instance {
    pub(crate) vps: Box<[Vp]>,
    /// Declared after `vps`, whose handles point into it: fields are dropped in order.
    pub(crate) queues: Set<Mp>,
    pub(crate) placer: Placer,
    /// Resource table of the process, through which the instance creates and ends resources.
    pub(crate) table: &'static Table,
    pub(crate) settings: Settings,
    /// See [`crate::trace_hooks`].
    pub(crate) trace: Option<Arc<Session>>,
    pub(crate) default_kind: SlotKind,
    clock: Instant,
    /// CLOCK_MONOTONIC just after the time of `clock`, in nanoseconds. So this instance's clock is
    /// never ahead of a deadline.
    epoch: u64,
    /// Number of VPs whose kernel threads are stuck in the scheduler (see
    /// [`kumihimo_events::watchdog`]), plus the number of retired ones.
    pub(crate) closed_vps: AtomicUsize,
    /// Number of VPs that are not retired: see [`crate::scheduler::retirement`].
    pub(crate) open_vps: AtomicUsize,
    /// Number of cores that the process may use: more VPs are in use while some are stuck.
    pub(crate) wanted_vps: AtomicUsize,
    /// Number of requests to adjust `open_vps`, while a thread does so.
    pub(crate) open_requests: AtomicUsize,
    /// Number of VPs that spin or sleep, without those that began to do so while they were retired,
    /// ...
    pub(crate) idle_vps: AtomicUsize,
    /// ... and the number of those, which includes the parked ones.
    pub(crate) resting_vps: AtomicUsize,
    pub(crate) core_watch: CoreWatch,
    /// See [`crate::scheduler::parking`].
    pub(crate) moved_timers: MovedTimers,
    /// Whether the number of spare kernel threads follows the number of VPs in use.
    pub(crate) sets_concurrency: AtomicBool,
    stop: AtomicBool,
    pub(crate) blocking_inline: AtomicU64,
    pub(crate) sticky: sticky_state::StickyCounts,
    pub(crate) spawned_outside: AtomicU64,
    /// 1:1 kernel threads in place of microprocesses: the number of ended ones, and a list of those
    /// that may be alive.
    pub(crate) ended_outside: AtomicU64,
    one_to_one_threads: Mutex<Vec<Weak<ForeignThread>>>,
    next_outside: AtomicUsize,
    /// See `vp/rebalance.rs`.
    pub(crate) common_level: CommonLevel,
    /// As `common_level`, but for this address space alone.
    pub(crate) own_common_level: CommonLevel,
    /// The kernel's half of the scheduler (pool, hand-off, event source).
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) batch_config: BatchConfig,
    pub(crate) ready_order: ReadyOrder,
    pub(crate) direct_read: DirectRead,
    /// Number of calls injected to preempt: see [`crate::upcall::preempt`].
    pub(crate) injected: AtomicU64,
    /// Number of kernel threads that stood aside with their microprocesses because no call could be
    /// injected.
    pub(crate) stood_aside: AtomicU64,
    /// When the timekeeper scans next: see [`crate::upcall::timekeeper`].
    pub(crate) tick_at: AtomicU64,
    /// When the timekeeper samples the CPU time next, and the CPU time of each slot's thread at its
    /// last sample: see [`crate::upcall::cpu_sample`].
    pub(crate) sample_at: AtomicU64,
    pub(crate) sampled_cpu: Box<[AtomicU64]>,
    /// Sum of the VPs' switches when the timekeeper last found them all idle.
    pub(crate) switches_seen: AtomicU64,
    /// When all VPs last rescanned the board for lost notifications, on this instance's clock.
    pub(crate) rescanned_at: AtomicU64,
    /// Deadlock detection ([`crate::observe::deadlock`]): whether the current one was reported, the
    /// mark of the current silence, and the time of its begin.
    pub(crate) deadlock_seen: AtomicBool,
    pub(crate) deadlock_mark: AtomicU64,
    pub(crate) stack_trim: StackTrim,
    pub(crate) deadlock_since: AtomicU64,
    ending: AtomicBool,
    /// The board cells in which the VPs sleep, for the lifetime of the instance.
    _seats: BoardSeats,
    me: Weak<Instance>,
}

/// Number of kernel threads whose CPU time is sampled at most.
const MOST_SAMPLED: usize = 1 << 14;

static CURRENT: AtomicPtr<Instance> = AtomicPtr::new(std::ptr::null_mut());
/// Whether the instance's event source is `off`. A static of its own, because every call that may
/// sleep reads it. Relaxed: it is set before any microprocess runs.
static NOTHING_TELLS: AtomicBool = AtomicBool::new(false);
/// Number of foreign kernel threads inside an instance. The end of the instance waits for them.
static VISITORS: AtomicUsize = AtomicUsize::new(0);

/// Calls `f` with the running instance, which cannot end meanwhile. For foreign kernel threads and
/// bound microprocesses.
pub(crate) fn visit<R>(f: impl FnOnce(Option<&Instance>) -> R) -> R {
    f(Visit::begin().instance())
}

/// A visit of the running instance, which cannot end meanwhile: see [`visit`].
pub(crate) struct Visit {
    instance: *const Instance,
    /// Visitors take locks of the kernel's half, and wake threads. Ends before `_leave`.
    _quiet: NoEvents,
    _leave: Leave,
}

struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        VISITORS.fetch_sub(1, Ordering::Release);
    }
}

impl Visit {
    pub(crate) fn begin() -> Visit {
        // SeqCst on both sides: either `retire` observes the visitor, or the visitor observes that
        // there is no instance.
        VISITORS.fetch_add(1, Ordering::SeqCst);
        let _leave = Leave;
        let _quiet = NoEvents::new();
        Visit { instance: CURRENT.load(Ordering::SeqCst), _quiet, _leave }
    }

    /// The instance, if there was one when the visit began.
    pub(crate) fn instance(&self) -> Option<&Instance> {
        // SAFETY: published only after it was built; `retire` waits for all visitors before the
        // instance is dropped.
        unsafe { self.instance.as_ref() }
    }
}

/// Forgets the instance in the child of a fork, where its kernel threads do not exist. Its memory
/// stays allocated.
pub(crate) fn forget() {
    CURRENT.store(std::ptr::null_mut(), Ordering::SeqCst);
    VISITORS.store(0, Ordering::SeqCst);
}

/// Whether a runtime runs in this process.
pub(crate) fn running() -> bool {
    !CURRENT.load(Ordering::Acquire).is_null()
}

/// Whether the runtime of this process, if any, gets events for sleeping kernel threads.
#[inline]
pub(crate) fn hears_of_sleeps() -> bool {
    !NOTHING_TELLS.load(Ordering::Relaxed)
}

impl Instance {
    pub(crate) fn new(settings: Settings, placer: Placer) -> io::Result<Arc<Instance>> {
        let queues = Set::new(settings.design, settings.vps, settings.capacity);
        let default_kind = SlotKind::for_stack(settings.stack_size, false)?;
        let kernel = Kernel::open(kernel::Settings {
            vps: settings.vps as u32,
            parked: (settings.vps - settings.open) as u32,
            concurrency: settings.concurrency.unwrap_or(settings.open),
            limit: settings.limit.clone().unwrap_or_else(Limit::of_machine),
            source: settings.events,
            preempt: settings.preempt,
            record: false,
        })?;
        kernel.distrust(settings.distrust.unwrap_or_default());
        // Before the trace, which records the board of this address space.
        let seats = BoardSeats::new(settings.vps);
        let trace = trace_hooks::open(&settings, placer.name())?;
        let mut failure = None;
        crate::process::board::set_share(settings.share);
        let instance = Arc::new_cyclic(|weak: &Weak<Instance>| {
            let vps: Vec<Vp> = (0..settings.vps)
                .map_while(|i| {
                    // SAFETY: the VP's carrier is the only user; the set is part of the same
                    // allocation and outlives the VPs.
                    let queue = unsafe { queues.local(i) };
                    // SAFETY: `Arc::new_cyclic` places the instance, which will hold the VP, at
                    // this address.
                    let vp = unsafe {
                        Vp::new(
                            i,
                            weak.as_ptr().cast(),
                            &seats,
                            queue,
                            settings.design,
                            placer.keeps_account(),
                            kernel.clone(),
                        )
                    };
                    vp.map(|vp| vp.with_batch_deadline(settings.batch_deadline))
                        .map(|vp| vp.traced(trace.as_ref().map(|session| session.vp(i))))
                        .map_err(|e| failure = Some(e))
                        .ok()
                })
                .collect();
            let sampled = kernel.limit().threads.min(MOST_SAMPLED);
            Instance {
                vps: vps.into(),
                queues,
                placer,
                table: table(),
                trace: trace.clone(),
                default_kind,
                clock: Instant::now(),
                epoch: clock::monotonic(),
                closed_vps: AtomicUsize::new(0),
                wanted_vps: AtomicUsize::new(settings.open),
                open_requests: AtomicUsize::new(0),
                open_vps: AtomicUsize::new(settings.open),
                idle_vps: AtomicUsize::new(0),
                resting_vps: AtomicUsize::new(0),
                core_watch: CoreWatch::new(settings.follows_cores),
                moved_timers: MovedTimers::default(),
                sets_concurrency: AtomicBool::new(settings.concurrency.is_none()),
                stop: AtomicBool::new(false),
                blocking_inline: AtomicU64::new(0),
                sticky: sticky_state::StickyCounts::default(),
                spawned_outside: AtomicU64::new(0),
                ended_outside: AtomicU64::new(0),
                one_to_one_threads: Mutex::default(),
                next_outside: AtomicUsize::new(0),
                common_level: CommonLevel::new(),
                own_common_level: CommonLevel::new(),
                kernel,
                direct_read: DirectRead::default(),
                batch_config: BatchConfig::new(settings.batch, settings.batch_back_end.clone()),
                ready_order: settings.ready_order,
                injected: AtomicU64::new(0),
                stood_aside: AtomicU64::new(0),
                tick_at: AtomicU64::new(0),
                sample_at: AtomicU64::new(0),
                sampled_cpu: (0..sampled).map(|_| AtomicU64::new(0)).collect(),
                switches_seen: AtomicU64::new(0),
                rescanned_at: AtomicU64::new(0),
                deadlock_seen: AtomicBool::new(false),
                deadlock_mark: AtomicU64::new(0),
                stack_trim: StackTrim::default(),
                deadlock_since: AtomicU64::new(0),
                ending: AtomicBool::new(false),
                _seats: seats,
                me: weak.clone(),
                settings,
            }
        });
        match failure {
            Some(e) => Err(e),
            None => {
                instance.begin_retired();
                let scheduler: Weak<Instance> = Arc::downgrade(&instance);
                instance.kernel.init_sched(scheduler);
                Ok(instance)
            }
        }
    }

    /// Makes this the process's instance. Returns false if there is one already.
    pub(crate) fn publish(self: &Arc<Instance>) -> bool {
        let me = Arc::as_ptr(self).cast_mut();
        let alone = CURRENT
            .compare_exchange(std::ptr::null_mut(), me, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if alone {
            NOTHING_TELLS.store(self.kernel.source() == Source::Off, Ordering::Relaxed);
        }
        alone
    }

    /// Withdraws the instance, and blocks until no foreign thread is inside it.
    pub(crate) fn retire(&self) {
        CURRENT.store(std::ptr::null_mut(), Ordering::SeqCst);
        while VISITORS.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
    }

    /// Returns the time on this instance's clock, in nanoseconds.
    #[inline(never)]
    pub(crate) fn now(&self) -> u64 {
        clock::monotonic() - self.epoch
    }

    /// Converts a time of this instance's clock to CLOCK_MONOTONIC nanoseconds, which all address
    /// spaces share.
    pub(crate) fn on_clock(&self, now: u64) -> u64 {
        self.epoch + now
    }

    /// Converts `deadline` to this instance's clock, saturating at the largest value.
    pub(crate) fn at(&self, deadline: Instant) -> u64 {
        u64::try_from(deadline.saturating_duration_since(self.clock).as_nanos()).unwrap_or(u64::MAX)
    }

    #[inline]
    pub(crate) fn any_idle(&self) -> bool {
        self.idle_vps.load(Ordering::Relaxed) != 0
    }

    /// Whether a sleeping VP is worth waking for a little work.
    pub(crate) fn any_worth_waking(&self, now: u64) -> bool {
        self.vps.iter().any(|vp| vp.sleeps_for_work() && vp.idle.is_worth_waking(|| now))
    }

    pub(crate) fn all_idle(&self) -> bool {
        let idle = self.idle_vps.load(Ordering::SeqCst) + self.resting_vps.load(Ordering::SeqCst);
        idle == self.vps.len()
    }

    /// Whether all VPs are idle, so that spinning for their work is useless.
    pub(crate) fn quiet(&self) -> bool {
        let idle = self.idle_vps.load(Ordering::Relaxed) + self.resting_vps.load(Ordering::Relaxed);
        idle == self.vps.len()
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        for vp in self.vps.iter().filter(|vp| !vp.idle.is_parked()) {
            vp.idle.wake();
        }
        self.kernel.dismiss();
    }

    /// Returns another reference count of this instance, for a kernel thread.
    pub(crate) fn counted(&self) -> Arc<Instance> {
        // The caller holds a reference count, or visits the instance, which keeps one alive.
        self.me.upgrade().expect("an instance in use is counted")
    }

    /// Forbids further spawns.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Hands a runnable microprocess, which the caller holds exclusively, to VP `to`. If it would
    /// wait there while another VP runs a lower level, the latter VP gets it. Async-signal-safe.
    pub(crate) fn inject(&self, to: usize, mp: &'static Mp) {
        let mut to = to % self.vps.len();
        if self.closed_vps.load(Ordering::Relaxed) != 0 {
            to = self.open_vp_for(to);
        }
        match self.level_if_they_differ(mp) {
            Some(level) => self.send(to, mp, level),
            None => self.put(to, mp),
        }
    }

    /// Puts `mp` into the injector of VP `to`. Wakes that VP if it sleeps, and interrupts a
    /// microprocess there that gives way, or that was alone so far and is seldom looked at.
    pub(crate) fn put(&self, to: usize, mp: &'static Mp) {
        trace_hooks::injected(&self.trace, to, mp, || {
            self.placer.level_of(mp).unwrap_or(mp.level.get())
        });
        // SAFETY: the caller holds the record, and guarantees that its state is LIVE and that it is
        // in no queue.
        unsafe { sleep::inject(&self.queues, to, &self.vps[to].idle, mp) };
        let vp = &self.vps[to];
        if vp.turn_clock.gives_way.load(Ordering::Relaxed) || vp.runs_alone() {
            self.kernel.raise(to as u32, kumihimo_events::sched::Event::Preempted);
        }
    }

    /// Returns the VP that takes what is meant for VP `to`: a VP that is neither stuck (see
    /// `UserScheduler::overridden`) nor retired, if there is one.
    #[cold]
    pub(crate) fn open_vp_for(&self, to: usize) -> usize {
        let n = self.vps.len();
        // What is meant for several retired VPs does not all go to one.
        let to = if self.vps[to].is_retired() { to % self.open() } else { to };
        (to..to + n).map(|i| i % n).find(|i| !self.queues.is_closed(*i)).unwrap_or(to)
    }

    /// Returns the VP on which `mp` ran last, or the one that takes what is meant for that VP.
    /// Async-signal-safe.
    pub(crate) fn open_home(&self, mp: &Mp) -> usize {
        let home = usize::from(mp.home.load(Ordering::Relaxed)) % self.vps.len();
        if self.closed_vps.load(Ordering::Relaxed) == 0 { home } else { self.open_vp_for(home) }
    }

    /// Whether a woken microprocess should return to VP `home` although VP `here` could run it.
    ///
    /// Its data is in the caches of `home`. Microprocesses that communicate should share a VP, and
    /// they come together on `here` if `here` has less to do. A sleeping `home` is woken only if
    /// `here` has enough work to justify that.
    pub(crate) fn prefers_home(&self, here: &Vp, home: usize) -> bool {
        let Some(vp) = self.vps.get(home) else { return false };
        if vp.is_retired() {
            return false;
        }
        let here = here.queue().len();
        if vp.idle.cell.is_sleeping() {
            here >= MANY || here >= 2 && vp.idle.is_worth_waking(|| self.now())
        } else {
            here >= self.queues.shown(home).0
        }
    }

    /// Wakes a sleeping VP that can take the work that became visible.
    #[cold]
    pub(crate) fn wake_idle(&self, taker: Taker) {
        match taker {
            Taker::Vp(i) => self.vps[i].idle.wake(),
            Taker::Any => {
                if let Some(vp) = self.vps.iter().find(|vp| vp.sleeps_for_work()) {
                    vp.idle.wake();
                }
            }
        }
    }

    /// Selects the VP for a spawn or a wake-up from outside, round robin.
    pub(crate) fn next_vp(&self) -> usize {
        self.next_outside.fetch_add(1, Ordering::Relaxed) % self.open()
    }

    /// Returns the number of microprocesses that have begun and not ended. Exact if none is spawned
    /// or ends meanwhile.
    pub(crate) fn living(&self) -> u64 {
        // `ended` is read first: a microprocess is counted as spawned before it is counted as
        // ended.
        let mut ended = self.ended_outside.load(Ordering::Acquire);
        for vp in &self.vps {
            ended += vp.counters.ended.load(Ordering::Acquire);
        }
        let mut begun = self.spawned_outside.load(Ordering::Acquire);
        for vp in &self.vps {
            begun += vp.counters.spawned.load(Ordering::Acquire);
        }
        begun.saturating_sub(ended)
    }

    /// Registers a 1:1 kernel thread, and drops the entries of ended ones from time to time.
    pub(crate) fn register_one_to_one(&self, who: &Arc<ForeignThread>) {
        let mut list = lock(&self.one_to_one_threads);
        if list.len() == list.capacity() {
            list.retain(|who| who.strong_count() != 0);
            // The list is scanned again only after as many registrations as there are live threads.
            let alive = list.len();
            list.reserve(alive + 16);
        }
        list.push(Arc::downgrade(who));
    }

    pub(crate) fn one_to_one_threads(&self) -> Vec<Arc<ForeignThread>> {
        lock(&self.one_to_one_threads).iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether the runtime is in 1:1 mode because this machine's libc cannot create thread-local
    /// blocks.
    pub(crate) fn one_to_one() -> bool {
        tls::get().kind() == tls::Kind::Kernel
    }
}

impl Vp {
    #[inline(always)]
    pub(crate) fn instance(&self) -> &Instance {
        // SAFETY: an instance outlives its VPs.
        unsafe { &*self.instance.cast::<Instance>() }
    }
}
