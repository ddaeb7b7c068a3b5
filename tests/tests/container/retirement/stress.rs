//! Retirement at random times: no microprocess is lost. `KUMI_STRESS_SECONDS` sets the duration,
//! `KUMI_SEED` the choices.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use kumihimo::net::UnixStream;
use kumihimo::runtime::{BatchPolicy, Design, Runtime, metrics};
use kumihimo::thread;
use kumihimo_events::cores::affinity;
use kumihimo_runtime::retirement::set_open_vps;
use kumihimo_tests::container::{Container, DEFAULT, PERIOD, is_inside};
use kumihimo_tests::process::{alone, alone_with, has_vps, is_child, one_to_one};
use kumihimo_tests::{Random, rounds};
use kumihimo_trace::{Verdict, check};

use super::{
    Load, ask_for_quota, await_open, await_opened, await_retired, grant_quotas, is_fixed,
    set_affinity, until,
};

/// VPs of the runtimes whose number is fixed.
const VPS: usize = 4;
/// Changes in each round.
const CHANGES: u64 = 200;

/// Changes the number of VPs in use at random, often before the VPs have done what the last change
/// requires. Blocks the kernel thread.
fn change_at_random(random: &mut Random) {
    for _ in 0..CHANGES {
        assert!(set_open_vps(1 + random.below(VPS as u64) as usize), "a runtime runs");
        if !random.one_in(4) {
            std::thread::sleep(Duration::from_micros(random.below(3000)));
        }
    }
}

#[test]
fn no_microprocess_is_lost_while_vps_retire_and_open() {
    const NAME: &str = "retirement::stress::no_microprocess_is_lost_while_vps_retire_and_open";
    if !is_child(NAME) && !has_vps(NAME) {
        return;
    }
    alone(NAME, || {
        for mut round in rounds(NAME) {
            let queue = Design::ALL[round.number as usize % Design::ALL.len()];
            Runtime::builder().vps(VPS).queue(queue).build().expect("a runtime").run(|| {
                let load = Load::new();
                load.run(|| {
                    load.await_progress();
                    thread::blocking(|| change_at_random(&mut round.random));
                    load.await_progress();
                    assert!(set_open_vps(1));
                    await_retired(&load);
                    until("all but one VP are parked", || {
                        metrics().expect("it runs").vps[1..].iter().all(|vp| vp.is_parked)
                    });
                    assert!(set_open_vps(VPS));
                    await_open(VPS);
                    load.await_progress();
                });
            });
        }
    });
}

/// A VP retires while calls wait there for more calls, and others are runnable. Preemption, which
/// looks after late batches, is off.
#[test]
fn waiting_batch_is_made_by_a_vp_that_retires() {
    const NAME: &str = "retirement::stress::waiting_batch_is_made_by_a_vp_that_retires";
    const CALLERS: usize = 24;
    const YIELDERS: usize = 4;
    if !is_child(NAME) && !has_vps(NAME) {
        return;
    }
    let off = [("KUMI_EVENTS", "off"), ("KUMI_PREEMPT", "off")];
    alone_with(NAME, &off, || {
        let builder = Runtime::builder().vps(2).batch(BatchPolicy::Fixed(32));
        builder.build().expect("a runtime").run(|| {
            if one_to_one() {
                return eprintln!("\n[skip] microprocesses are kernel threads here");
            }
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                for _ in 0..YIELDERS {
                    scope.spawn(|| {
                        while !stop.load(Relaxed) {
                            thread::yield_now();
                        }
                    });
                }
                for _ in 0..CALLERS {
                    scope.spawn(|| {
                        let (mut near, mut far) = UnixStream::pair().expect("descriptors");
                        while !stop.load(Relaxed) {
                            far.write_all(b"a").expect("it is open");
                            near.read_exact(&mut [0]).expect("a byte");
                        }
                    });
                }
                for _ in 0..CHANGES {
                    await_opened();
                    assert!(set_open_vps(1));
                    until("the second VP is parked", || {
                        metrics().expect("it runs").vps[1].is_parked
                    });
                    assert!(set_open_vps(2));
                }
                let batch = metrics().expect("it runs").batch;
                stop.store(true, Relaxed);
                assert!(batch.calls > CHANGES, "{batch:?}");
            });
        });
    });
}

/// Each kernel thread costs the kernel a stack and a scheduler entity.
#[test]
fn parked_vp_has_no_kernel_thread() {
    const NAME: &str = "retirement::stress::parked_vp_has_no_kernel_thread";
    if !is_child(NAME) && !has_vps(NAME) {
        return;
    }
    alone(NAME, || {
        Runtime::builder().vps(VPS).build().expect("a runtime").run(|| {
            let now = || metrics().expect("it runs");
            let carriers = || now().kernel_threads - now().spares.min(now().kernel_threads);
            until("each VP is carried", || carriers() == VPS);
            assert!(set_open_vps(1));
            until("one VP is carried", || carriers() == 1);
            // Besides the carrier, one thread may stay for the next block.
            until("surplus kernel threads end", || now().kernel_threads <= 2);
            assert!(now().vps[1..].iter().all(|vp| vp.is_parked), "{:?}", now());
            assert!(set_open_vps(VPS));
            until("each VP is carried again", || carriers() == VPS);
        });
    });
}

#[test]
fn quota_and_affinity_change_at_random() {
    const NAME: &str = "retirement::stress::quota_and_affinity_change_at_random";
    if !is_inside() {
        if !is_fixed(NAME) {
            grant_quotas(NAME, &Container { quota: PERIOD, ..DEFAULT });
        }
        return;
    }
    let all = affinity();
    Runtime::builder().build().expect("a runtime").run(|| {
        if one_to_one() {
            return eprintln!("\n[skip] microprocesses are kernel threads here");
        }
        let load = Load::new();
        load.run(|| {
            for mut round in rounds(NAME) {
                let random = &mut round.random;
                ask_for_quota(1 + random.below(all.len() as u64) as usize);
                let first = random.below(all.len() as u64) as usize;
                let count = 1 + random.below((all.len() - first) as u64) as usize;
                set_affinity(&all[first..first + count]);
                thread::sleep(Duration::from_millis(random.below(1500)));
                load.await_progress();
            }
            set_affinity(&all);
            ask_for_quota(all.len());
            await_open(all.len());
            load.await_progress();
        });
    });
}

#[test]
fn trace_of_vps_that_retire_is_consistent() {
    const NAME: &str = "retirement::stress::trace_of_vps_that_retire_is_consistent";
    if !is_child(NAME) && !has_vps(NAME) {
        return;
    }
    alone(NAME, || {
        let name = format!("kumi-retirement-{}.perfetto", std::process::id());
        let path = std::env::temp_dir().join(name);
        let runtime = Runtime::builder().vps(2).trace(&path).build().expect("a runtime");
        let parked = runtime.run(|| {
            let work = || {
                thread::scope(|scope| {
                    for n in 0..8 {
                        scope.spawn(move || {
                            thread::sleep(Duration::from_micros(200));
                            thread::blocking(|| std::thread::sleep(Duration::from_micros(100)));
                            assert_eq!(super::told(n), n);
                        });
                    }
                });
            };
            let mut parked = 0;
            for n in 0..20 {
                assert!(set_open_vps(1 + n % 2));
                work();
                parked += usize::from(metrics().expect("it runs").vps[1].is_parked);
            }
            parked
        });
        let report = check(&path, None).expect("a trace");
        std::fs::remove_file(&path).expect("the trace");
        assert!(parked > 0, "the VP was never parked");
        assert_eq!(report.overlaps, [""; 0], "{report}");
        assert_eq!(report.verdict(), Verdict::Holds, "{report}");
    });
}
