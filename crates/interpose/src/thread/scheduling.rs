//! Scheduling classes and processors of threads.
//!
//! The kernel schedules kernel threads, so a thread keeps one from its first change on. What
//! another thread asks for it waits until it runs code of its own, where it can take one.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::real::libc;
use kumihimo_arch::system_call;
use libc::{cpu_set_t, sched_param};

/// What was asked for a thread, in its [record](crate::thread::record::Record).
pub(crate) struct Scheduling {
    /// The class that was asked for, as [`Class::to_word`], or 0 for that of all.
    class: AtomicU64,
    /// Processors that another thread has given it; none if no other thread has.
    pub(crate) processors: [AtomicU64; WORDS],
    /// Whether the thread has to apply something.
    pub(crate) is_due: AtomicBool,
}

/// Words of a `cpu_set_t`, which has 1,024 processors.
pub(crate) const WORDS: usize = size_of::<cpu_set_t>() / size_of::<u64>();

/// A class of sched(7) and its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) policy: c_int,
    pub(crate) priority: c_int,
}

/// The class of the runtime's kernel threads, which microprocesses have.
static OF_ALL: AtomicU64 = AtomicU64::new(0);

/// Notes the class of the calling kernel thread, which creates those of the runtime.
pub(crate) fn note_class() {
    OF_ALL.store(Class::of_kernel_thread().to_word(), Ordering::SeqCst);
}

impl Class {
    /// The class of the runtime's kernel threads.
    pub(crate) fn of_all() -> Class {
        Class::of_word(OF_ALL.load(Ordering::SeqCst))
    }

    /// The class in one word, which is not 0.
    fn to_word(self) -> u64 {
        1 << 63
            | u64::from(self.policy.cast_unsigned()) << 32
            | u64::from(self.priority.cast_unsigned())
    }

    fn of_word(word: u64) -> Class {
        Class { policy: (word << 1 >> 33) as c_int, priority: word as u32 as c_int }
    }

    pub(crate) fn parameters(self) -> sched_param {
        sched_param { sched_priority: self.priority }
    }

    /// The class of the kernel thread that the caller runs on.
    pub(crate) fn of_kernel_thread() -> Class {
        let mut parameters = sched_param { sched_priority: 0 };
        // SAFETY: an integer, and a live target.
        unsafe {
            libc::sched_getparam(0, &mut parameters);
            Class { policy: libc::sched_getscheduler(0), priority: parameters.sched_priority }
        }
    }

    /// Whether the class has the priority; sched(7).
    pub(crate) fn is_valid(self) -> bool {
        // SAFETY: integers.
        let (min, max) = unsafe {
            (libc::sched_get_priority_min(self.policy), libc::sched_get_priority_max(self.policy))
        };
        min >= 0 && (min..=max).contains(&self.priority)
    }

    /// Whether the process may give a thread of the ordinary class this one; sched(7),
    /// "Privileges and resource limits".
    pub(crate) fn is_permitted(self) -> bool {
        if !matches!(self.policy, libc::SCHED_FIFO | libc::SCHED_RR) || has_capability() {
            return true;
        }
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a live target.
        unsafe { libc::getrlimit(libc::RLIMIT_RTPRIO, &mut limit) };
        self.priority as u64 <= limit.rlim_cur
    }
}

/// Whether the calling kernel thread has CAP_SYS_NICE.
fn has_capability() -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_SYS_NICE: u32 = 23;
    let mut header = [VERSION_3, 0];
    // Two sets of effective, permitted and inheritable ones (capget(2)).
    let mut sets = [0_u32; 6];
    let arguments = [(&raw mut header).expose_provenance(), (&raw mut sets).expose_provenance()];
    // SAFETY: both structures are live, and have the sizes of this version.
    let done = unsafe { system_call(libc::SYS_capget, [arguments[0], arguments[1], 0, 0, 0, 0]) };
    done == 0 && sets[0] & (1 << CAP_SYS_NICE) != 0
}

impl Scheduling {
    pub(crate) const fn new() -> Scheduling {
        Scheduling {
            class: AtomicU64::new(0),
            processors: [const { AtomicU64::new(0) }; WORDS],
            is_due: AtomicBool::new(false),
        }
    }

    pub(crate) fn class(&self) -> Class {
        match self.class.load(Ordering::SeqCst) {
            0 => Class::of_all(),
            word => Class::of_word(word),
        }
    }

    pub(crate) fn set_class(&self, class: Class) {
        self.class.store(class.to_word(), Ordering::SeqCst);
    }

    pub(crate) fn processors(&self) -> [u64; WORDS] {
        std::array::from_fn(|i| self.processors[i].load(Ordering::SeqCst))
    }

    /// Whether another thread has asked for something that the thread has to apply.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::SeqCst)
    }

    /// Applies what other threads have asked for. The caller is the thread, where a handler of the
    /// program may run.
    pub(crate) fn apply_due(&self) {
        if self.is_due() {
            self.apply();
        }
    }

    #[cold]
    fn apply(&self) {
        self.is_due.store(false, Ordering::SeqCst);
        let (class, processors) = (self.class(), self.processors());
        // Both were checked. Where no kernel thread is left for the caller, it stays what it is.
        // SAFETY: the caller's own block; a live set.
        unsafe {
            if class != Class::of_kernel_thread() {
                set_own(class);
            }
            if processors != [0; WORDS] {
                let bytes = size_of_val(&processors);
                let set = (&raw const processors).cast();
                libc::pthread_setaffinity_np(libc::pthread_self(), bytes, set);
            }
        }
    }
}

/// Sets the class of the calling microprocess, which keeps a kernel thread from here on.
///
/// # Safety
/// The caller is a microprocess.
pub(crate) unsafe fn set_own(class: Class) -> c_int {
    // SAFETY: the caller's own block. `libc::pthread_setschedparam` is the definition of `arch`.
    unsafe { libc::pthread_setschedparam(libc::pthread_self(), class.policy, &class.parameters()) }
}
