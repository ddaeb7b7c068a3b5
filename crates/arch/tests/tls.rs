//! Thread-local storage in a microprocess with its own block.
#![cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_os = "linux",
    target_env = "gnu"
))]

mod harness;

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

use harness::{Micro, again, pause};
use kumihimo_arch::tls::{self, Kind};

const STACK: usize = 256 << 10;

thread_local! {
    static PLAIN: Cell<u32> = const { Cell::new(77) };
    static LAZY: RefCell<Vec<u32>> = RefCell::new(vec![1, 2, 3]);
}

#[test]
fn kind_follows_the_setting() {
    const NAME: &str = "kind_follows_the_setting";
    if again::is_child(NAME) {
        let t = tls::get();
        println!("kind: {:?} ({})", t.kind(), t.why());
        if t.kind() == Kind::Kernel {
            assert_eq!(t.bytes(), 0);
            // SAFETY: no block is built, so the memory does not matter.
            let e = unsafe { t.build(std::ptr::null_mut(), std::ptr::null_mut()) }
                .expect_err("no block");
            assert_eq!(e.kind(), std::io::ErrorKind::Unsupported);
        }
        return;
    }
    let best = tls::get().kind();
    for (asked, kind, why) in [
        ("", Kind::Clone, "a clone equals"),
        ("clone", Kind::Clone, "KUMI_LAB=tls=clone"),
        ("donor", Kind::Donor, "KUMI_LAB=tls=donor"),
        ("kernel", Kind::Kernel, "KUMI_LAB=tls=kernel"),
        ("fail", Kind::Kernel, "KUMI_LAB=tls=fail"),
    ] {
        let out = again::once_more(NAME, &[("KUMI_LAB", &format!("tls={asked}"))]);
        let text = again::text(&out.stdout);
        assert!(out.status.success(), "{text}{}", again::text(&out.stderr));
        if best == Kind::Kernel {
            assert!(text.contains("kind: Kernel"), "{text}");
        } else {
            assert!(
                text.contains(&format!("kind: {kind:?}")) && text.contains(why),
                "{asked}: {text}"
            );
        }
    }
}

#[test]
fn suite_passes_with_donors() {
    again::all_with("suite_passes_with_donors", &[("KUMI_LAB", "tls=donor")]);
}

/// Drops root and forbids this process to start further kernel threads. Returns the previous limit,
/// or None if the kernel does not enforce it.
fn forbid_kernel_threads() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the process runs only this test, and the structures are live.
    unsafe {
        // The limit does not apply to root; setrlimit(2).
        libc::setgid(65534);
        libc::setuid(65534);
        assert_eq!(libc::getrlimit(libc::RLIMIT_NPROC, &mut limit), 0);
        let none = libc::rlimit { rlim_cur: 1, ..limit };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &none), 0);
    }
    match std::thread::Builder::new().spawn(|| ()) {
        Err(e) => {
            assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock, "{e}");
            Some(limit)
        }
        Ok(_) => {
            println!("not limited");
            None
        }
    }
}

fn allow_kernel_threads(limit: libc::rlimit) {
    // SAFETY: the limit is live.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) }, 0);
}

fn passes_alone(name: &str) {
    needs_blocks!();
    let out = again::once_more(name, &[("KUMI_LAB", "tls=")]);
    let text = again::text(&out.stdout);
    if text.contains("not limited") {
        return again::skip("RLIMIT_NPROC is not enforced on this machine");
    }
    assert!(out.status.success(), "{text}{}", again::text(&out.stderr));
}

#[test]
fn short_lack_of_kernel_threads_is_waited_for() {
    const NAME: &str = "short_lack_of_kernel_threads_is_waited_for";
    if !again::is_child(NAME) {
        return passes_alone(NAME);
    }
    let (begin, begun) = std::sync::mpsc::channel();
    let relief = std::thread::spawn(move || {
        let Ok(limit) = begun.recv() else { return };
        std::thread::sleep(std::time::Duration::from_millis(20));
        allow_kernel_threads(limit);
    });
    if let Some(limit) = forbid_kernel_threads() {
        begin.send(limit).expect("the receiver is alive");
        assert_eq!(tls::get().kind(), Kind::Clone, "{}", tls::get().why());
    }
    drop(begin);
    relief.join().expect("no panic");
}

#[test]
fn long_lack_of_kernel_threads_is_reported_and_examined_again() {
    const NAME: &str = "long_lack_of_kernel_threads_is_reported_and_examined_again";
    if !again::is_child(NAME) {
        return passes_alone(NAME);
    }
    let Some(limit) = forbid_kernel_threads() else { return };
    let short = tls::get();
    assert_eq!(short.kind(), Kind::Kernel);
    assert!(short.is_short() && short.is_degraded());
    assert!(short.why().contains("os error 11"), "{}", short.why());
    allow_kernel_threads(limit);
    assert_eq!(tls::get().kind(), Kind::Kernel, "the kind changes only in a new examination");
    let anew = tls::get_anew();
    assert_eq!(anew.kind(), Kind::Clone, "{}", anew.why());
    assert!(!anew.is_degraded());
    assert_eq!(tls::get().kind(), Kind::Clone);
}

/// jemalloc sets a pthread key at each thread's first allocation. The probe must find the flag
/// nevertheless.
#[test]
fn blocks_are_cloned_with_jemalloc() {
    const NAME: &str = "blocks_are_cloned_with_jemalloc";
    if again::is_child(NAME) {
        println!("kind: {:?} ({})", tls::get().kind(), tls::get().why());
        return;
    }
    needs_blocks!();
    let Some(library) = again::jemalloc() else { return again::skip("no libjemalloc.so.2 here") };
    for (asked, kind) in [("", "Clone"), ("donor", "Donor")] {
        let out = again::once_more(
            NAME,
            &[("LD_PRELOAD", library), ("KUMI_LAB", &format!("tls={asked}"))],
        );
        let text = again::text(&out.stdout);
        assert!(text.contains(&format!("kind: {kind} ")), "{text}{}", again::text(&out.stderr));
    }
    again::all_with(NAME, &[("LD_PRELOAD", library)]);
}

#[test]
fn thread_locals_move_with_the_microprocess() {
    needs_blocks!();
    Micro::new(STACK, || {
        assert_eq!(PLAIN.get(), 77);
        PLAIN.set(5);
        LAZY.with_borrow_mut(|v| v.push(4));
        for round in 0..10 {
            pause();
            assert_eq!(PLAIN.get(), 5 + round);
            PLAIN.set(6 + round);
            LAZY.with_borrow(|v| assert_eq!(v[..], [1, 2, 3, 4]));
        }
    })
    .run();
    assert_eq!(PLAIN.get(), 77);
}

#[test]
fn destructors_run_once_at_the_end() {
    needs_blocks!();
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local! { static COUNTED: Counted = const { Counted }; }
    let mut m = Micro::new(STACK, || COUNTED.with(|_| pause()));
    assert!(!m.resume());
    assert_eq!(DROPS.load(Ordering::Relaxed), 0);
    m = m.run();
    assert_eq!(DROPS.load(Ordering::Relaxed), 1);
    for i in 2..100 {
        m.reuse(|| COUNTED.with(|_| pause()));
        m = m.run();
        assert_eq!(DROPS.load(Ordering::Relaxed), i);
    }
}

#[test]
fn recycled_block_is_a_fresh_thread() {
    needs_blocks!();
    let mut m = Micro::new(STACK, || ());
    let mut ids = Vec::new();
    for round in 0..50 {
        m = m.run();
        let (send, receive) = std::sync::mpsc::channel();
        m.reuse(move || {
            assert_eq!(PLAIN.get(), 77);
            PLAIN.set(round);
            LAZY.with_borrow_mut(|v| {
                assert_eq!(v.len(), 3);
                v.push(9);
            });
            // SAFETY: errno belongs to this thread.
            unsafe {
                assert_eq!(*libc::__errno_location(), 0);
                *libc::__errno_location() = 1234;
            }
            pause();
            // SAFETY: as above.
            assert_eq!(unsafe { *libc::__errno_location() }, 1234);
            let me = std::thread::current();
            assert_eq!(me.name(), None);
            send.send(me.id()).unwrap();
        });
        m = m.run();
        ids.push(receive.recv().unwrap());
        m.reuse(|| ());
    }
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count, "std::thread::current is fresh");
}

#[test]
fn panics_are_caught_in_the_microprocess() {
    needs_blocks!();
    let mut m = Micro::new(STACK, || {
        let r = std::panic::catch_unwind(|| {
            pause();
            std::panic::resume_unwind(Box::new(7));
        });
        assert_eq!(r.unwrap_err().downcast_ref(), Some(&7));
        pause();
        assert!(!std::thread::panicking());
    });
    while !m.resume() {}
    assert!(!m.panicked());
}
