//! Runs every benchmark in small. Each asserts its own results. A single test, because only one
//! runtime can exist at a time.

use kumihimo_bench_kit::Request;

#[test]
fn every_benchmark_completes() {
    for line in [
        "null-fork part=bulk count=2000",
        "sieve part=primes700",
        "parked stack=min count=1000",
        "parked stack=default part=parked_used count=200",
        "mutex rounds=200",
        "latency priority=equal wakes=3",
        "latency priority=high wakes=3",
        "queues work=hash",
        "trace rounds=1",
        "resources load=create iterations=20",
        "resources load=region iterations=20",
        "resources load=message iterations=20",
        "resources load=join",
        "resources load=parts",
        "control part=suspend rounds=3",
        "priority side=high rounds=3 by=thread",
        "priority side=high rounds=3 by=timer burst=1ms",
    ] {
        for (queue, variant) in [("ring", "full"), ("locked", "lean"), ("steal", "full")] {
            let line = format!("{line} --vps 2 --queue {queue} --variant {variant}");
            let request = Request::parse(line.split(' ').map(str::to_owned)).expect("a request");
            kumihimo_bench::run(&request).unwrap_or_else(|why| panic!("{line}: {why}"));
        }
    }
}

#[test]
fn unknown_words_are_errors() {
    for line in [
        "nothing --queue ring",
        "yield --queue pile",
        "rpc --queue ring",
        "rpc side=client --queue ring",
        "rpc side=client place=/nowhere placement=elsewhere --queue ring",
        "rpc side=client place=/nowhere by=mail --queue ring",
        "priority side=middle --queue ring",
        "inversion side=server --queue ring",
        "inversion side=above inherit=on --queue ring",
    ] {
        let request = Request::parse(line.split(' ').map(str::to_owned)).expect("a request");
        assert!(kumihimo_bench::run(&request).is_err(), "{line}");
    }
}
