//! Every workload that needs no peer, in small, on kernel threads. Each asserts its own results.

use std::sync::Arc;

use kumihimo_bench_kit::Request;
use kumihimo_bench_unwrapped::{KernelThreads, Plan, Threads};

#[test]
fn every_work_completes() {
    let threads: Arc<dyn Threads> = Arc::new(KernelThreads);
    for work in [
        "work=pipe count=2 rounds=20",
        "work=mix count=2 rounds=21 every=4",
        "work=full count=6 limit=2 ms=10",
        "work=mutex count=2 rounds=20",
        "work=fault count=2 rounds=5",
    ] {
        let line = format!("unwrapped {work}");
        let request = Request::parse(line.split(' ').map(str::to_owned)).expect("a request");
        match Plan::of(&request).expect("a plan").run(&threads) {
            Ok(()) => {}
            Err(why) if why.starts_with("refused: ") => println!("{work}: {why}"),
            Err(why) => panic!("{work}: {why}"),
        }
    }
}
