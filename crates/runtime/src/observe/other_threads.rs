//! The kernel threads of the process that do not belong to the runtime, and whether they wait.

use std::fs;

use kumihimo_events::watch::WaitSite;

/// How the names of threads begin that the runtime, or the kernel for its rings, has started.
const OWN: [&str; 2] = ["kumi", "iou-"];
/// The name of the pool's threads. A thread that a microprocess starts inherits it.
const POOL: &str = "kumihimo\n";

/// Whether a kernel thread that the program or a library has started may wake a microprocess: it
/// runs, or it waits for something from outside of the process, such as time or a descriptor. Not
/// so if it waits until another thread of the process wakes it.
///
/// True if that cannot be known, without /proc. `is_in_pool` says of a thread's ID whether it is in
/// the runtime's pool. Blocks the kernel thread for some microseconds a thread.
pub(crate) fn may_wake(is_in_pool: impl Fn(u32) -> bool) -> bool {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return true };
    threads.flatten().any(|thread| {
        let Some(tid) = thread.file_name().to_str().and_then(|tid| tid.parse().ok()) else {
            return true;
        };
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        let is_own = OWN.iter().any(|own| name.starts_with(own)) && name != POOL;
        !is_own && !is_in_pool(tid) && !waits_endlessly(tid)
    })
}

fn waits_endlessly(tid: u32) -> bool {
    i32::try_from(tid).ok().and_then(WaitSite::of).is_some_and(|site| site.is_endless)
}

#[cfg(test)]
mod tests;
