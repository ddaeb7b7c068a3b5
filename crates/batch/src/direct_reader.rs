//! Direct reader: a kernel thread that runs no microprocess, and owns the ring for direct reads.
//!
//! A uring completes an armed request through the kernel thread that armed it. So a kernel thread
//! that runs microprocesses leaves no request in flight (see [`crate::Uring`]). Reads that always
//! go to the disk (`O_DIRECT`) cannot be expressed by epoll or by a non-blocking attempt. Such
//! reads go to the direct reader. It submits all reads that have arrived together, sleeps in
//! `io_uring_enter` until some are complete, and wakes their callers.
//!
//! Metrics, traces and the name of its kernel thread call it the *anchor*.
//!
//! A read is stored on its caller's stack, and the kernel may access it until it has an outcome.
//! [`DirectReader::read`] does not return before that, even by a panic.
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
use kumihimo_arch::signal_mask;
use rustix::thread::Timespec;

use crate::op::Outcome;

/// The maximum number of reads in flight; further reads wait. A larger number would exceed the
/// queue of current disks.
const MAX_IN_FLIGHT: usize = 255;
/// The user data of a wake-up's completion. No read has this address.
const WAKE_TOKEN: u64 = 0;
/// No outcome yet. Not an error number.
const PENDING: i32 = i32::MIN;

/// A handle of the direct reader's kernel thread. Drop ends the thread.
#[derive(Debug)]
pub struct DirectReader {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Reads that the direct reader has not taken yet, latest first.
    sent: AtomicPtr<Read<'static>>,
    /// Whether the direct reader sleeps, or checks `sent` once more before it sleeps. SeqCst
    /// together with `sent`: either a sender sees that the direct reader sleeps, or the direct
    /// reader sees the sent read.
    is_sleeping: AtomicBool,
    ending: AtomicBool,
    /// An eventfd.
    wake_fd: OwnedFd,
    /// The buffer for reads of `wake_fd`. A field, because it must live as long as the ring.
    wake_count: AtomicU64,
    reads: AtomicU64,
}

/// A read in progress, stored in its caller's frame.
struct Read<'a> {
    file: RawFd,
    into: *mut u8,
    len: u32,
    at: u64,
    /// Written by the caller before the read is sent. Afterwards it belongs to the direct reader.
    next: Cell<*mut Read<'static>>,
    waker: Cell<Option<Waker>>,
    /// The last field that the direct reader accesses: Release there, Acquire here.
    outcome: AtomicI32,
    _of: PhantomData<(&'a mut [u8], BorrowedFd<'a>)>,
}

impl Read<'_> {
    fn outcome(&self) -> Option<Outcome> {
        let raw = self.outcome.load(Ordering::Acquire);
        (raw != PENDING).then(|| Outcome::of_raw(raw))
    }
}

/// Waits for the outcome when the caller's frame is unwound by a panic: until then the kernel may
/// write to the caller's buffer. Blocks the kernel thread.
struct WaitForOutcome<'a>(&'a Read<'a>);

impl Drop for WaitForOutcome<'_> {
    fn drop(&mut self) {
        while self.0.outcome().is_none() {
            // Not `std::thread::sleep`: it restarts after each signal, and never ends if signals
            // arrive faster than the kernel's timer slack (nanosleep(2)).
            let _ = rustix::thread::nanosleep(&Timespec { tv_sec: 0, tv_nsec: 50_000 });
        }
    }
}

impl DirectReader {
    /// Starts the kernel thread.
    ///
    /// # Errors
    /// Those of io_uring_setup(2), eventfd(2) and the start of a kernel thread. `Unsupported` if
    /// the kernel lacks reads by io_uring (Linux 5.6).
    pub fn start() -> io::Result<DirectReader> {
        // SAFETY: integers only.
        let wake_fd = unsafe { kumihimo_arch::kernel::eventfd(0, libc::EFD_CLOEXEC) };
        if wake_fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor without another owner.
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
        let builder = std::thread::Builder::new().name("kumihimo-anchor".into());
        let thread = signal_mask::spawn_blocked(builder, move || {
            // Opened on this thread: a ring with a single issuer belongs to the kernel thread that
            // creates it.
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

    /// Reads from `file` at offset `at` into `into`, as pread(2) does on a regular file. May return
    /// fewer bytes than requested.
    ///
    /// Sends the read, and calls `wait` repeatedly until it is complete. `wait` returns when
    /// `waker` was used, or spuriously; it determines what is blocked. A read cannot be cancelled,
    /// since the kernel has the buffer.
    ///
    /// # Errors
    /// Those of pread(2). After `EAGAIN`, `EINTR` or `EOPNOTSUPP`, the caller should read in
    /// another way.
    pub fn read(
        &self,
        file: BorrowedFd<'_>,
        into: &mut [u8],
        at: u64,
        waker: Waker,
        mut wait: impl FnMut(),
    ) -> io::Result<usize> {
        // Fault the buffer's pages in here. The kernel accesses them on submission, and a slow page
        // fault would delay the reads of other callers.
        crate::op::write(into);
        let read = Read {
            file: file.as_raw_fd(),
            into: into.as_mut_ptr(),
            // A uring's lengths have 32 bits, and one call moves at most 2^31 bytes less a page.
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

    /// Returns the number of reads so far.
    pub fn reads(&self) -> u64 {
        self.shared.reads.load(Ordering::Relaxed)
    }

    fn send(&self, read: NonNull<Read<'static>>) {
        let shared = &self.shared;
        let mut first = shared.sent.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller's frame stays alive; the read belongs to this thread until it is
            // in the list.
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
    /// Ends the kernel thread after the reads in progress. Blocks until then.
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
        // SAFETY: eight live bytes. Cannot fail: the counter never comes near its limit.
        unsafe {
            kumihimo_arch::kernel::write(self.wake_fd.as_raw_fd(), (&raw const one).cast(), 8)
        };
    }

    /// Takes all sent reads, in the order of arrival.
    fn take(&self, to: &mut VecDeque<NonNull<Read<'static>>>) {
        let (mut read, begin) = (self.sent.swap(null_mut(), Ordering::SeqCst), to.len());
        while let Some(one) = NonNull::new(read) {
            to.push_back(one);
            // SAFETY: the read was sent and has no outcome: its frame stays alive, and it belongs
            // to the direct reader.
            read = unsafe { one.as_ref() }.next.get();
        }
        to.make_contiguous()[begin..].reverse();
    }
}

fn open() -> io::Result<IoUring> {
    let entries = (MAX_IN_FLIGHT + 1) as u32;
    // Linux 6.1. Deferred task work: completions are processed when the thread waits for them, and
    // interrupt nothing.
    let best = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
    let ring = best.or_else(|_| IoUring::new(entries))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if !probe.is_supported(opcode::Read::CODE) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel lacks reads by io_uring; Linux 5.6 has them",
        ));
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
            // SAFETY: the buffer is in `shared`, which outlives the ring. There is room: the ring
            // has one entry more than reads may be in flight.
            bell_is_heard =
                unsafe { submission.push(&entry.build().user_data(WAKE_TOKEN)) }.is_ok();
        }
        while flying < MAX_IN_FLIGHT
            && let Some(read) = waiting.pop_front()
        {
            // SAFETY: the read was sent and has no outcome: its frame stays alive, and its pointers
            // are valid until it has one.
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
        // Every error is retried, since the sent reads must end. `EBUSY`: completions must be
        // processed first, which follows. `EINTR`: signals are blocked, but a debugger may stop the
        // thread. `EAGAIN`, `ENOMEM`: no memory at the moment.
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
            // SAFETY: as above. From the store of the outcome on, the read belongs to the caller
            // again and may be gone.
            let waker = unsafe {
                let waker = (*read).waker.take();
                (*read).outcome.store(completion.result(), Ordering::Release);
                waker
            };
            waker.into_iter().for_each(Waker::wake);
        }
        // The last wake-up has been processed: nothing is in flight, and no caller sends.
        if shared.ending.load(Ordering::SeqCst)
            && !bell_is_heard
            && flying == 0
            && waiting.is_empty()
        {
            return;
        }
    }
}

// SAFETY: the reads in the list are in frames that stay alive until they have an outcome; the other
// fields are shared by design.
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

    /// Creates a file in which each 8 bytes contain their own offset.
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
    fn concurrent_reads_return_the_contents_of_the_file() {
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
    fn ends_and_errors_equal_those_of_pread() {
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

    /// The read is complete before the frame is left: the buffer contains the bytes read.
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
            // The read may be complete before the first wait, so that nothing panics.
            let _ = catch_unwind(panics);
            assert_eq!(u64::from_ne_bytes(buffer), 800);
        }
        assert_eq!(reader.reads(), 500);
    }

    #[test]
    fn drop_waits_for_reads_in_progress() {
        for _ in 0..50 {
            let Some(reader) = reader() else { return };
            let file = numbered(1 << 12);
            let mut number = [0; 8];
            reader.read(file.as_fd(), &mut number, 8, me(), std::thread::park).expect("readable");
            drop(reader);
        }
    }
}
