//! The generic timer's virtual counter, for code that reads the time too often to call the vDSO.

use core::arch::asm;

/// Returns whether [`counter`] may be used: the kernel uses it as its clock source. It is then the
/// same on all processors, and readable in user mode.
///
/// Reads sysfs; call it once and keep the result. Under an emulator, sysfs is that of the machine
/// below, whose clock source has another name.
#[must_use]
pub fn has_steady_counter() -> bool {
    let clock =
        std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    clock.is_ok_and(|name| name.trim() == "arch_sys_counter")
}

/// Returns the ticks of CNTVCT_EL0 since about the start of the machine.
///
/// A processor may read the counter early. The ISB orders the read after all earlier instructions,
/// and a load that those have completed. If a processor has observed a store of another processor,
/// it therefore never reads a smaller value than the other one read before the store (Arm ARM,
/// D12.2; `__arch_counter_get_cntvct` in Linux's asm/arch_timer.h).
#[inline(always)]
#[must_use]
pub fn counter() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register, which Linux enables for user mode. Not `nomem`: earlier loads of
    // the program come first.
    unsafe {
        asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags));
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_is_monotonic() {
        let mut last = counter();
        for _ in 0..10_000 {
            let now = counter();
            assert!(now >= last);
            last = now;
        }
    }
}
