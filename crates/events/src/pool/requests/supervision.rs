//! Configuration of the watchdog, and the start of its thread.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::pool::kernel::Kernel;
use crate::watchdog::config::{Distrust, OnMisbehaviour, Violation};
use kumihimo_arch::signal_mask;

impl Kernel {
    /// Sets the bound and the response of the watchdog.
    pub fn distrust(self: &Arc<Kernel>, distrust: Distrust) {
        self.watchdog.set(distrust);
        if self.carriers.iter().any(|index| index.load(Ordering::Relaxed) != 0) {
            self.start_watchdog();
        }
    }

    /// Returns the number of violations of kind `case`.
    #[must_use]
    pub fn violations(&self, case: Violation) -> u64 {
        self.watchdog.violations[case as usize].load(Ordering::Acquire)
    }

    /// Starts the watchdog's thread, once and only if the configuration requests reports.
    pub(crate) fn start_watchdog(self: &Arc<Kernel>) {
        let watchdog = &self.watchdog;
        if watchdog.started.load(Ordering::Relaxed)
            || !watchdog.does(OnMisbehaviour::Report)
            || watchdog.started.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let (kernel, alarm) = (Arc::downgrade(self), watchdog.alarm.clone());
        let run = self.watchdog_thread;
        let builder = std::thread::Builder::new()
            .name("kumihimo-dog".into())
            .stack_size(kumihimo_backtrace::STACK);
        match signal_mask::spawn_blocked(builder, move || run(&kernel, &alarm)) {
            Ok(thread) => {
                *watchdog.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread)
            }
            Err(e) => eprintln!(
                "kumihimo: no kernel thread for the watchdog ({e}): a stuck user scheduler will not be detected"
            ),
        }
    }
}
