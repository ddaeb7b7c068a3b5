//! What one VP has made comes to all of them, also if nothing is spawned or woken any more.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use kumihimo::runtime::{self, Design, Runtime};
use kumihimo::thread;

const VPS: usize = 4;
const CROWD: usize = 64;

/// Those that only yield reach every VP: not only spawns and wake-ups are passed on.
#[test]
fn yielding_microprocesses_spread_over_the_vps() {
    if Runtime::builder()
        .vps(1)
        .build()
        .unwrap()
        .run(|| runtime::metrics().unwrap().tls == "kernel")
    {
        // Past libtest's capture, which takes `print!` only: the scripts count it.
        let line = "\n[skip] yielding_microprocesses_spread_over_the_vps: the kernel spreads its threads\n";
        return std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    for design in Design::ALL {
        Runtime::builder().vps(VPS).queue(design).build().unwrap().run(|| {
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
