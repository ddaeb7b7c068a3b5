//! `full`: sleeps of std, more than the limit on kernel threads.

use std::thread;

use super::Work;
use crate::plan::Plan;
use crate::threads::Body;

/// One sleep for each body.
pub fn sleeps(plan: &Plan) -> Work {
    let length = plan.length;
    let mut work = Work::of(
        (0..plan.count).map(|_| Box::new(move || thread::sleep(length)) as Body).collect(),
    );
    let note = format!(" sleeps:={} threads:={}", plan.count, plan.pool().unwrap_or(plan.count));
    work.end = Box::new(move |_| note);
    work
}
