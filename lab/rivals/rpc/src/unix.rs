//! `unix-socket`: each caller has a stream, and a kernel thread on either side.

use std::iter;
use std::os::unix::net::{UnixListener, UnixStream};

use kumihimo_bench_kit::rpc::{Plan, Side, by_threads};

use crate::streams::{call, serve_each};
use crate::while_;

pub fn run(plan: &Plan) -> Result<(), String> {
    plan.placed(&["scheduled"])?;
    let path = plan.place.join("socket");
    match plan.side {
        Side::Server => {
            let listener = UnixListener::bind(path).map_err(while_("bind"))?;
            println!("ready");
            serve_each(plan, iter::repeat_with(move || listener.accept().map(|(stream, _)| stream)))
        }
        Side::Client => by_threads(
            plan,
            |_| UnixStream::connect(&path).map_err(while_("connect")),
            |stream, payload| call(&*stream, &*stream, payload),
        ),
    }
}
