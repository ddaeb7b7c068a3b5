//! `queues`: the same workload under each queue design: duration, idle share of the VPs' time,
//! number of migrations.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use kumihimo::runtime::{self, Metrics, VpMetrics};
use kumihimo::thread;
use kumihimo_bench_kit::work::{PRIMES_700, spin};
use kumihimo_bench_kit::{Request, sample};

use crate::threads::{fork, mutex, sieve, talk};
use crate::variant::Variant;

pub fn queues(request: &Request) {
    let variant = Variant::of(request);
    let vps = request.vps;
    let work = request.get("work").expect("work=NAME").to_owned();
    match work.as_str() {
        "yield" => measure(&work, || _ = talk::switches(variant, vps, 1_000_000)),
        "null-fork" => measure(&work, || fork::one_by_one(variant, 300_000)),
        "sieve" => measure(&work, || (0..30).for_each(|_| sieve::once(variant, PRIMES_700))),
        "skynet" => measure(&work, || fork::skynet_once(variant.child_first(true))),
        "mutex" => measure(&work, || _ = mutex::contend(variant, 10_000)),
        "message" => measure(&work, || _ = talk::roundtrips(variant, 300_000)),
        "hash" => {
            let files = Files::new();
            measure(&work, || files.hash(variant));
        }
        other => panic!("{other}: unknown workload"),
    }
}

fn measure(work: &str, mut once: impl FnMut()) {
    once();
    let before = now();
    let start = Instant::now();
    once();
    let elapsed = start.elapsed();
    let after = now();
    let sum = |of: fn(&VpMetrics) -> u64| {
        let total = |m: &Metrics| m.vps.iter().map(of).sum::<u64>();
        (total(&after) - total(&before)) as f64
    };
    let keys = format!("work={work}");
    sample("time", elapsed.as_secs_f64(), "s", &keys);
    let all = elapsed.as_nanos() as f64 * after.vps.len() as f64;
    sample("idle_share", (sum(|v| v.idle_ns) / all).min(1.0), "ratio", &keys);
    sample("migrations", sum(|v| v.migrations), "1", &keys);
}

fn now() -> Metrics {
    runtime::metrics().expect("a runtime runs")
}

/// A small version of the tour's workload: a microprocess for each file reads it through `blocking`
/// and computes over its contents.
pub struct Files {
    folder: PathBuf,
    expect: u64,
}

impl Files {
    const COUNT: u64 = 1_000;
    const BYTES: usize = 16 << 10;

    pub fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("kumi-bench-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder for temporary files");
        let mut expect = 0;
        for i in 0..Self::COUNT {
            let content: Vec<u8> =
                (0..Self::BYTES as u64 / 8).flat_map(|w| (w * i).to_le_bytes()).collect();
            expect ^= digest(&content);
            fs::write(Self::path(&folder, i), content).expect("room for temporary files");
        }
        Files { folder, expect }
    }

    fn path(folder: &Path, i: u64) -> PathBuf {
        folder.join(i.to_string())
    }

    pub fn hash(&self, variant: Variant) {
        let readers: Vec<_> = (0..Self::COUNT)
            .map(|i| {
                let path = Self::path(&self.folder, i);
                variant.spawn(move || {
                    digest(&thread::blocking(|| fs::read(path)).expect("the file that was written"))
                })
            })
            .collect();
        let digests = readers.into_iter().map(|r| r.join().expect("no panic"));
        assert_eq!(digests.fold(0, |a, b| a ^ b), self.expect);
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn digest(content: &[u8]) -> u64 {
    content.chunks_exact(8).fold(1, |hash, word| {
        spin(
            hash ^ u64::from_le_bytes(word.try_into().expect("eight bytes"))
                ^ 0x9E37_79B9_7F4A_7C15,
            1,
        )
    })
}
