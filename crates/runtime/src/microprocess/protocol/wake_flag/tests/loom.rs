use loom::sync::atomic::AtomicBool;
use loom::sync::{Arc, Notify};
use loom::thread::{JoinHandle, spawn};

use super::*;
use crate::microprocess::protocol::state::{Park, State, Wake};

/// A driver of a future, with its state and a stand-in for the run queue.
struct Driver {
    wake_flag: WakeFlag,
    state: State,
    queued: Notify,
    /// Stores of the two wakers.
    done: [AtomicBool; 2],
}

impl Driver {
    fn new() -> Arc<Driver> {
        let driver = Driver {
            wake_flag: WakeFlag::new(),
            state: State::new(1),
            queued: Notify::new(),
            done: [AtomicBool::new(false), AtomicBool::new(false)],
        };
        driver.state.begin();
        Arc::new(driver)
    }

    /// Drives a future. A lost wake-up ends the model as a deadlock.
    fn drive(&self, mut is_ready: impl FnMut() -> bool) {
        let _ = self.wake_flag.take();
        while !is_ready() {
            while !self.wake_flag.take() {
                if !self.state.take_permit() && self.state.commit_park() == Park::Parked {
                    self.queued.wait();
                }
            }
        }
        self.wake_flag.set();
    }

    fn is_done(&self, n: usize) -> bool {
        self.done[n].load(Ordering::Relaxed)
    }
}

fn waker(driver: &Arc<Driver>, n: usize) -> JoinHandle<()> {
    let (driver, generation) = (driver.clone(), driver.state.generation());
    spawn(move || {
        driver.done[n].store(true, Ordering::Relaxed);
        driver.wake_flag.set();
        if driver.state.wake(generation) == Wake::Queue {
            driver.queued.notify();
        }
    })
}

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

/// Whichever waker sets the flag last, the driver observes the stores of both.
#[test]
fn driver_observes_the_stores_of_two_wakers() {
    model(|| {
        let driver = Driver::new();
        let wakers = [waker(&driver, 0), waker(&driver, 1)];
        driver.drive(|| driver.is_done(0) && driver.is_done(1));
        wakers.into_iter().for_each(|w| w.join().unwrap());
    });
}

/// A future that drives another one inside its `poll`: the inner call consumes a wake-up meant for
/// the outer one, and sets the flag again.
#[test]
fn nested_driver_passes_on_the_wake_of_the_outer() {
    model(|| {
        let driver = Driver::new();
        let wakers = [waker(&driver, 0), waker(&driver, 1)];
        let mut inner = false;
        driver.drive(|| {
            let is_ready = driver.is_done(0);
            if !std::mem::replace(&mut inner, true) {
                driver.drive(|| driver.is_done(1));
            }
            is_ready
        });
        wakers.into_iter().for_each(|w| w.join().unwrap());
    });
}
