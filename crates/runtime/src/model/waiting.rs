//! Park and wake between loom's threads: each thread is a microprocess that never migrates.

pub(crate) mod waiter {
    use ::loom::sync::{Arc, Condvar, Mutex};

    #[derive(Debug)]
    struct Parker {
        permit: Mutex<bool>,
        woken: Condvar,
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Waiter(Arc<Parker>);

    impl PartialEq for Waiter {
        fn eq(&self, other: &Waiter) -> bool {
            Arc::ptr_eq(&self.0, &other.0)
        }
    }

    impl Waiter {
        pub(crate) fn new() -> Waiter {
            Waiter(Arc::new(Parker { permit: Mutex::new(false), woken: Condvar::new() }))
        }

        pub(crate) fn wake(&self) {
            *self.0.permit.lock().unwrap() = true;
            self.0.woken.notify_one();
        }

        pub(crate) fn park(&self) {
            let mut permit = self.0.permit.lock().unwrap();
            while !*permit {
                permit = self.0.woken.wait(permit).unwrap();
            }
            *permit = false;
        }
    }
}

pub(crate) mod park {
    use std::time::Instant;

    use super::waiter::Waiter;
    use crate::microprocess::wait_reason::Wait;

    ::loom::thread_local! {
        static ME: Waiter = Waiter::new();
    }

    pub(crate) fn current() -> Waiter {
        ME.with(Clone::clone)
    }

    pub(crate) fn on_vp() -> bool {
        true
    }

    /// # Panics
    /// With a deadline, which no model has.
    pub(crate) fn park(_why: Wait, deadline: Option<Instant>) {
        assert!(deadline.is_none());
        ME.with(Waiter::park);
    }
}

pub(crate) mod interrupt {
    pub(crate) fn is_due() -> bool {
        false
    }
}

pub(crate) mod cancel {
    pub(crate) fn would_unwind() -> bool {
        false
    }

    pub(crate) fn point() {}
}
