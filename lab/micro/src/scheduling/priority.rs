//! `priority`: as many as there are VPs compute at low priority in one process; in the other, of
//! one VP, one of high priority wakes for a burst.

use std::time::Instant;

use kumihimo::thread;
use kumihimo_bench_kit::Request;
use kumihimo_bench_kit::burst::{Bursts, Plan, Side, Waits};

use super::preempted::Looping;
use crate::io::echo::until_told;
use crate::variant::Variant;

/// Levels of those that compute, and of the one that wakes, as seen from the default.
const LOW: i8 = -8;
const HIGH: i8 = 8;

/// What the request says; enters the session that it asks for, which wants to be done before there
/// are other kernel threads.
///
/// # Errors
/// A key that means nothing; setsid(2).
pub fn plan(request: &Request) -> Result<Plan, String> {
    let plan = Plan::of(request)?;
    plan.enter_session()?;
    Ok(plan)
}

pub fn priority(request: &Request) {
    let plan = Plan::of(request).expect("it was looked at");
    let variant = Variant::of(request);
    if plan.side == Side::Low {
        for _ in 0..request.vps {
            variant.above(LOW).spawn(|| Looping::default().run());
        }
        println!("ready");
        until_told();
    }
    println!("ready");
    let bursts = variant.above(HIGH).spawn(move || Bursts::of(&plan, &Microprocess));
    bursts.join().expect("no panic").say();
}

struct Microprocess;

impl Waits for Microprocess {
    fn park(&self) {
        thread::park();
    }

    fn sleep_until(&self, deadline: Instant) {
        thread::sleep_until(deadline);
    }

    fn waker(&self) -> Box<dyn Fn() + Send> {
        let one = thread::current();
        Box::new(move || one.unpark())
    }
}
