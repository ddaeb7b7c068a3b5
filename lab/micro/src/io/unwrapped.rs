//! `unwrapped`: microprocesses run code that blocks in calls that no runtime wraps.

use std::sync::Arc;
use std::time::Instant;

use kumihimo::runtime::{self, Metrics};
use kumihimo::sync::Mutex;
use kumihimo::thread;
use kumihimo_bench_kit::Request;
use kumihimo_bench_unwrapped::{Body, Count, Counter, Join, Per, Plan, Threads};

use crate::io::wrapped::Wrapped;
use crate::variant::Variant;

/// Levels between the preferred thread of `levels` and all others.
const ABOVE: i8 = 8;

/// Runs the workload. Ends the process if the machine lacks something.
pub fn unwrapped(request: &Request) {
    let plan = Plan::of(request).expect("examined before the runtime was started");
    let threads: Arc<dyn Threads> = Arc::new(Microprocesses(Variant::of(request)));
    let done = match request.get("connections") {
        Some("kumihimo") => plan.run_on::<Wrapped>(&threads),
        _ => plan.run(&threads),
    };
    if let Err(why) = done {
        eprintln!("unwrapped: {why}");
        std::process::exit(1);
    }
}

struct Microprocesses(Variant);

impl Microprocesses {
    fn spawn_as(variant: Variant, body: Body) -> Join {
        let microprocess = variant.spawn(body);
        Box::new(move || microprocess.join().expect("no panic"))
    }
}

fn metrics() -> Metrics {
    runtime::metrics().expect("a runtime runs")
}

impl Threads for Microprocesses {
    fn spawn(&self, body: Body) -> Join {
        Self::spawn_as(self.0, body)
    }

    fn spawn_above(&self, body: Body) -> Join {
        Self::spawn_as(self.0.above(ABOVE), body)
    }

    fn yield_now(&self) {
        thread::yield_now();
    }

    fn sleep_until(&self, deadline: Instant) {
        thread::sleep_until(deadline);
    }

    fn counter(&self) -> Counter {
        let number = Mutex::new(0);
        Box::new(move || {
            let mut number = number.lock().expect("not poisoned");
            *number += 1;
            *number
        })
    }

    fn has_pool(&self) -> bool {
        false
    }

    fn counts(&self) -> Vec<Count> {
        let now = metrics();
        vec![
            Count { metric: "handoffs", total: now.hand_offs, per: Per::Body },
            Count { metric: "changes", total: now.changes, per: Per::Body },
            Count { metric: "looks", total: now.looks, per: Per::Second },
        ]
    }

    fn source(&self) -> Option<&'static str> {
        Some(metrics().events)
    }
}
