//! Attributes of threads: pthread_attr_init(3), pthread_getattr_np(3).

use std::ffi::{c_int, c_void};

use libc::{pthread_attr_t, pthread_t};

use crate::real::libc;
use crate::thread::{record, scheduling_calls};

/// The smallest stack of a microprocess, in bytes. Less than that asks for trouble on a thread of
/// the C library as well, whose signal frames alone need several KiB.
const SMALLEST: usize = 16 << 10;
/// The stack of the slot of a thread that runs on the program's memory: what runs there are the
/// first frames and the end of the thread.
const BESIDE_OWN: usize = 16 << 10;

/// How a new thread is made: what its attributes say.
pub(crate) struct Plan {
    pub(crate) is_detached: bool,
    /// The program's own memory for the stack, lowest address, or null.
    pub(crate) stack: *mut u8,
    /// Size of that memory, or the size that is asked for.
    pub(crate) stack_size: usize,
}

unsafe extern "C" {
    fn pthread_attr_getdetachstate(attributes: *const pthread_attr_t, state: *mut c_int) -> c_int;
    fn pthread_getattr_default_np(attributes: *mut pthread_attr_t) -> c_int;
    fn pthread_attr_getaffinity_np(
        attributes: *const pthread_attr_t,
        bytes: usize,
        set: *mut libc::cpu_set_t,
    ) -> c_int;
}

impl Plan {
    /// Reads the attributes; null means the defaults. `None` if only a kernel thread can have them:
    /// a scheduling class, processors, a signal mask.
    ///
    /// # Safety
    /// `attributes` is null or initialised.
    pub(crate) unsafe fn of(attributes: *const pthread_attr_t) -> Option<Plan> {
        // SAFETY: the caller's promise; the defaults are initialised before use.
        unsafe {
            if attributes.is_null() {
                let mut own = std::mem::MaybeUninit::<pthread_attr_t>::uninit();
                if pthread_getattr_default_np(own.as_mut_ptr()) != 0 {
                    return None;
                }
                let plan = Plan::of_initialised(own.as_ptr());
                libc::pthread_attr_destroy(own.as_mut_ptr());
                return plan;
            }
            Plan::of_initialised(attributes)
        }
    }

    unsafe fn of_initialised(attributes: *const pthread_attr_t) -> Option<Plan> {
        let (mut detached, mut stack, mut size) = (0, std::ptr::null_mut(), 0);
        // SAFETY: the caller's promise; all targets are live.
        unsafe {
            pthread_attr_getdetachstate(attributes, &mut detached);
            if scheduling_calls::has_other_class(attributes) {
                return None;
            }
            // All processors if none were set.
            let mut processors: libc::cpu_set_t = std::mem::zeroed();
            let bytes = size_of::<libc::cpu_set_t>();
            if pthread_attr_getaffinity_np(attributes, bytes, &mut processors) != 0
                || libc::CPU_COUNT(&processors) != libc::CPU_SETSIZE
            {
                return None;
            }
            libc::pthread_attr_getstack(attributes, &mut stack, &mut size);
            // Without memory of the program, the address is what a stack at address 0 would end at.
            if stack.addr().wrapping_add(size) == 0 || stack.is_null() {
                stack = std::ptr::null_mut();
                libc::pthread_attr_getstacksize(attributes, &mut size);
            }
        }
        Some(Plan {
            is_detached: detached == libc::PTHREAD_CREATE_DETACHED,
            stack: stack.cast(),
            stack_size: size,
        })
    }

    /// The stack that the microprocess needs, in bytes.
    pub(crate) fn slot_size(&self) -> usize {
        if self.stack.is_null() { self.stack_size.max(SMALLEST) } else { BESIDE_OWN }
    }

    /// The top of the program's own stack, or null.
    pub(crate) fn stack_top(&self) -> *mut u8 {
        if self.stack.is_null() {
            return std::ptr::null_mut();
        }
        let top = self.stack.wrapping_add(self.stack_size);
        top.wrapping_sub(top.addr() % 16)
    }
}

/// Replaces pthread_getattr_np(3), as `arch` does; and knows the stacks and the state of detachment
/// of this library's threads.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_getattr_np(
    thread: pthread_t,
    attributes: *mut pthread_attr_t,
) -> c_int {
    // SAFETY: the caller's promise. `libc::pthread_getattr_np` is the definition of `arch`.
    unsafe {
        let done = libc::pthread_getattr_np(thread, attributes);
        if done != 0 {
            return done;
        }
        if let Some(is_detached) = record::is_detached(thread) {
            let state = if is_detached {
                libc::PTHREAD_CREATE_DETACHED
            } else {
                libc::PTHREAD_CREATE_JOINABLE
            };
            libc::pthread_attr_setdetachstate(attributes, state);
        }
        if let Some((stack, size)) = record::own_stack(thread) {
            libc::pthread_attr_setstack(attributes, stack.cast::<c_void>(), size);
        }
    }
    0
}
