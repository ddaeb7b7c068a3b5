//! Measures the costs of blocks and slots on this machine: `cargo run --release -p kumihimo-arch
//! --example blocks`.

use std::time::Instant;

use kumihimo_arch::cpu::{Context, fs_base, set_fs_base, switch_fs};
use kumihimo_arch::stack::{self, RECORD};
use kumihimo_arch::tls;

fn median(mut f: impl FnMut() -> f64) -> f64 {
    let mut runs: Vec<f64> = (0..9).map(|_| f()).collect();
    runs.sort_by(f64::total_cmp);
    runs[4]
}

fn status(key: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0) * 1024
}

struct Parked {
    here: Context,
    back: Context,
    fs: usize,
}

extern "C" fn park_after_a_little(argument: *mut u8) -> ! {
    let me = argument.cast::<Parked>();
    // SAFETY: the argument is a live Parked, which only this thread resumes.
    unsafe {
        tls::get().first_run();
        drop(std::hint::black_box(vec![1u8; 100]));
        switch_fs(&raw mut (*me).here, (*me).back, (*me).fs);
    }
    std::process::abort()
}

fn main() {
    let start = Instant::now();
    let tls = tls::get();
    println!(
        "{:?} ({}) after {:?}; guards: {}",
        tls.kind(),
        tls.why(),
        start.elapsed(),
        stack::guard_kind()
    );
    println!("block {} bytes, least stack {} bytes", tls.bytes(), stack::minimum());
    let class = stack::class_for(0, tls.bytes()).expect("a class");
    let n = 1000;
    let mut slots = vec![std::ptr::null_mut(); n];
    let start = Instant::now();
    assert_eq!(stack::acquire(class, &mut slots).expect("slots"), n);
    println!(
        "acquire {:.0} ns a slot of {} KiB",
        start.elapsed().as_nanos() as f64 / n as f64,
        class.slot_size() / 1024
    );
    if tls.kind() == tls::Kind::Kernel {
        return;
    }
    let lo = |end: *mut u8| end.wrapping_sub(class.slot_size() - class.guard_size());
    let hi = |end: *mut u8| end.wrapping_sub(RECORD);
    // SAFETY: new slots, each used by one block at a time. The memory is zeroed before a block is
    // built again.
    unsafe {
        let start = Instant::now();
        let mut blocks: Vec<*mut u8> =
            slots.iter().map(|s| tls.build(lo(*s), hi(*s)).expect("a block")).collect();
        println!("build, cold      {:6.0} ns", start.elapsed().as_nanos() as f64 / n as f64);
        if tls.kind() == tls::Kind::Clone {
            let mut more = vec![std::ptr::null_mut(); 10 * n];
            assert_eq!(stack::acquire(class, &mut more).expect("slots"), 10 * n);
            for m in &more {
                m.wrapping_sub(RECORD + tls.bytes()).write_bytes(0, tls.bytes());
            }
            let mut at = more.chunks(n);
            let ns = median(|| {
                let part = at.next().expect("a part");
                for m in part {
                    m.wrapping_sub(RECORD + tls.bytes()).write_bytes(0, tls.bytes());
                }
                let start = Instant::now();
                for m in part {
                    std::hint::black_box(tls.build(lo(*m), hi(*m)).expect("a block"));
                }
                start.elapsed().as_nanos() as f64 / n as f64
            });
            println!("build, memory in use before {ns:6.0} ns");
        }
        let warm = &mut blocks[..16];
        let ns = median(|| {
            let start = Instant::now();
            for _ in 0..10_000 {
                for b in warm.iter() {
                    tls.recycle(*b, std::ptr::null_mut(), std::ptr::null_mut());
                }
            }
            start.elapsed().as_nanos() as f64 / 160_000.0
        });
        println!("recycle          {ns:6.1} ns");
        let mine = fs_base();
        let ns = median(|| {
            let start = Instant::now();
            set_fs_base(blocks[0] as usize);
            for _ in 0..100_000 {
                tls.exit_current();
            }
            set_fs_base(mine);
            start.elapsed().as_nanos() as f64 / 100_000.0
        });
        println!("exit_current     {ns:6.1} ns");
    }
    if tls.kind() == tls::Kind::Clone {
        let n = 20_000;
        let mut slots = vec![std::ptr::null_mut(); n];
        let mut parked: Vec<Parked> = (0..n)
            .map(|_| Parked { here: Context::NULL, back: Context::NULL, fs: fs_base() })
            .collect();
        let (rss, tables) = (status("VmRSS:"), status("VmPTE:"));
        assert_eq!(stack::acquire(class, &mut slots).expect("slots"), n);
        for (p, slot) in parked.iter_mut().zip(&slots) {
            let p: *mut Parked = p;
            // SAFETY: new slots; the microprocess is resumed once and stays parked.
            unsafe {
                slot.wrapping_sub(RECORD).write_bytes(1, RECORD);
                let fs = tls.build(lo(*slot), hi(*slot)).expect("a block");
                let context = Context::prepare(tls.stack_top(fs), park_after_a_little, p.cast());
                switch_fs(&raw mut (*p).back, context, fs as usize);
            }
        }
        println!(
            "parked after a little malloc: {} bytes resident, {} of page tables each",
            (status("VmRSS:") - rss) / n,
            (status("VmPTE:") - tables) / n
        );
        println!("stack in use when parked: {} bytes", {
            let p = &parked[0];
            slots[0] as usize - RECORD - tls.bytes() - p.here.stack_pointer() as usize
        });
    }
}
