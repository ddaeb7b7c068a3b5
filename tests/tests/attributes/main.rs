//! What the kernel keeps per kernel thread: each row of the book's table "Attributes of kernel
//! threads" (docs/src/reference/limits/attributes.md).

mod bound;
mod kept;
mod no_system_calls;
mod raw_changes;
mod signal_mask;

use kumihimo::runtime::Runtime;
use kumihimo::thread;
use kumihimo_tests::process::{alone, one_to_one};
use kumihimo_tests::skip;

/// Runs `body` in the main microprocess of a runtime with two VPs, in a child process. Skips it
/// where microprocesses are kernel threads.
fn in_runtime(name: &str, body: impl FnOnce() + Send) {
    alone(name, || {
        let runtime = Runtime::builder().vps(2).build().expect("a runtime");
        if one_to_one() {
            return skip(name, "microprocesses are kernel threads here");
        }
        runtime.run(body);
    });
}

/// Lets other microprocesses run on the caller's kernel thread, several times.
fn pass_the_kernel_thread_on() {
    for _ in 0..3 {
        thread::yield_now();
        thread::sleep(std::time::Duration::from_micros(200));
    }
}

/// The value of `field` in `status` of the calling kernel thread (proc_pid_status(5)).
fn status(field: &str) -> String {
    // SAFETY: takes nothing, cannot fail.
    let thread = unsafe { libc::gettid() };
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status"));
    field_of(&status.expect("/proc"), field)
}

fn field_of(status: &str, field: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
    line.unwrap_or_else(|| panic!("{field} in {status}")).to_owned()
}

/// `field` of each kernel thread of the process.
fn statuses(field: &str) -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").expect("/proc");
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("status")).ok())
        .map(|status| field_of(&status, field))
        .collect()
}
