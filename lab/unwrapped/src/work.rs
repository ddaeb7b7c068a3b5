//! The workloads.

mod fault;
mod full;
pub(crate) mod http;
mod long;
mod mutex;
mod pipe;
mod redis;
mod ureq;

use std::sync::Arc;

use kumihimo_bench_kit::Usage;

use crate::clock::Progress;
use crate::connections::Connections;
use crate::plan::{Kind, Plan};
use crate::threads::{Body, Threads};

/// Code that runs beside the bodies of a workload until it is over.
pub type Beside = Box<dyn FnOnce(&Progress) + Send>;

/// A workload that is ready to start.
pub struct Work {
    /// One body for each microprocess or thread.
    pub bodies: Vec<Body>,
    /// Code that has precedence over the bodies.
    pub beside: Option<Beside>,
    /// Divisor of wall and CPU time; `None` if they are reported for the whole workload.
    pub operations: Option<usize>,
    /// Checks the results, and returns notes on the times, each preceded by a blank.
    pub end: Box<dyn FnOnce(&Usage) -> String>,
}

impl Work {
    /// A workload whose bodies check their results themselves.
    fn of(bodies: Vec<Body>) -> Work {
        Work { bodies, beside: None, operations: None, end: Box::new(|_| String::new()) }
    }
}

/// Prepares the workload of `plan`.
///
/// # Errors
/// `refused: WHY` if the machine lacks something that the workload needs. Otherwise an error of the
/// peer or of the kernel.
pub fn prepare<C: Connections>(plan: &Plan, threads: &Arc<dyn Threads>) -> Result<Work, String> {
    let said = |e: std::io::Error| format!("work={}: {e}", plan.kind.name());
    match plan.kind {
        Kind::Redis => Ok(redis::commands::<C>(plan)),
        Kind::Levels => Ok(redis::beside_a_higher_level::<C>(plan, threads)),
        Kind::Http => http::serve::<C>(plan).map_err(said),
        Kind::Pipe => pipe::turns(plan, None).map_err(said),
        Kind::Mix => pipe::turns(plan, Some(threads)).map_err(said),
        Kind::Long => Ok(long::requests(plan)),
        Kind::Ureq => Ok(ureq::requests::<C>(plan)),
        Kind::Full => Ok(full::sleeps(plan)),
        Kind::Mutex => Ok(mutex::turns(plan)),
        Kind::Fault => fault::touches(plan),
    }
}
