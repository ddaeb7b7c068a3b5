//! The direct reader: a kernel thread that runs no microprocess, and owns the service ring.
//!
//! A uring completes what it has armed through the kernel thread that armed it, so no kernel thread
//! that runs microprocesses leaves a request in flight (see [`crate::Uring`]). What neither epoll
//! nor an attempt can express is a read that goes to the disk whatever is in memory (`O_DIRECT`).
//! Such reads go to the direct reader: it submits those that came meanwhile together, sleeps in
//! `io_uring_enter` until some are there, and wakes their callers.
//!
//! Metrics, traces and the name of its kernel thread call it the *anchor*.
//!
//! A read lies on its caller's stack. It is the kernel's until it has its outcome:
//! [`DirectReader::read`] does not return before, however it is left.
//!
//! Source: io_uring_setup(2) (`IORING_SETUP_SINGLE_ISSUER`, `IORING_SETUP_DEFER_TASKRUN`);
//! eventfd(2).

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, types};
use rustix::thread::Timespec;

use crate::op::Outcome;

/// Reads in flight at most; further ones wait for their turn. More than a disk of this decade wants
/// to have queued.
const MAX_IN_FLIGHT: usize = 255;
/// The completion of a wake-up. No read lies at this address.
const WAKE_TOKEN: u64 = 0;
/// No outcome yet: not an error number.
const PENDING: i32 = i32::MIN;

/// The kernel thread, and the way to it.
#[derive(Debug)]
pub struct DirectReader {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Reads that the direct reader has not taken yet, the last one first.
    sent: AtomicPtr<Read<'static>>,
    /// The direct reader sleeps, or looks at `sent` once more before it does. SeqCst with `sent`:
    /// either a sender sees that it sleeps, or it sees what was sent.
    is_sleeping: AtomicBool,
    ending: AtomicBool,
    /// An eventfd.
    wake_fd: OwnedFd,
    /// Where the ring reads it to. In here: it must live as long as the ring.
    wake_count: AtomicU64,
    reads: AtomicU64,
}

/// A read under way, in its caller's frame.
struct Read<'a> {
    file: RawFd,
    into: *mut u8,
    len: u32,
    at: u64,
    /// Written by the caller before it is sent, then the direct reader's.
    next: Cell<*mut Read<'static>>,
    waker: Cell<Option<Waker>>,
    /// The last that the direct reader touches: Release there, Acquire here.
    outcome: AtomicI32,
    _of: PhantomData<(&'a mut [u8], BorrowedFd<'a>)>,
}

impl Read<'_> {
    fn outcome(&self) -> Option<Outcome> {
        let raw = self.outcome.load(Ordering::Acquire);
        (raw != PENDING).then(|| Outcome::of_raw(raw))
    }
}

/// A reader that leaves by a panic waits all the same, with the kernel thread: until then its frame
/// is the kernel's.
struct WaitForOutcome<'a>(&'a Read<'a>);

impl Drop for WaitForOutcome<'_> {
    fn drop(&mut self) {
        while self.0.outcome().is_none() {
            // Not std's, which never ends where signals come faster than the kernel's timer slack
            // (nanosleep(2)).
            let _ = rustix::thread::nanosleep(&Timespec { tv_sec: 0, tv_nsec: 50_000 });
        }
    }
}

impl DirectReader {
    /// Starts the kernel thread.
    ///
    /// # Errors
    /// Of io_uring_setup(2), eventfd(2) and the start of a kernel thread; `Unsupported`: the kernel
    /// lacks reads by io_uring (Linux 5.6).
    pub fn start() -> io::Result<DirectReader> {
        // SAFETY: no pointers.
        let wake_fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if wake_fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        let wake_fd = unsafe { OwnedFd::from_raw_fd(wake_fd) };
        let shared = Arc::new(Shared {
            sent: AtomicPtr::new(null_mut()),
            is_sleeping: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            wake_fd,
            wake_count: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        });
        let (its, (tell, told)) = (shared.clone(), sync_channel(1));
        let thread =
            std::thread::Builder::new().name("kumihimo-anchor".into()).spawn(move || {
                block_signals();
                // Here: with a single issuer the ring belongs to the kernel thread that makes it.
                match open() {
                    Ok(ring) => {
                        let _ = tell.send(Ok(()));
                        drop(tell);
                        serve(ring, &its);
                    }
                    Err(e) => drop(tell.send(Err(e))),
                }
            })?;
        let started = told
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the direct reader thread panicked")));
        match started {
            Ok(()) => Ok(DirectReader { shared, thread: Some(thread) }),
            Err(e) => {
                let _ = thread.join();
                Err(io::Error::new(e.kind(), format!("the direct reader's io_uring: {e}")))
            }
        }
    }

    /// Reads from `file` at the place `at` into `into`, as pread(2): what a regular file gives. May
    /// be short.
    ///
    /// Sends the read, and calls `wait` again and again until it is there: that is to wait until
    /// `waker` is used, or for no reason at all. What that blocks is the caller's affair. No
    /// cancellation: the kernel has the buffer.
    ///
    /// # Errors
    /// As pread(2); `EAGAIN`, `EINTR`, `EOPNOTSUPP`: try it otherwise.
    pub fn read(
        &self,
        file: BorrowedFd<'_>,
        into: &mut [u8],
        at: u64,
        waker: Waker,
        mut wait: impl FnMut(),
    ) -> io::Result<usize> {
        // The kernel touches them when it submits: a page that is slow to come would hold up the
        // reads of others.
        crate::op::write(into);
        let read = Read {
            file: file.as_raw_fd(),
            into: into.as_mut_ptr(),
            // A uring's lengths have 32 bits, and one call moves 2^31 bytes less a page at most.
            len: into.len().min(0x7fff_f000) as u32,
            at,
            next: Cell::new(null_mut()),
            waker: Cell::new(Some(waker)),
            outcome: AtomicI32::new(PENDING),
            _of: PhantomData,
        };
        let stays = WaitForOutcome(&read);
        self.send(NonNull::from(&read).cast());
        loop {
            if let Some(outcome) = stays.0.outcome() {
                return outcome.result();
            }
            wait();
        }
    }

    /// Reads so far.
    pub fn reads(&self) -> u64 {
        self.shared.reads.load(Ordering::Relaxed)
    }

    fn send(&self, read: NonNull<Read<'static>>) {
        let shared = &self.shared;
        let mut first = shared.sent.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's frame, which stays; ours until it is in the list.
            unsafe { read.as_ref() }.next.set(first);
            match shared.sent.compare_exchange_weak(
                first,
                read.as_ptr(),
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
        if shared.is_sleeping.load(Ordering::SeqCst)
            && shared.is_sleeping.swap(false, Ordering::SeqCst)
        {
            shared.ring_bell();
        }
    }
}

impl Drop for DirectReader {
    /// Waits for what is under way.
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        self.shared.ring_bell();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn ring_bell(&self) {
        let one = 1u64;
        // SAFETY: eight live bytes. It cannot fail: the counter never comes near its limit, and is
        // ours.
        unsafe { libc::write(self.wake_fd.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// All that was sent, in the order in which it came.
    fn take(&self, to: &mut VecDeque<NonNull<Read<'static>>>) {
        let (mut read, begin) = (self.sent.swap(null_mut(), Ordering::SeqCst), to.len());
        while let Some(one) = NonNull::new(read) {
            to.push_back(one);
            // SAFETY: sent and without an outcome: its frame stays, and it is the direct reader's.
            read = unsafe { one.as_ref() }.next.get();
        }
        to.make_contiguous()[begin..].reverse();
    }
}

fn block_signals() {
    // SAFETY: all-zero is a valid set, and it is live; the mask is this kernel thread's own.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, null_mut());
    }
}

fn open() -> io::Result<IoUring> {
    let entries = (MAX_IN_FLIGHT + 1) as u32;
    // Linux 6.1. Deferred: completions are worked on when it waits for them, and interrupt nothing.
    let best = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
    let ring = best.or_else(|_| IoUring::new(entries))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if !probe.is_supported(opcode::Read::CODE) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "no reads; Linux 5.6 has them"));
    }
    Ok(ring)
}

fn serve(mut ring: IoUring, shared: &Shared) {
    let (mut waiting, mut flying, mut bell_is_heard) = (VecDeque::new(), 0, false);
    loop {
        shared.take(&mut waiting);
        let mut submission = ring.submission();
        if !bell_is_heard {
            let entry = opcode::Read::new(
                types::Fd(shared.wake_fd.as_raw_fd()),
                shared.wake_count.as_ptr().cast(),
                8,
            );
            // SAFETY: in `shared`, which outlives the ring. There is room: the ring has one entry
            // more than reads may be in flight.
            bell_is_heard =
                unsafe { submission.push(&entry.build().user_data(WAKE_TOKEN)) }.is_ok();
        }
        while flying < MAX_IN_FLIGHT
            && let Some(read) = waiting.pop_front()
        {
            // SAFETY: sent and without an outcome: its frame stays, and what it points to is good
            // until it has one.
            let Read { file, into, len, at, .. } = *unsafe { read.as_ref() };
            let entry = opcode::Read::new(types::Fd(file), into, len).offset(at).build();
            // SAFETY: as above.
            if unsafe {
                submission.push(&entry.user_data(read.as_ptr().expose_provenance() as u64))
            }
            .is_err()
            {
                waiting.push_front(read);
                break;
            }
            flying += 1;
        }
        drop(submission);
        shared.is_sleeping.store(true, Ordering::SeqCst);
        let something_came = !shared.sent.load(Ordering::SeqCst).is_null();
        // Whatever it says is tried again: reads that were sent have to end. `EBUSY`: completions
        // first, which come next. `EINTR`: signals are blocked, but a debugger stops it. `EAGAIN`,
        // `ENOMEM`: no memory at the moment.
        if let Err(e) = ring.submit_and_wait(usize::from(!something_came))
            && matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM))
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        shared.is_sleeping.store(false, Ordering::SeqCst);
        for completion in ring.completion() {
            if completion.user_data() == WAKE_TOKEN {
                bell_is_heard = false;
                continue;
            }
            flying -= 1;
            shared.reads.fetch_add(1, Ordering::Relaxed);
            let read =
                std::ptr::with_exposed_provenance::<Read<'_>>(completion.user_data() as usize);
            // SAFETY: as above; from the outcome on it is the caller's again, and may be gone.
            let waker = unsafe {
                let waker = (*read).waker.take();
                (*read).outcome.store(completion.result(), Ordering::Release);
                waker
            };
            waker.into_iter().for_each(Waker::wake);
        }
        // The bell was heard for the last time: nothing is in flight, and nobody sends.
        if shared.ending.load(Ordering::SeqCst)
            && !bell_is_heard
            && flying == 0
            && waiting.is_empty()
        {
            return;
        }
    }
}

// SAFETY: the list's reads are in frames that stay until they have an outcome; all else is shared
// by design.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::task::Wake;
    use std::thread::Thread;

    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Unpark>) {
            self.0.unpark();
        }
    }

    fn reader() -> Option<DirectReader> {
        DirectReader::start().map_err(|e| eprintln!("\n[skip] anchor: {e}")).ok()
    }

    fn me() -> Waker {
        Arc::new(Unpark(std::thread::current())).into()
    }

    /// A file of which each 8 bytes are their place.
    fn numbered(bytes: u64) -> File {
        let name =
            format!("kumihimo-anchor-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name);
        let file =
            File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        std::fs::remove_file(path).expect("it is there");
        let content: Vec<u8> = (0..bytes / 8).flat_map(|n| (n * 8).to_ne_bytes()).collect();
        file.write_all_at(&content, 0).expect("room");
        file
    }

    #[test]
    fn many_read_what_is_there() {
        const THREADS: u64 = 20;
        const EACH: u64 = 2_000;
        let Some(reader) = reader() else { return };
        let (file, begin) = (numbered(1 << 20), Barrier::new(THREADS as usize));
        std::thread::scope(|s| {
            for thread in 0..THREADS {
                let (reader, file, begin) = (&reader, &file, &begin);
                s.spawn(move || {
                    begin.wait();
                    for n in 0..EACH {
                        let at = (thread * 7919 + n * 4099) % (1 << 17) * 8;
                        let mut number = [0; 8];
                        let read =
                            reader.read(file.as_fd(), &mut number, at, me(), std::thread::park);
                        assert_eq!((read.expect("readable"), u64::from_ne_bytes(number)), (8, at));
                    }
                });
            }
        });
        assert_eq!(reader.reads(), THREADS * EACH);
    }

    #[test]
    fn ends_and_errors_are_those_of_pread() {
        let Some(reader) = reader() else { return };
        let file = numbered(4096);
        let mut buffer = [0; 100];
        let mut read =
            |fd: BorrowedFd<'_>, at| reader.read(fd, &mut buffer, at, me(), std::thread::park);
        assert_eq!(read(file.as_fd(), 4090).expect("short"), 6);
        assert_eq!(read(file.as_fd(), 4096).expect("the end"), 0);
        let unreadable = File::options().write(true).open("/dev/null").expect("there");
        let error = read(unreadable.as_fd(), 0).expect_err("not open for reading");
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        let folder = File::open("/").expect("there");
        assert_eq!(
            read(folder.as_fd(), 0).expect_err("a folder").raw_os_error(),
            Some(libc::EISDIR)
        );
    }

    /// The read is over before the frame is left: the buffer has what was read.
    #[test]
    fn panicking_reader_stays_until_the_read_is_over() {
        let Some(reader) = reader() else { return };
        let file = numbered(1 << 16);
        for n in 0..500 {
            let mut buffer = [0; 8];
            let panics = AssertUnwindSafe(|| {
                let _ = reader.read(file.as_fd(), &mut buffer, 800, me(), || {
                    std::panic::resume_unwind(Box::new(n))
                });
            });
            // It may have been there before anybody waited.
            let _ = catch_unwind(panics);
            assert_eq!(u64::from_ne_bytes(buffer), 800);
        }
        assert_eq!(reader.reads(), 500);
    }

    #[test]
    fn an_end_waits_for_what_is_under_way() {
        for _ in 0..50 {
            let Some(reader) = reader() else { return };
            let file = numbered(1 << 12);
            let mut number = [0; 8];
            reader.read(file.as_fd(), &mut number, 8, me(), std::thread::park).expect("readable");
            drop(reader);
        }
    }
}
