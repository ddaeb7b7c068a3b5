//! The works.

mod fault;
mod full;
pub(crate) mod http;
mod long;
mod mutex;
mod pipe;
mod redis;

use std::sync::Arc;

use kumihimo_bench_kit::Usage;

use crate::clock::Progress;
use crate::plan::{Kind, Plan};
use crate::threads::{Body, Threads};

/// Runs beside the bodies of a work until it is over.
pub type Beside = Box<dyn FnOnce(&Progress) + Send>;

/// What one work consists of, ready to begin.
pub struct Work {
    /// One for each microprocess or thread.
    pub bodies: Vec<Body>,
    /// Takes precedence over them.
    pub beside: Option<Beside>,
    /// What wall and CPU time are divided by; `None`: they are of the whole work.
    pub operations: Option<usize>,
    /// Checks the results, and returns notes on the times, each with a blank before it.
    pub end: Box<dyn FnOnce(&Usage) -> String>,
}

impl Work {
    /// Of bodies that check their results themselves.
    fn of(bodies: Vec<Body>) -> Work {
        Work { bodies, beside: None, operations: None, end: Box::new(|_| String::new()) }
    }
}

/// Prepares the work of `plan`.
///
/// # Errors
/// `refused: WHY`: the machine does not have what the work needs. Else what the peer or the kernel
/// answered.
pub fn prepare(plan: &Plan, threads: &Arc<dyn Threads>) -> Result<Work, String> {
    let said = |e: std::io::Error| format!("work={}: {e}", plan.kind.name());
    match plan.kind {
        Kind::Redis => Ok(redis::commands(plan)),
        Kind::Levels => Ok(redis::beside_a_higher_level(plan, threads)),
        Kind::Http => http::serve(plan).map_err(said),
        Kind::Pipe => pipe::turns(plan, None).map_err(said),
        Kind::Mix => pipe::turns(plan, Some(threads)).map_err(said),
        Kind::Long => Ok(long::requests(plan)),
        Kind::Full => Ok(full::sleeps(plan)),
        Kind::Mutex => Ok(mutex::turns(plan)),
        Kind::Fault => fault::touches(plan),
    }
}
