//! Scheduling classes and processors of threads: pthread_setschedparam(3), pthread_setaffinity_np(3).
//!
//! The kernel schedules kernel threads, so a thread keeps one from its first change on. What another
//! thread asks for it waits until it runs code of its own, where it can take one.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kumihimo_arch::system_call;
use kumihimo_runtime::park;
use libc::{cpu_set_t, pthread_t, sched_param};

use crate::cancel;
use crate::record::{self, RECORD, Record};

/// What was asked for a thread, in its [record](crate::record::Record).
pub(crate) struct Scheduling {
    /// The class that was asked for, as [`Class::to_word`], or 0 for that of all.
    class: AtomicU64,
    /// Processors that another thread has given it; none if no other thread has.
    processors: [AtomicU64; WORDS],
    /// Whether the thread has to apply something.
    is_due: AtomicBool,
}

/// Words of a `cpu_set_t`, which has 1,024 processors.
const WORDS: usize = size_of::<cpu_set_t>() / size_of::<u64>();

/// A class of sched(7) and its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    policy: c_int,
    priority: c_int,
}

/// The class of the runtime's kernel threads, which microprocesses have.
static OF_ALL: AtomicU64 = AtomicU64::new(0);

/// Notes the class of the calling kernel thread, which creates those of the runtime.
pub(crate) fn note_class() {
    OF_ALL.store(Class::of_kernel_thread().to_word(), Ordering::SeqCst);
}

impl Class {
    /// The class of the runtime's kernel threads.
    fn of_all() -> Class {
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

    fn parameters(self) -> sched_param {
        sched_param { sched_priority: self.priority }
    }

    /// The class of the kernel thread that the caller runs on.
    fn of_kernel_thread() -> Class {
        let mut parameters = sched_param { sched_priority: 0 };
        // SAFETY: an integer, and a live target.
        unsafe {
            libc::sched_getparam(0, &mut parameters);
            Class { policy: libc::sched_getscheduler(0), priority: parameters.sched_priority }
        }
    }

    /// Whether the class has the priority; sched(7).
    fn is_valid(self) -> bool {
        // SAFETY: integers.
        let (min, max) = unsafe {
            (libc::sched_get_priority_min(self.policy), libc::sched_get_priority_max(self.policy))
        };
        min >= 0 && (min..=max).contains(&self.priority)
    }

    /// Whether the process may give a thread of the ordinary class this one; sched(7),
    /// "Privileges and resource limits".
    fn is_permitted(self) -> bool {
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

    fn class(&self) -> Class {
        match self.class.load(Ordering::SeqCst) {
            0 => Class::of_all(),
            word => Class::of_word(word),
        }
    }

    fn set_class(&self, class: Class) {
        self.class.store(class.to_word(), Ordering::SeqCst);
    }

    fn processors(&self) -> [u64; WORDS] {
        std::array::from_fn(|i| self.processors[i].load(Ordering::SeqCst))
    }

    /// Applies what other threads have asked for. The caller is the thread, where a handler of the
    /// program may run.
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

/// Whether another thread has asked for something that the calling thread has to apply.
#[inline]
pub(crate) fn is_due() -> bool {
    RECORD.with(|record| record.scheduling.is_due.load(Ordering::Relaxed))
}

/// Applies what is due for the calling thread.
pub(crate) fn apply_due() {
    RECORD.with(|record| {
        if record.scheduling.is_due.load(Ordering::SeqCst) {
            record.scheduling.apply();
        }
    });
}

/// Sets the class of the calling microprocess, which keeps a kernel thread from here on.
///
/// # Safety
/// The caller is a microprocess.
unsafe fn set_own(class: Class) -> c_int {
    // SAFETY: the caller's own block. `libc::pthread_setschedparam` is the definition of `arch`.
    unsafe { libc::pthread_setschedparam(libc::pthread_self(), class.policy, &class.parameters()) }
}

fn is_own(thread: pthread_t) -> bool {
    thread as usize == kumihimo_arch::cpu::fs_base()
}

/// Sets the class of a thread of this library. Returns an error number.
fn set(thread: pthread_t, record: &Record, class: Class) -> c_int {
    if !class.is_valid() {
        return libc::EINVAL;
    }
    if is_own(thread) {
        if class == Class::of_all() && !park::is_bound() {
            return 0;
        }
        // SAFETY: the caller's own record is that of a microprocess.
        let done = unsafe { set_own(class) };
        if done == 0 {
            record.scheduling.set_class(class);
        }
        return done;
    }
    if !class.is_permitted() {
        return libc::EPERM;
    }
    record.scheduling.set_class(class);
    have_applied(record);
    0
}

/// Has another thread apply what its record says.
fn have_applied(record: &Record) {
    record.scheduling.is_due.store(true, Ordering::SeqCst);
    cancel::nudge(&record.signals);
}

fn get(thread: pthread_t, record: &Record) -> Class {
    // It may have changed it by another call.
    if is_own(thread) && park::is_bound() && !is_due() {
        return Class::of_kernel_thread();
    }
    record.scheduling.class()
}

/// Whether a new thread with these attributes has another class than microprocesses.
///
/// # Safety
/// `attributes` is initialised.
pub(crate) unsafe fn has_other_class(attributes: *const libc::pthread_attr_t) -> bool {
    let (mut inherits, mut policy, mut parameters) = (0, 0, sched_param { sched_priority: 0 });
    // SAFETY: the caller's promise; all targets are live.
    unsafe {
        libc::pthread_attr_getinheritsched(attributes, &mut inherits);
        libc::pthread_attr_getschedpolicy(attributes, &mut policy);
        libc::pthread_attr_getschedparam(attributes, &mut parameters);
    }
    let class = match inherits {
        libc::PTHREAD_EXPLICIT_SCHED => Class { policy, priority: parameters.sched_priority },
        _ if record::is_created() => RECORD.with(|record| record.scheduling.class()),
        _ => Class::of_kernel_thread(),
    };
    class != Class::of_all()
}

/// Replaces pthread_getschedparam(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_getschedparam(
    thread: pthread_t,
    policy: *mut c_int,
    parameters: *mut sched_param,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(record) = record::created(thread) else {
            return libc::pthread_getschedparam(thread, policy, parameters);
        };
        let class = get(thread, record);
        *policy = class.policy;
        *parameters = class.parameters();
    }
    0
}

/// Replaces pthread_setschedparam(3), as `arch` does; and knows other threads of this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_setschedparam(
    thread: pthread_t,
    policy: c_int,
    parameters: *const sched_param,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(record) = record::created(thread) else {
            return libc::pthread_setschedparam(thread, policy, parameters);
        };
        set(thread, record, Class { policy, priority: (*parameters).sched_priority })
    }
}

unsafe extern "C" {
    fn pthread_setschedprio(thread: pthread_t, priority: c_int) -> c_int;
}

/// Replaces pthread_setschedprio(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_setschedprio(
    thread: pthread_t,
    priority: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(record) = record::created(thread) else {
            return pthread_setschedprio(thread, priority);
        };
        let policy = get(thread, record).policy;
        set(thread, record, Class { policy, priority })
    }
}

/// Replaces pthread_setaffinity_np(3), as `arch` does; and knows other threads of this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_setaffinity_np(
    thread: pthread_t,
    bytes: usize,
    set: *const cpu_set_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(record) = record::created(thread).filter(|_| !is_own(thread)) else {
            return libc::pthread_setaffinity_np(thread, bytes, set);
        };
        let mut asked = [0; WORDS];
        let at_most = bytes.min(size_of_val(&asked));
        std::ptr::copy_nonoverlapping(set.cast::<u8>(), asked.as_mut_ptr().cast(), at_most);
        if !has_processor(&asked) {
            return libc::EINVAL;
        }
        for (word, asked) in record.scheduling.processors.iter().zip(asked) {
            word.store(asked, Ordering::SeqCst);
        }
        have_applied(record);
    }
    0
}

/// Whether the machine has one of the processors.
fn has_processor(set: &[u64; WORDS]) -> bool {
    // SAFETY: an integer.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    (0..count.max(1) as usize).any(|i| set[i / 64 % WORDS] >> (i % 64) & 1 == 1)
}

/// Replaces pthread_getaffinity_np(3), as `arch` does; and knows other threads of this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_getaffinity_np(
    thread: pthread_t,
    bytes: usize,
    set: *mut cpu_set_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let asked = match record::created(thread) {
            Some(record) if !is_own(thread) || is_due() => record.scheduling.processors(),
            _ => [0; WORDS],
        };
        if asked == [0; WORDS] {
            return libc::pthread_getaffinity_np(thread, bytes, set);
        }
        let at_most = bytes.min(size_of_val(&asked));
        set.cast::<u8>().write_bytes(0, bytes);
        std::ptr::copy_nonoverlapping(asked.as_ptr().cast::<u8>(), set.cast(), at_most);
    }
    0
}
