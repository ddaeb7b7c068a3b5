//! Slots: sizes, guards, limits and release of memory.

mod harness;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use harness::again;
use kumihimo_arch::stack::{self, Class, RECORD};

fn slots(class: Class, n: usize) -> Vec<usize> {
    let mut out = vec![std::ptr::null_mut(); n];
    assert_eq!(stack::acquire(class, &mut out).expect("slots"), n);
    out.into_iter().map(|p| p as usize).collect()
}

#[test]
fn every_size_yields_a_class_or_an_error() {
    let tls = 5000;
    for size in [
        0,
        1,
        4095,
        4097,
        16 << 10,
        32 << 10,
        100_000,
        256 << 10,
        (1 << 20) + 1,
        8 << 20,
        512 << 20,
    ] {
        let class = stack::class_for(size, tls).expect("a class");
        assert!(class.usable(tls) >= size.max(stack::minimum()), "{size}");
        assert!(class.usable(tls) + tls + RECORD + class.guard_size() == class.slot_size());
        if let Some(smaller) = class.index().checked_sub(1).and_then(Class::from_index) {
            assert!(
                smaller.usable(tls) < size.max(stack::minimum()),
                "{size} bytes fit a smaller slot"
            );
        }
    }
    for size in [1 << 30, 1 << 40, usize::MAX] {
        let e = stack::class_for(size, tls).expect_err("too large");
        let text = e.to_string();
        assert!(text.contains(&size.to_string()) && text.contains("largest"), "{text}");
        assert_eq!(std::io::Error::from(e).kind(), std::io::ErrorKind::InvalidInput);
    }
    assert_eq!(Class::from_index(0).map(Class::slot_size), Some(32 << 10));
    assert_eq!(Class::MAX.slot_size(), 1 << 30);
    assert_eq!(Class::from_index(Class::COUNT), None);
}

#[test]
fn slots_are_zeroed_disjoint_and_located() {
    for index in [0, 1, 3, 5, 7, 10, 15] {
        let class = Class::from_index(index).expect("a class");
        let n = if index > 10 { 2 } else { 150 };
        let mut ends = slots(class, n);
        ends.sort_unstable();
        assert!(ends.windows(2).all(|w| w[1] - w[0] >= class.slot_size()));
        for end in ends {
            let low = end - class.slot_size();
            assert_eq!(end % 64, 0);
            for at in [low, low + class.guard_size(), end - RECORD, end - 1] {
                let found = stack::locate(at).expect("a slot");
                assert_eq!(found.slot_end, end);
                assert_eq!(found.class, class);
                assert_eq!(found.guard, low..low + class.guard_size());
            }
            // SAFETY: the slot belongs to this test; the code accesses its top and its lowest page
            // above the guard.
            unsafe {
                for at in [end - 4096, low + class.guard_size()] {
                    let page = std::slice::from_raw_parts_mut(at as *mut u8, 4096);
                    assert!(page.iter().all(|b| *b == 0));
                    page.fill(1);
                }
            }
        }
    }
    let here = 0;
    assert_eq!(stack::locate((&raw const here) as usize), None);
    assert_eq!(stack::locate(0), None);
    assert_eq!(stack::locate(usize::MAX), None);
}

#[test]
fn threads_get_distinct_slots() {
    const EACH: usize = 59 * 60 / 2;
    // Atomics, because ThreadSanitizer also recognises them where std is not instrumented.
    static ALL: [AtomicUsize; 4 * EACH] = [const { AtomicUsize::new(0) }; 4 * EACH];
    let class = stack::class_for(0, 0).expect("a class");
    std::thread::scope(|s| {
        for part in ALL.chunks(EACH) {
            s.spawn(move || {
                let mut part = part.iter();
                for n in 1..60 {
                    for (end, place) in slots(class, n).into_iter().zip(&mut part) {
                        place.store(end, Ordering::Release);
                    }
                }
            });
        }
    });
    let distinct: HashSet<usize> = ALL.iter().map(|a| a.load(Ordering::Acquire)).collect();
    assert_eq!(distinct.len(), ALL.len());
    assert!(!distinct.contains(&0));
}

#[test]
fn release_returns_memory_below_the_kept_part() {
    let class = stack::class_for(256 << 10, 0).expect("a class");
    let end = slots(class, 1)[0];
    let low = end - class.slot_size() + class.guard_size();
    let resident = || {
        let pages = (end - low) / 4096;
        let mut flags = vec![0u8; pages];
        // SAFETY: the vector has one byte per page.
        assert_eq!(unsafe { libc::mincore(low as *mut _, end - low, flags.as_mut_ptr()) }, 0);
        flags.iter().filter(|f| **f & 1 != 0).count()
    };
    // SAFETY: the slot belongs to this test and is unused.
    unsafe {
        std::slice::from_raw_parts_mut(low as *mut u8, end - low).fill(1);
        assert_eq!(resident(), (end - low) / 4096);
        stack::release_memory(end, class, 5000);
        assert_eq!(resident(), 2);
        assert_eq!(*((end - 8192) as *const u8), 1);
        assert_eq!(*((end - 8193) as *const u8), 0);
        assert_eq!(*(low as *const u8), 0);
        // The record stays even if nothing is to be kept.
        stack::release_memory(end, class, 0);
        assert_eq!(*((end - RECORD) as *const u8), 1);
        assert_eq!(*((end - 4097) as *const u8), 0);
    }
}

#[test]
fn guard_access_terminates_the_program() {
    const NAME: &str = "guard_access_terminates_the_program";
    if again::is_child(NAME) {
        let class = stack::class_for(0, 0).expect("a class");
        let ends = slots(class, 100);
        println!("guards: {}", stack::guard_kind());
        // The last byte of the guard of a slot in the middle of a slab.
        let at = ends[50] - class.slot_size() + class.guard_size() - 1;
        // SAFETY: the access faults, which is the tested behaviour.
        unsafe { (at as *mut u8).write_volatile(1) };
        return;
    }
    for (env, kind) in [("", ""), ("mprotect", "guards: mprotect")] {
        let out = again::once_more(NAME, &[("KUMI_LAB", &format!("guard={env}"))]);
        let signal = std::os::unix::process::ExitStatusExt::signal(&out.status);
        assert_eq!(signal, Some(libc::SIGSEGV), "{}", again::text(&out.stderr));
        assert!(again::text(&out.stdout).contains(kind), "{}", again::text(&out.stdout));
    }
}

fn limit_address_space(to: u64) {
    let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
    // SAFETY: the struct is valid.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

#[test]
fn exhausted_address_space_error_names_size_and_limit() {
    if again::sanitizer() {
        return again::skip("a sanitizer's shadow memory needs the address space");
    }
    again::alone("exhausted_address_space_error_names_size_and_limit", || {
        limit_address_space(1 << 30);
        let class = stack::class_for(8 << 20, 0).expect("a class");
        let mut got = 0;
        let error = loop {
            let mut out = [std::ptr::null_mut(); 7];
            match stack::acquire(class, &mut out) {
                Ok(n) => {
                    assert!(n >= 1);
                    got += n;
                }
                Err(e) => break e,
            }
        };
        assert!((20..64).contains(&got), "{got} slots of 16 MiB in 1 GiB");
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
        let text = error.to_string();
        assert!(text.contains("ulimit -v") && text.contains("16384 KiB"), "{text}");
        // Smaller slots may still be available, and a failed call leaves the pool usable.
        assert!(stack::acquire(class, &mut [std::ptr::null_mut()]).is_err());
        slots(stack::class_for(0, 0).expect("a class"), 1);
    });
}

#[test]
fn mapping_limit_error_names_max_map_count() {
    if again::sanitizer() {
        return again::skip("a sanitizer's shadow memory needs the address space");
    }
    again::alone("mapping_limit_error_names_max_map_count", || {
        let lab = kumihimo_config::lab_with("guard=mprotect");
        // SAFETY: no other thread reads the environment in this process.
        unsafe { std::env::set_var("KUMI_LAB", lab) };
        let limit: usize = std::fs::read_to_string("/proc/sys/vm/max_map_count")
            .expect("a limit")
            .trim()
            .parse()
            .expect("a number");
        if limit > 300_000 {
            return again::skip("vm.max_map_count is above 300,000 on this machine");
        }
        let class = stack::class_for(0, 0).expect("a class");
        let mut got = 0;
        let error = loop {
            let mut out = [std::ptr::null_mut(); 64];
            match stack::acquire(class, &mut out) {
                Ok(n) => got += n,
                Err(e) => break e,
            }
        };
        assert!(got > limit / 4 && got < limit, "{got} slots, {limit} mappings");
        assert!(error.to_string().contains("vm.max_map_count"), "{error}");
    });
}
