//! Seats of an object that root has installed, taken by user nobody.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;

use kumihimo_events::Unavailable;
use kumihimo_events::bpf::pinned::Store;
use kumihimo_events::bpf::{Bpf, Header, LENT, WANTS_BLOCKED, WANTS_UNBLOCKED};

use crate::common::*;

const NOBODY: u32 = 65534;

/// Whether an object can be installed here. If not, prints that test `name` is skipped.
fn may_install(name: &str) -> bool {
    if loaded(name, 1).next().is_none() {
        return false;
    }
    if !root() {
        skip(name, "installing needs root");
    }
    root()
}

/// A private bpffs with an object installed for user nobody. Removed on drop.
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
        // SAFETY: a NUL-terminated path, where this test mounted a file system.
        unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
        fs::remove_dir(&self.place).expect("empty");
    }
}

/// Gives the calling kernel thread the IDs of user nobody for good. The system calls change only
/// this thread's credentials; glibc's functions would change the whole process's.
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

/// Sets kernel.perf_event_paranoid while it exists. The setting applies to the whole machine, so
/// only one test at a time may change it.
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

fn remedy(result: Result<Bpf, Unavailable>) -> Unavailable {
    match result {
        Ok(_) => panic!("the seat was not refused"),
        Err(refused) => refused,
    }
}

#[test]
fn unprivileged_user_gets_the_same_events_from_a_seat() {
    const NAME: &str = "unprivileged_user_gets_the_same_events_from_a_seat";
    if !may_install(NAME) {
        return;
    }
    let installed = Installed::new("seat", 2, 100);
    let store = &installed.store;
    let _paranoid = Paranoid::set("1");
    as_nobody(|| {
        assert!(Bpf::load(1).is_err(), "the user nobody may not load");
        let first = Bpf::take(store, 100).expect("a seat");
        assert!(first.is_pinned());
        let second = Bpf::take(store, 1).expect("the other seat");
        let seat = |bpf: &Bpf| {
            // SAFETY: the header, as in `header_describes_the_mapping`.
            unsafe { bpf.memory().0.cast::<Header>().read().seat }
        };
        assert_eq!((seat(&first), seat(&second)), (0, 1));
        // New threads inherit this thread's credentials.
        every_kind_of_sleep(&second, 300);
        let slot = Slot::of(&second, 3);
        assert_eq!(slot.blocked(), 4 * 300);

        let refused = remedy(Bpf::take(store, 1));
        assert!(refused.why.contains("all 2 seats of user 65534 are taken"), "{refused}");
        assert!(refused.remedy.contains("--seats 3"), "{refused}");
        let status = store.status();
        let me = std::process::id();
        assert!(status.matches() && status.slots == Some(100), "{status}");
        assert!(
            status.seats.iter().all(|seat| seat.user == NOBODY && seat.holder == Some(me)),
            "{status}"
        );
        assert!(
            status.to_string().contains(&format!("seat 1 of user 65534: taken by process {me}")),
            "{status}"
        );

        // The next owner of the seat must find neither old records nor an overwritten page.
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

/// A process that starts a program has, for a moment, a child process with copies of all
/// descriptors.
#[test]
fn seat_is_free_although_a_child_process_has_its_descriptor() {
    const NAME: &str = "seat_is_free_although_a_child_process_has_its_descriptor";
    if !may_install(NAME) {
        return;
    }
    let installed = Installed::new("child", 1, 1);
    let _paranoid = Paranoid::set("1");
    as_nobody(|| {
        let bpf = Bpf::take(&installed.store, 1).expect("a seat");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut byte = 0u8;
            // SAFETY: an own descriptor, and room for one byte. The read ends with the parent's end
            // of the pipe.
            unsafe {
                libc::close(writer.as_raw_fd());
                libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1);
                libc::_exit(0);
            }
        }
        assert!(child > 0, "fork failed");
        drop(bpf);
        let again = Bpf::take(&installed.store, 1);
        drop(writer);
        // SAFETY: the child above; no status is wanted.
        assert_eq!(unsafe { libc::waitpid(child, ptr::null_mut(), 0) }, child);
        again.expect("free again");
    });
}

#[test]
fn refused_seat_names_perf_event_paranoid() {
    const NAME: &str = "refused_seat_names_perf_event_paranoid";
    if !may_install(NAME) {
        return;
    }
    let installed = Installed::new("paranoid", 1, 1);
    let _paranoid = Paranoid::set("2");
    let refused = as_nobody(|| remedy(Bpf::take(&installed.store, 1)));
    assert!(refused.why.contains("perf_event_open") && refused.why.contains("EACCES"), "{refused}");
    assert!(refused.remedy.contains("sysctl kernel.perf_event_paranoid=1"), "{refused}");
}

#[test]
fn install_is_idempotent_and_uninstall_leaves_nothing() {
    const NAME: &str = "install_is_idempotent_and_uninstall_leaves_nothing";
    if !may_install(NAME) {
        return;
    }
    let installed = Installed::new("install", 2, 5);
    let store = &installed.store;
    let seats =
        || store.status().seats.iter().map(|seat| (seat.user, seat.number)).collect::<Vec<_>>();
    let said = store.install(Some(NOBODY), 1, None).expect("again");
    assert!(said.iter().any(|line| line == "user 65534: 2 seats, 0 of them new"), "{said:?}");
    store.install(Some(12345), 1, None).expect("another user");
    assert_eq!(seats(), [(12345, 2), (NOBODY, 0), (NOBODY, 1)]);
    assert_eq!(store.status().slots, Some(5));
    // A seat that its user has damaged is created anew. A request for larger seats creates all of
    // them anew.
    fs::remove_file(store_path(&installed).join("seats/65534/0/page")).expect("removed");
    let said = store.install(None, 0, None).expect("repaired");
    assert!(said.iter().any(|line| line == "user 65534: 2 seats, 1 of them new"), "{said:?}");
    assert_eq!(seats(), [(12345, 2), (NOBODY, 0), (NOBODY, 1)]);
    // Without the program all seats are created anew, with their former size.
    fs::remove_file(store_path(&installed).join("program")).expect("removed");
    let said = store.install(None, 0, None).expect("loaded again");
    assert!(
        said.iter().any(|line| line.contains("loaded and pinned") && line.contains("5 slots")),
        "{said:?}"
    );
    store.install(None, 0, Some(6)).expect("larger");
    assert_eq!(store.status().slots, Some(6));
    assert_eq!(seats().len(), 3);
    assert!(store.status().matches());
    let mine =
        store.status().seats.into_iter().find(|seat| seat.user == NOBODY).expect("a seat").number;
    as_nobody(|| {
        let refused = store.install(Some(NOBODY), 1, None).expect_err("not root");
        assert!(refused.remedy.contains("sudo"), "{refused}");
        assert!(store.uninstall().is_err());
        // Users may change their own seats: they harm only themselves, and get an error.
        let seat = store_path(&installed).join(format!("seats/65534/{mine}"));
        fs::rename(seat.join("page"), seat.join("program")).expect("his own");
        let refused = remedy(Bpf::take(store, 1));
        assert!(refused.why.contains("not a program") && !refused.remedy.is_empty(), "{refused}");
        std::os::unix::fs::symlink(store_path(&installed), seat.join("link"))
            .expect("a symbolic link");
    });
    assert_eq!(store.uninstall(), Ok(true));
    assert_eq!(store.uninstall(), Ok(false));
    assert!(!store_path(&installed).exists());
    let refused = store.install(None, 1, None).expect_err("no user");
    assert!(refused.remedy.contains("--user"), "{refused}");
}

fn store_path(installed: &Installed) -> PathBuf {
    installed.place.join("kumihimo")
}

#[test]
fn foreign_seat_in_the_cookie_reports_nothing() {
    const NAME: &str = "foreign_seat_in_the_cookie_reports_nothing";
    if !may_install(NAME) {
        return;
    }
    // A program whose cookie names another user's seat must report nothing. Here root uses a seat
    // of user nobody.
    let installed = Installed::new("foreign", 1, 4);
    let _paranoid = Paranoid::set("1");
    let bpf = as_nobody(|| Bpf::take(&installed.store, 4).expect("a seat"));
    let slot = Slot::of(&bpf, 1);
    slot.half(20).store(WANTS_BLOCKED | WANTS_UNBLOCKED, Ordering::Relaxed);
    slot.vp().store(TOKEN, Ordering::Relaxed);
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // The thread belongs to root, and the seat to user nobody.
            let _attached = bpf.attach(1).expect("attached");
            let start = TRAPS.get();
            for _ in 0..100 {
                assert_eq!(nanosleep(1_000), 0);
            }
            assert_eq!(
                (slot.vp().load(Ordering::Relaxed), slot.blocked(), TRAPS.get() - start),
                (TOKEN, 0, 0)
            );
            become_nobody();
            sleep_until_lent(slot, 1_000);
            assert_eq!((slot.vp().load(Ordering::Relaxed), slot.blocked()), (TOKEN | LENT, 1));
        });
        joined([thread]);
    });
}
