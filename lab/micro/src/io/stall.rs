//! `stall`: a microprocess for each request, while eight others block in the kernel or loop.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumihimo::net::UnixStream;
use kumihimo::thread;
use kumihimo_bench_kit::Request;
use kumihimo_bench_stall::{CONNECTIONS, Plan, REQUEST, Served, Staller, Totals, requests_in};

use crate::variant::Variant;

/// Limit on outstanding requests in a measurement of the capacity. At the limit, no request is
/// accepted.
const CROWD: usize = 256;
/// Level of looping stallers with `priority=lower`, relative to the requests.
const LOWER: i8 = -8;

pub fn stall(request: &Request) {
    let plan = Plan::of(request).unwrap_or_else(|why| panic!("{why}"));
    let variant = Variant::of(request);
    let most = if request.get("part") == Some("capacity") { CROWD } else { usize::MAX };
    let mut stallers: Vec<_> =
        (0..plan.stallers()).map(|i| Staller::open(&plan, i).expect("the other side")).collect();
    let served = Arc::new(Served::new(&plan));
    // Requests start to arrive when the last connection is established.
    let connections: Vec<_> = (0..CONNECTIONS)
        .map(|_| UnixStream::connect(plan.place.load()).expect("the other side"))
        .collect();
    let end = Instant::now() + plan.time;
    let annotated = plan.kind == "blocking";
    let beside = if plan.lower { variant.above(LOWER) } else { variant };
    let takers: Vec<_> = connections
        .into_iter()
        .map(|connection| {
            let served = served.clone();
            variant.spawn(move || take(connection, variant, &served, most))
        })
        .collect();
    let stallers: Vec<_> = stallers
        .drain(..)
        .map(|staller| beside.spawn(move || until(end, staller, annotated)))
        .collect();
    let mut totals = Totals::default();
    for staller in stallers {
        totals += staller.join().expect("no panic");
    }
    for taker in takers {
        taker.join().expect("no panic");
    }
    while served.under_way() > 0 {
        thread::sleep(Duration::from_micros(100));
    }
    if most == CROWD {
        served.capacity();
    } else {
        let source = request.get("events").unwrap_or("off");
        served.report(&plan, totals, &format!("events={source}"));
    }
}

fn take(mut connection: UnixStream, variant: Variant, served: &Arc<Served>, most: usize) {
    let mut buffer = [0; 64 * REQUEST];
    let mut have = 0;
    loop {
        let n = connection.read(&mut buffer[have..]).expect("the other side");
        if n == 0 {
            assert_eq!(have, 0, "half a request");
            return;
        }
        have += n;
        for (intended, number) in requests_in(&buffer[..have]) {
            while served.under_way() >= most {
                thread::yield_now();
            }
            served.start();
            let served = served.clone();
            variant.spawn(move || served.serve(intended, number));
        }
        let rest = have % REQUEST;
        buffer.copy_within(have - rest..have, 0);
        have = rest;
    }
}

fn until(end: Instant, mut staller: Staller, annotated: bool) -> Totals {
    loop {
        if annotated {
            thread::blocking(|| staller.once());
        } else {
            staller.once();
        }
        match staller.pause() {
            Some(time) => thread::sleep(time),
            // Without hand-offs, the other microprocesses get a turn at least here.
            None => thread::yield_now(),
        }
        if Instant::now() >= end {
            return staller.totals();
        }
    }
}
