//! Threads: those of `kumihimo::thread`.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kumihimo::sync::{Arc, mpsc};
use kumihimo::thread::{self, Builder};

use crate::Beside;
use crate::beside::behaviours;

behaviours!(
    join_returns_the_value,
    join_returns_the_panic,
    named_thread_has_its_name,
    unnamed_thread_has_none,
    ids_differ,
    handle_and_thread_agree,
    name_with_a_zero_byte_is_refused,
    finished_thread_is_seen,
    token_ends_a_park,
    token_is_kept_for_a_park,
    tokens_do_not_add_up,
    park_times_out,
    sleep_lasts_as_long,
    scope_joins_its_threads,
    scope_lends_variables,
    scope_reports_a_panic,
    scope_returns_a_value,
    nested_scopes,
    scoped_thread_spawns_in_its_scope,
    thread_local_is_a_threads_own,
    thread_local_is_dropped_at_the_end,
    thread_local_is_dropped_before_join_returns,
    dropped_handle_detaches,
    value_of_a_detached_thread_is_dropped,
    threads_start_threads,
    panicking_is_true_in_a_destructor,
);

fn join_returns_the_value(_: Beside) {
    assert_eq!(thread::spawn(|| String::from("x") + "y").join().unwrap(), "xy");
    assert_eq!(Builder::new().stack_size(100_000).spawn(|| 5).unwrap().join().unwrap(), 5);
}

fn join_returns_the_panic(_: Beside) {
    fn join_of(payload: Box<dyn std::any::Any + Send>) -> Box<dyn std::any::Any + Send> {
        thread::spawn(move || std::panic::resume_unwind(payload)).join().unwrap_err()
    }
    assert_eq!(*join_of(Box::new("static")).downcast::<&str>().unwrap(), "static");
    assert_eq!(*join_of(Box::new(String::from("own"))).downcast::<String>().unwrap(), "own");
    assert!(join_of(Box::new(3u16)).is::<u16>());
}

fn named_thread_has_its_name(_: Beside) {
    let name = || thread::current().name().map(str::to_owned);
    let named = Builder::new().name("ribbon".into()).spawn(name).unwrap();
    assert_eq!(named.thread().name(), Some("ribbon"));
    assert_eq!(named.join().unwrap().as_deref(), Some("ribbon"));
}

fn unnamed_thread_has_none(_: Beside) {
    assert!(thread::spawn(|| thread::current().name().is_none()).join().unwrap());
}

fn ids_differ(beside: Beside) {
    let own = thread::current().id();
    let other = beside.spawn(|| thread::current().id()).result();
    let another = beside.spawn(|| thread::current().id()).result();
    assert!(own != other && other != another && own != another);
    assert_eq!(own, thread::current().id());
}

fn handle_and_thread_agree(_: Beside) {
    let handle = thread::spawn(|| thread::current().id());
    let id = handle.thread().id();
    assert_eq!(handle.join().unwrap(), id);
}

fn name_with_a_zero_byte_is_refused(_: Beside) {
    let refused =
        std::panic::catch_unwind(|| Builder::new().name("a\0b".into()).spawn(|| ()).map(|_| ()));
    // std panics; an error would do as well, a thread would not.
    assert!(refused.is_err() || refused.is_ok_and(|r| r.is_err()));
}

fn finished_thread_is_seen(_: Beside) {
    let (go, wait) = mpsc::channel::<()>();
    let handle = thread::spawn(move || wait.recv());
    assert!(!handle.is_finished());
    go.send(()).unwrap();
    while !handle.is_finished() {
        thread::yield_now();
    }
    handle.join().unwrap().unwrap();
}

fn token_ends_a_park(beside: Beside) {
    let (me, done) = (thread::current(), Arc::new(AtomicBool::new(false)));
    let set = done.clone();
    let unparks = beside.spawn(move || {
        set.store(true, Ordering::SeqCst);
        me.unpark();
    });
    while !done.load(Ordering::SeqCst) {
        thread::park();
    }
    unparks.result();
}

fn token_is_kept_for_a_park(_: Beside) {
    thread::current().unpark();
    thread::park();
    thread::current().unpark();
    thread::park_timeout(Duration::from_secs(3600));
}

fn tokens_do_not_add_up(_: Beside) {
    let handle = thread::spawn(|| {
        (0..3).for_each(|_| thread::current().unpark());
        thread::park();
        let begun = Instant::now();
        // A second park waits. It may also end without a cause, as in std.
        while begun.elapsed() < Duration::from_millis(5) {
            thread::park_timeout(Duration::from_millis(5) - begun.elapsed());
        }
    });
    handle.join().unwrap();
}

fn park_times_out(_: Beside) {
    thread::park_timeout(Duration::from_millis(2));
    thread::park_timeout(Duration::ZERO);
}

fn sleep_lasts_as_long(_: Beside) {
    for time in [Duration::ZERO, Duration::from_micros(1), Duration::from_millis(3)] {
        let begun = Instant::now();
        thread::sleep(time);
        assert!(begun.elapsed() >= time, "it does not end early");
    }
}

fn scope_joins_its_threads(_: Beside) {
    let ended = AtomicUsize::new(0);
    thread::scope(|s| {
        for _ in 0..5 {
            s.spawn(|| {
                thread::yield_now();
                ended.fetch_add(1, Ordering::SeqCst)
            });
        }
    });
    assert_eq!(ended.load(Ordering::SeqCst), 5);
}

fn scope_lends_variables(_: Beside) {
    let (mut list, text) = (vec![1], String::from("lent"));
    let length = thread::scope(|s| {
        s.spawn(|| list.push(2));
        s.spawn(|| text.len()).join().unwrap()
    });
    assert_eq!((list, length), (vec![1, 2], 4));
}

fn scope_reports_a_panic(_: Beside) {
    let unjoined = std::panic::catch_unwind(|| {
        thread::scope(|s| _ = s.spawn(|| std::panic::resume_unwind(Box::new(1))));
    });
    assert!(unjoined.is_err(), "of a thread that was not joined");
    let joined = thread::scope(|s| s.spawn(|| std::panic::resume_unwind(Box::new(1))).join());
    assert!(joined.is_err());
}

fn scope_returns_a_value(_: Beside) {
    assert_eq!(thread::scope(|s| s.spawn(|| 6).join().unwrap() * 7), 42);
}

fn nested_scopes(_: Beside) {
    let sum = AtomicUsize::new(0);
    thread::scope(|outer| {
        outer.spawn(|| {
            thread::scope(|inner| _ = inner.spawn(|| sum.fetch_add(1, Ordering::SeqCst)));
            assert_eq!(sum.load(Ordering::SeqCst), 1);
        });
    });
}

fn scoped_thread_spawns_in_its_scope(_: Beside) {
    let sum = AtomicUsize::new(0);
    thread::scope(|s| {
        s.spawn(|| s.spawn(|| s.spawn(|| sum.fetch_add(1, Ordering::SeqCst))));
    });
    assert_eq!(sum.load(Ordering::SeqCst), 1);
}

fn thread_local_is_a_threads_own(beside: Beside) {
    thread_local!(static VALUE: Cell<u8> = const { Cell::new(1) });
    VALUE.set(2);
    let other = beside.spawn(|| {
        let found = VALUE.get();
        VALUE.set(9);
        thread::yield_now();
        (found, VALUE.get())
    });
    assert_eq!(other.result(), (1, 9));
    assert_eq!(VALUE.get(), 2);
}

struct Sets(Arc<AtomicBool>);
impl Drop for Sets {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn thread_local_is_dropped_at_the_end(beside: Beside) {
    thread_local!(static VALUE: RefCell<Option<Sets>> = const { RefCell::new(None) });
    let dropped = Arc::new(AtomicBool::new(false));
    let set = dropped.clone();
    beside.spawn(move || VALUE.set(Some(Sets(set)))).result();
    assert!(dropped.load(Ordering::SeqCst));
}

fn thread_local_is_dropped_before_join_returns(_: Beside) {
    struct Waits(Sets);
    impl Drop for Waits {
        fn drop(&mut self) {
            thread::yield_now();
            assert!(!self.0.0.load(Ordering::SeqCst));
        }
    }
    thread_local!(static VALUE: RefCell<Option<Waits>> = const { RefCell::new(None) });
    let dropped = Arc::new(AtomicBool::new(false));
    let set = dropped.clone();
    thread::spawn(move || VALUE.set(Some(Waits(Sets(set))))).join().unwrap();
    assert!(dropped.load(Ordering::SeqCst));
}

fn dropped_handle_detaches(_: Beside) {
    let (sender, receiver) = mpsc::channel();
    drop(thread::spawn(move || sender.send(1).unwrap()));
    assert_eq!(receiver.recv(), Ok(1));
}

fn value_of_a_detached_thread_is_dropped(_: Beside) {
    struct Tells(mpsc::Sender<()>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(()).expect("the receiver waits");
        }
    }
    let (sender, receiver) = mpsc::channel();
    drop(thread::spawn(move || Tells(sender)));
    assert_eq!(receiver.recv(), Ok(()));
}

fn threads_start_threads(beside: Beside) {
    fn chain(beside: Beside, left: u32) -> u32 {
        if left == 0 { 0 } else { beside.spawn(move || chain(beside, left - 1)).result() + 1 }
    }
    assert_eq!(chain(beside, 12), 12);
}

fn panicking_is_true_in_a_destructor(beside: Beside) {
    struct Asks(Arc<AtomicBool>);
    impl Drop for Asks {
        fn drop(&mut self) {
            self.0.store(thread::panicking(), Ordering::SeqCst);
        }
    }
    assert!(!thread::panicking());
    let was = Arc::new(AtomicBool::new(false));
    let asks = Asks(was.clone());
    let panics = beside.spawn(move || {
        let _asks = asks;
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(panics.join().is_err() && was.load(Ordering::SeqCst));
}
