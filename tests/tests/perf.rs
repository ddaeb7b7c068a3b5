//! perf(1) on microprocesses: every sample of one has its whole stack. Skipped if perf is not
//! installed or the kernel refuses it.

use std::process::{Command, Stdio};

use kumihimo::runtime::Runtime;
use kumihimo::thread;
use kumihimo_tests::process::{is_child, is_one_to_one};
use kumihimo_tests::skip;

const NAME: &str = "perf_sees_the_frames_below_the_entry";
/// Samples of the loops, of which each microprocess gets thousands of switches in between.
const SAMPLES: usize = 100;

/// Adds up, and switches every few microseconds.
#[inline(never)]
extern "C" fn kumi_test_adds_and_yields(rounds: u64) -> u64 {
    let mut sum = 0;
    for round in 0..rounds {
        for term in 0..1_000 {
            sum = std::hint::black_box(sum + (round ^ term));
        }
        thread::yield_now();
    }
    sum
}

/// Computes for about a second of CPU time.
fn program() {
    Runtime::builder().vps(2).build().expect("a runtime").run(|| {
        let all: Vec<_> =
            (0..4).map(|_| thread::spawn(|| kumi_test_adds_and_yields(60_000))).collect();
        all.into_iter().for_each(|one| assert_ne!(one.join().expect("no panic"), 0));
    });
}

/// Returns the functions of a sample of `perf script`, the innermost first.
fn functions(sample: &str) -> Vec<&str> {
    let frames = sample.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
    frames.map(|frame| frame.rsplit_once('+').map_or(frame, |(name, _)| name)).collect()
}

#[test]
fn perf_sees_the_frames_below_the_entry() {
    if is_child(NAME) {
        return program();
    }
    if is_one_to_one() {
        return skip(NAME, "microprocesses are kernel threads, which perf sees anyway");
    }
    let data = std::env::temp_dir().join(format!("kumihimo-perf-{}.data", std::process::id()));
    let mut record = Command::new("perf");
    // By unwind tables, because test programs have frame pointers only where `make check` builds
    // them so.
    let by = std::env::var("KUMI_TEST_CALL_GRAPH").unwrap_or_else(|_| "dwarf,4096".to_owned());
    record.args(["record", "-q", "-F", "499", "-e", "cpu-clock", "--call-graph", &by]);
    record.arg("-o").arg(&data).arg("--").arg(std::env::current_exe().expect("this program"));
    record.args(["--exact", NAME, "--test-threads=1"]).env("KUMI_TEST_CHILD", NAME);
    let recorded = record.stdin(Stdio::null()).output();
    let Ok(recorded) = recorded else { return skip(NAME, "no perf") };
    if !recorded.status.success() {
        let said = String::from_utf8_lossy(&recorded.stderr);
        let _ = std::fs::remove_file(&data);
        return skip(NAME, &format!("perf record: {}", said.lines().next().unwrap_or_default()));
    }
    let script = Command::new("perf").args(["script", "-i"]).arg(&data).output();
    std::fs::remove_file(&data).expect("perf has written it");
    let script = String::from_utf8(script.expect("perf").stdout).expect("UTF-8");
    let stacks: Vec<_> = script.split("\n\n").map(functions).collect();
    let in_loop =
        |stack: &&Vec<&str>| stack.iter().any(|f| f.contains("kumi_test_adds_and_yields"));
    let ours: Vec<_> = stacks.iter().filter(in_loop).collect();
    assert!(ours.len() > SAMPLES, "{} of {} samples\n{script}", ours.len(), stacks.len());
    let is_whole = |stack: &&&Vec<&str>| stack.iter().any(|f| f.contains("first_step"));
    let whole = ours.iter().filter(is_whole).count();
    assert_eq!(whole, ours.len(), "stacks that end too early: {script}");
}
