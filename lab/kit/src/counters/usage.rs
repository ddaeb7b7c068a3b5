//! The kernel's usage counters of this process and of its children.

use std::time::Duration;

/// Counters of getrusage(2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Number of times that a kernel thread went to sleep.
    pub voluntary_switches: u64,
    /// Number of times that a kernel thread lost its core to another one.
    pub involuntary_switches: u64,
    /// User and system CPU time.
    pub cpu: Duration,
}

impl Usage {
    /// Reads the counters of all kernel threads of this process.
    #[must_use]
    pub fn now() -> Usage {
        Usage::of(libc::RUSAGE_SELF)
    }

    /// Reads the counters of all children that have ended and been waited for.
    #[must_use]
    pub fn of_children() -> Usage {
        Usage::of(libc::RUSAGE_CHILDREN)
    }

    fn of(target: libc::c_int) -> Usage {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: room for one, which the kernel fills; an all-zero value is valid.
        let usage = unsafe {
            libc::getrusage(target, usage.as_mut_ptr());
            usage.assume_init()
        };
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1_000);
        Usage {
            major_faults: usage.ru_majflt as u64,
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
            cpu: time(usage.ru_utime) + time(usage.ru_stime),
        }
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(self, before: Usage) -> Usage {
        Usage {
            major_faults: self.major_faults - before.major_faults,
            voluntary_switches: self.voluntary_switches - before.voluntary_switches,
            involuntary_switches: self.involuntary_switches - before.involuntary_switches,
            cpu: self.cpu.saturating_sub(before.cpu),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::spin;

    #[test]
    fn cpu_time_and_sleeps_of_this_process_are_counted() {
        let before = Usage::now();
        std::hint::black_box(spin(1, 10_000_000));
        std::thread::sleep(Duration::from_millis(1));
        let used = Usage::now().since(before);
        assert!(used.cpu > Duration::ZERO && used.voluntary_switches > 0);
    }
}
