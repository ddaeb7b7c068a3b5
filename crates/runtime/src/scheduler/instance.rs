//! One running runtime: its VPs, their queues, the policy. At most one a process.

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

use crate::config::Settings;
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
use crate::scheduler::vp::Vp;
use crate::syscall::batch_config::BatchConfig;
use crate::syscall::direct_read::DirectRead;
use crate::trace_hooks;

/// So many runnable ones are enough to wake another VP, however little it had to do when it was
/// woken last.
const MANY: usize = 16;

pub(crate) struct Instance {
    pub(crate) vps: Box<[Vp]>,
    /// After `vps`: their handles point into it, and fields are dropped in order.
    pub(crate) queues: Set<Mp>,
    pub(crate) placer: Placer,
    /// The resource table of the process: what is made and ended here goes through it.
    pub(crate) table: &'static Table,
    pub(crate) settings: Settings,
    /// See [`crate::trace_hooks`].
    pub(crate) trace: Option<Arc<Session>>,
    pub(crate) default_kind: SlotKind,
    clock: Instant,
    /// When that began, on CLOCK_MONOTONIC, nanoseconds.
    epoch: u64,
    /// VPs whose kernel threads are stuck in the scheduler: see [`kumihimo_events::watchdog`].
    pub(crate) stuck_vps: AtomicUsize,
    /// VPs that spin or sleep.
    pub(crate) idle_vps: AtomicUsize,
    stop: AtomicBool,
    pub(crate) blocking_inline: AtomicU64,
    pub(crate) sticky: sticky_state::StickyCounts,
    pub(crate) spawned_outside: AtomicU64,
    /// 1:1 kernel threads in place of microprocesses: those that ended, and those that may be
    /// alive.
    pub(crate) ended_outside: AtomicU64,
    one_to_one_threads: Mutex<Vec<Weak<ForeignThread>>>,
    next_outside: AtomicUsize,
    /// See `vp/rebalance.rs`.
    pub(crate) common_level: CommonLevel,
    /// The same of this address space alone, without the others at the board.
    pub(crate) own_common_level: CommonLevel,
    /// The kernel's half.
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) batch_config: BatchConfig,
    pub(crate) direct_read: DirectRead,
    /// Calls injected: see [`crate::upcall::preempt`].
    pub(crate) injected: AtomicU64,
    /// Kernel threads that stood aside with their microprocesses, where no call could be injected.
    pub(crate) stood_aside: AtomicU64,
    /// When the timekeeper looks again: see [`crate::upcall::timekeeper`].
    pub(crate) tick_at: AtomicU64,
    /// Of all VPs, when the timekeeper last found them idle.
    pub(crate) switches_seen: AtomicU64,
    /// When all VPs last looked around for what the board may have lost, on this clock.
    pub(crate) rescanned_at: AtomicU64,
    /// See [`crate::observe::deadlock`]: reported; the silence that is going on; its begin.
    pub(crate) deadlock_seen: AtomicBool,
    pub(crate) deadlock_mark: AtomicU64,
    pub(crate) stack_trim: StackTrim,
    pub(crate) deadlock_since: AtomicU64,
    ending: AtomicBool,
    /// The cells in which the VPs sleep, as long as this is there.
    _seats: BoardSeats,
    me: Weak<Instance>,
}

static CURRENT: AtomicPtr<Instance> = AtomicPtr::new(std::ptr::null_mut());
/// The instance's event source is `off`. By itself: asked before every call that may sleep.
/// Relaxed: it is set before a microprocess runs.
static NOTHING_TELLS: AtomicBool = AtomicBool::new(false);
/// Foreign kernel threads that are inside an instance right now: its end waits for them.
static VISITORS: AtomicUsize = AtomicUsize::new(0);

/// Gives the running instance to `f`, and keeps it from ending meanwhile. For foreign kernel
/// threads and bound microprocesses.
pub(crate) fn visit<R>(f: impl FnOnce(Option<&Instance>) -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            VISITORS.fetch_sub(1, Ordering::Release);
        }
    }
    // SeqCst on both sides: either `retire` sees the visitor or the visitor sees that there is no
    // instance.
    VISITORS.fetch_add(1, Ordering::SeqCst);
    let _leave = Leave;
    // It takes locks of the kernel's half, and wakes.
    let _quiet = NoEvents::new();
    // SAFETY: published after it was built; `retire` waits for visitors before it is dropped.
    f(unsafe { CURRENT.load(Ordering::SeqCst).as_ref() })
}

/// In the child of a fork: its kernel threads are not there, so it is as if there were no instance.
/// Its memory stays.
pub(crate) fn forget() {
    CURRENT.store(std::ptr::null_mut(), Ordering::SeqCst);
    VISITORS.store(0, Ordering::SeqCst);
}

/// Whether a runtime runs in this process.
pub(crate) fn running() -> bool {
    !CURRENT.load(Ordering::Acquire).is_null()
}

/// Whether the runtime of this process, if it has one, hears of kernel threads that sleep.
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
            concurrency: settings.concurrency.unwrap_or(settings.vps),
            limit: settings.limit.clone().unwrap_or_else(Limit::of_machine),
            source: settings.events,
            preempt: settings.preempt,
            record: false,
        })?;
        kernel.distrust(settings.distrust.unwrap_or_default());
        // Before the trace, which says at which board this is.
        let seats = BoardSeats::new(settings.vps);
        let trace = trace_hooks::open(&settings, placer.name())?;
        let mut failure = None;
        crate::process::board::set_share(settings.share);
        let instance = Arc::new_cyclic(|weak: &Weak<Instance>| {
            let vps: Vec<Vp> = (0..settings.vps)
                .map_while(|i| {
                    // SAFETY: the VP's carrier is the only user; the set lies in the same
                    // allocation and outlives the VPs.
                    let queue = unsafe { queues.local(i) };
                    // SAFETY: `Arc::new_cyclic` puts the instance that holds the VP at this
                    // address.
                    let vp = unsafe {
                        Vp::new(
                            i,
                            weak.as_ptr().cast(),
                            &seats,
                            queue,
                            settings.design,
                            placer.keeps_account(),
                        )
                    };
                    vp.map(|vp| vp.traced(trace.as_ref().map(|session| session.vp(i))))
                        .map_err(|e| failure = Some(e))
                        .ok()
                })
                .collect();
            Instance {
                vps: vps.into(),
                queues,
                placer,
                table: table(),
                trace: trace.clone(),
                default_kind,
                clock: Instant::now(),
                epoch: clock::monotonic(),
                stuck_vps: AtomicUsize::new(0),
                idle_vps: AtomicUsize::new(0),
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
                injected: AtomicU64::new(0),
                stood_aside: AtomicU64::new(0),
                tick_at: AtomicU64::new(0),
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
                let scheduler: Weak<Instance> = Arc::downgrade(&instance);
                instance.kernel.init_sched(scheduler);
                for vp in &instance.vps {
                    vp.poller.watch_call(vp.idle.raw())?;
                }
                Ok(instance)
            }
        }
    }

    /// Makes it the process's instance. Error if there is one.
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

    /// No foreign thread finds it any more, and none is inside it.
    pub(crate) fn retire(&self) {
        CURRENT.store(std::ptr::null_mut(), Ordering::SeqCst);
        while VISITORS.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
    }

    /// Nanoseconds of this instance's clock.
    #[inline(never)]
    pub(crate) fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// A time of this instance's clock as all address spaces tell it: CLOCK_MONOTONIC, nanoseconds.
    pub(crate) fn on_clock(&self, now: u64) -> u64 {
        self.epoch + now
    }

    /// A point in time on this instance's clock; rounded up to what it can hold.
    pub(crate) fn at(&self, deadline: Instant) -> u64 {
        u64::try_from(deadline.saturating_duration_since(self.clock).as_nanos()).unwrap_or(u64::MAX)
    }

    #[inline]
    pub(crate) fn any_idle(&self) -> bool {
        self.idle_vps.load(Ordering::Relaxed) != 0
    }

    /// Whether a VP sleeps that it pays to wake for a little work.
    pub(crate) fn any_worth_waking(&self, now: u64) -> bool {
        self.vps.iter().any(|vp| vp.idle.cell.is_sleeping() && vp.idle.is_worth_waking(|| now))
    }

    pub(crate) fn all_idle(&self) -> bool {
        self.idle_vps.load(Ordering::SeqCst) == self.vps.len()
    }

    /// Nobody runs anything: spinning for others' work is of no use.
    pub(crate) fn quiet(&self) -> bool {
        self.idle_vps.load(Ordering::Relaxed) == self.vps.len()
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        for vp in &self.vps {
            vp.idle.wake();
        }
        self.kernel.dismiss();
    }

    /// Another count of this instance, for a kernel thread.
    pub(crate) fn counted(&self) -> Arc<Instance> {
        // The caller holds a count, or is visited, which keeps one alive.
        self.me.upgrade().expect("an instance in use is counted")
    }

    /// Nothing may be spawned from now on.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Hands a runnable microprocess that is the caller's alone to VP `to`; or, if that would keep
    /// it waiting while another VP runs a lower one, to that. Async-signal-safe.
    pub(crate) fn inject(&self, to: usize, mp: &'static Mp) {
        let mut to = to % self.vps.len();
        if self.stuck_vps.load(Ordering::Relaxed) != 0 {
            to = self.next_unstuck(to);
        }
        match self.level_if_they_differ(mp) {
            Some(level) => self.send(to, mp, level),
            None => self.put(to, mp),
        }
    }

    /// Puts it into the injector of VP `to`, and wakes that if it sleeps.
    pub(crate) fn put(&self, to: usize, mp: &'static Mp) {
        trace_hooks::injected(&self.trace, to, mp, || {
            self.placer.level_of(mp).unwrap_or(mp.level.get())
        });
        // SAFETY: the caller holds it; records live for ever. Its state LIVE and "in no queue" are
        // the caller's to know.
        let first = unsafe { self.queues.inject(to, std::ptr::NonNull::from(mp)) };
        if first {
            self.vps[to].idle.wake();
        }
    }

    /// VP `to`, or the next one that is not stuck: see `UserScheduler::overridden`.
    #[cold]
    fn next_unstuck(&self, to: usize) -> usize {
        let n = self.vps.len();
        (to..to + n).map(|i| i % n).find(|i| !self.queues.is_stuck(*i)).unwrap_or(to)
    }

    /// Whether a woken microprocess should go back to VP `home` although VP `here` could run it:
    /// its data is there, but those that talk to each other had better come together, and do where
    /// `here` has less to do. A VP that sleeps is woken if there is enough to do here to make that
    /// pay.
    pub(crate) fn prefers_home(&self, here: &Vp, home: usize) -> bool {
        let Some(vp) = self.vps.get(home) else { return false };
        let here = here.queue().len();
        if vp.idle.cell.is_sleeping() {
            here >= MANY || here >= 2 && vp.idle.is_worth_waking(|| self.now())
        } else {
            here >= self.queues.shown(home).0
        }
    }

    /// Wakes a sleeping VP that can take what became visible.
    #[cold]
    pub(crate) fn wake_idle(&self, taker: Taker) {
        match taker {
            Taker::Vp(i) => self.vps[i].idle.wake(),
            Taker::Any => {
                if let Some(vp) = self.vps.iter().find(|vp| vp.idle.cell.is_sleeping()) {
                    vp.idle.wake();
                }
            }
        }
    }

    /// Where a spawn or a wake from outside goes: in turn.
    pub(crate) fn next_vp(&self) -> usize {
        self.next_outside.fetch_add(1, Ordering::Relaxed) % self.vps.len()
    }

    /// Microprocesses that have begun and not ended. Exact when nothing is spawned or ends
    /// meanwhile.
    pub(crate) fn living(&self) -> u64 {
        // Ended first: a microprocess is counted as begun before it can be counted as ended.
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

    /// Registers a 1:1 kernel thread.
    pub(crate) fn register_one_to_one(&self, who: &Arc<ForeignThread>) {
        let mut list = lock(&self.one_to_one_threads);
        if list.len() == list.capacity() {
            list.retain(|who| who.strong_count() != 0);
            // So that the next look comes when as many have come again.
            let alive = list.len();
            list.reserve(alive + 16);
        }
        list.push(Arc::downgrade(who));
    }

    pub(crate) fn one_to_one_threads(&self) -> Vec<Arc<ForeignThread>> {
        lock(&self.one_to_one_threads).iter().filter_map(Weak::upgrade).collect()
    }

    /// 1:1 mode: this machine's libc gives no blocks.
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
