//! Kernel threads the overflow of whose own stacks is reported.
//!
//! std reports the overflows of its threads only in a program whose `main` is Rust's. Elsewhere, as
//! in a C program that uses a library, a thread of std has no alternate signal stack, and an
//! overflow ends in a bare SIGSEGV.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use super::{AltStack, alt_stack_for_this_thread};

/// Bytes of a thread's name, as in the kernel.
const NAME: usize = 15;

/// A watched stack. Entries are reused, never freed.
#[derive(Debug)]
pub(super) struct Entry {
    is_taken: AtomicBool,
    /// The guard; its end is the lowest address of the stack. An end of 0: none.
    guard_start: AtomicUsize,
    guard_end: AtomicUsize,
    stack_end: AtomicUsize,
    name: [AtomicU8; NAME],
    next: AtomicPtr<Entry>,
}

static FIRST: AtomicPtr<Entry> = AtomicPtr::new(std::ptr::null_mut());

fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: null or a leaked box, published with Release after initialisation.
    let at = |link: &AtomicPtr<Entry>| unsafe { link.load(Ordering::Acquire).as_ref() };
    std::iter::successors(at(&FIRST), move |entry| at(&entry.next))
}

impl Entry {
    /// Returns a free entry, or a new one.
    fn take() -> &'static Entry {
        let is_free = |entry: &&Entry| !entry.is_taken.swap(true, Ordering::AcqRel);
        entries().find(is_free).unwrap_or_else(|| {
            let new: &'static Entry = Box::leak(Box::new(Entry {
                is_taken: AtomicBool::new(true),
                guard_start: AtomicUsize::new(0),
                guard_end: AtomicUsize::new(0),
                stack_end: AtomicUsize::new(0),
                name: [const { AtomicU8::new(0) }; NAME],
                next: AtomicPtr::new(std::ptr::null_mut()),
            }));
            let mut first = FIRST.load(Ordering::Acquire);
            loop {
                new.next.store(first, Ordering::Relaxed);
                let to = std::ptr::from_ref(new).cast_mut();
                match FIRST.compare_exchange(first, to, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => return new,
                    Err(other) => first = other,
                }
            }
        })
    }

    pub(super) fn guard(&self) -> Range<usize> {
        self.guard_start.load(Ordering::Relaxed)..self.guard_end.load(Ordering::Acquire)
    }

    /// Returns the size of the stack in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.stack_end.load(Ordering::Relaxed) - self.guard().end
    }

    /// Returns the name and its length.
    pub(super) fn name(&self) -> ([u8; NAME], usize) {
        let name = std::array::from_fn(|i| self.name[i].load(Ordering::Relaxed));
        (name, name.iter().position(|byte| *byte == 0).unwrap_or(NAME))
    }
}

/// Returns the entry in whose guard `at` lies, if `stack_pointer` belongs to that stack.
/// Async-signal-safe.
pub(super) fn find(at: usize, stack_pointer: usize) -> Option<&'static Entry> {
    entries().find(|entry| {
        let guard = entry.guard();
        guard.contains(&at)
            && stack_pointer < entry.stack_end.load(Ordering::Relaxed)
            && stack_pointer + (1 << 20) > guard.start
    })
}

/// Reports an overflow of the calling kernel thread's own stack until it is dropped. It is not
/// `Send`: it belongs to that thread.
#[derive(Debug)]
pub struct KernelThreadWatch {
    watched: Option<(&'static Entry, AltStack)>,
}

/// Watches the calling kernel thread's own stack. Does nothing if the thread has an alternate
/// signal stack already: std or the program handles its overflows.
///
/// # Errors
/// Returns an error if memory is short, or the stack's bounds are unknown.
pub fn watch_this_kernel_thread(name: &str) -> io::Result<KernelThreadWatch> {
    let (guard, stack_end) = bounds()?;
    // SAFETY: a struct of integers and a pointer; the call only writes it.
    let has_alternate_stack = unsafe {
        let mut now: libc::stack_t = std::mem::zeroed();
        libc::sigaltstack(std::ptr::null(), &mut now) == 0 && now.ss_flags & libc::SS_DISABLE == 0
    };
    if has_alternate_stack {
        return Ok(KernelThreadWatch { watched: None });
    }
    let alternate = alt_stack_for_this_thread()?;
    let entry = Entry::take();
    let mut end = name.len().min(NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    for (i, to) in entry.name.iter().enumerate() {
        to.store(*name.as_bytes()[..end].get(i).unwrap_or(&0), Ordering::Relaxed);
    }
    entry.guard_start.store(guard.start, Ordering::Relaxed);
    entry.stack_end.store(stack_end, Ordering::Relaxed);
    // Last: a reader that sees the end sees the rest.
    entry.guard_end.store(guard.end, Ordering::Release);
    Ok(KernelThreadWatch { watched: Some((entry, alternate)) })
}

/// Returns the guard of the calling thread's stack and the end of the stack.
fn bounds() -> io::Result<(Range<usize>, usize)> {
    let checked = |error: libc::c_int| match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    };
    // SAFETY: the attributes are initialised by the first call, and destroyed afterwards.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        checked(libc::pthread_getattr_np(libc::pthread_self(), &mut attributes))?;
        let (mut lowest, mut bytes, mut guard) = (std::ptr::null_mut(), 0, 0);
        let stack = libc::pthread_attr_getstack(&attributes, &mut lowest, &mut bytes);
        let size = libc::pthread_attr_getguardsize(&attributes, &mut guard);
        libc::pthread_attr_destroy(&mut attributes);
        checked(stack)?;
        checked(size)?;
        let lowest = lowest.addr();
        Ok((lowest - guard.max(crate::stack::page_size())..lowest, lowest + bytes))
    }
}

impl Drop for KernelThreadWatch {
    fn drop(&mut self) {
        if let Some((entry, _)) = &self.watched {
            entry.guard_end.store(0, Ordering::Relaxed);
            entry.is_taken.store(false, Ordering::Release);
        }
    }
}
