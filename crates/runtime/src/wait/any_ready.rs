//! The wait for one of several descriptors, as of poll(2) and select(2).

use std::io;
use std::time::Instant;

use crate::idle::descriptor_entry::DescriptorEntry;
use crate::kernel_thread::no_events::lock;
use crate::microprocess::wait_reason::Wait;
use crate::microprocess::waiter::Waiter;
use crate::wait::readiness::{Interest, Seen, Source};
use crate::wait::{cancel, interrupt, park};

/// One descriptor of a wait: its source, the direction, and the edges that were known before it was
/// found not to be ready.
pub type Awaited<'a> = (&'a Source, Interest, Seen);

/// Blocks the microprocess until one of the descriptors has an edge after the one that is known.
/// May return spuriously. A cancellation point.
///
/// # Errors
/// `TimedOut` at the deadline; `Unsupported` on a kernel thread outside of the runtime; the error
/// of epoll_ctl(2) if a descriptor cannot be registered.
pub fn wait_any(all: &[Awaited<'_>], deadline: Option<Instant>) -> io::Result<()> {
    let mut entries = Vec::with_capacity(all.len());
    for &(source, interest, seen) in all {
        let entry = source.register()?.ok_or(io::ErrorKind::Unsupported)?;
        entries.push((entry, interest, seen));
    }
    let me = park::current();
    let is_ready = |(entry, interest, seen): &(&'static DescriptorEntry, Interest, Seen)| {
        entry.edges(*interest) != seen.0
    };
    loop {
        // Enrolled first and asked afterwards: an edge in between wakes the caller.
        for (entry, interest, _) in &entries {
            lock(&entry.waiters).enrol(*interest, &me);
        }
        // A cancellation leaves one permit, which an earlier wait of the caller may have taken.
        if !entries.iter().any(is_ready) && !cancel::would_unwind() {
            park::park(Wait::Descriptors, deadline);
        }
        let is_over = entries.iter().any(is_ready) || cancel::would_unwind() || interrupt::is_due();
        if is_over || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            strike_all(&entries, &me);
            cancel::point();
            return if is_over { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) };
        }
    }
}

fn strike_all(entries: &[(&'static DescriptorEntry, Interest, Seen)], me: &Waiter) {
    for (entry, interest, _) in entries {
        lock(&entry.waiters).strike(*interest, me);
    }
}
