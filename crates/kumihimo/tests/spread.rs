//! What one VP has made comes to all of them, also if nothing is spawned or woken any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use kumihimo::runtime::{self, Design, Runtime};
use kumihimo::thread;

const VPS: usize = 4;
const CROWD: usize = 64;

/// Those that only yield reach every VP. (Once they stayed where they began: only spawns and wake-ups were passed on.)
#[test]
fn those_that_only_yield_spread() {
    for design in [Design::Ring, Design::Locked, Design::Steal] {
        Runtime::builder().vps(VPS).queue(design).build().unwrap().run(|| {
            if runtime::metrics().unwrap().tls == "kernel" {
                println!("[skip] those_that_only_yield_spread: the kernel spreads its threads");
                return;
            }
            let stop = Arc::new(AtomicBool::new(false));
            let crowd: Vec<_> = (0..CROWD)
                .map(|_| {
                    let stop = stop.clone();
                    thread::spawn(move || {
                        while !stop.load(Relaxed) {
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            while !runtime::metrics().unwrap().vps.iter().all(|vp| vp.runnable > 0) {
                thread::yield_now();
            }
            stop.store(true, Relaxed);
            crowd.into_iter().for_each(|one| one.join().unwrap());
        });
    }
}
