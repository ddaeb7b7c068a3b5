//! `unix-socket`: each caller has a stream, and a kernel thread on either side.

use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use kumihimo_bench_kit::rpc::{Plan, Side, by_threads, until_told};

use crate::streams::{answer, call};
use crate::while_;

pub fn run(plan: &Plan) -> Result<(), String> {
    plan.placed(&["scheduled"])?;
    let path = plan.place.join("socket");
    match plan.side {
        Side::Server => {
            let listener = UnixListener::bind(path).map_err(while_("bind"))?;
            println!("ready");
            let plan = plan.clone();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let (stream, plan) = (stream.expect("accept"), plan.clone());
                    let serve = move || answer(&plan, &stream, &stream);
                    thread::Builder::new().stack_size(256 << 10).spawn(serve).expect("a kernel thread");
                }
            });
            until_told();
            std::process::exit(0)
        }
        Side::Client => by_threads(
            plan,
            |_| UnixStream::connect(&path).map_err(while_("connect")),
            |stream, payload| call(&*stream, &*stream, payload),
        ),
    }
}
