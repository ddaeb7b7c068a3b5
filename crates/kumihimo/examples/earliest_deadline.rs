//! A policy of the application's own: earliest deadline first.
//!
//! `cargo run --release --example earliest_deadline`

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kumihimo::policy::{Info, Placement, Policy, Why};
use kumihimo::runtime::{Builder, Runtime};
use kumihimo::thread;

// ANCHOR: policy
/// Within each priority, the work that is due first runs first; work without a deadline runs last.
struct EarliestDeadline;

impl Policy for EarliestDeadline {
    fn name(&self) -> &str {
        "earliest deadline first"
    }

    fn place(&self, info: &Info, _: Why) -> Placement {
        let key = info.deadline_ns.unwrap_or(u64::MAX);
        Placement { level: info.effective().get(), quantum: Duration::MAX, key: Some(key) }
    }
}
// ANCHOR_END: policy

/// Starts jobs that are due in so many milliseconds each; gives the order in which they ran.
pub fn order(due: &[u64], runtime: Builder) -> io::Result<Vec<u64>> {
    let now = Instant::now();
    let ran = &Mutex::new(Vec::new());
    // One virtual processor, so that "first" has a meaning.
    runtime.vps(1).policy(EarliestDeadline).build()?.run(|| {
        thread::scope(|jobs| {
            for &ms in due {
                let job = thread::Builder::new().due(now + Duration::from_millis(ms));
                job.spawn_scoped(jobs, move || ran.lock().unwrap().push(ms))?;
            }
            io::Result::Ok(())
        })
    })?;
    Ok(std::mem::take(&mut ran.lock().unwrap()))
}

#[allow(dead_code, reason = "the tests include this file for `order`")]
fn main() -> io::Result<()> {
    let due = [70, 20, 90, 10, 50];
    println!("due:  {due:?} ms");
    println!("ran:  {:?}", order(&due, Runtime::builder())?);
    Ok(())
}
