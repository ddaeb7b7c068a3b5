//! `trace`: files are read and hashed, each in a microprocess, with or without tracing.

use std::time::Instant;

use kumihimo::runtime;
use kumihimo_bench_kit::{Request, sample};

use crate::scheduling::queues::Files;
use crate::variant::Variant;

pub fn hashing(request: &Request) {
    let variant = Variant::of(request);
    let files = Files::new();
    files.hash(variant);
    let start = Instant::now();
    for _ in 0..request.value("rounds", 20) {
        files.hash(variant);
    }
    let time = start.elapsed();
    let lost = runtime::metrics().and_then(|now| now.trace_lost).unwrap_or(0);
    sample("time", time.as_secs_f64(), "s", &format!("load=hashing lost:={lost}"));
}
