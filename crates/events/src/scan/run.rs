//! The watchdog's thread.

use std::sync::Weak;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use super::starvation::Starvation;
use crate::pool::kernel::Kernel;
use crate::watchdog::state::{ASLEEP, AWAKE, Alarm, ENDED};

/// Runs the watchdog's thread: scans until the kernel's half or the watchdog ends.
pub(crate) fn run(kernel: &Weak<Kernel>, alarm: &Alarm) {
    let (mut suspects, mut starvation, mut idle, mut last) =
        (Vec::new(), Starvation::default(), 0, Instant::now());
    while let Some(kernel) = kernel.upgrade() {
        let elapsed = last.elapsed();
        last += elapsed;
        let runs = kernel.scan_vps(&mut suspects, elapsed);
        if let Some(scheduler) = kernel.user() {
            kernel.scan_for_starvation(&mut starvation, elapsed, &*scheduler);
        }
        let pace = kernel.watchdog.pace();
        idle = if runs { 0 } else { idle + 1 };
        if idle < 2 {
            drop(kernel);
            alarm.wait(AWAKE, Some(pace));
        } else if alarm
            .0
            .compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            // Pairs with the fence of a thread that began to run before it could see ASLEEP. That
            // thread does not wake the watchdog, so its VP is checked for here.
            fence(Ordering::SeqCst);
            let runs = kernel.is_any_vp_running();
            drop(kernel);
            if !runs {
                alarm.wait(ASLEEP, None);
            }
            let _ = alarm.0.compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::SeqCst);
            idle = 0;
            last = Instant::now();
        }
        if alarm.0.load(Ordering::SeqCst) == ENDED {
            return;
        }
    }
}
