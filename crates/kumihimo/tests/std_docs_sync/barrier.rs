//! `std::sync::Barrier`, `BarrierWaitResult`.

#[test]
fn all_meet() {
    use kumihimo::sync::Barrier;
    use kumihimo::thread;

    let n = 10;
    let barrier = Barrier::new(n);
    thread::scope(|s| {
        for _ in 0..n {
            // The same messages will be printed together.
            // You will NOT see any interleaving.
            s.spawn(|| {
                println!("before wait");
                barrier.wait();
                println!("after wait");
            });
        }
    });
}

#[test]
fn is_leader() {
    use kumihimo::sync::Barrier;

    let barrier = Barrier::new(1);
    let barrier_wait_result = barrier.wait();
    println!("{:?}", barrier_wait_result.is_leader());
}
