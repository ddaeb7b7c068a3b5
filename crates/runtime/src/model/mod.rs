//! The crate's modules in a build for loom models.
//!
//! Protocols are the real files. What they call in rooms that need system calls or a stack switch
//! has a stand-in here under the same path, so that the real files need no conditions.

pub mod epoll_set;
#[cfg(test)]
mod machine;
pub(crate) mod poller;
#[cfg(test)]
mod tests {
    mod loom;
}
mod waiting;

pub(crate) use waiting::waiter;

pub(crate) mod kernel_thread {
    pub(crate) mod no_events {
        use ::loom::sync::{Mutex, MutexGuard};

        /// As the real one. Nothing takes a VP from a holder in the models of this room.
        pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
            mutex.lock().unwrap()
        }
    }
}

pub(crate) mod memory {
    pub(crate) mod stack_trim {
        pub(crate) fn is_due() -> bool {
            false
        }

        pub(crate) fn give_stack_back() {}
    }
}

#[path = "../idle"]
pub(crate) mod idle {
    pub(crate) use crate::model::poller;

    pub(crate) mod descriptor_entry;
    pub mod future_wakers;
    pub(crate) mod interest;
    pub(crate) mod sleep;
    pub(crate) mod timer;
}

#[path = "../wait"]
pub(crate) mod wait {
    pub(crate) use crate::model::epoll_set as foreign_poll;
    pub(crate) use crate::model::waiting::{cancel, interrupt, park};

    pub mod readiness;
}
