//! Two processes that share the cores by priority: the higher one gets them, and afterwards the
//! lower one.

mod exact;
#[path = "../gates/pair.rs"]
#[allow(dead_code)]
mod pair;
mod rules;
mod truncated;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kumihimo::gate::Gate;
use kumihimo::policy::Priority;
use kumihimo::runtime::Runtime;
use kumihimo::thread::{self, Builder};
use kumihimo_tests::process::{has_vps, is_preempted};
use pair::{pair_with, serve_on};

const ON: [(&str, &str); 1] = [("KUMI_ARBITER", "on")];

fn level(n: u8) -> Priority {
    Priority::new(n).expect("a priority")
}

/// CPU time of all kernel threads of a process.
fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let rest = stat.rsplit_once(')').expect("a name").1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks: u64 =
        fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime");
    Duration::from_millis(ticks * 10)
}

/// Uses this much CPU time of the process, without a switch point.
fn compute(time: Duration) {
    let begun = cpu_time(std::process::id());
    while cpu_time(std::process::id()) - begun < time {
        for _ in 0..20_000 {
            std::hint::spin_loop();
        }
    }
}

/// CPU time that the process of higher priority uses.
const HIGH: Duration = Duration::from_millis(600);

static STOP: AtomicBool = AtomicBool::new(false);
static TURNS: AtomicU64 = AtomicU64::new(0);

/// A process that computes on all its virtual processors at a low priority, and reports its process
/// ID through a gate.
fn hog() {
    Runtime::builder().build().expect("a runtime").run(|| {
        let _who = Gate::serve("hog", |()| std::process::id()).expect("it serves");
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                let hogs = Builder::new().priority(level(10)).spawn_scoped(scope, || {
                    while !STOP.load(Ordering::Relaxed) {
                        TURNS.fetch_add(1, Ordering::Relaxed);
                    }
                });
                hogs.expect("a microprocess");
            }
            serve_on();
            STOP.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn higher_priority_gets_the_cores() {
    if !has_vps("higher_priority_gets_the_cores") || !is_preempted("higher_priority_gets_the_cores")
    {
        return;
    }
    pair_with("higher_priority_gets_the_cores", &ON, hog, || {
        let pid = Gate::<(), u32>::connect("hog").expect("it is there").call(&()).expect("a reply");
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let before = cpu_time(pid);
        thread::scope(|scope| {
            for _ in 0..cores {
                let high = Builder::new().priority(level(50)).spawn_scoped(scope, move || {
                    compute(HIGH);
                });
                high.expect("a microprocess");
            }
        });
        // The process of lower priority only checks whether the cores are free.
        let low = cpu_time(pid) - before;
        assert!(
            low * 4 < HIGH,
            "the lower one had {low:?} of CPU time beside {HIGH:?} of the higher one's"
        );
        // Afterwards the cores belong to the process of lower priority again.
        let before = cpu_time(pid);
        let begun = Instant::now();
        while cpu_time(pid) - before < Duration::from_millis(50) {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "the lower one does not run any more"
            );
            thread::sleep(Duration::from_millis(10));
        }
    });
}
