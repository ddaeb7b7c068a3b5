//! `ureq`: each body makes one request by the crate `ureq`, whose reply takes seconds.

use std::sync::Arc;
use std::time::Instant;

use ureq::Agent;

use super::Work;
use crate::connections::Connections;
use crate::plan::Plan;
use crate::threads::Body;

/// Size of a connection's buffers. By default they have 128 KB each, and the time that the kernel
/// takes for 1.3 GB of zeroes would be most of the CPU time of every contender.
const BUFFER: usize = 16 << 10;

/// Requests whose replies the peer delays by the plan's length.
pub fn requests<C: Connections>(plan: &Plan) -> Work {
    let (path, length) = (plan.length.as_millis().to_string(), plan.length);
    let url: Arc<str> = format!("http://127.0.0.1:{}/{path}", plan.port).into();
    let config = Agent::config_builder().input_buffer_size(BUFFER).output_buffer_size(BUFFER);
    let agent = C::agent(config.build());
    let body = |_| {
        let (url, expected, agent) = (url.clone(), format!("/{path}"), agent.clone());
        Box::new(move || {
            let begin = Instant::now();
            let request = agent.get(&*url).header("Connection", "close");
            let mut reply = request.call().expect("the peer");
            assert_eq!(reply.body_mut().read_to_string().expect("the peer"), expected);
            assert!(begin.elapsed() >= length, "the reply came too early");
        }) as Body
    };
    let note = format!(" waits:={}", plan.count);
    Work { end: Box::new(move |_| note), ..Work::of((0..plan.count).map(body).collect()) }
}
