//! Peers that end, are replaced or are stopped during a call.

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use kumihimo::gate::{ErrorKind, Gate, Options, Region, Serving};
use kumihimo::sync::Semaphore;
use kumihimo::thread;

use crate::parts::{Held, Part, hear, play, serve_on, tell, until};

/// A gate whose handlers sleep until they are cancelled. Returns the numbers of started and of
/// cancelled handlers.
fn holds(name: &str) -> (Serving, Arc<AtomicU32>, Arc<AtomicU32>) {
    struct Ends(Arc<AtomicU32>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (begun, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (its, also) = (begun.clone(), ended.clone());
    let serving = Gate::<u32, u32>::serve_with(name, &Options::new(), move |n, context| {
        let _regions = context.regions()?;
        let _ends = Ends(also.clone());
        its.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_secs(3600));
        Ok(n)
    });
    (serving.expect("it serves"), begun, ended)
}

#[test]
fn killed_client_leaves_no_objects() {
    let server = || {
        const ROUNDS: u32 = 100;
        let (_serving, begun, ended) = holds("holds");
        let mut before = None;
        for round in 1..=ROUNDS {
            let client = Part::start("client");
            until("the client's calls are active", || begun.load(Ordering::Relaxed) == 4 * round);
            assert_eq!(ended.load(Ordering::Relaxed), 4 * (round - 1));
            client.kill();
            until("the handlers are cancelled", || ended.load(Ordering::Relaxed) == 4 * round);
            let living = || kumihimo::runtime::metrics().expect("a runtime runs").living;
            // The first client leaves objects that are created once.
            let (held, most) = *before.get_or_insert_with(|| {
                until("everything of the first client is gone", || {
                    Held::now().links == 0 && Held::now().lanes == 0 && Held::now().regions == 0
                });
                (Held::now(), living())
            });
            until("everything of the client is gone", || Held::now() == held && living() <= most);
        }
    };
    let client = || {
        let holds = Gate::<u32, u32>::connect("holds").expect("it is there");
        let region = Region::copy_of(&[1; 10_000]).expect("memory");
        thread::scope(|scope| {
            for n in 0..4 {
                let (holds, region) = (&holds, region.clone());
                scope.spawn(move || holds.call_with(&n, &[region]).expect("never"));
            }
        });
    };
    play("dying::killed_client_leaves_no_objects", &[("server", &server), ("client", &client)]);
}

#[test]
fn killed_server_fails_all_active_calls() {
    let client = || {
        let first = Part::serving("holds");
        let holds = Gate::<u32, u32>::connect("holds").expect("it is there");
        let linked = Held::now();
        let calls: Vec<_> = (0..1000)
            .map(|n| {
                let holds = holds.clone();
                thread::spawn(move || holds.call(&n))
            })
            .collect();
        until("all calls are active", || holds.under_way() == 1000);
        first.kill();
        for call in calls {
            let error = call.join().expect("no panic").expect_err("no reply");
            assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
            assert!(error.to_string().contains("holds"), "{error}");
        }
        assert_eq!(holds.call(&1).expect_err("no server").kind(), ErrorKind::NotFound);
        until("the link is gone", || Held::now().links == 0);
        // The same handle connects to another server.
        let second = Part::serving("echoes");
        assert_eq!(holds.call(&7).expect("a reply"), 7);
        until("the old lane is gone", || Held::now().lanes == 1);
        drop(holds);
        until("nothing is left", || {
            let now = Held::now();
            (now.links, now.lanes) == (0, 0) && now.descriptors <= linked.descriptors
        });
        drop(second);
    };
    let holding = || {
        let _holds = holds("holds");
        serve_on();
    };
    let echoing = || {
        let _serving = Gate::serve("holds", |n: u32| n).expect("it serves");
        serve_on();
    };
    let name = "dying::killed_server_fails_all_active_calls";
    play(name, &[("client", &client), ("holds", &holding), ("echoes", &echoing)]);
}

#[test]
fn replaced_server_handles_each_call_at_most_once() {
    const LOG: &str = "handled";
    let path =
        || std::path::Path::new(&std::env::var("KUMI_DIR").expect("it is set")).with_extension(LOG);
    let client = || {
        let mut server = Part::serving("server");
        let gate = Gate::<u64, u64>::connect("counts").expect("it is there");
        let (next, done) = (AtomicU64::new(0), AtomicBool::new(false));
        let answered = thread::scope(|scope| {
            let callers: Vec<_> = (0..16)
                .map(|_| {
                    let (gate, next, done) = (&gate, &next, &done);
                    scope.spawn(move || {
                        let mut answered = Vec::new();
                        while !done.load(Ordering::Relaxed) {
                            let id = next.fetch_add(1, Ordering::Relaxed);
                            match gate.call(&id) {
                                Ok(same) => {
                                    assert_eq!(same, id);
                                    answered.push(id);
                                }
                                Err(error) => {
                                    let kind = error.kind();
                                    assert!(
                                        matches!(kind, ErrorKind::Gone | ErrorKind::NotFound),
                                        "{kind:?}: {error}"
                                    );
                                    thread::yield_now();
                                }
                            }
                        }
                        answered
                    })
                })
                .collect();
            for _ in 0..20 {
                let before = next.load(Ordering::Relaxed);
                until("calls go on", || next.load(Ordering::Relaxed) > before + 200);
                server.kill();
                server = Part::serving("server");
            }
            let before = gate.call(&next.fetch_add(1, Ordering::Relaxed)).expect("it is there");
            until("calls go on", || next.load(Ordering::Relaxed) > before + 200);
            done.store(true, Ordering::Relaxed);
            callers
                .into_iter()
                .flat_map(|caller| caller.join().expect("no panic"))
                .collect::<Vec<u64>>()
        });
        let log = std::fs::read(path()).expect("the servers wrote it");
        std::fs::remove_file(path()).expect("it is ours");
        let ids: Vec<u64> = log
            .chunks_exact(8)
            .map(|id| u64::from_ne_bytes(id.try_into().expect("eight")))
            .collect();
        let handled: HashSet<u64> = ids.iter().copied().collect();
        assert_eq!(handled.len(), ids.len(), "each is handled once at most");
        assert!(answered.len() > 1000 && answered.iter().all(|id| handled.contains(id)));
    };
    let server = || {
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(path()).expect("a file");
        let handler = move |id: u64| {
            (&log).write_all(&id.to_ne_bytes()).expect("written");
            id
        };
        let _serving = Gate::serve("counts", handler).expect("it serves");
        serve_on();
    };
    play(
        "dying::replaced_server_handles_each_call_at_most_once",
        &[("client", &client), ("server", &server)],
    );
}

#[test]
fn stopped_server_delays_calls_until_continued() {
    let client = || {
        let server = Part::serving("server");
        let gate = Gate::<u32, u32>::connect("slow").expect("it is there");
        let waits = thread::spawn({
            let gate = gate.clone();
            move || gate.call(&300)
        });
        until("the call is active", || gate.under_way() == 1);
        server.stop();
        let error = gate.call_within(&0, Duration::from_millis(50)).expect_err("it is stopped");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let patience = Options::new().patience(Duration::from_millis(50));
        let error = Gate::<u32, u32>::connect_with("slow", &patience).expect_err("it is stopped");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        server.signal(libc::SIGCONT);
        assert_eq!(waits.join().expect("no panic").expect("a reply"), 300);
        assert_eq!(gate.call(&1).expect("a reply"), 1);
        until("the call that timed out has ended", || gate.under_way() == 0);
        drop(server);
    };
    let server = || {
        let handler = |ms: u32| {
            thread::sleep(Duration::from_millis(ms.into()));
            ms
        };
        let _serving = Gate::serve("slow", handler).expect("it serves");
        serve_on();
    };
    play(
        "dying::stopped_server_delays_calls_until_continued",
        &[("client", &client), ("server", &server)],
    );
}

#[test]
fn stopped_client_does_not_stall_others() {
    let server = || {
        let (begun, may) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
        let (its, waits) = (begun.clone(), may.clone());
        let handler = move |n: u32| {
            its.fetch_add(1, Ordering::Relaxed);
            if n != 0 {
                std::mem::forget(waits.acquire());
            }
            n
        };
        let _serving = Gate::serve("waits", handler).expect("it serves");
        let mut client = Part::start("client");
        until("the client's calls are active", || begun.load(Ordering::Relaxed) == 100);
        client.stop();
        may.add_permits(100);
        // Other clients are served as before.
        let gate = Gate::<u32, u32>::connect("waits").expect("it is there");
        for _ in 0..100 {
            assert_eq!(gate.call(&0).expect("a reply"), 0);
        }
        client.signal(libc::SIGCONT);
        client.expect("all");
        client.end();
    };
    let client = || {
        let gate = Gate::<u32, u32>::connect("waits").expect("it is there");
        thread::scope(|scope| {
            for n in 1..=100 {
                let gate = &gate;
                scope.spawn(move || assert_eq!(gate.call(&n).expect("a reply"), n));
            }
        });
        tell("all");
        hear();
    };
    play(
        "dying::stopped_client_does_not_stall_others",
        &[("server", &server), ("client", &client)],
    );
}

#[test]
fn closed_gate_fails_its_callers() {
    let both = || {
        for _ in 0..20 {
            let (serving, begun, ended) = holds("closes");
            let gate = Gate::<u32, u32>::connect("closes").expect("it is there");
            let calls: Vec<_> = (0..10)
                .map(|n| {
                    let gate = gate.clone();
                    thread::spawn(move || gate.call(&n))
                })
                .collect();
            until("all calls have a handler", || begun.load(Ordering::Relaxed) == 10);
            drop(serving);
            for call in calls {
                let error = call.join().expect("no panic").expect_err("it is closed");
                assert!(
                    error.kind() == ErrorKind::Gone && error.to_string().contains("closed"),
                    "{error}"
                );
            }
            until("its handlers are cancelled", || ended.load(Ordering::Relaxed) == 10);
            assert_eq!(gate.call(&0).expect_err("no server").kind(), ErrorKind::NotFound);
        }
        until("nothing is left", || Held::now().links == 0 && Held::now().lanes == 0);
    };
    play("dying::closed_gate_fails_its_callers", &[("both", &both)]);
}
