//! The limit on descriptors, in a process of its own.

mod bodies;

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
}
