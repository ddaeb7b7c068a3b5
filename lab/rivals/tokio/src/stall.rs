//! `stall`: a task for each request, while eight others block in the kernel: in plain calls, or
//! (`calls=blocking`, and for the kind `blocking`) in `spawn_blocking`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kumihimo_bench_kit::Request;
use kumihimo_bench_stall::{CONNECTIONS, Plan, REQUEST, Served, Staller, Totals, requests_in};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::sleep;

pub async fn stall(request: &Request) {
    let plan = Plan::of(request).unwrap_or_else(|why| panic!("{why}"));
    let annotated = request.get("calls") == Some("blocking");
    let stallers: Vec<_> = (0..plan.stallers()).map(|i| Staller::open(&plan, i).expect("the other side")).collect();
    let served = Arc::new(Served::new(&plan));
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(UnixStream::connect(plan.place.load()).await.expect("the other side"));
    }
    let end = Instant::now() + plan.time;
    let takers: Vec<_> =
        connections.into_iter().map(|connection| tokio::spawn(take(connection, served.clone()))).collect();
    let blocking = annotated || plan.kind == "blocking";
    let stallers: Vec<_> = stallers.into_iter().map(|staller| tokio::spawn(until(end, staller, blocking))).collect();
    let mut totals = Totals::default();
    for staller in stallers {
        totals += staller.await.expect("no panic");
    }
    for taker in takers {
        taker.await.expect("no panic");
    }
    while served.under_way() > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    served.report(&plan, totals, if annotated { "runtime=tokio-blocking" } else { "" });
}

async fn take(mut connection: UnixStream, served: Arc<Served>) {
    let mut buffer = [0; 64 * REQUEST];
    let mut have = 0;
    loop {
        let n = connection.read(&mut buffer[have..]).await.expect("the other side");
        if n == 0 {
            assert_eq!(have, 0, "half a request");
            return;
        }
        have += n;
        for (intended, number) in requests_in(&buffer[..have]) {
            served.start();
            let served = served.clone();
            tokio::spawn(async move { served.serve(intended, number) });
        }
        let rest = have % REQUEST;
        buffer.copy_within(have - rest..have, 0);
        have = rest;
    }
}

async fn until(end: Instant, mut staller: Staller, blocking: bool) -> Totals {
    loop {
        if blocking {
            let stalled = spawn_blocking(move || {
                staller.once();
                staller
            });
            staller = stalled.await.expect("no panic");
        } else {
            staller.once();
        }
        match staller.pause() {
            Some(time) => sleep(time).await,
            None => yield_now().await,
        }
        if Instant::now() >= end {
            return staller.totals();
        }
    }
}
