//! Runs the benchmarks that need an event source in small. A single test, because only one runtime
//! can exist at a time.

use kumihimo_bench_kit::Request;

#[test]
fn every_benchmark_of_events_completes() {
    // SAFETY: this process has one test and no runtime yet, so no other thread reads the
    // environment.
    unsafe { std::env::set_var("KUMI_EVENTS", "watch") };
    for line in [
        "events --vps 1 part=wakes sticky=off sleeps=50",
        "events --vps 2 part=compute chunks=100",
        "kernel-threads --vps 2 count=500 blocked=0",
        "kernel-threads --vps 2 count=500 blocked=20",
        "events --vps 1 part=preempts rounds=5",
        "preempt --vps 1 quantum=1ms ms=5 pairs=1",
        "priority-local --vps 2 policy=fixed busy=20 wakes=3",
        "priority-local --vps 1 policy=feedback busy=20 wakes=3",
        "spin-holder --vps 2 lock=with rounds=100",
        "spin-holder --vps 1 lock=without rounds=100",
    ] {
        let line = format!("{line} events=watch --queue ring --variant full");
        let request = Request::parse(line.split(' ').map(str::to_owned)).expect("a request");
        kumihimo_bench::run(&request).unwrap_or_else(|why| panic!("{line}: {why}"));
    }
}
