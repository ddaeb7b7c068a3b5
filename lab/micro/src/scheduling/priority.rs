//! `priority`: in one process, one microprocess for each VP computes at low priority. In the other
//! process, with one VP, a microprocess of high priority wakes for a burst.

use std::time::Instant;

use kumihimo::thread;
use kumihimo_bench_kit::Request;
use kumihimo_bench_kit::burst::{Bursts, Plan, Side, Waits};

use super::preempted::Looping;
use crate::io::echo::until_told;
use crate::variant::Variant;

/// Levels of the computing microprocesses and of the waking one, relative to the default.
const LOW: i8 = -8;
const HIGH: i8 = 8;

/// Parses the request, and enters the requested session, which must happen before other kernel
/// threads exist.
///
/// # Errors
/// If a key has an invalid value; as setsid(2).
pub fn plan(request: &Request) -> Result<Plan, String> {
    let plan = Plan::of(request)?;
    plan.enter_session()?;
    Ok(plan)
}

pub fn priority(request: &Request) {
    let plan = Plan::of(request).expect("checked before");
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
