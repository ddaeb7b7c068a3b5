//! Traces of real programs: what is in the file, and what becomes of it when something is in the way.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kumihimo::runtime::{self, Builder, Metrics};
use kumihimo::sync::{Mutex, mpsc};
use kumihimo::thread;
use kumihimo_tests::process::{alone, has_vps};
use kumihimo_trace::read::Of;
use kumihimo_trace::{Reader, Summary, Verdict, check, summaries};

/// A folder of its own, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("kumi-trace-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("readable").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A bit of everything: names, messages, a contended lock, sleeps, `blocking`, priorities. Returns the metrics at its end.
fn work() -> Metrics {
    let (sender, receiver) = mpsc::sync_channel(2);
    let total = Arc::new(Mutex::new(0));
    let workers: Vec<_> = (0..8u64)
        .map(|i| {
            let (sender, total) = (sender.clone(), total.clone());
            let body = move || {
                for n in 0..20 {
                    *total.lock().expect("not poisoned") += n;
                    sender.send(i).expect("the receiver lives");
                    thread::yield_now();
                }
                thread::sleep(std::time::Duration::from_millis(1));
                thread::blocking(|| std::thread::sleep(std::time::Duration::from_millis(1)));
            };
            thread::Builder::new().name(format!("worker {i}")).spawn(body).expect("room")
        })
        .collect();
    drop(sender);
    assert_eq!(receiver.iter().count(), 160);
    workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    assert_eq!(*total.lock().expect("not poisoned"), 8 * 190);
    runtime::metrics().expect("a runtime runs")
}

fn traced(path: &Path) -> Builder {
    Builder::new().vps(2).trace(path)
}

fn one(path: &Path) -> Summary {
    let all = summaries(path).expect("a complete trace");
    assert_eq!(all.len(), 1);
    all[0]
}

#[test]
fn states_never_overlap_and_counts_agree() {
    alone("states_never_overlap_and_counts_agree", || {
        if !has_vps("states_never_overlap_and_counts_agree") {
            return;
        }
        for queue in [runtime::Design::Ring, runtime::Design::Locked, runtime::Design::Steal] {
            let folder = Folder::new("counts");
            let path = folder.file("out.perfetto");
            let metrics = traced(&path).queue(queue).build().expect("a runtime").run(work);
            let summary = one(&path);
            assert_eq!((summary.lost, summary.vps), (0, 2));
            // The main one ends after the snapshot.
            assert_eq!((summary.spawned, summary.ended), (metrics.spawned, metrics.spawned));
            assert!(summary.switches >= metrics.vps.iter().map(|vp| vp.switches).sum());
            assert!(summary.hand_overs >= metrics.hand_offs.max(2) && summary.blocked >= summary.unblocked);
            let report = check(&path, None).expect("a trace");
            assert_eq!(report.overlaps, [""; 0], "{report}");
            assert_eq!(report.verdict(), Verdict::Holds, "{report}");
            assert_eq!(folder.names(), ["out.perfetto"]);
        }
    });
}
