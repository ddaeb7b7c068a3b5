//! Calls over a pair of byte streams that belongs to one caller.

use std::io::{Read, Write};

use kumihimo_bench_kit::rpc::{ANSWER, Answer, Plan, serve};

use crate::while_;

/// Replies to requests until the other side closes the stream.
pub fn answer(plan: &Plan, mut from: impl Read, mut to: impl Write) {
    let mut payload = vec![0; plan.bytes];
    while from.read_exact(&mut payload).is_ok() && to.write_all(&serve(&payload, plan.check).to_bytes()).is_ok() {}
}

/// Makes one call.
pub fn call(mut to: impl Write, mut from: impl Read, payload: &[u8]) -> Result<Answer, String> {
    let mut answer = [0; ANSWER];
    to.write_all(payload).map_err(while_("asking"))?;
    from.read_exact(&mut answer).map_err(while_("the answer"))?;
    Ok(Answer::from_bytes(answer))
}
