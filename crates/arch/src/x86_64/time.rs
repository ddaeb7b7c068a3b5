//! The processor's time-stamp counter, for code that reads the time too often to call the vDSO.

use core::arch::x86_64::__rdtscp;

use super::cpu::cpuid;

/// Returns whether [`counter`] may be used. The counter must exist and tick at a constant rate in
/// all power states, and the kernel must use it as its clock source. The kernel does so only if the
/// counters of all processors agree.
///
/// Reads sysfs; call it once and keep the result.
#[must_use]
pub fn has_steady_counter() -> bool {
    const RDTSCP: u32 = 1 << 27;
    const INVARIANT: u32 = 1 << 8;
    let leaf = |leaf| cpuid(leaf, 0);
    let clock =
        std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    leaf(0x8000_0000).eax >= 0x8000_0007
        && leaf(0x8000_0001).edx & RDTSCP != 0
        && leaf(0x8000_0007).edx & INVARIANT != 0
        && clock.is_ok_and(|name| name.trim() == "tsc")
}

/// Returns the ticks since about the start of the machine.
///
/// RDTSCP executes after all earlier loads in program order (Intel SDM volume 2, RDTSCP). If a
/// processor has observed a store of another processor, it therefore never reads a smaller value
/// than the other one read before the store.
///
/// May fault unless [`has_steady_counter`] returned true.
#[inline(always)]
#[must_use]
pub fn counter() -> u64 {
    let mut processor = 0;
    // SAFETY: [`has_steady_counter`] guarantees the instruction; it writes to the live local.
    unsafe { __rdtscp(&mut processor) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_is_monotonic() {
        if !has_steady_counter() {
            return;
        }
        let mut last = counter();
        for _ in 0..10_000 {
            let now = counter();
            assert!(now >= last);
            last = now;
        }
    }
}
