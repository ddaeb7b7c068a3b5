//! Holders of locks, and chains and cycles of waits ([`kumihimo::observe::locks`]), of programs in
//! which they are known.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kumihimo::observe::{self, Because, Chain, Holder, Lock, Locks};
use kumihimo::resource::Id;
use kumihimo::runtime::Runtime;
use kumihimo::sync::{Mutex, Once, RwLock, Semaphore};
use kumihimo::thread::{self, Builder, JoinHandle, Thread};
use kumihimo_tests::process::{alone, is_child, is_one_to_one};
use kumihimo_tests::{rounds, skip};

const LONG: Duration = Duration::from_secs(3600);

/// Runs `f` on two VPs, if microprocesses have records here. A process has one runtime at a time.
fn on_two_vps(test: &str, f: impl FnOnce() + Send + 'static) {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if is_one_to_one() {
        return skip(test, "microprocesses are kernel threads here");
    }
    Runtime::builder().vps(2).build().expect("a runtime").run(f);
}

fn spawn<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().name(name.to_owned()).spawn(f).expect("it begins")
}

fn id(of: &Thread) -> Id {
    of.id().resource().expect("it is a microprocess")
}

fn holder<T>(of: &JoinHandle<T>, name: &str) -> Holder {
    Holder::Microprocess { id: id(of.thread()), name: Some(name.to_owned()) }
}

/// Returns the first report that `is_it` accepts.
fn until(is_it: impl Fn(&Locks) -> bool) -> Locks {
    loop {
        let report = observe::locks();
        if is_it(&report) {
            return report;
        }
        thread::yield_now();
    }
}

/// Returns the entry of the lock at `at` once `is_it` accepts it.
fn until_lock<T>(at: &T, is_it: impl Fn(&Lock) -> bool) -> Lock {
    let at = std::ptr::from_ref(at).addr() as u64;
    let is_mine = |lock: &&Lock| lock.address == at && is_it(lock);
    let report = until(|report| report.locks.iter().any(|lock| is_mine(&lock)));
    report.locks.into_iter().find(|lock| is_mine(&lock)).expect("the condition")
}

fn members(chain: &Chain) -> Vec<Id> {
    chain.links.iter().filter_map(|link| link.id).collect()
}

#[test]
fn chain_of_three_is_named_with_its_end() {
    on_two_vps("chain_of_three_is_named_with_its_end", || {
        let (one, two) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
        let lock = one.clone();
        let last = spawn("last", move || {
            let _guard = lock.lock().expect("not poisoned");
            thread::park();
        });
        while one.try_lock().is_ok() {
            thread::yield_now();
        }
        let (first_lock, second_lock) = (one.clone(), two.clone());
        let middle = spawn("middle", move || {
            let _guard = second_lock.lock().expect("not poisoned");
            drop(first_lock.lock());
        });
        until_lock(&*one, |lock| lock.waiters == 1);
        let (lock, other) = (two.clone(), two.clone());
        let first = spawn("first", move || drop(lock.lock()));
        let timed = spawn("timed", move || drop(other.lock_timeout(LONG)));
        let report = until(|report| report.totals.waiters == 3);
        assert_eq!((report.totals.locks, report.totals.cycles), (2, 0), "{report:?}");
        let lock = until_lock(&*two, |lock| lock.holder_does.is_some());
        assert_eq!((lock.kind.as_str(), lock.waiters), ("mutex", 2));
        assert_eq!(lock.holder, holder(&middle, "middle"));
        let want = format!("waits for the mutex at {:p}", Arc::as_ptr(&one));
        assert_eq!(lock.holder_does, Some(want));
        let listed: BTreeSet<_> = lock.first.iter().map(|one| (one.id, one.is_timed)).collect();
        assert_eq!(
            listed,
            BTreeSet::from([(id(first.thread()), false), (id(timed.thread()), true)])
        );
        assert_eq!(lock.longest_ns, lock.first[0].waiting_ns);
        assert!(lock.first[0].waiting_ns >= lock.first[1].waiting_ns, "{lock:?}");

        let [chain] = &report.chains[..] else { panic!("{report:?}") };
        assert_eq!((chain.is_cycle, chain.others), (false, 1));
        assert_eq!(members(chain)[1..], [id(middle.thread()), id(last.thread())]);
        assert_eq!(chain.links[1].because, Because::Holds);
        assert_eq!(chain.links[2].does, "waits for an unpark");
        assert!(chain.to_string().ends_with("(last), which waits for an unpark"), "{chain}");

        last.thread().unpark();
        [last, middle, first, timed].into_iter().for_each(|one| one.join().expect("no panic"));
        assert_eq!(observe::locks(), Locks::default());
    });
}

#[test]
fn joins_and_scopes_are_parts_of_chains() {
    on_two_vps("joins_and_scopes_are_parts_of_chains", || {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock().expect("not poisoned");
        let lock = mutex.clone();
        let locks = spawn("locks", move || drop(lock.lock()));
        let locks_id = id(locks.thread());
        let semaphore = Arc::new(Semaphore::new(0));
        let waited = semaphore.clone();
        let scopes = spawn("scopes", move || {
            thread::scope(|scope| {
                // A wait without a known holder: the chain follows the other child.
                scope.spawn(move || drop(waited.acquire()));
                scope.spawn(move || locks.join().expect("no panic"));
            });
        });
        let is_whole = |report: &Locks| report.chains.iter().any(|chain| chain.links.len() == 4);
        let report = until(is_whole);
        let chain = &report.chains[0];
        let because: Vec<_> = chain.links.iter().map(|link| link.because).collect();
        assert_eq!(because, [Because::Child, Because::End, Because::Holds, Because::Unknown]);
        let own = id(&thread::current());
        let members = members(chain);
        assert_eq!((members[0], members[2], members[3]), (id(scopes.thread()), locks_id, own));
        assert_eq!(chain.links[3].does, "runs", "{chain}");
        drop(guard);
        semaphore.add_permits(1);
        scopes.join().expect("no panic");
    });
}

/// Ends with its process, since the members of a cycle never end.
#[test]
fn cycle_of_two_is_a_deadlock_beside_one_that_runs() {
    let test = "cycle_of_two_is_a_deadlock_beside_one_that_runs";
    alone(test, || {
        on_two_vps(test, || {
            let ours = Arc::new((Mutex::new(()), RwLock::new(()), Semaphore::new(0)));
            let (here, there) = (ours.clone(), ours.clone());
            let one = spawn("one", move || {
                let _guard = here.0.lock().expect("not poisoned");
                here.2.add_permits(1);
                while here.1.try_read().is_ok() {
                    thread::yield_now();
                }
                drop(here.1.read());
            });
            let two = spawn("two", move || {
                let _guard = there.1.write().expect("not poisoned");
                drop(there.2.acquire());
                drop(there.0.lock());
            });
            // The caller runs all the time.
            until(|report| report.totals.waiters == 2 && report.totals.cycles == 1);
            let waits = ours.clone();
            let behind = spawn("behind", move || drop(waits.0.lock()));
            let report = until(|report| report.totals.waiters == 3 && report.totals.cycles == 1);
            let both = BTreeSet::from([id(one.thread()), id(two.thread())]);
            let cycle = &report.chains[0];
            assert!(cycle.is_cycle);
            assert_eq!(members(cycle).into_iter().collect::<BTreeSet<_>>(), both);
            assert_eq!(members(cycle).len(), 2);
            // One waits behind the cycle and is no member.
            let chain = &report.chains[1];
            assert!(!chain.is_cycle, "{chain}");
            assert_eq!(members(chain), [id(behind.thread()), id(one.thread())]);
            println!("found");
            std::process::exit(0);
        });
    });
    assert!(!is_child(test) || is_one_to_one(), "the child has ended");
}

#[test]
fn writer_is_named_and_readers_are_counted() {
    on_two_vps("writer_is_named_and_readers_are_counted", || {
        let lock = Arc::new(RwLock::new(()));
        let held = lock.clone();
        let writer = spawn("writer", move || {
            let _guard = held.write().expect("not poisoned");
            thread::park();
        });
        while lock.try_read().is_ok() {
            thread::yield_now();
        }
        let read = lock.clone();
        let reader = spawn("reader", move || drop(read.read()));
        let seen = until_lock(&*lock, |lock| lock.waiters == 1);
        assert_eq!((seen.kind.as_str(), &seen.holder), ("rwlock", &holder(&writer, "writer")));
        writer.thread().unpark();
        reader.join().expect("no panic");
        writer.join().expect("no panic");

        let guards = [lock.read(), lock.read()];
        let written = lock.clone();
        let waits = spawn("waits", move || drop(written.write()));
        let seen = until_lock(&*lock, |lock| lock.waiters == 1);
        assert_eq!(seen.holder, Holder::Readers { count: 2 });
        drop(guards);
        waits.join().expect("no panic");
    });
}

#[test]
fn holder_of_a_semaphore_is_unknown() {
    on_two_vps("holder_of_a_semaphore_is_unknown", || {
        let semaphore = Arc::new(Semaphore::new(0));
        let waited = semaphore.clone();
        let waits = spawn("waits", move || drop(waited.acquire()));
        let report = until(|report| report.totals.waiters == 1);
        let [lock] = &report.locks[..] else { panic!("{report:?}") };
        assert_eq!((lock.kind.as_str(), &lock.holder), ("semaphore", &Holder::Unknown));
        assert!(report.chains.is_empty(), "{report:?}");
        semaphore.add_permits(1);
        waits.join().expect("no panic");
    });
}

#[test]
fn holder_that_ended_without_unlocking_has_ended() {
    on_two_vps("holder_that_ended_without_unlocking_has_ended", || {
        let mutex = Arc::new(Mutex::new(()));
        let lock = mutex.clone();
        spawn("forgets", move || std::mem::forget(lock.lock())).join().expect("no panic");
        let over = Arc::new(AtomicBool::new(false));
        let (lock, end) = (mutex.clone(), over.clone());
        let waits = spawn("waits", move || {
            while !end.load(Ordering::Relaxed) {
                drop(lock.lock_timeout(Duration::from_millis(50)));
            }
        });
        // Another microprocess may use the record of the one that ended.
        let others = [(); 8].map(|()| thread::spawn(thread::park));
        until_lock(&*mutex, |lock| lock.holder == Holder::Ended);
        others.iter().for_each(|one| one.thread().unpark());
        others.into_iter().for_each(|one| one.join().expect("no panic"));
        over.store(true, Ordering::Relaxed);
        waits.join().expect("no panic");
    });
}

#[test]
fn holder_can_be_a_kernel_thread() {
    on_two_vps("holder_can_be_a_kernel_thread", || {
        let mutex = Arc::new(Mutex::new(()));
        let lock = mutex.clone();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (say, said) = std::sync::mpsc::channel();
        let kernel = std::thread::spawn(move || {
            let _guard = lock.lock().expect("not poisoned");
            // SAFETY: takes nothing.
            say.send(unsafe { libc::gettid() }).expect("it is received");
            let _ = ended.recv();
        });
        let thread = thread::blocking(|| said.recv()).expect("it holds the lock");
        let lock = mutex.clone();
        let waits = spawn("waits", move || drop(lock.lock()));
        let seen = until_lock(&*mutex, |lock| lock.waiters == 1);
        assert_eq!(seen.holder, Holder::KernelThread { thread });
        drop(end);
        waits.join().expect("no panic");
        thread::blocking(|| kernel.join()).expect("no panic");
    });
}

#[test]
fn runner_of_an_initialisation_is_its_holder() {
    on_two_vps("runner_of_an_initialisation_is_its_holder", || {
        let once = Arc::new(Once::new());
        let run = once.clone();
        let began = Arc::new(AtomicBool::new(false));
        let begins = began.clone();
        let runner = spawn("runner", move || {
            run.call_once(|| {
                begins.store(true, Ordering::Relaxed);
                thread::park();
            });
        });
        while !began.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        let wait = once.clone();
        let waits = spawn("waits", move || wait.call_once(|| unreachable!()));
        let seen = until_lock(&*once, |lock| lock.waiters == 1);
        assert_eq!((seen.kind.as_str(), &seen.holder), ("once", &holder(&runner, "runner")));
        runner.thread().unpark();
        runner.join().expect("no panic");
        waits.join().expect("no panic");
    });
}

/// Two of many locks in one piece of memory, which is returned to the system with the last one.
#[derive(Default)]
struct Pair {
    mutex: Mutex<u64>,
    rwlock: RwLock<u64>,
}

/// Makes more locks than fit below the size from which malloc(3) maps memory.
fn many() -> Arc<Vec<Pair>> {
    Arc::new((0..4096).map(|_| Pair::default()).collect())
}

/// Locks, and frees the memory of locks, while others read reports: every holder that a report
/// names is one of the lockers, which all live.
#[test]
fn reports_are_right_while_locks_are_freed() {
    const LOCKERS: usize = 6;
    let test = "reports_are_right_while_locks_are_freed";
    on_two_vps(test, move || {
        let reports = Arc::new(AtomicU64::new(0));
        for mut round in rounds(test) {
            let over = Arc::new(AtomicBool::new(false));
            let place: Arc<Mutex<Arc<Vec<Pair>>>> = Arc::new(Mutex::new(many()));
            let lockers: Vec<_> = (0..LOCKERS)
                .map(|_| {
                    let (over, place) = (over.clone(), place.clone());
                    let mut random = round.random.split();
                    spawn("locker", move || {
                        while !over.load(Ordering::Relaxed) {
                            let all = place.lock().expect("not poisoned").clone();
                            let locks = &all[usize::from(random.one_in(2)) * 4000];
                            match random.below(8) {
                                0 => *place.lock().expect("not poisoned") = many(),
                                1..4 => {
                                    let mut held = locks.mutex.lock().expect("not poisoned");
                                    *held += 1;
                                    thread::yield_now();
                                }
                                4..6 => {
                                    let mut held = locks.rwlock.write().expect("not poisoned");
                                    *held += 1;
                                    thread::yield_now();
                                }
                                _ => {
                                    let held = locks.rwlock.read().expect("not poisoned");
                                    thread::yield_now();
                                    std::hint::black_box(*held);
                                }
                            }
                        }
                        thread::park();
                    })
                })
                .collect();
            let ids: BTreeSet<Id> = lockers.iter().map(|one| id(one.thread())).collect();
            for _ in 0..200 {
                let report = observe::locks();
                assert_eq!(report.totals.cycles, 0, "{report:?}");
                for lock in &report.locks {
                    let is_known = match &lock.holder {
                        Holder::Microprocess { id, .. } => ids.contains(id),
                        Holder::Readers { count } => *count as usize <= LOCKERS,
                        Holder::Free | Holder::Unknown => true,
                        _ => false,
                    };
                    assert!(is_known, "{lock:?}");
                    reports.fetch_add(1, Ordering::Relaxed);
                }
                thread::yield_now();
            }
            over.store(true, Ordering::Relaxed);
            for one in lockers {
                one.thread().unpark();
                one.join().expect("no panic");
            }
        }
        assert!(reports.load(Ordering::Relaxed) > 0, "no report had a lock");
    });
}
