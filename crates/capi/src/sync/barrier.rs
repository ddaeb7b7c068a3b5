//! Barriers.

use std::ffi::c_int;

use kumihimo::sync::Barrier as Meeting;

use crate::error::{Failure, catch_failure};
use crate::gate::bytes::non_null_mut;
use crate::object::{Content, Object};

/// Content of a `kumi_barrier`.
pub struct Barrier(Meeting);

impl Content for Barrier {
    const TAG: u64 = u64::from_be_bytes(*b"\0kbarrie");
    const NAME: &'static str = "barrier";

    fn initial() -> Option<Barrier> {
        None
    }

    fn is_unused(&self) -> bool {
        self.0.waiting() == 0
    }
}

/// Initialises a barrier. See kumihimo/barrier.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_barrier_init(barrier: *mut Object<Barrier>, count: u32) -> c_int {
    catch_failure(|| {
        if count == 0 {
            return Err(Failure::invalid("a barrier for 0 threads"));
        }
        // SAFETY: the interface's contract.
        unsafe { Object::init(barrier, Barrier(Meeting::new(count as usize))) }
    })
}

/// Destroys a barrier. See kumihimo/barrier.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_barrier_destroy(barrier: *mut Object<Barrier>) -> c_int {
    // SAFETY: the interface's contract.
    catch_failure(|| unsafe { Object::destroy(barrier) })
}

/// Waits until all threads have arrived. See kumihimo/barrier.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_barrier_wait(
    barrier: *mut Object<Barrier>,
    is_last: *mut c_int,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (barrier, _user) = unsafe { Object::used(barrier) }?;
        let is_leader = barrier.0.wait().is_leader();
        if !is_last.is_null() {
            // SAFETY: the interface's contract.
            *unsafe { non_null_mut(is_last, "is_last") }? = c_int::from(is_leader);
        }
        Ok(())
    })
}
