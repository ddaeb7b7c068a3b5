//! Values and calls that happen once.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use kumihimo::sync::{Arc, LazyLock, Once, OnceLock, mpsc};

use crate::Beside;
use crate::beside::behaviours;

behaviours!(
    once_calls_once,
    every_caller_of_once_waits_for_the_call,
    panic_poisons_once,
    forced_call_sees_the_poison,
    forced_call_repairs_once,
    completed_once_ignores_a_forced_call,
    wait_of_a_once_ends_with_the_call,
    cell_is_set_once,
    cell_is_initialised_by_one,
    waiting_readers_get_the_value,
    panic_leaves_the_cell_empty,
    cell_gives_its_value_back,
    cell_waits_for_its_value,
    cell_clones_and_compares,
    cell_formats_as_in_std,
    lazy_value_is_made_at_the_first_use,
    lazy_value_is_made_by_one,
    lazy_value_that_panicked_panics_again,
    lazy_value_in_a_static,
);

fn once_calls_once(beside: Beside) {
    let (once, calls) = (Arc::new(Once::new()), Arc::new(AtomicUsize::new(0)));
    assert!(!once.is_completed());
    let call = {
        let (once, calls) = (once.clone(), calls.clone());
        move || {
            for _ in 0..10 {
                once.call_once(|| {
                    kumihimo::thread::yield_now();
                    calls.fetch_add(1, Ordering::SeqCst);
                });
                assert_eq!(calls.load(Ordering::SeqCst), 1);
            }
        }
    };
    let others: Vec<_> = (0..4).map(|_| beside.spawn(call.clone())).collect();
    call();
    others.into_iter().for_each(|other| other.result());
    assert!(once.is_completed());
}

fn every_caller_of_once_waits_for_the_call(beside: Beside) {
    let (once, (go, wait)) = (Arc::new(Once::new()), mpsc::channel::<()>());
    let (begun, has_begun) = mpsc::channel();
    let (there, done) = (once.clone(), Arc::new(AtomicUsize::new(0)));
    let value = done.clone();
    let first = beside.spawn(move || {
        there.call_once(|| {
            begun.send(()).unwrap();
            wait.recv().unwrap();
            value.store(5, Ordering::SeqCst);
        });
    });
    has_begun.recv().unwrap();
    let (there, value) = (once.clone(), done.clone());
    let second = beside.spawn(move || {
        there.call_once(|| unreachable!("the first call completes"));
        value.load(Ordering::SeqCst)
    });
    go.send(()).unwrap();
    assert_eq!(second.result(), 5);
    first.result();
}

fn poisoned() -> Arc<Once> {
    let once = Arc::new(Once::new());
    let panics = AssertUnwindSafe(|| once.call_once(|| resume_unwind(Box::new(()))));
    assert!(catch_unwind(panics).is_err());
    once
}

fn panic_poisons_once(beside: Beside) {
    let once = poisoned();
    assert!(!once.is_completed());
    assert!(beside.spawn(move || once.call_once(|| ())).join().is_err());
}

fn forced_call_sees_the_poison(beside: Beside) {
    let once = poisoned();
    beside.spawn(move || once.call_once_force(|state| assert!(state.is_poisoned()))).result();
    Once::new().call_once_force(|state| assert!(!state.is_poisoned()));
}

fn forced_call_repairs_once(_: Beside) {
    let once = poisoned();
    let again = AssertUnwindSafe(|| once.call_once_force(|_| resume_unwind(Box::new(()))));
    assert!(catch_unwind(again).is_err(), "a forced call may panic too");
    once.call_once_force(|state| assert!(state.is_poisoned()));
    assert!(once.is_completed());
    once.call_once(|| unreachable!("it is complete"));
}

fn completed_once_ignores_a_forced_call(_: Beside) {
    let once = Once::new();
    once.call_once(|| ());
    once.call_once_force(|_| unreachable!("it is complete"));
}

fn wait_of_a_once_ends_with_the_call(beside: Beside) {
    let (once, value) = (Arc::new(Once::new()), Arc::new(AtomicUsize::new(0)));
    let (there, seen) = (once.clone(), value.clone());
    let waits = beside.spawn(move || {
        there.wait();
        seen.load(Ordering::SeqCst)
    });
    once.call_once(|| value.store(4, Ordering::SeqCst));
    assert_eq!(waits.result(), 4);
    let once = poisoned();
    assert!(beside.spawn(move || once.wait()).join().is_err(), "a poisoned one panics");
}

fn cell_is_set_once(beside: Beside) {
    let cell = Arc::new(OnceLock::new());
    assert!(cell.get().is_none());
    let there = cell.clone();
    assert_eq!(beside.spawn(move || there.set(1)).result(), Ok(()));
    assert_eq!((cell.set(2), cell.get()), (Err(2), Some(&1)));
}

fn cell_is_initialised_by_one(beside: Beside) {
    let (cell, calls) = (Arc::new(OnceLock::new()), Arc::new(AtomicUsize::new(0)));
    let get = {
        let (cell, calls) = (cell.clone(), calls.clone());
        move || {
            *cell.get_or_init(|| {
                kumihimo::thread::yield_now();
                calls.fetch_add(1, Ordering::SeqCst)
            })
        }
    };
    let others: Vec<_> = (0..4).map(|_| beside.spawn(get.clone())).collect();
    assert_eq!(get(), 0);
    assert!(others.into_iter().all(|other| other.result() == 0));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

fn waiting_readers_get_the_value(beside: Beside) {
    let cell = Arc::new(OnceLock::new());
    let (begun, has_begun) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let there = cell.clone();
    let first = beside.spawn(move || {
        there.get_or_init(|| {
            begun.send(()).unwrap();
            wait.recv().unwrap();
            String::from("made")
        });
    });
    has_begun.recv().unwrap();
    assert!(cell.get().is_none(), "it is being made");
    let there = cell.clone();
    let reads = beside.spawn(move || there.get_or_init(|| unreachable!("it is made")).clone());
    go.send(()).unwrap();
    assert_eq!(reads.result(), "made");
    first.result();
}

fn panic_leaves_the_cell_empty(beside: Beside) {
    let cell = Arc::new(OnceLock::new());
    let there = cell.clone();
    let panics = beside.spawn(move || _ = there.get_or_init(|| resume_unwind(Box::new(()))));
    assert!(panics.join().is_err());
    assert!(cell.get().is_none());
    assert_eq!(*cell.get_or_init(|| 3), 3);
}

fn cell_gives_its_value_back(_: Beside) {
    let mut cell = OnceLock::from(vec![1]);
    cell.get_mut().unwrap().push(2);
    assert_eq!(cell.take(), Some(vec![1, 2]));
    assert!(cell.take().is_none() && cell.get().is_none());
    assert_eq!(cell.set(vec![3]), Ok(()));
    assert_eq!(cell.into_inner(), Some(vec![3]));
}

fn cell_waits_for_its_value(beside: Beside) {
    let cell = Arc::new(OnceLock::new());
    let there = cell.clone();
    let waits = beside.spawn(move || *there.wait());
    cell.set(6).unwrap();
    assert_eq!(waits.result(), 6);
}

fn cell_clones_and_compares(_: Beside) {
    let cell = OnceLock::from(1);
    assert_eq!(cell.clone(), cell);
    assert_ne!(OnceLock::new(), cell);
    assert_eq!(OnceLock::<u8>::default().into_inner(), None);
}

fn cell_formats_as_in_std(_: Beside) {
    let (own, of_std) = (OnceLock::new(), std::sync::OnceLock::new());
    assert_eq!(format!("{own:?}"), format!("{of_std:?}"));
    own.set(1).unwrap();
    of_std.set(1).unwrap();
    assert_eq!(format!("{own:?}"), format!("{of_std:?}"));
}

fn lazy_value_is_made_at_the_first_use(_: Beside) {
    let calls = AtomicUsize::new(0);
    let lazy = LazyLock::new(|| calls.fetch_add(1, Ordering::SeqCst) + 10);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert_eq!((*lazy, *LazyLock::force(&lazy)), (10, 10));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

fn lazy_value_is_made_by_one(beside: Beside) {
    let calls = Arc::new(AtomicUsize::new(0));
    let there = calls.clone();
    let lazy = Arc::new(LazyLock::new(move || {
        kumihimo::thread::yield_now();
        there.fetch_add(1, Ordering::SeqCst)
    }));
    let others: Vec<_> = (0..4)
        .map(|_| {
            let lazy = lazy.clone();
            beside.spawn(move || **lazy)
        })
        .collect();
    assert!(others.into_iter().all(|other| other.result() == 0));
    assert_eq!((**lazy, calls.load(Ordering::SeqCst)), (0, 1));
}

fn lazy_value_that_panicked_panics_again(beside: Beside) {
    let lazy: Arc<LazyLock<u8>> = Arc::new(LazyLock::new(|| resume_unwind(Box::new(()))));
    for _ in 0..2 {
        let there = lazy.clone();
        assert!(beside.spawn(move || **there).join().is_err());
    }
}

fn lazy_value_in_a_static(beside: Beside) {
    static LAZY: LazyLock<Vec<u8>> = LazyLock::new(|| vec![1, 2, 3]);
    assert_eq!(beside.spawn(|| LAZY.len()).result(), 3);
    assert_eq!(*LAZY, [1, 2, 3]);
}
