//! Policies under real loads: a computing microprocess does not get the priority of one that waits
//! for input, and none starves. The tests check counts and orders, not times.

use std::collections::HashMap;
use std::hint::black_box;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kumihimo::net::UnixStream;
use kumihimo::policy::{
    Feedback, FixedPriority, Info, Placement, Policy, Priority, RoundRobin, Why,
};
use kumihimo::runtime::{Design, NoEvents, Runtime, metrics};
use kumihimo::thread::{self, ThreadId};
use kumihimo_tests::process::{alone, one_to_one};
use kumihimo_tests::skip;

const DESIGNS: [Design; Design::ALL.len()] = Design::ALL;

fn compute() {
    for n in 0..2000 {
        black_box(n);
    }
    thread::cancellation_point();
}

type ById = HashMap<u64, Vec<(Why, Placement)>>;

/// The policy's decisions for each microprocess.
#[derive(Clone, Default)]
struct Answers(Arc<Mutex<ById>>);

struct Watched(Feedback, Answers);

impl Policy for Watched {
    fn name(&self) -> &str {
        "watched feedback"
    }
    fn place(&self, info: &Info, why: Why) -> Placement {
        let answer = self.0.place(info, why);
        self.1.0.lock().expect("not poisoned").entry(info.id).or_default().push((why, answer));
        answer
    }
}

impl Answers {
    fn of(&self, id: ThreadId) -> Vec<(Why, Placement)> {
        // The policy takes this lock, so a holder must not be preempted.
        let _quiet = NoEvents::new();
        self.0.lock().expect("not poisoned").get(&id.as_u64().get()).cloned().unwrap_or_default()
    }

    fn quanta_used_up(&self, id: ThreadId) -> usize {
        self.of(id).iter().filter(|(why, _)| *why == Why::QuantumOver).count()
    }
}

/// The first pitfall in the paper: a computing microprocess got the priority of the one whose block
/// it followed. In this test some compute, and others block in every way: on a socket, in the
/// kernel (the VP continues with the computing ones), asleep, and on a lock that a computing one
/// holds.
#[test]
fn computing_microprocesses_do_not_inherit_interactive_levels() {
    const NAME: &str = "computing_microprocesses_do_not_inherit_interactive_levels";
    const FIRST: Duration = Duration::from_micros(300);
    alone(NAME, || {
        for (vps, design) in
            DESIGNS.map(|design| (1, design)).into_iter().chain([(2, Design::Ring)])
        {
            let answers = Answers::default();
            let policy =
                Watched(Feedback::with_quantum(FIRST, Duration::from_millis(2)), answers.clone());
            let runtime = Runtime::builder()
                .vps(vps)
                .queue(design)
                .policy(policy)
                .build()
                .expect("a runtime");
            let scheduled = runtime.run(|| {
                if one_to_one() {
                    return false;
                }
                // Other work runs at a single priority.
                thread::current().set_priority(Priority::HIGHEST);
                let (over, lock) =
                    (Arc::new(AtomicBool::new(false)), Arc::new(kumihimo::sync::Mutex::new(0u64)));
                let computing: Vec<_> = (0..4)
                    .map(|_| {
                        let (over, lock) = (over.clone(), lock.clone());
                        thread::spawn(move || {
                            while !over.load(SeqCst) {
                                let held = lock.try_lock();
                                compute();
                                drop(held);
                            }
                        })
                    })
                    .collect();
                let (mut near, mut far) = UnixStream::pair().expect("a pair");
                let echo = thread::spawn(move || {
                    let mut byte = [0];
                    while far.read(&mut byte).expect("readable") == 1 {
                        far.write_all(&byte).expect("writable");
                    }
                });
                let seen = over.clone();
                let waiting = thread::spawn(move || {
                    for round in 1.. {
                        if seen.load(SeqCst) {
                            break;
                        }
                        near.write_all(&[1]).expect("writable");
                        near.read_exact(&mut [0]).expect("readable");
                        thread::blocking(|| std::thread::sleep(Duration::from_micros(50)));
                        thread::sleep(Duration::from_micros(100));
                        // Rarely, because the lock's holder continues to compute, and the others
                        // get their turns in between.
                        if round % 16 == 0 {
                            drop(lock.lock().expect("not poisoned"));
                        }
                    }
                });
                let those_that_wait = [echo.thread().id(), waiting.thread().id()];
                while computing.iter().any(|one| answers.quanta_used_up(one.thread().id()) < 8)
                    || those_that_wait.iter().any(|one| answers.of(*one).len() < 30)
                {
                    thread::sleep(Duration::from_millis(1));
                }
                over.store(true, SeqCst);
                let mut rises = 0;
                for one in computing {
                    let id = one.thread().id();
                    one.join().expect("no panic");
                    let its = answers.of(id);
                    for pair in its.windows(2).filter(|pair| pair[1].1.quantum < pair[0].1.quantum)
                    {
                        assert_eq!(pair[1].0, Why::Woken, "{design:?}, {vps} VPs: {its:?}");
                        rises += 1;
                    }
                    assert!(
                        its.iter().any(|(_, answer)| answer.quantum == FIRST * 16),
                        "{design:?}, {vps} VPs: {its:?}"
                    );
                }
                // A computing microprocess may block in the kernel as well, for example at a page
                // fault. It then rises because of its own wait.
                let waits = metrics().expect("it runs").hand_offs;
                assert!(
                    rises <= waits,
                    "{design:?}, {vps} VPs: computing ones rose {rises} times, {waits} hand-offs"
                );
                waiting.join().expect("no panic");
                echo.join().expect("no panic");
                for id in those_that_wait {
                    // The depth depends on the load: losing the core to another process uses up
                    // quanta. But each waiting microprocess begins its turns because of its event,
                    // and does not sink further for that. How often this function's own
                    // microprocess interrupts such a turn depends on the load as well.
                    let its = answers.of(id);
                    let turns = its.iter().filter(|(why, _)| *why != Why::Outranked).count();
                    let woken = its.iter().filter(|(why, _)| *why == Why::Woken).count();
                    assert!(2 * woken > turns, "{design:?}, {vps} VPs: {its:?}");
                    let deeper = |pair: &&[(Why, Placement)]| {
                        pair[1].0 == Why::Woken && pair[1].1.quantum > pair[0].1.quantum
                    };
                    assert_eq!(its.windows(2).find(deeper), None, "{design:?}, {vps} VPs");
                }
                true
            });
            if !scheduled {
                return skip(NAME, "the kernel does the scheduling");
            }
        }
    });
}

/// A preempted microprocess remains the first of its level, as with SCHED_FIFO (sched(7)).
#[test]
fn outranked_microprocess_resumes_before_its_equals() {
    const NAME: &str = "outranked_microprocess_resumes_before_its_equals";
    alone(NAME, || {
        for design in DESIGNS {
            let policies: [Box<dyn Policy>; 2] = [
                Box::new(FixedPriority),
                Box::new(Feedback::with_quantum(Duration::from_secs(60), Duration::from_millis(5))),
            ];
            for policy in policies {
                let name = policy.name().to_owned();
                let runtime = Runtime::builder()
                    .vps(1)
                    .queue(design)
                    .policy(policy)
                    .build()
                    .expect("a runtime");
                let scheduled = runtime.run(|| {
                    if one_to_one() {
                        return false;
                    }
                    thread::current().set_priority(Priority::HIGHEST);
                    // Generating a number causes no page fault. A block would be a reason to run
                    // the other one.
                    let (outranked, next) =
                        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
                    let computes = Arc::new(AtomicBool::new(false));
                    let (seen, draw, begun) = (outranked.clone(), next.clone(), computes.clone());
                    let first = thread::spawn(move || {
                        while !seen.load(SeqCst) {
                            begun.store(true, SeqCst);
                            compute();
                        }
                        draw.fetch_add(1, SeqCst)
                    });
                    let second = thread::spawn(move || next.fetch_add(1, SeqCst));
                    // After waking, this microprocess outranks the computing one.
                    while !computes.load(SeqCst) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    outranked.store(true, SeqCst);
                    let order = (first.join().expect("no panic"), second.join().expect("no panic"));
                    assert_eq!(order, (0, 1), "{name}, {design:?}");
                    true
                });
                if !scheduled {
                    return skip(NAME, "the kernel does the scheduling");
                }
            }
        }
    });
}

/// More computing microprocesses than VPs, all of the same priority: each gets turns repeatedly,
/// under each policy with quanta.
#[test]
fn computing_equals_all_get_turns() {
    const NAME: &str = "computing_equals_all_get_turns";
    alone(NAME, || {
        for design in DESIGNS {
            let policies: [Box<dyn Policy>; 2] = [
                Box::new(RoundRobin::with_quantum(Duration::from_micros(100))),
                Box::new(Feedback::with_quantum(
                    Duration::from_micros(100),
                    Duration::from_micros(500),
                )),
            ];
            for policy in policies {
                let runtime = Runtime::builder()
                    .vps(2)
                    .queue(design)
                    .policy(policy)
                    .build()
                    .expect("a runtime");
                runtime.run(|| {
                    // Ends when each microprocess has run between the others often enough.
                    let (over, last) =
                        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(u64::MAX)));
                    let turns: Arc<Vec<_>> = Arc::new((0..7).map(|_| AtomicU64::new(0)).collect());
                    let all: Vec<_> = (0..7u64)
                        .map(|n| {
                            let (over, last, turns) = (over.clone(), last.clone(), turns.clone());
                            thread::spawn(move || {
                                while !over.load(SeqCst) {
                                    if last.swap(n, SeqCst) != n {
                                        turns[n as usize].fetch_add(1, SeqCst);
                                    }
                                    compute();
                                    if turns.iter().all(|turns| turns.load(SeqCst) >= 30) {
                                        over.store(true, SeqCst);
                                    }
                                }
                            })
                        })
                        .collect();
                    for one in all {
                        one.join().expect("no panic");
                    }
                });
            }
        }
    });
}

/// One that has sunk gives way as soon as a descriptor of one that waits is ready, and keeps its
/// place and the rest of its quantum.
#[test]
fn ready_descriptor_interrupts_one_that_computes_all_the_time() {
    const NAME: &str = "ready_descriptor_interrupts_one_that_computes_all_the_time";
    const ROUNDS: usize = 30;
    alone(NAME, || {
        let answers = Answers::default();
        // No other key is later than that of the one that computes.
        let policy = Feedback::with_quantum(Duration::from_millis(10), Duration::from_secs(60));
        let policy = Watched(policy, answers.clone());
        let runtime = Runtime::builder().vps(1).policy(policy).build().expect("a runtime");
        let (mut near, far) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let (tell, told) = std::sync::mpsc::channel();
        let seen = answers.clone();
        let client = std::thread::spawn(move || {
            let Ok(computing): Result<[ThreadId; 2], _> = told.recv() else { return };
            while computing.iter().any(|id| seen.quanta_used_up(*id) < 5) {
                std::thread::yield_now();
            }
            for _ in 0..ROUNDS {
                // The server waits by then, as a rule.
                std::thread::sleep(Duration::from_millis(2));
                near.write_all(&[1]).expect("writable");
                near.read_exact(&mut [0]).expect("readable");
            }
        });
        runtime.run(|| {
            if one_to_one() || metrics().expect("a runtime").preemption == "off" {
                return skip(NAME, "nothing interrupts a computing microprocess");
            }
            let mut far = UnixStream::from(far);
            let over = Arc::new(AtomicBool::new(false));
            // Two, since one alone has no quantum.
            let computing = [(); 2].map(|()| {
                let seen = over.clone();
                thread::spawn(move || {
                    while !seen.load(SeqCst) {
                        black_box(());
                    }
                })
            });
            let ids = computing.each_ref().map(|one| one.thread().id());
            let echo = thread::spawn(move || {
                let mut byte = [0];
                while far.read(&mut byte).expect("readable") == 1 {
                    far.write_all(&byte).expect("writable");
                }
            });
            let echo_id = echo.thread().id();
            tell.send(ids).expect("the client waits");
            echo.join().expect("no panic");
            over.store(true, SeqCst);
            for one in computing {
                one.join().expect("no panic");
            }
            // It may also come as a quantum ends. How many end depends on how late the client has a
            // core.
            let woken = answers.of(echo_id).iter().filter(|(why, _)| *why == Why::Woken).count();
            let outranked = ids.iter().flat_map(|id| answers.of(*id));
            let outranked = outranked.filter(|(why, _)| *why == Why::Outranked).count();
            assert!(woken > 0 && outranked * 2 > woken, "outranked {outranked} times of {woken}");
        });
        drop(tell);
        client.join().expect("no panic");
    });
}
