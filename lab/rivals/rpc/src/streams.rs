//! Calls over a pair of byte streams that belongs to one caller.

use std::io::{self, Read, Write};
use std::thread;

use kumihimo_bench_kit::rpc::{ANSWER, Answer, Plan, serve, until_told};

use crate::while_;

/// Replies to requests until the other side closes the stream.
pub fn answer(plan: &Plan, mut from: impl Read, mut to: impl Write) {
    let mut payload = vec![0; plan.bytes];
    while from.read_exact(&mut payload).is_ok()
        && to.write_all(&serve(&payload, plan.check).to_bytes()).is_ok()
    {}
}

/// Replies to the requests of each stream on a kernel thread of its own, until the standard input
/// ends. Then ends the process, because the threads wait.
pub fn serve_each<S>(
    plan: &Plan,
    incoming: impl Iterator<Item = io::Result<S>> + Send + 'static,
) -> Result<(), String>
where
    S: Send + 'static,
    for<'a> &'a S: Read + Write,
{
    let plan = plan.clone();
    thread::spawn(move || {
        for stream in incoming {
            let (stream, plan) = (stream.expect("accept"), plan.clone());
            let serve = move || answer(&plan, &stream, &stream);
            thread::Builder::new().stack_size(256 << 10).spawn(serve).expect("a kernel thread");
        }
    });
    until_told();
    std::process::exit(0)
}

/// Makes one call.
pub fn call(mut to: impl Write, mut from: impl Read, payload: &[u8]) -> Result<Answer, String> {
    let mut answer = [0; ANSWER];
    to.write_all(payload).map_err(while_("asking"))?;
    from.read_exact(&mut answer).map_err(while_("the answer"))?;
    Ok(Answer::from_bytes(answer))
}
