//! `spread`: P4's experiment: 256 microprocesses are created at once on one VP, until they are
//! evenly spread over all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo::runtime::{self, Metrics};
use kumihimo::thread;
use kumihimo_bench_kit::{Request, sample};

use crate::threads::fork;
use crate::variant::Variant;

const CROWD: usize = 256;
/// Time limit. A longer run never becomes even.
const PATIENCE: Duration = Duration::from_secs(1);

pub fn spread(request: &Request) {
    let variant = Variant::of(request);
    // Stacks must exist for a creation "at once". All kernel threads have run once and sleep again.
    fork::bulk(variant, CROWD);
    thread::sleep(Duration::from_millis(20));
    let before = now();
    let stop = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            let stop = stop.clone();
            variant.spawn(move || {
                while !stop.load(Relaxed) {
                    thread::yield_now();
                }
            })
        })
        .collect();
    // 1: even; 0: given up.
    let (took, even) = loop {
        if is_even(&now(), CROWD) {
            break (start.elapsed(), 1);
        }
        if start.elapsed() > PATIENCE {
            break (PATIENCE, 0);
        }
        thread::yield_now();
    };
    let after = now();
    stop.store(true, Relaxed);
    for one in crowd {
        one.join().expect("no panic");
    }
    let sum = |of: fn(&runtime::VpMetrics) -> u64| {
        let total = |m: &Metrics| m.vps.iter().map(of).sum::<u64>();
        total(&after) - total(&before)
    };
    let rule = request.get("capacity").map(|rule| format!("capacity={rule} ")).unwrap_or_default();
    let keys = format!(
        "{rule}lock_waits:={} locks:={} migrations:={} even:={even}",
        sum(|v| v.lock_waits),
        sum(|v| v.locks),
        sum(|v| v.migrations),
    );
    sample(after.queue, took.as_secs_f64() * 1e6, "us", &keys);
}

fn now() -> Metrics {
    runtime::metrics().expect("a runtime runs")
}

/// Even means that no VP has less than three quarters of its share. (The ring comes within one of
/// the share. The other designs move nothing once no VP is idle, so under a narrower definition
/// they would never become even.)
fn is_even(metrics: &Metrics, crowd: usize) -> bool {
    let least = crowd / metrics.vps.len() * 3 / 4;
    metrics.vps.iter().all(|vp| vp.runnable >= least)
}
