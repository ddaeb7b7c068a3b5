//! Opens the kernel's half: builds the parts of each room and joins them.
//!
//! This module registers functions that lower rooms call but do not import: the signal handlers and
//! the watchdog's thread. As the highest module, it uses all rooms.

use std::io;
use std::os::fd::{AsFd, FromRawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use kumihimo_arch::descriptor::Descriptor;
use kumihimo_arch::signal_mask;

use crate::handoff::barrier;
use crate::handoff::carriers::Carriers;
use crate::handoff::page::Page;
use crate::handoff::park_word::ParkWord;
use crate::handoff::return_queue::Waiter;
use crate::linux::wakeup::EpollWaker;
use crate::pool::kernel::{Kernel, Settings};
use crate::pool::pending_starts::PendingStarts;
use crate::pool::poll::CALL;
use crate::pool::ready_list::Pool;
use crate::pool::record::Recorder;
use crate::pool::timekeeper::Timekeeper;
use crate::pool::trap;
use crate::preempt::doorbell::Doorbells;
use crate::preempt::signal_handler;
use crate::scan::run::run;
use crate::source::{self, Kind};
use crate::watchdog::state::Watchdog;

impl Kernel {
    /// Opens an event source and the shared page. Starts no kernel thread: see
    /// [`init_sched`](Kernel::init_sched) and [`resume`](Kernel::resume).
    ///
    /// # Errors
    /// `Unsupported`: the requested source is unavailable; the message contains the reason.
    /// Otherwise the error of the system call that failed, for lack of memory or descriptors, for
    /// example.
    pub fn open(settings: Settings) -> io::Result<Arc<Kernel>> {
        let mut limit = settings.limit;
        let carried = settings.vps - settings.parked.min(settings.vps);
        limit.threads = limit.threads.max(carried as usize);
        let slots = u32::try_from(limit.threads).unwrap_or(u32::MAX - 1);
        let source = source::open(settings.source, slots).map_err(|refused| {
            let kind = settings.source.map_or("", Kind::name);
            io::Error::new(
                io::ErrorKind::Unsupported,
                format!("event source {kind} (KUMI_EVENTS): {refused}"),
            )
        })?;
        if let Some(why) = source.shortfall() {
            source::report_once(&format!("event source {}: {why}", source.kind()));
        }
        let page = match source.memory() {
            // SAFETY: the source keeps the memory mapped, and lives as long as the page: both are
            // fields of `Kernel`, which drops `page` first.
            Some((base, bytes)) => unsafe { Page::of(base, bytes)? },
            None => Page::new(slots)?,
        };
        // SAFETY: integers only; a fresh descriptor.
        let epoll = unsafe { owned(kumihimo_arch::kernel::epoll_create1(libc::EPOLL_CLOEXEC))? };
        let call = EpollWaker::new(epoll.as_fd(), CALL).map_err(no_descriptor)?;
        source.register(epoll.as_fd())?;
        if source.reports_returns(0) {
            signal_handler::install(libc::SIGTRAP, trap::HANDLERS.trap)?;
        }
        let doorbells =
            Doorbells::open(settings.preempt, source.kind(), page.slots(), trap::HANDLERS)?;
        Ok(Arc::new(Kernel {
            doorbells,
            timekeeper: Timekeeper::default(),
            wants_returns: AtomicBool::new(source.reports_returns(0)),
            source,
            scheduler: OnceLock::new(),
            epoll,
            call,
            vps: settings.vps,
            limit,
            signal_mask: signal_mask::current(),
            high: AtomicU32::new(0),
            has_barrier: barrier::probe().is_ok(),
            reported_no_barrier: AtomicBool::new(false),
            concurrency: AtomicUsize::new(settings.concurrency),
            spares: AtomicUsize::new(0),
            pool: Mutex::new(Pool::new(page.slots(), settings.vps)),
            watchdog: Watchdog::new(settings.vps, page.slots()),
            watchdog_thread: run,
            waiters: (0..=page.slots()).map(|_| Waiter::new()).collect(),
            page,
            ended: Condvar::new(),
            requested: Condvar::new(),
            pending_starts: PendingStarts::default(),
            poller: AtomicU32::new(0),
            carriers: Carriers::new(settings.vps),
            park_words: (0..settings.vps).map(|vp| ParkWord::new(vp >= carried)).collect(),
            bound: AtomicUsize::new(0),
            waiter_count: AtomicUsize::new(0),
            hand_offs: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            exhausted: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            recorder: settings.record.then(Recorder::new),
        }))
    }
}

/// Takes ownership of the result of a system call that returns a descriptor.
///
/// # Safety
/// `fd` is a new descriptor that has no other owner, or negative with errno set.
unsafe fn owned(fd: i32) -> io::Result<Descriptor> {
    if fd < 0 {
        return Err(no_descriptor(io::Error::last_os_error()));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { Descriptor::from_raw_fd(fd) })
}

fn no_descriptor(e: io::Error) -> io::Error {
    let text = format!("pool of kernel threads: {e}; raise the descriptor limit (ulimit -n)");
    io::Error::new(e.kind(), text)
}
