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
        // The kernel limits a process to 65,530 mappings, of which a thread takes two, and the
        // machine to 32,768 thread IDs: 100,000 threads are impossible.
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

/// All threads wait at the gate until the last one has been created, so all are alive at once.
fn bulk(count: usize) {
    let gate = RwLock::new(());
    let closed = gate.write().expect("not poisoned");
    thread::scope(|scope| {
        // The smallest stack that std allows. The default of 2 MiB would only take address space.
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
    // SAFETY: this program has one thread here, so the child may call anything. It only exits.
    let pid = unsafe { libc::fork() };
    match pid {
        // SAFETY: exits the child without running the parent's exit handlers.
        0 => unsafe { libc::_exit(0) },
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        _ => {
            let mut status = 0;
            // SAFETY: `pid` is an own child and `status` is writable.
            let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
            assert_eq!((waited, status), (pid, 0));
        }
    }
}
