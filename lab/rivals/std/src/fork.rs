//! `null-fork`: kernel threads, and processes beside them as in P0's table.

use std::process::Command;
use std::sync::RwLock;
use std::thread;
use std::time::Instant;

use kumihimo_bench_kit::{Request, per, sample};

pub fn null_fork(request: &Request) {
    if request.wants("sequential") {
        timed("", request.value("count", 5_000), || {
            thread::spawn(|| {}).join().expect("an empty body does not panic");
        });
    }
    if request.wants("bulk") {
        // Two mappings a thread and 65,530 mappings a process, or 32,768 ids a machine: 100,000 are
        // out of reach.
        let count = request.value("count", 10_000);
        for metric in ["bulk_cold", "bulk_warm"] {
            let start = Instant::now();
            bulk(count);
            let keys = format!("alive_max:={count}");
            sample(metric, per(start.elapsed(), count), "ns", &keys);
        }
    }
    if request.get("part") == Some("process") {
        let count = request.value("count", 300);
        timed("runtime=process-fork", count, fork_and_wait);
        timed("runtime=process-spawn", count, || {
            let status = Command::new("/bin/true").status().expect("/bin/true");
            assert!(status.success());
        });
    }
}

fn timed(keys: &str, count: usize, mut once: impl FnMut()) {
    for _ in 0..count / 10 {
        once();
    }
    let start = Instant::now();
    for _ in 0..count {
        once();
    }
    sample("sequential", per(start.elapsed(), count), "ns", keys);
}

/// All stand behind the gate until the last has been made, so all are alive at once.
fn bulk(count: usize) {
    let gate = RwLock::new(());
    let closed = gate.write().expect("not poisoned");
    thread::scope(|scope| {
        // The smallest stack that std grants: the default's 2 MiB would only cost address space.
        let made: Vec<_> = (0..count)
            .map(|_| {
                thread::Builder::new()
                    .stack_size(16 << 10)
                    .spawn_scoped(scope, || drop(gate.read()))
                    .expect("thread limit")
            })
            .collect();
        drop(closed);
        for one in made {
            one.join().expect("no panic");
        }
    });
}

fn fork_and_wait() {
    // SAFETY: this program has one thread here, so the child may do anything; it only ends.
    let pid = unsafe { libc::fork() };
    match pid {
        // SAFETY: ends the child without running the parent's exit handlers.
        0 => unsafe { libc::_exit(0) },
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        _ => {
            let mut status = 0;
            // SAFETY: `pid` is our own child and `status` lives.
            let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
            assert_eq!((waited, status), (pid, 0));
        }
    }
}
