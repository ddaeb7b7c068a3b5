//! The limit on descriptors, in a process of its own.

mod bodies;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kumihimo_runtime::thread;

#[test]
fn descriptors_run_out() {
    bodies::limits::descriptors_run_out(bodies::STD);
    bodies::limits::descriptors_run_out_for_files(bodies::STD);
    // Again in a microprocess, once the runtime has what it needs for itself.
    thread::spawn(|| bodies::limits::descriptors_run_out(bodies::STD))
        .join()
        .expect("the microprocess panicked");
    thread::spawn(|| bodies::limits::descriptors_run_out_for_files(bodies::STD))
        .join()
        .expect("the microprocess panicked");
    // Again while the runtime takes and gives back descriptors of kernel threads.
    let is_over = Arc::new(AtomicBool::new(false));
    let blocking: Vec<_> = (0..8)
        .map(|n| {
            let is_over = is_over.clone();
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(n));
                    thread::yield_now();
                }
            })
        })
        .collect();
    for _ in 0..20 {
        thread::spawn(|| bodies::limits::descriptors_run_out(bodies::STD))
            .join()
            .expect("the microprocess panicked");
    }
    is_over.store(true, Ordering::Relaxed);
    blocking.into_iter().for_each(|each| each.join().expect("no panic"));
}
