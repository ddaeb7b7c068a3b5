//! `stall`: a pool of kernel threads serves the requests while eight others block in the kernel or
//! loop (with `priority=lower`: at nice 19).

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;

use kumihimo_bench_kit::Request;
use kumihimo_bench_stall::{CONNECTIONS, Plan, REQUEST, Served, Staller, Totals, requests_in};

/// Size of the pool. A kernel thread for each request would cost as much as the request.
const POOL: usize = 16;

pub fn stall(request: &Request) {
    let plan = Plan::of(request).unwrap_or_else(|why| panic!("{why}"));
    let stallers: Vec<_> = (0..plan.stallers()).map(|i| Staller::open(&plan, i).expect("the other side")).collect();
    let served = Arc::new(Served::new(&plan));
    let (put, get) = mpsc::channel();
    let get = Arc::new(Mutex::new(get));
    let pool: Vec<_> = (0..POOL)
        .map(|_| {
            let (get, served) = (get.clone(), served.clone());
            thread::spawn(move || {
                loop {
                    let next = get.lock().expect("not poisoned").recv();
                    let Ok((intended, number)) = next else { return };
                    served.serve(intended, number);
                }
            })
        })
        .collect();
    let connections: Vec<_> =
        (0..CONNECTIONS).map(|_| UnixStream::connect(plan.place.load()).expect("the other side")).collect();
    let end = Instant::now() + plan.time;
    let takers: Vec<_> = connections
        .into_iter()
        .map(|connection| {
            let (put, served) = (put.clone(), served.clone());
            thread::spawn(move || take(connection, &put, &served))
        })
        .collect();
    drop(put);
    let stallers: Vec<_> = stallers
        .into_iter()
        .map(|staller| {
            let lower = plan.lower;
            thread::spawn(move || {
                if lower {
                    give_precedence();
                }
                until(end, staller)
            })
        })
        .collect();
    let mut totals = Totals::default();
    for staller in stallers {
        totals += staller.join().expect("no panic");
    }
    for one in takers.into_iter().chain(pool) {
        one.join().expect("no panic");
    }
    served.report(&plan, totals, "");
}

/// Lowers the calling thread's precedence. On Linux, each thread has its own nice value.
fn give_precedence() {
    // SAFETY: integers only.
    let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    assert_eq!(done, 0, "setpriority: {}", std::io::Error::last_os_error());
}

fn take(mut connection: UnixStream, put: &mpsc::Sender<(u64, usize)>, served: &Served) {
    let mut buffer = [0; 64 * REQUEST];
    let mut have = 0;
    loop {
        let n = connection.read(&mut buffer[have..]).expect("the other side");
        if n == 0 {
            assert_eq!(have, 0, "half a request");
            return;
        }
        have += n;
        for request in requests_in(&buffer[..have]) {
            served.start();
            put.send(request).expect("the pool");
        }
        let rest = have % REQUEST;
        buffer.copy_within(have - rest..have, 0);
        have = rest;
    }
}

fn until(end: Instant, mut staller: Staller) -> Totals {
    loop {
        staller.once();
        match staller.pause() {
            Some(time) => thread::sleep(time),
            None => thread::yield_now(),
        }
        if Instant::now() >= end {
            return staller.totals();
        }
    }
}
