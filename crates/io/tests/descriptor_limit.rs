//! The limit on descriptors, in a process of its own.

mod bodies;

#[test]
fn descriptors_run_out() {
    bodies::limits::descriptors_run_out(bodies::STD);
}
