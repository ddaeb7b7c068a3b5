//! A complete user scheduler on events and the shared page: `cargo run -p kumihimo-events --example
//! minimal`.
//!
//! This program runs plain blocking code of std in a hundred microprocesses on two virtual
//! processors. `KUMI_EVENTS` selects the event source.

#[allow(dead_code)] // // some items are for other applications
mod scheduler;

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kumihimo_events::kernel::Settings;
use kumihimo_events::limit::Limit;
use kumihimo_events::preempt::Means;
use kumihimo_events::source::Kind;
use scheduler::{Scheduler, check, yield_now};

fn main() -> io::Result<()> {
    let source = kumihimo_config::check()?.events.map(Kind::from);
    let package = Scheduler::open(Settings {
        vps: 2,
        parked: 0,
        concurrency: 1,
        limit: Limit::asked(200, "the example"),
        source,
        preempt: Some(Means::Off),
        record: false,
    })?;
    println!("events: {}", package.kernel().source());

    let end = Arc::new(AtomicBool::new(false));
    let ended = end.clone();
    let computes = package.spawn(0, move || {
        let mut rounds = 0u64;
        while !ended.load(Ordering::Relaxed) {
            rounds += 1;
            check();
        }
        rounds
    })?;
    computes.set_priority(5);

    let (reader, mut writer) = io::pipe()?;
    let (reader, shared, own) = (Arc::new(reader), Arc::new(Mutex::new(0u32)), package.clone());
    let first = package.spawn(40, move || {
        let block = |number: u32| {
            let (reader, shared) = (reader.clone(), shared.clone());
            move || match number % 3 {
                0 => std::thread::sleep(Duration::from_millis(20)),
                1 => assert_eq!((&*reader).read(&mut [0]).expect("no EINTR"), 1),
                _ => {
                    let mut held = shared.lock().expect("not poisoned");
                    std::thread::sleep(Duration::from_millis(1));
                    *held += 1;
                    drop(held);
                    yield_now();
                }
            }
        };
        let blocked: io::Result<Vec<_>> =
            (0..99).map(|number| own.spawn(30, block(number))).collect();
        blocked.map(|all| all.into_iter().for_each(|one| one.join().expect("no panic")))
    })?;
    writer.write_all(&[0; 33])?;
    first.join().expect("no panic")?;
    end.store(true, Ordering::Relaxed);
    println!("{} rounds computed meanwhile", computes.join().expect("no panic"));
    println!("{:?}", package.kernel().counts());
    package.wait();
    Ok(())
}
