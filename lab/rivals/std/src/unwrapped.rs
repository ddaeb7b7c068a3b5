//! `unwrapped`: the same code on kernel threads, for which it was written.

use std::sync::Arc;

use kumihimo_bench_kit::Request;
use kumihimo_bench_unwrapped::{KernelThreads, Plan, Threads};

pub fn unwrapped(request: &Request) -> Result<(), String> {
    let threads: Arc<dyn Threads> = Arc::new(KernelThreads);
    Plan::of(request)?.run(&threads)
}
