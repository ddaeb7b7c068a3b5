//! `rpc`: a client whose callers are microprocesses, and a server in another process.
//! `placement=adaptive`, `handoff`, `scheduled` or `spin`; `by=region`: the payload is passed by
//! reference. [`ours`] contains all code about gates.

pub mod ours;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use kumihimo::policy::Priority;
use kumihimo::{sync, thread};
use kumihimo_bench_kit::Request;
use kumihimo_bench_kit::rpc::{Caller, Plan, Side, Slice, fail, serve, told};

use crate::io::echo::until_told;
use crate::variant::Variant;

/// Parses the request.
///
/// # Errors
/// If a key has an invalid value.
pub fn plan(request: &Request) -> Result<Plan, String> {
    let plan = Plan::of(request)?;
    plan.placed(&["adaptive", "handoff", "scheduled", "spin"])?;
    ours::By::of(request)?;
    Ok(plan)
}

pub fn rpc(request: &Request) {
    let done = plan(request).and_then(|plan| {
        let by = ours::By::of(request)?;
        match plan.side {
            Side::Server => server(&plan, by),
            Side::Client => client(&plan, by, request),
        }
    });
    if let Err(why) = done {
        fail(&why);
    }
}

fn server(plan: &Plan, by: ours::By) -> Result<(), String> {
    let check = plan.check;
    let _serving = ours::Serving::begin(plan, by, move |payload| serve(payload, check))?;
    println!("ready");
    until_told()
}

fn client(plan: &Plan, by: ours::By, request: &Request) -> Result<(), String> {
    let variant = Variant::of(request);
    let level = match request.get("level").map(str::parse::<u8>) {
        None => None,
        Some(Ok(level)) => Some(Priority::new(level).map_err(|e| format!("level: {e}"))?),
        Some(Err(_)) => return Err("level: expected a number".to_owned()),
    };
    let line = ours::Line::connect(plan, by, request.get("gate"))?;
    let mut callers: Vec<_> = (0..plan.callers).map(|n| Caller::new(plan, n)).collect();
    let over = Arc::new(AtomicBool::new(false));
    println!("ready");
    // Reading standard input blocks the kernel thread, but not the other microprocesses.
    while let Some(length) = thread::blocking(told)? {
        over.store(false, Relaxed);
        // All callers start at the same time.
        let gate = Arc::new(sync::Barrier::new(plan.callers + 1));
        let one = |mut caller: Caller| {
            let (mut line, over, gate) = (line.clone(), over.clone(), gate.clone());
            variant.spawn(move || {
                if let Some(level) = level {
                    thread::current().set_priority(level);
                }
                gate.wait();
                while !over.load(Relaxed) {
                    let answer = line.call(caller.stamped());
                    if let Err(why) = answer.and_then(|answer| caller.answered(answer)) {
                        fail(&why);
                    }
                }
                caller.pause();
                caller
            })
        };
        let handles: Vec<_> = callers.drain(..).map(one).collect();
        gate.wait();
        let begun = Instant::now();
        thread::sleep(length);
        over.store(true, Relaxed);
        callers.extend(handles.into_iter().map(|handle| handle.join().expect("no panic")));
        let mut slice = Slice::since(begun);
        callers.iter_mut().for_each(|caller| caller.collect(&mut slice));
        slice.say();
    }
    Ok(())
}
