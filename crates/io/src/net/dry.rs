//! Knowing, without a system call, that the next one would say EAGAIN.

use std::sync::atomic::{AtomicU32, Ordering};

/// One direction of a socket: whether the last attempt emptied (or filled) the kernel's buffer.
///
/// Readiness is edge-triggered, so an edge must never be forgotten. The protocol of an attempt:
///
/// 1. `begin`: a new attempt number, not dry;
/// 2. forget the edges seen so far (`Source::drained`);
/// 3. the system call;
/// 4. if it told us that nothing is left, `end`: dry, *unless another attempt has begun since 1*.
///
/// An edge after 2 is remembered by the source, one before 2 is covered by the system call in 3. Were 2 done after 3, as the
/// name suggests, data that arrive and whose edge another virtual processor collects between the two would be lost. The exception in 4 is for
/// concurrent readers: a later attempt may have swallowed, in its step 2, the edge of data that it left there for us.
///
/// Word: attempt number * 2 + dry. An attempt number comes back after 2^31 attempts during one system call: not in practice.
#[derive(Debug, Default)]
pub(crate) struct Dry(AtomicU32);

impl Dry {
    /// Step 1. AcqRel: steps 2 and 3 stay behind it.
    pub(crate) fn begin(&self) -> u32 {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let next = (now & !1).wrapping_add(2);
            match self.0.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return next,
                Err(seen) => now = seen,
            }
        }
    }

    /// Step 4.
    pub(crate) fn end(&self, attempt: u32) {
        // Failure means a later attempt, which has its own end.
        let _ = self.0.compare_exchange(attempt, attempt | 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(crate) fn is_dry(&self) -> bool {
        self.0.load(Ordering::Acquire) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::Dry;

    #[test]
    fn only_the_latest_attempt_ends_dry() {
        let dry = Dry::default();
        assert!(!dry.is_dry());
        let first = dry.begin();
        let second = dry.begin();
        dry.end(first);
        assert!(!dry.is_dry());
        dry.end(second);
        assert!(dry.is_dry());
        let _ = dry.begin();
        assert!(!dry.is_dry());
    }
}
