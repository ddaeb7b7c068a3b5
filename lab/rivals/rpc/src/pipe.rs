//! `pipe`: each caller has two pipes, and a kernel thread on either side.

use std::fs::File;
use std::path::PathBuf;
use std::thread;

use kumihimo_bench_kit::rpc::{Plan, Side, by_threads, until_told};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::streams::{answer, call};
use crate::while_;

pub fn run(plan: &Plan) -> Result<(), String> {
    plan.placed(&["scheduled"])?;
    match plan.side {
        Side::Server => server(plan),
        Side::Client => by_threads(
            plan,
            |n| {
                // In the server's order, because each open waits for the other side.
                let to = File::options()
                    .write(true)
                    .open(ask(plan, n))
                    .map_err(while_("the pipe of questions"))?;
                let from = File::open(reply(plan, n)).map_err(while_("the pipe of answers"))?;
                Ok((to, from))
            },
            |(to, from), payload| call(to, from, payload),
        ),
    }
}

fn ask(plan: &Plan, n: usize) -> PathBuf {
    plan.place.join(format!("ask.{n}"))
}

fn reply(plan: &Plan, n: usize) -> PathBuf {
    plan.place.join(format!("reply.{n}"))
}

fn server(plan: &Plan) -> Result<(), String> {
    for n in 0..plan.callers {
        for path in [ask(plan, n), reply(plan, n)] {
            mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
                .map_err(while_("a pipe"))?;
        }
        let plan = plan.clone();
        let serve = move || {
            let from = File::open(ask(&plan, n)).expect("our pipe");
            let to = File::options().write(true).open(reply(&plan, n)).expect("our pipe");
            answer(&plan, from, to);
        };
        thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(serve)
            .map_err(while_("a kernel thread"))?;
    }
    println!("ready");
    until_told();
    // Ends also threads that wait for a client that never came.
    std::process::exit(0)
}
