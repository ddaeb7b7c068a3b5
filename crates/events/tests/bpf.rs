//! Events by BPF, in the running kernel: with a program loaded here, and with a seat, as nobody.
#![cfg(not(loom))]

use std::cell::Cell;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::thread;

use kumihimo_events::Refused;
use kumihimo_events::bpf::pinned::Store;
use kumihimo_events::bpf::{Bpf, Header, LENT, MAGIC, SIG_DATA, SLOT_SIZE, VERSION, WANTS_BLOCKED, WANTS_UNBLOCKED};

const NOBODY: u32 = 65534;
/// VP 6.
const TOKEN: u64 = 7 << 2;

thread_local! {
    static TRAPS: Cell<u64> = const { Cell::new(0) };
}
static STRANGE: AtomicU64 = AtomicU64::new(0);

extern "C" fn trapped(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's siginfo; for SIGTRAP by perf si_perf_data is the u64 at offset 24.
    let (code, data) = unsafe { ((*info).si_code, info.cast::<u64>().add(3).read()) };
    if code == 6 && data == SIG_DATA {
        TRAPS.set(TRAPS.get() + 1);
    } else {
        STRANGE.fetch_add(1, Ordering::Relaxed);
    }
}

fn handle_traps() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zero is a valid sigaction; the handler touches a const-initialised thread-local and an atomic only.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = trapped as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            assert_eq!(libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut()), 0);
        }
    });
}

/// A slot by word.
#[derive(Clone, Copy)]
struct Slot(*mut u8);

// SAFETY: the slots outlive the threads of each test (scoped threads), all accesses are atomic.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    fn of(bpf: &Bpf, number: u32) -> Slot {
        let (start, length) = bpf.memory();
        let at = number as usize * SLOT_SIZE;
        assert!(at + SLOT_SIZE <= length);
        // SAFETY: inside the memory, just asserted.
        Slot(unsafe { start.add(at) })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < SLOT_SIZE);
        // SAFETY: aligned, inside the slot, which outlives this (see Send).
        unsafe { &*self.0.add(at).cast() }
    }

    fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at < SLOT_SIZE);
        // SAFETY: as above.
        unsafe { &*self.0.add(at).cast() }
    }

    fn vp(&self) -> &AtomicU64 {
        self.word(8)
    }

    fn masked(&self) -> &AtomicU32 {
        self.half(16)
    }

    fn blocked(&self) -> u64 {
        self.word(48).load(Ordering::Acquire)
    }

    fn traps(&self) -> u64 {
        self.word(56).load(Ordering::Acquire)
    }

    fn missed(&self) -> u64 {
        self.word(64).load(Ordering::Acquire)
    }

    fn wait_until_lent(&self) {
        while self.vp().load(Ordering::Acquire) & LENT == 0 {
            thread::yield_now();
        }
    }
}

/// Says why a test does not run here; scripts/lib.sh counts the line.
fn skip(test: &str, why: &str) {
    println!("[skip] {test}: {why}");
}

fn root() -> bool {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// A loaded object, or why there is none. As root on a kernel that is new enough it must load.
fn loaded(test: &str, slots: u32) -> Option<Bpf> {
    handle_traps();
    match Bpf::load(slots) {
        Ok(bpf) => Some(bpf),
        Err(refused) => {
            skip(test, &refused.to_string());
            assert!(
                !root() || std::env::var_os("KUMI_NO_BPF").is_some(),
                "root cannot load (KUMI_NO_BPF=1 if so be it): {refused}"
            );
            None
        }
    }
}

fn pipe() -> (io::PipeReader, io::PipeWriter) {
    io::pipe().expect("a pipe")
}

fn eventfd() -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: takes integers; the result is a new descriptor.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}

fn add(epoll: &OwnedFd, fd: BorrowedFd<'_>, flags: u32, data: u64) {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32 | flags, u64: data };
    // SAFETY: `event` lives through the call.
    let done = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event) };
    assert_eq!(done, 0);
}

/// An epoll with one descriptor in it, as 0.
fn epoll_of(fd: BorrowedFd<'_>, flags: u32) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: takes an integer; the result is a new descriptor.
    let epoll = unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        assert!(epoll >= 0);
        OwnedFd::from_raw_fd(epoll)
    };
    add(&epoll, fd, flags, 0);
    epoll
}

fn nanosleep(ns: i64) -> i32 {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ns };
    // SAFETY: `time` lives through the call.
    unsafe { libc::nanosleep(&time, ptr::null_mut()) }
}

/// How often the calling kernel thread has gone to sleep, by the kernel's own count.
fn sleeps() -> i64 {
    // SAFETY: all zero is a valid rusage, and it lives through the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage.ru_nvcsw
    }
}

/// Sleeps until it really did, as the owner of `slot`. On a busy core the timer often expires before the thread is off it;
/// then nothing is told, rightly. Each sleep that the kernel counts must be told.
fn sleep_until_lent(slot: Slot, ns: i64) {
    loop {
        let before = sleeps();
        assert_eq!(nanosleep(ns), 0);
        if slot.vp().load(Ordering::Acquire) & LENT != 0 {
            return;
        }
        assert_eq!(sleeps(), before, "it slept, and nothing was told");
    }
}

fn write_all_at_once(fd: impl AsFd, bytes: &[u8]) -> isize {
    // SAFETY: the buffer's length is told. One call: a short write must be seen.
    unsafe { libc::write(fd.as_fd().as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) }
}

fn read_once(fd: impl AsFd, bytes: &mut [u8]) -> isize {
    // SAFETY: as above.
    unsafe { libc::read(fd.as_fd().as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) }
}

/// What is ready; None: the call failed.
fn wait_once(epoll: &OwnedFd) -> Option<u64> {
    let mut event = libc::epoll_event { events: 0, u64: u64::MAX };
    // SAFETY: room for one event.
    let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, -1) };
    (count == 1).then_some(event.u64)
}

/// `rounds` of one call that blocks, by a thread in slot 3, unmasked, with a VP each time; `partner` ends the call when it
/// is told so (once for each round). Every round: VP lent, one record, one trap.
fn sleeps_are_told(bpf: &Bpf, rounds: u64, mut call: impl FnMut() + Send, mut partner: impl FnMut() + Send) {
    let slot = Slot::of(bpf, 3);
    let before = (slot.blocked(), slot.traps());
    let round = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            slot.masked().store(1, Ordering::Relaxed);
            slot.half(20).store(WANTS_BLOCKED | WANTS_UNBLOCKED, Ordering::Relaxed);
            let attached = bpf.attach(3).expect("attached");
            let start = TRAPS.get();
            for n in 1..=rounds {
                slot.vp().store(TOKEN, Ordering::Relaxed);
                round.store(n, Ordering::Release);
                slot.masked().store(0, Ordering::Release);
                call();
                slot.masked().store(1, Ordering::Release);
                assert_eq!(slot.vp().load(Ordering::Acquire), TOKEN | LENT, "round {n}");
                assert_eq!(TRAPS.get() - start, if bpf.traps() { n } else { 0 }, "traps after round {n}");
                let mut records = 0;
                bpf.drain(|which, vp| {
                    assert_eq!((which, vp), (3, 6));
                    records += 1;
                });
                assert_eq!(records, 1, "round {n}");
            }
            over.store(true, Ordering::Release);
            drop(attached);
        });
        scope.spawn(|| {
            for n in 1..=rounds {
                while round.load(Ordering::Acquire) < n {
                    thread::yield_now();
                }
                slot.wait_until_lent();
                partner();
            }
        });
    });
    assert!(over.load(Ordering::Acquire));
    assert_eq!((slot.blocked() - before.0, slot.traps() - before.1), (rounds, rounds));
    assert_eq!(slot.missed(), 0);
}

/// All four kinds of blocking call: none fails, none is short.
fn every_kind_of_sleep(bpf: &Bpf, rounds: u64) {
    sleeps_are_told(bpf, rounds, || sleep_until_lent(Slot::of(bpf, 3), 1_000), || ());

    let (reader, mut writer) = pipe();
    let read = || {
        let mut byte = [0];
        assert_eq!(read_once(&reader, &mut byte), 1, "{}", io::Error::last_os_error());
    };
    sleeps_are_told(bpf, rounds, read, || writer.write_all(&[1]).expect("written"));

    let event = eventfd();
    let epoll = epoll_of(event.as_fd(), 0);
    let wait = || {
        assert_eq!(wait_once(&epoll), Some(0), "{}", io::Error::last_os_error());
        assert_eq!(read_once(&event, &mut [0; 8]), 8);
    };
    sleeps_are_told(bpf, rounds, wait, || assert_eq!(write_all_at_once(&event, &1u64.to_ne_bytes()), 8));

    let (mut reader, writer) = pipe();
    let (from, mut to) = (vec![1; 1 << 20], vec![0; 1 << 20]);
    let write = || assert_eq!(write_all_at_once(&writer, &from), 1 << 20, "{}", io::Error::last_os_error());
    sleeps_are_told(bpf, rounds, write, || reader.read_exact(&mut to).expect("a megabyte"));
}

#[test]
fn the_header_says_what_is_mapped() {
    let Some(bpf) = loaded("the_header_says_what_is_mapped", 10) else { return };
    let (start, length) = bpf.memory();
    assert_eq!(length, 11 * SLOT_SIZE);
    // SAFETY: the header is at the start, and nobody writes to it now.
    let header = unsafe { start.cast::<Header>().read() };
    assert_eq!(header, Header { magic: MAGIC, version: VERSION, slot_size: SLOT_SIZE as u32, slots: 10, seat: 0 });
    assert!(!bpf.is_pinned());
    for wrong in [0, 11] {
        assert_eq!(bpf.attach(wrong).expect_err("no such slot").kind(), io::ErrorKind::InvalidInput);
    }
    assert!(Bpf::load(0).is_err());
}

#[test]
fn every_sleep_lends_the_vp_is_recorded_and_traps_once_without_eintr() {
    let Some(bpf) = loaded("every_sleep_lends_the_vp_is_recorded_and_traps_once_without_eintr", 8) else { return };
    every_kind_of_sleep(&bpf, 2_000);
    assert_eq!(STRANGE.load(Ordering::Relaxed), 0);
}

#[test]
fn masked_or_without_a_vp_or_unwanted_nothing_is_told() {
    let Some(bpf) = loaded("masked_or_without_a_vp_or_unwanted_nothing_is_told", 1) else { return };
    let slot = Slot::of(&bpf, 1);
    let both = WANTS_BLOCKED | WANTS_UNBLOCKED;
    // masked, vp, wanted
    let quiet = [(1, TOKEN, both), (u32::MAX, TOKEN, both), (0, 0, both), (0, 3, both), (0, TOKEN | 1, both)];
    let quiet = quiet.into_iter().chain([(0, TOKEN | LENT, both), (0, TOKEN, 0), (0, TOKEN, WANTS_UNBLOCKED)]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _attached = bpf.attach(1).expect("attached");
            let start = TRAPS.get();
            for (masked, vp, wanted) in quiet {
                slot.masked().store(masked, Ordering::Relaxed);
                slot.half(20).store(wanted, Ordering::Relaxed);
                slot.vp().store(vp, Ordering::Relaxed);
                for _ in 0..200 {
                    assert_eq!(nanosleep(1_000), 0);
                }
                assert_eq!(slot.vp().load(Ordering::Relaxed), vp);
            }
            assert_eq!((slot.blocked(), slot.traps(), slot.missed(), TRAPS.get() - start), (0, 0, 0, 0));
            // Blocked alone: lent, no trap.
            slot.half(20).store(WANTS_BLOCKED, Ordering::Relaxed);
            slot.vp().store(TOKEN, Ordering::Relaxed);
            sleep_until_lent(slot, 1_000);
            assert_eq!(slot.vp().load(Ordering::Relaxed), TOKEN | LENT);
            assert_eq!((slot.blocked(), slot.traps(), TRAPS.get() - start), (1, 0, 0));
        });
    });
    let mut records = Vec::new();
    bpf.drain(|slot, vp| records.push((slot, vp)));
    assert_eq!(records, [(1, 6)]);
}

/// Closing a link takes the filter off before the event is gone: what may come of it is a trap that is ours and means nothing.
#[test]
fn attaching_and_detaching_traps_only_as_ours() {
    let Some(bpf) = loaded("attaching_and_detaching_traps_only_as_ours", 1) else { return };
    let slot = Slot::of(&bpf, 1);
    slot.masked().store(1, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = TRAPS.get();
            for _ in 0..2_000 {
                let attached = bpf.attach(1).expect("attached");
                assert_eq!(nanosleep(1_000), 0);
                thread::yield_now();
                drop(attached);
                thread::yield_now();
            }
            println!("{} traps by closing 2,000 links", TRAPS.get() - start);
            assert_eq!((slot.blocked(), slot.traps()), (0, 0));
        });
    });
    assert_eq!(STRANGE.load(Ordering::Relaxed), 0);
}

#[test]
fn a_full_buffer_counts_and_leaves_the_vp() {
    let Some(bpf) = loaded("a_full_buffer_counts_and_leaves_the_vp", 1) else { return };
    let slot = Slot::of(&bpf, 1);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _attached = bpf.attach(1).expect("attached");
            let start = TRAPS.get();
            slot.half(20).store(WANTS_BLOCKED | WANTS_UNBLOCKED, Ordering::Relaxed);
            let mut lent = 0;
            while slot.missed() == 0 {
                slot.vp().store(TOKEN, Ordering::Relaxed);
                assert_eq!(nanosleep(1_000), 0);
                lent += u64::from(slot.vp().load(Ordering::Relaxed) == TOKEN | LENT);
            }
            // 4,096 bytes, 16 a record, and the kernel never fills the last one.
            assert_eq!((lent, slot.blocked()), (255, 255));
            assert_eq!(slot.vp().load(Ordering::Relaxed), TOKEN, "it stays");
            assert!(!bpf.traps() || TRAPS.get() - start == 255);
            let mut records = 0;
            bpf.drain(|_, _| records += 1);
            assert_eq!(records, 255);
            sleep_until_lent(slot, 1_000);
            assert_eq!(slot.vp().load(Ordering::Relaxed), TOKEN | LENT, "there is room again");
        });
    });
}

/// xorshift64*.
fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

#[test]
fn scribbled_slots_harm_nobody() {
    let Some(bpf) = loaded("scribbled_slots_harm_nobody", 8) else { return };
    const ROUNDS: u64 = 20_000;
    let over = AtomicBool::new(false);
    let ((reader, mut pings), (mut answers, mut writer)) = (pipe(), pipe());
    let mut told = 0u64;
    thread::scope(|scope| {
        scope.spawn(|| {
            let _attached = bpf.attach(2).expect("attached");
            for n in 0..ROUNDS {
                assert_eq!(read_once(&reader, &mut [0]), 1, "round {n}: {}", io::Error::last_os_error());
                writer.write_all(&[1]).expect("written");
            }
            over.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                pings.write_all(&[1]).expect("written");
                assert_eq!(answers.read(&mut [0]).expect("read"), 1);
            }
        });
        let mut seed = 0x6b75_6d69_u64;
        while !over.load(Ordering::Acquire) {
            for slot in (0..=8).map(|n| Slot::of(&bpf, n)) {
                for at in (0..SLOT_SIZE).step_by(8) {
                    slot.word(at).store(random(&mut seed), Ordering::Relaxed);
                }
                // Random words are nearly always masked; now and then something plausible, so that it does lend.
                if random(&mut seed) & 1 == 0 {
                    slot.masked().store(0, Ordering::Relaxed);
                    slot.vp().store(random(&mut seed) & !3, Ordering::Relaxed);
                }
            }
            bpf.drain(|slot, _| {
                assert_eq!(slot, 2);
                told += 1;
            });
            thread::yield_now();
        }
    });
    assert!(told > 0, "not one event: the scribbling reached nothing");
    // And it still works.
    every_kind_of_sleep_after(&bpf);
}

fn every_kind_of_sleep_after(bpf: &Bpf) {
    bpf.drain(|_, _| ());
    Slot::of(bpf, 3).word(64).store(0, Ordering::Relaxed);
    sleeps_are_told(bpf, 100, || sleep_until_lent(Slot::of(bpf, 3), 1_000), || ());
}

#[test]
fn many_threads_are_told_apart_and_no_record_is_lost() {
    const THREADS: u32 = 16;
    const ROUNDS: u64 = 500;
    // As many slots as make a buffer for all records.
    let Some(bpf) = loaded("many_threads_are_told_apart_and_no_record_is_lost", THREADS * ROUNDS as u32) else {
        return;
    };
    let told: Vec<AtomicU64> = (0..=THREADS).map(|_| AtomicU64::new(0)).collect();
    let total = AtomicU64::new(0);
    let over = eventfd();
    thread::scope(|scope| {
        // Two at once, each waiting in an edge-triggered epoll: what one is refused, the other has to see, or none does.
        for _ in 0..2 {
            scope.spawn(|| {
                let epoll = epoll_of(bpf.event_fd(), libc::EPOLLET as u32);
                add(&epoll, over.as_fd(), 0, 1);
                while wait_once(&epoll) == Some(0) {
                    bpf.drain(|slot, vp| {
                        assert_eq!(vp, slot * 3);
                        told[slot as usize].fetch_add(1, Ordering::Relaxed);
                        total.fetch_add(1, Ordering::Release);
                    });
                }
            });
        }
        for number in 1..=THREADS {
            let bpf = &bpf;
            scope.spawn(move || {
                let slot = Slot::of(bpf, number);
                slot.half(20).store(WANTS_BLOCKED | WANTS_UNBLOCKED, Ordering::Relaxed);
                slot.masked().store(1, Ordering::Relaxed);
                let _attached = bpf.attach(number).expect("attached");
                for _ in 0..ROUNDS {
                    slot.vp().store((u64::from(number) * 3 + 1) << 2, Ordering::Relaxed);
                    slot.masked().store(0, Ordering::Release);
                    sleep_until_lent(slot, 1_000);
                    slot.masked().store(1, Ordering::Release);
                }
                assert_eq!((slot.blocked(), slot.missed()), (ROUNDS, 0));
            });
        }
        while total.load(Ordering::Acquire) < u64::from(THREADS) * ROUNDS {
            thread::yield_now();
        }
        assert_eq!(write_all_at_once(&over, &1u64.to_ne_bytes()), 8);
    });
    assert!(told[1..].iter().all(|n| n.load(Ordering::Relaxed) == ROUNDS));
}

/// A bpffs of our own with an object installed for nobody; all gone on drop.
struct Installed {
    place: PathBuf,
    store: Store,
}

impl Installed {
    fn new(name: &str, seats: u32, slots: u32) -> Installed {
        let place = std::env::temp_dir().join(format!("kumihimo-{name}-{}", std::process::id()));
        fs::create_dir(&place).expect("a directory");
        let installed = Installed { store: Store::at(place.join("kumihimo")), place };
        let said = installed.store.install(Some(NOBODY), seats, Some(slots)).expect("installed");
        assert!(said.iter().any(|line| line.contains("mounted a bpffs")), "{said:?}");
        installed
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let place = std::ffi::CString::new(self.place.to_str().expect("a name")).expect("no zero");
        // SAFETY: a terminated string; what is mounted there is ours.
        unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
        fs::remove_dir(&self.place).expect("empty");
    }
}

/// The calling kernel thread alone becomes nobody, for good: credentials are per thread below glibc.
fn become_nobody() {
    // SAFETY: integers, and an empty list.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_setgroups, 0, ptr::null::<u32>()), 0);
        assert_eq!(libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY), 0);
        assert_eq!(libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY), 0);
    }
}

fn as_nobody<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_nobody();
            what()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Sets kernel.perf_event_paranoid for as long as it lives. It is the whole machine's: one at a time.
struct Paranoid {
    before: String,
    _alone: std::sync::MutexGuard<'static, ()>,
}

impl Paranoid {
    const FILE: &'static str = "/proc/sys/kernel/perf_event_paranoid";

    fn set(value: &str) -> Paranoid {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = fs::read_to_string(Paranoid::FILE).expect("readable");
        fs::write(Paranoid::FILE, value).expect("root may");
        Paranoid { before, _alone: alone }
    }
}

impl Drop for Paranoid {
    fn drop(&mut self) {
        let _ = fs::write(Paranoid::FILE, self.before.trim());
    }
}

fn remedy(result: Result<Bpf, Refused>) -> Refused {
    match result {
        Ok(_) => panic!("it was expected to be refused"),
        Err(refused) => refused,
    }
}

#[test]
fn nobody_has_the_same_events_from_a_seat() {
    const NAME: &str = "nobody_has_the_same_events_from_a_seat";
    if loaded(NAME, 1).is_none() {
        return;
    }
    if !root() {
        return skip(NAME, "installing needs root");
    }
    let installed = Installed::new("seat", 2, 100);
    let store = &installed.store;
    let _paranoid = Paranoid::set("1");
    as_nobody(|| {
        assert!(Bpf::load(1).is_err(), "nobody may not load");
        let first = Bpf::take(store, 100).expect("a seat");
        assert!(first.is_pinned());
        let second = Bpf::take(store, 1).expect("the other seat");
        let seat = |bpf: &Bpf| {
            // SAFETY: the header, as in the test of it.
            unsafe { bpf.memory().0.cast::<Header>().read().seat }
        };
        assert_eq!((seat(&first), seat(&second)), (0, 1));
        // Threads are made with this thread's credentials.
        every_kind_of_sleep(&second, 300);
        let slot = Slot::of(&second, 3);
        assert_eq!(slot.blocked(), 4 * 300);

        let refused = remedy(Bpf::take(store, 1));
        assert!(refused.why.contains("all 2 seats of user 65534 are taken"), "{refused}");
        assert!(refused.remedy.contains("--seats 3"), "{refused}");
        let status = store.status();
        let me = std::process::id();
        assert!(status.matches() && status.slots == Some(100), "{status}");
        assert!(status.seats.iter().all(|seat| seat.user == NOBODY && seat.holder == Some(me)), "{status}");
        assert!(status.to_string().contains(&format!("seat 1 of user 65534: taken by process {me}")), "{status}");

        // Records left behind and a scribbled page: the next one has neither.
        sleeps_are_told(&second, 1, || sleep_until_lent(slot, 1_000), || ());
        slot.word(0).store(u64::MAX, Ordering::Relaxed);
        drop(second);
        let again = Bpf::take(store, 100).expect("free again");
        again.drain(|_, _| panic!("an old record"));
        assert_eq!(seat(&again), 1);
        assert!((1..=100).all(|n| Slot::of(&again, n).word(0).load(Ordering::Relaxed) == 0));
        drop(again);
        let refused = remedy(Bpf::take(store, 101));
        assert!(refused.remedy.contains("--slots 101"), "{refused}");
    });
    let refused = remedy(Bpf::take(store, 1));
    assert!(refused.why.contains("no seat of user 0"), "{refused}");
}

#[test]
fn a_paranoid_kernel_is_named_with_the_setting() {
    const NAME: &str = "a_paranoid_kernel_is_named_with_the_setting";
    if loaded(NAME, 1).is_none() {
        return;
    }
    if !root() {
        return skip(NAME, "installing needs root");
    }
    let installed = Installed::new("paranoid", 1, 1);
    let _paranoid = Paranoid::set("2");
    let refused = as_nobody(|| remedy(Bpf::take(&installed.store, 1)));
    assert!(refused.why.contains("perf_event_open") && refused.why.contains("EACCES"), "{refused}");
    assert!(refused.remedy.contains("sysctl kernel.perf_event_paranoid=1"), "{refused}");
}

#[test]
fn installing_is_idempotent_and_uninstalling_leaves_nothing() {
    const NAME: &str = "installing_is_idempotent_and_uninstalling_leaves_nothing";
    if loaded(NAME, 1).is_none() {
        return;
    }
    if !root() {
        return skip(NAME, "installing needs root");
    }
    let installed = Installed::new("install", 2, 5);
    let store = &installed.store;
    let seats = || store.status().seats.iter().map(|seat| (seat.user, seat.number)).collect::<Vec<_>>();
    let said = store.install(Some(NOBODY), 1, None).expect("again");
    assert!(said.iter().any(|line| line == "user 65534: 2 seats, 0 of them new"), "{said:?}");
    store.install(Some(12345), 1, None).expect("another user");
    assert_eq!(seats(), [(12345, 2), (NOBODY, 0), (NOBODY, 1)]);
    assert_eq!(store.status().slots, Some(5));
    // A seat that its user has broken is made anew; one too small for what is asked makes all anew.
    fs::remove_file(store_path(&installed).join("seats/65534/0/page")).expect("removed");
    let said = store.install(None, 0, None).expect("repaired");
    assert!(said.iter().any(|line| line == "user 65534: 2 seats, 1 of them new"), "{said:?}");
    assert_eq!(seats(), [(12345, 2), (NOBODY, 0), (NOBODY, 1)]);
    store.install(None, 0, Some(6)).expect("larger");
    assert_eq!(store.status().slots, Some(6));
    assert_eq!(seats().len(), 3);
    assert!(store.status().matches());
    as_nobody(|| {
        let refused = store.install(Some(NOBODY), 1, None).expect_err("not root");
        assert!(refused.remedy.contains("sudo"), "{refused}");
        assert!(store.uninstall().is_err());
    });
    assert_eq!(store.uninstall(), Ok(true));
    assert_eq!(store.uninstall(), Ok(false));
    assert!(!store_path(&installed).exists());
    let refused = store.install(None, 1, None).expect_err("for whom?");
    assert!(refused.remedy.contains("--user"), "{refused}");
}

fn store_path(installed: &Installed) -> PathBuf {
    installed.place.join("kumihimo")
}

#[test]
fn a_foreign_seat_in_the_cookie_tells_nothing() {
    const NAME: &str = "a_foreign_seat_in_the_cookie_tells_nothing";
    if loaded(NAME, 1).is_none() {
        return;
    }
    if !root() {
        return skip(NAME, "installing needs root");
    }
    // Nobody's thread with nobody's program, but the cookie is another user's seat: here root takes nobody's seat over.
    let installed = Installed::new("foreign", 1, 4);
    let _paranoid = Paranoid::set("1");
    let bpf = as_nobody(|| Bpf::take(&installed.store, 4).expect("a seat"));
    let slot = Slot::of(&bpf, 1);
    slot.half(20).store(WANTS_BLOCKED | WANTS_UNBLOCKED, Ordering::Relaxed);
    slot.vp().store(TOKEN, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Root, whose seat this is not.
            let _attached = bpf.attach(1).expect("attached");
            let start = TRAPS.get();
            for _ in 0..100 {
                assert_eq!(nanosleep(1_000), 0);
            }
            assert_eq!((slot.vp().load(Ordering::Relaxed), slot.blocked(), TRAPS.get() - start), (TOKEN, 0, 0));
            become_nobody();
            sleep_until_lent(slot, 1_000);
            assert_eq!((slot.vp().load(Ordering::Relaxed), slot.blocked()), (TOKEN | LENT, 1));
        });
    });
}
