//! Record of the attributes that a kernel thread of the runtime has at the moment.

use std::cell::Cell;

use kumihimo_arch::kernel_attributes;

use crate::microprocess::attributes::{self, Attributes, SignalStack};
use crate::microprocess::record::Mp;

/// The attributes that a kernel thread of the runtime has. Only the thread itself accesses them.
#[derive(Debug)]
pub(crate) struct Applied {
    /// The version of the microprocess whose attributes the thread has.
    pub(crate) version: Cell<u64>,
    pub(crate) values: Cell<Attributes>,
    /// The thread's own signal stack, once a microprocess has replaced it.
    pub(crate) own_signal_stack: Cell<Option<SignalStack>>,
    /// The microprocess whose CPU time is being counted, or null.
    pub(crate) counts_for: Cell<*const Mp>,
    /// Whether [`KernelThread::apply_attributes`] is at work.
    pub(crate) is_changing: Cell<bool>,
}

impl Applied {
    /// Those of a kernel thread of which nothing is known.
    pub(crate) fn new() -> Applied {
        let usual = attributes::usual();
        Applied {
            version: Cell::new(attributes::UNKNOWN),
            // The pool sets the slack of its threads. A thread may have inherited the nice value of
            // the one that started it.
            values: Cell::new(Attributes { nice: kernel_attributes::nice(), ..usual }),
            own_signal_stack: Cell::new(None),
            counts_for: Cell::new(std::ptr::null()),
            is_changing: Cell::new(false),
        }
    }
}
