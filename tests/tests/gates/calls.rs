//! Features of gates: calls, sends, streams, regions, priorities, deadlines, cancellation.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kumihimo::gate::{ErrorKind, Gate, Options, Placement, RawGate, Region, Server};
use kumihimo::policy::Priority;
use kumihimo::thread;

use kumihimo_tests::process::has_vps;
use kumihimo_tests::rounds;

use crate::pair::{pair, pair_with, serve_on};

const PLACEMENTS: [Placement; 4] =
    [Placement::Adaptive, Placement::Handoff, Placement::Scheduled, Placement::Spin];

#[test]
fn typed_calls_return_their_replies() {
    let server = || {
        let _serving = Gate::serve("adder", |(a, b): (u64, u64)| a + b).expect("it serves");
        serve_on();
    };
    pair("calls::typed_calls_return_their_replies", server, || {
        for placement in PLACEMENTS {
            let adder = Gate::<(u64, u64), u64>::connect_with(
                "adder",
                &Options::new().placement(placement),
            )
            .expect("it is there");
            for i in 0..2000 {
                assert_eq!(adder.call(&(i, 1)).expect("a reply"), i + 1);
            }
            assert_eq!(adder.under_way(), 0);
        }
    });
}

/// A virtual processor that waits for descriptors can be woken only by its own address space, which
/// must be notified.
#[test]
fn vps_waiting_for_sockets_are_woken_by_calls() {
    fn accepts() {
        thread::spawn(|| {
            let listener = kumihimo::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.accept().expect("no connection until the process ends");
        });
    }
    let server = || {
        let _serving = Gate::serve("adder", |(a, b): (u64, u64)| a + b).expect("it serves");
        (0..8).for_each(|_| accepts());
        serve_on();
    };
    pair("calls::vps_waiting_for_sockets_are_woken_by_calls", server, || {
        let adder = Gate::<(u64, u64), u64>::connect("adder").expect("it is there");
        (0..8).for_each(|_| accepts());
        for i in 0..200 {
            // Enough time for all virtual processors to go to sleep.
            thread::sleep(Duration::from_millis(i % 3));
            assert_eq!(adder.call(&(i, 1)).expect("a reply"), i + 1);
        }
    });
}

#[test]
fn more_callers_than_cells_are_served() {
    let server = || {
        let _serving = Gate::serve("echo", |text: String| text).expect("it serves");
        serve_on();
    };
    pair("calls::more_callers_than_cells_are_served", server, || {
        let echo = Gate::<String, String>::connect("echo").expect("it is there");
        thread::scope(|scope| {
            for i in 0..1500 {
                let echo = &echo;
                // More callers than the lane has cells.
                scope.spawn(move || {
                    for j in 0..20 {
                        let text = format!("{i} and {j}");
                        assert_eq!(echo.call(&text).expect("a reply"), text);
                    }
                });
            }
        });
        assert_eq!(echo.under_way(), 0);
    });
}

#[test]
fn kernel_threads_can_call_gates() {
    let server = || {
        let _serving = Gate::serve("half", |n: u32| n / 2).expect("it serves");
        serve_on();
    };
    pair("calls::kernel_threads_can_call_gates", server, || {
        let half = Gate::<u32, u32>::connect("half").expect("it is there");
        std::thread::scope(|scope| {
            for i in 0..8 {
                let half = &half;
                scope.spawn(move || {
                    for j in 0..200 {
                        assert_eq!(half.call(&(i * j)).expect("a reply"), i * j / 2);
                    }
                });
            }
        });
    });
}

#[test]
fn requests_and_replies_have_any_size() {
    let server = || {
        let _serving = RawGate::serve("bytes", &Options::new(), |asked, _, answer| {
            answer.extend(asked.iter().rev());
            Ok(Vec::new())
        })
        .expect("it serves");
        serve_on();
    };
    pair("calls::requests_and_replies_have_any_size", server, || {
        let bytes =
            RawGate::connect_with("bytes", &Options::new().largest(4 << 20)).expect("it is there");
        let mut reply = Vec::new();
        for len in [0, 1, 63, 64, 127, 128, 129, 4095, 4096, 4097, 100_000, 4 << 20] {
            let asked: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            bytes.call(&asked, &mut reply).expect("a reply");
            assert!(reply.iter().eq(asked.iter().rev()), "{len} bytes");
        }
        let error = bytes.call(&vec![0; (4 << 20) + 1], &mut reply).expect_err("too many");
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    });
}

#[test]
fn regions_are_passed_by_reference() {
    let server = || {
        let _serving =
            Gate::<u32, u64>::serve_regions("sum", &Options::new(), |factor, context| {
                if factor == 0 {
                    thread::sleep(Duration::from_secs(3600));
                }
                let regions = context.regions()?;
                let sum: u64 = regions
                    .iter()
                    .flat_map(|region| region.iter())
                    .map(|byte| u64::from(*byte))
                    .sum();
                let back = Region::new(1000, |bytes| bytes.fill(factor as u8))?;
                Ok((sum * u64::from(factor), vec![back]))
            })
            .expect("it serves");
        serve_on();
    };
    pair("calls::regions_are_passed_by_reference", server, || {
        let sum = Gate::<u32, u64>::connect("sum").expect("it is there");
        let two = [
            Region::copy_of(&[1; 5000]).expect("memory"),
            Region::copy_of(&[2; 10]).expect("memory"),
        ];
        for factor in 1..100 {
            let (total, back) = sum.call_with(&factor, &two).expect("a reply");
            assert_eq!(total, u64::from(factor) * 5020);
            assert_eq!(back.len(), 1);
            assert!(back[0].iter().all(|byte| *byte == factor as u8) && back[0].len() == 1000);
        }
        // More regions than the other side caches.
        for n in 1..50_usize {
            let region = Region::copy_of(&vec![1; n]).expect("memory");
            assert_eq!(sum.call_with(&1, &[region]).expect("a reply").0, n as u64);
        }
        let error =
            sum.call_with_within(&0, &two, Duration::from_millis(20)).expect_err("no reply");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert_eq!(sum.call_with_within(&1, &two, Duration::MAX).expect("a reply").0, 5020);
        let none = Region::copy_of(&[]).expect("memory");
        assert_eq!(sum.call_with(&1, &[none]).expect("a reply").0, 0);
        let error = sum.call_with(&1, &vec![two[0].clone(); 5]).expect_err("too many");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    });
}

#[test]
fn sends_arrive_without_replies() {
    let server = || {
        let sum = Arc::new(AtomicU64::new(0));
        let its = sum.clone();
        let _adds = Gate::<u64, ()>::serve("adds", move |n| {
            let _ = its.fetch_add(n, Ordering::Relaxed);
        })
        .expect("it serves");
        let _told = Gate::<(), u64>::serve("told", move |()| sum.load(Ordering::Relaxed))
            .expect("it serves");
        serve_on();
    };
    pair("calls::sends_arrive_without_replies", server, || {
        let adds = Gate::<u64, ()>::connect("adds").expect("it is there");
        let told = Gate::<(), u64>::connect("told").expect("it is there");
        for n in 1..=10_000 {
            adds.send(&n).expect("sent");
        }
        let all = 10_000 * 10_001 / 2;
        while told.call(&()).expect("a reply") < all {
            thread::yield_now();
        }
        assert_eq!(told.call(&()).expect("a reply"), all);
        while adds.under_way() != 0 {
            thread::yield_now();
        }
    });
}

#[test]
fn server_runs_its_own_receive_loop() {
    let server = || {
        let mut server: Server<u32, u32> = Gate::listen("loop").expect("it serves");
        let loops = thread::spawn(move || {
            let mut item = server.receive().expect("a request");
            loop {
                let reply = item.request * 2;
                item = server.reply_and_receive(item, &reply).expect("a request");
            }
        });
        serve_on();
        drop(loops);
    };
    pair("calls::server_runs_its_own_receive_loop", server, || {
        let double = Gate::<u32, u32>::connect("loop").expect("it is there");
        thread::scope(|scope| {
            for i in 0..20 {
                let double = &double;
                scope.spawn(move || {
                    for j in 0..100 {
                        assert_eq!(double.call(&(i + j)).expect("a reply"), 2 * (i + j));
                    }
                });
            }
        });
        // A request of another type.
        let wrong =
            Gate::<BTreeSet<String>, u32>::connect("loop").expect("a type that is not compared");
        let words = ["no", "number"].map(String::from);
        let error = wrong.call(&words.into()).expect_err("another type");
        assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
        assert_eq!(double.call(&4).expect("a reply"), 8);
    });
}

/// An abandoned call cancels a handler in a pool, but not a receive loop.
#[test]
fn receive_loop_outlives_abandoned_calls() {
    let server = || {
        let mut server: Server<u64, u64> = Gate::listen("loop").expect("it serves");
        let loops = thread::spawn(move || {
            let mut item = server.receive().expect("a request");
            loop {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(item.request)
                    && !item.context().is_cancelled()
                {
                    thread::yield_now();
                }
                let reply = item.request;
                item = server.reply_and_receive(item, &reply).expect("a request");
            }
        });
        serve_on();
        drop(loops);
    };
    pair("calls::receive_loop_outlives_abandoned_calls", server, || {
        let echo = Gate::<u64, u64>::connect("loop").expect("it is there");
        for i in 0..100 {
            match echo.call_within(&(20 * i), Duration::from_millis(1)) {
                Ok(reply) => assert_eq!(reply, 20 * i),
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
            }
        }
        // The loop can detect the abandoned call itself.
        let error = echo
            .call_within(&3_600_000_000, Duration::from_millis(1))
            .expect_err("no reply for an hour");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert_eq!(echo.call(&7).expect("a reply"), 7);
    });
}

/// Cancelling the handler of an abandoned call does not affect other handlers.
#[test]
fn cancelled_call_leaves_other_calls_running() {
    const NAME: &str = "calls::cancelled_call_leaves_other_calls_running";
    let server = || {
        let _serving = Gate::serve("sleeps", |time: u64| {
            thread::sleep(Duration::from_micros(time));
            time
        })
        .expect("it serves");
        serve_on();
    };
    pair(NAME, server, || {
        let sleeps = Gate::<u64, u64>::connect("sleeps").expect("it is there");
        for mut round in rounds(NAME) {
            thread::scope(|scope| {
                for caller in 0..16 {
                    let (sleeps, mut random) = (&sleeps, round.random.split());
                    scope.spawn(move || {
                        for _ in 0..50 {
                            let time = random.below(200);
                            if caller % 2 == 0 {
                                assert_eq!(sleeps.call(&time), Ok(time));
                                continue;
                            }
                            match sleeps
                                .call_within(&time, Duration::from_micros(random.below(400)))
                            {
                                Ok(reply) => assert_eq!(reply, time),
                                Err(error) => {
                                    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}")
                                }
                            }
                        }
                    });
                }
            });
        }
    });
}

#[test]
fn handlers_that_panic_fail_their_caller_only() {
    let server = || {
        let _serving = Gate::serve("fussy", |n: u32| if n == 3 { panic!("not three") } else { n })
            .expect("it serves");
        serve_on();
    };
    pair("calls::handlers_that_panic_fail_their_caller_only", server, || {
        let fussy = Gate::<u32, u32>::connect("fussy").expect("it is there");
        for n in 0..10 {
            match fussy.call(&n) {
                Ok(same) => assert_eq!((same, n == 3), (n, false)),
                Err(error) => {
                    assert_eq!((error.kind(), n), (ErrorKind::Panicked, 3));
                    assert!(
                        error.to_string().contains("not three")
                            && error.to_string().contains("fussy"),
                        "{error}"
                    );
                }
            }
        }
    });
}

#[test]
fn handlers_can_run_at_the_servers_priority() {
    const NAME: &str = "calls::handlers_can_run_at_the_servers_priority";
    if !has_vps(NAME) {
        return;
    }
    let server = || {
        let begins =
            thread::Builder::new().priority(Priority::new(9).expect("a priority")).spawn(|| {
                let own = Options::new().inherit(false);
                Gate::serve_with("mine", &own, |(), _| Ok(thread::current_priority().get()))
                    .expect("it serves")
            });
        let _serving = begins.expect("memory").join().expect("no panic");
        serve_on();
    };
    pair(NAME, server, || {
        for level in [3, 50] {
            let mine = Gate::<(), u8>::connect_with("mine", &Options::new().priority(level))
                .expect("it is there");
            for _ in 0..20 {
                assert_eq!(mine.call(&()).expect("a reply"), 9);
            }
        }
    });
}

#[test]
fn handlers_run_at_the_callers_priority() {
    if !has_vps("handlers_run_at_the_callers_priority") {
        return;
    }
    let server = || {
        let _serving =
            Gate::serve("mine", |()| thread::current_priority().get()).expect("it serves");
        let inner = Gate::<(), u8>::connect("mine").expect("it is there");
        let _chain = Gate::serve("chain", move |()| {
            (thread::current_priority().get(), inner.call(&()).expect("a reply"))
        })
        .expect("it serves");
        serve_on();
    };
    pair("calls::handlers_run_at_the_callers_priority", server, || {
        let mine = Gate::<(), u8>::connect("mine").expect("it is there");
        let chain = Gate::<(), (u8, u8)>::connect("chain").expect("it is there");
        thread::scope(|scope| {
            for level in [0, 1, 31, 32, 33, 63] {
                let (mine, chain) = (&mine, &chain);
                let priority = Priority::new(level).expect("a priority");
                let one =
                    thread::Builder::new().priority(priority).spawn_scoped(scope, move || {
                        for _ in 0..50 {
                            assert_eq!(mine.call(&()).expect("a reply"), level);
                            assert_eq!(chain.call(&()).expect("a reply"), (level, level));
                        }
                    });
                one.expect("a microprocess");
            }
        });
        let forced =
            Gate::<(), u8>::connect_with("mine", &Options::new().priority(7)).expect("it is there");
        assert_eq!(forced.call(&()).expect("a reply"), 7);
    });
}

#[test]
fn deadlines_and_cancellation_reach_the_handler() {
    let server = || {
        let cancelled = Arc::new(AtomicU32::new(0));
        let its = cancelled.clone();
        let _sleeps =
            Gate::<u64, bool>::serve_with("sleeps", &Options::new(), move |ms, context| {
                struct Counts(Arc<AtomicU32>);
                impl Drop for Counts {
                    fn drop(&mut self) {
                        if std::thread::panicking() {
                            self.0.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                let _counts = Counts(its.clone());
                thread::sleep(Duration::from_millis(ms));
                Ok(context.deadline().is_some())
            })
            .expect("it serves");
        let _cancelled =
            Gate::<(), u32>::serve("cancelled", move |()| cancelled.load(Ordering::Relaxed))
                .expect("it serves");
        serve_on();
    };
    pair("calls::deadlines_and_cancellation_reach_the_handler", server, || {
        let sleeps = Gate::<u64, bool>::connect("sleeps").expect("it is there");
        let cancelled = Gate::<(), u32>::connect("cancelled").expect("it is there");
        assert!(!sleeps.call(&0).expect("a reply"));
        assert!(sleeps.call_within(&0, Duration::from_secs(60)).expect("a reply"));
        let error = sleeps
            .call_within(&3_600_000, Duration::from_millis(30))
            .expect_err("no reply for an hour");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        // The handler's sleep ended at the deadline as well.
        while sleeps.under_way() != 0 {
            thread::yield_now();
        }
        let waits = thread::spawn({
            let sleeps = sleeps.clone();
            move || sleeps.call(&3_600_000)
        });
        while sleeps.under_way() != 1 {
            thread::yield_now();
        }
        waits.cancel();
        assert!(waits.join().expect_err("it was cancelled").is::<kumihimo::thread::Cancelled>());
        while sleeps.under_way() != 0 {
            thread::yield_now();
        }
        let before = cancelled.call(&()).expect("a reply");
        // The deadline of a scope applies to calls in it.
        let late = Instant::now() + Duration::from_millis(20);
        let error = thread::scope_until(late, |_| sleeps.call(&3_600_000))
            .expect_err("no reply for an hour");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(!sleeps.call(&0).expect("the pool is as it was"));
        // A handler that is certainly running when its call is cancelled.
        let gates = (sleeps.clone(), cancelled.clone());
        let waits = thread::spawn(move || gates.0.call(&3_600_000));
        thread::sleep(Duration::from_millis(50));
        waits.cancel();
        assert!(waits.join().is_err());
        while sleeps.under_way() != 0 {
            thread::yield_now();
        }
        assert!(
            cancelled.call(&()).expect("a reply") > before,
            "the handler was cancelled where it slept"
        );
    });
}

#[test]
fn deadlocked_calls_are_named() {
    let server = || {
        let mut server: Server<u32, String> = Gate::listen("itself").expect("it serves");
        let me = Gate::<u32, String>::connect("itself").expect("it is there");
        let loops = thread::spawn(move || {
            let mut item = server.receive().expect("a request");
            loop {
                let reply = match me.call(&0) {
                    Ok(_) => "it came back".to_owned(),
                    Err(error) => format!("{:?}", error.kind()),
                };
                item = server.reply_and_receive(item, &reply).expect("a request");
            }
        });
        let around = Arc::new(std::sync::OnceLock::<Gate<u32, String>>::new());
        let its = around.clone();
        let _around = Gate::serve("around", move |n: u32| {
            match its.get().expect("connected").call(&(n + 1)) {
                Ok(said) => said,
                Err(error) => format!("{:?} after {n}", error.kind()),
            }
        })
        .expect("it serves");
        around.set(Gate::connect("around").expect("it is there")).expect("once");
        serve_on();
        drop(loops);
    };
    pair("calls::deadlocked_calls_are_named", server, || {
        let itself = Gate::<u32, String>::connect("itself").expect("it is there");
        assert_eq!(itself.call(&1).expect("a reply"), "Deadlock");
        let around = Gate::<u32, String>::connect("around").expect("it is there");
        assert_eq!(around.call(&0).expect("a reply"), "Deadlock after 14");
    });
}

#[test]
fn calls_work_with_every_event_source_and_without_a_board() {
    let server = || {
        let _serving = Gate::serve("next", |n: u32| n + 1).expect("it serves");
        serve_on();
    };
    for events in ["off", "watch"] {
        for arbiter in ["none", "on"] {
            let name = "calls::calls_work_with_every_event_source_and_without_a_board";
            pair_with(name, &[("KUMI_EVENTS", events), ("KUMI_ARBITER", arbiter)], server, || {
                let next = Gate::<u32, u32>::connect("next").expect("it is there");
                for n in 0..300 {
                    assert_eq!(next.call(&n).expect("a reply"), n + 1);
                }
            });
            if crate::pair::side(name).is_some() {
                return;
            }
        }
    }
}
