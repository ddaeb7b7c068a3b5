//! The functions that read and change classes and processors of threads: pthread_setschedparam(3),
//! pthread_setaffinity_np(3).

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use kumihimo_runtime::park;
use libc::{cpu_set_t, pthread_t, sched_param};

use crate::real::libc;
use crate::real::libc::pthread_setschedprio;
use crate::signal::cancel;
use crate::thread::record::{self, RECORD, Record};
use crate::thread::scheduling::{Class, WORDS, set_own};

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
    if is_own(thread) && park::is_bound() && !record.scheduling.is_due() {
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
            Some(record) if !is_own(thread) || record.scheduling.is_due() => {
                record.scheduling.processors()
            }
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
