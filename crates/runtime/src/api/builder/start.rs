//! The start of a runtime with its settings, of which environment variables supply what the program
//! has not set.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kumihimo_arbiter::share::Share;
use kumihimo_batch::Policy as BatchPolicy;
use kumihimo_events::limit::Limit;
use kumihimo_events::preempt::Means as Preemption;
use kumihimo_events::source::Kind as Events;
use kumihimo_events::watchdog::Distrust;
use kumihimo_queue::Design;

use super::Builder;
use crate::config::{DEFAULT_DESIGN, DEFAULT_STACK, MAX_VPS, ReadyOrder};
use crate::kernel_thread::fork;
use crate::lifecycle::{linked, process_handlers, shutdown};
use crate::memory::pool::{self, SlotKind};
use crate::observe::{debug, dump_signal};
use crate::priority::placement::Placer;
use crate::resource::membership;
use crate::scheduler::core_watch;
use crate::scheduler::instance::{self, Instance};

impl Builder {
    pub(in crate::api) fn start(mut self) -> io::Result<Arc<Instance>> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        if fork::is_child() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this process was forked from one that ran a runtime: call exec before starting another",
            ));
        }
        let config = kumihimo_config::check()?;
        let vps = self.vps.or(config.vps);
        self.settings.follows_cores = vps.is_none();
        (self.settings.vps, self.settings.open) =
            vps.map_or_else(core_watch::default_vps, |vps| (vps, vps));
        if !(1..=MAX_VPS).contains(&self.settings.vps) {
            return Err(invalid(format!(
                "{} virtual processors: 1 to {MAX_VPS} are possible",
                self.settings.vps
            )));
        }
        let lab = &config.lab;
        let settings = &mut self.settings;
        settings.design = self
            .design
            .or(lab.queue.and_then(|of| Design::from_name(of.name())))
            .unwrap_or(DEFAULT_DESIGN);
        settings.batch = self.batch.or(lab.batch.map(BatchPolicy::from)).unwrap_or_default();
        settings.ready_order =
            self.ready_order.or(lab.ready.map(ReadyOrder::from)).unwrap_or_default();
        settings.sticky = self.sticky.or(lab.sticky).unwrap_or(true);
        settings.stack_size =
            self.stack_size.or(config.stack).or(config.rust_min_stack).unwrap_or(DEFAULT_STACK);
        settings.events = settings.events.or(config.events.map(Events::from));
        settings.preempt = settings.preempt.or(config.preempt.map(Preemption::from));
        settings.distrust = settings.distrust.or(config.watchdog.map(Distrust::from));
        settings.share = settings.share.or(config.share.map(Share::from));
        settings.locking = settings.locking.or(lab.locking.and_then(|of| of.name().parse().ok()));
        if settings.limit.is_none() {
            let threads = config.kernel_threads;
            settings.limit = threads.map(|n| Limit::asked(n, "KUMI_KERNEL_THREADS"));
        }
        let running = || {
            io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a Kumihimo runtime runs in this process already (one was built, or the first spawn started the default one)",
            )
        };
        if instance::running() {
            return Err(running());
        }
        linked::before_start();
        process_handlers::install_once()?;
        debug::note_page_size();
        let variable = match (config.stack, config.rust_min_stack) {
            (Some(bytes), _) => Some(("KUMI_STACK", bytes)),
            (None, bytes) => bytes.map(|bytes| ("RUST_MIN_STACK", bytes)),
        };
        if let (None, Some((name, bytes))) = (self.stack_size, variable) {
            SlotKind::for_stack(bytes, false)
                .map_err(|e| invalid(format!("{name}={bytes}: {e}")))?;
        }
        membership::begin(self.settings.locking)?;
        dump_signal::prepare(self.settings.dump_signal)?;
        pool::MAX_SLOTS.store(self.settings.max_stacks, Ordering::Relaxed);
        pool::MAX_STACK_BYTES.store(self.settings.max_stack_memory, Ordering::Relaxed);
        let instance = Instance::new(self.settings, Placer::new(self.policy))?;
        if !instance.publish() {
            return Err(running());
        }
        if let Err(e) = instance.start() {
            shutdown::stop(&instance);
            return Err(e);
        }
        linked::after_start();
        Ok(instance)
    }
}
