//! `priority` on kernel threads. `policy=linux`: all threads are equal; `nice`: computing threads
//! have nice 19; `fifo`: the waking thread and its waker have SCHED_FIFO, which requires a
//! privilege.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use kumihimo_bench_kit::Request;
use kumihimo_bench_kit::burst::{Bursts, Plan, Side, Waits};
use kumihimo_bench_kit::rpc::until_told;
use kumihimo_bench_kit::work::spin;

/// Any value works, because no other thread has this policy.
const FIFO: i32 = 50;

pub fn priority(request: &Request) -> Result<(), String> {
    let plan = Plan::of(request)?;
    plan.enter_session()?;
    let policy = request.get("policy").unwrap_or("linux");
    match (policy, plan.side) {
        ("linux", _) | ("nice", Side::High) | ("fifo", Side::Low) => {}
        ("nice", Side::Low) => {
            // SAFETY: affects this kernel thread, and the threads that it creates inherit the
            // value.
            _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
        }
        ("fifo", Side::High) => fifo()?,
        (other, _) => return Err(format!("policy={other}: expected `linux`, `nice` or `fifo`")),
    }
    if plan.side == Side::Low {
        for _ in 0..request.vps {
            thread::spawn(|| {
                let mut x = 1;
                loop {
                    x = black_box(spin(x, 1_000));
                }
            });
        }
        println!("ready");
        until_told();
        std::process::exit(0);
    }
    println!("ready");
    let bursts = Bursts::of(&plan, &KernelThread);
    bursts.say();
    Ok(())
}

fn fifo() -> Result<(), String> {
    let wanted = libc::sched_param { sched_priority: FIFO };
    // SAFETY: affects this kernel thread, as above.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const wanted) } {
        0 => Ok(()),
        _ => Err(format!("refused: SCHED_FIFO: {} (CAP_SYS_NICE, or RLIMIT_RTPRIO)", std::io::Error::last_os_error())),
    }
}

struct KernelThread;

impl Waits for KernelThread {
    fn park(&self) {
        thread::park();
    }

    fn sleep_until(&self, deadline: Instant) {
        thread::sleep(deadline.saturating_duration_since(Instant::now()));
    }

    fn waker(&self) -> Box<dyn Fn() + Send> {
        let one = thread::current();
        Box::new(move || one.unpark())
    }
}
