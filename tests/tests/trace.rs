//! Traces of real programs: the contents of the file, and errors in writing it.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kumihimo::runtime::{self, Builder, Metrics};
use kumihimo::sync::{Mutex, mpsc};
use kumihimo::thread;
use kumihimo_tests::process::{again, alone, finish, has_vps, is_child, start};
use kumihimo_trace::read::Of;
use kumihimo_trace::record::NAME_MAX;
use kumihimo_trace::{Reader, Summary, Verdict, check, recover, session, summaries};

/// A temporary directory, removed when dropped.
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

/// Number of workers that the dump of all microprocesses shows as parked.
fn parked_workers() -> usize {
    let mut text = Vec::new();
    runtime::dump(&mut text).expect("memory takes all");
    let text = String::from_utf8(text).expect("UTF-8");
    let is_parked = |line: &&str| line.contains(" worker ") && line.contains("waits for an unpark");
    text.lines().filter(is_parked).count()
}

/// A mix of operations: names, messages, a contended lock, parking, sleeps, `blocking`, priorities.
/// Returns the metrics at the end.
fn work() -> Metrics {
    let (sender, receiver) = mpsc::sync_channel(2);
    let total = Arc::new(Mutex::new(0));
    let seen_parked = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..8u64)
        .map(|i| {
            let (sender, total) = (sender.clone(), total.clone());
            let seen_parked = seen_parked.clone();
            let body = move || {
                for n in 0..20 {
                    *total.lock().expect("not poisoned") += n;
                    sender.send(i).expect("the receiver lives");
                    thread::yield_now();
                }
                drop(sender);
                while !seen_parked.load(Ordering::Acquire) {
                    thread::park();
                }
                thread::sleep(std::time::Duration::from_millis(1));
                thread::blocking(|| std::thread::sleep(std::time::Duration::from_millis(1)));
            };
            thread::Builder::new().name(format!("worker {i}")).spawn(body).expect("room")
        })
        .collect();
    drop(sender);
    assert_eq!(receiver.iter().count(), 160);
    // A sleep need not park: on a busy machine its time may pass before it does.
    while thread::current().is_microprocess() && parked_workers() < workers.len() {
        thread::yield_now();
    }
    seen_parked.store(true, Ordering::Release);
    workers.iter().for_each(|worker| worker.thread().unpark());
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
        for queue in runtime::Design::ALL {
            let folder = Folder::new("counts");
            let path = folder.file("out.perfetto");
            let metrics = traced(&path).queue(queue).build().expect("a runtime").run(work);
            let summary = one(&path);
            assert_eq!((summary.lost, summary.vps), (0, 2));
            // The main microprocess ends after the snapshot.
            assert_eq!((summary.spawned, summary.ended), (metrics.spawned, metrics.spawned));
            assert!(summary.switches >= metrics.vps.iter().map(|vp| vp.switches).sum());
            assert!(
                summary.hand_overs >= metrics.hand_offs.max(2)
                    && summary.blocked >= summary.unblocked
            );
            let report = check(&path, None).expect("a trace");
            assert_eq!(report.overlaps, [""; 0], "{report}");
            assert_eq!(report.verdict(), Verdict::Holds, "{report}");
            assert_eq!(folder.names(), ["out.perfetto"]);
        }
    });
}

/// Names of events on tracks of one kind, with the names of the tracks.
fn seen(path: &Path, of: Of) -> Vec<(String, String)> {
    let mut reader = Reader::open(path).expect("a file");
    let mut all = Vec::new();
    while let Some(event) = reader.next_event().expect("a trace") {
        let track = &reader.tracks[&event.track];
        if track.of == of && !event.name.is_empty() {
            all.push((track.name.to_string(), event.name.to_string()));
        }
    }
    all
}

#[test]
fn names_states_and_events_are_in_the_file() {
    alone("names_states_and_events_are_in_the_file", || {
        if !has_vps("names_states_and_events_are_in_the_file") {
            return;
        }
        let folder = Folder::new("names");
        let path = folder.file("out.perfetto");
        let long = "n".repeat(60);
        let name = long.clone();
        traced(&path).build().expect("a runtime").run(move || {
            work();
            thread::Builder::new().name(name).spawn(|| ()).expect("room").join().expect("no panic");
        });
        let micros = seen(&path, Of::Micro);
        for i in 0..8 {
            let states = ["Spawned", "Ready", "Running", "Parked", "Blocked", "Ended"];
            let worker = format!("worker {i} #");
            for state in states {
                assert!(
                    micros.iter().any(|(who, what)| who.starts_with(&worker) && what == state),
                    "{worker} {state}"
                );
            }
        }
        assert!(micros.iter().any(|(who, _)| who.starts_with("main #")));
        let cut = format!("{} #", &long[..NAME_MAX]);
        assert!(micros.iter().any(|(who, _)| who.starts_with(&cut)));
        let vps = seen(&path, Of::Vp);
        assert!(
            ["VP 0", "VP 1"]
                .iter()
                .all(|vp| vps.iter().any(|(who, what)| who == vp && what == "Resumed"))
        );
        assert!(
            vps.iter().any(|(_, what)| what == "Idle")
                && vps.iter().any(|(_, what)| what.starts_with("worker 3"))
        );
        assert!(seen(&path, Of::Thread).iter().any(|(_, what)| what == "Carries a VP"));
    });
}

/// Two runtimes in one process write to one file, one after the other.
#[test]
fn second_runtime_appends_to_the_trace() {
    alone("second_runtime_appends_to_the_trace", || {
        if !has_vps("second_runtime_appends_to_the_trace") {
            return;
        }
        let folder = Folder::new("two");
        let path = folder.file("out.perfetto");
        // Contents from before the process are removed.
        std::fs::write(&path, b"something else").expect("room");
        for _ in 0..2 {
            traced(&path).build().expect("a runtime").run(work);
        }
        let report = check(&path, None).expect("a trace");
        assert_eq!((report.runs, report.verdict()), (2, Verdict::Holds), "{report}");
        let all = summaries(&path).expect("complete");
        assert_eq!(all.iter().map(|run| run.spawned).collect::<Vec<_>>(), [9, 9]);
    });
}

#[test]
fn records_without_room_are_counted_and_shown() {
    alone("records_without_room_are_counted_and_shown", || {
        if !has_vps("records_without_room_are_counted_and_shown") {
            return;
        }
        let folder = Folder::new("tiny");
        let path = folder.file("out.perfetto");
        let lost = traced(&path)
            .trace_buffer(8)
            .build()
            .expect("a runtime")
            .run(|| work().trace_lost.expect("it is traced"));
        let summary = one(&path);
        assert!(lost > 0 && summary.lost >= lost, "{lost} {summary:?}");
        assert!(seen(&path, Of::Process).iter().any(|(_, what)| what == "Lost"));
        let report = check(&path, None).expect("a trace");
        assert_eq!((report.lost, report.verdict()), (summary.lost, Verdict::Incomplete));
    });
}

#[test]
fn invalid_buffer_sizes_are_refused() {
    alone("invalid_buffer_sizes_are_refused", || {
        let folder = Folder::new("size");
        for records in [0, 7, usize::MAX] {
            let error =
                traced(&folder.file("x")).trace_buffer(records).build().expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("trace buffer"), "{error}");
        }
    });
}

#[test]
fn unwritable_trace_path_fails_build() {
    alone("unwritable_trace_path_fails_build", || {
        for path in ["/no/such/folder/x", "/proc/x", "/"] {
            let error = traced(Path::new(path)).build().expect_err("refused").to_string();
            assert!(error.contains("trace") && error.contains(path), "{error}");
        }
        // The failed attempt leaves nothing behind that would affect another runtime.
        Builder::new().vps(1).build().expect("a runtime").run(|| ());
    });
}

const FULL: &str = "full_disk_is_reported_at_the_end";

#[test]
fn full_disk_is_reported_at_the_end() {
    if is_child(FULL) {
        assert!(traced(Path::new("/dev/full")).build().expect("a runtime").run(work).spawned > 0);
        return;
    }
    let ended = again(FULL, &[]);
    assert!(ended.status.success(), "{ended:?}");
    assert!(
        ended.stderr.contains("kumihimo: trace /dev/full: No space left on device"),
        "{ended:?}"
    );
}

#[test]
fn pipe_receives_the_trace_at_the_end() {
    alone("pipe_receives_the_trace_at_the_end", || {
        if !has_vps("pipe_receives_the_trace_at_the_end") {
            return;
        }
        let folder = Folder::new("pipe");
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        let reads = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).expect("readable");
            all
        });
        traced(Path::new(&path)).build().expect("a runtime").run(work);
        drop(writer);
        let copy = folder.file("copy");
        std::fs::write(&copy, reads.join().expect("no panic")).expect("room");
        assert_eq!(one(&copy).spawned, 9);
        // A pipe whose reader has gone.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        let runtime = traced(Path::new(&path)).build().expect("a runtime");
        drop(reader);
        runtime.run(work);
    });
}

const KILLED: &str = "trace_of_a_killed_program_can_be_converted";

#[test]
fn trace_of_a_killed_program_can_be_converted() {
    if is_child(KILLED) {
        Builder::new().vps(2).build().expect("a runtime").run(|| {
            work();
            println!("worked");
            loop {
                work();
            }
        });
    }
    if !has_vps(KILLED) {
        return;
    }
    let folder = Folder::new("killed");
    let path = folder.file("out.perfetto");
    let mut child = start(KILLED, &[("KUMI_TRACE", path.to_str().expect("UTF-8"))]);
    let pid = child.id();
    let mut said = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("worked") {
        assert!(std::io::BufRead::read_line(&mut said, &mut line).expect("readable") > 0, "{line}");
    }
    // Wait until the trace of the work so far is written.
    let spool = session::find_spool(&path, pid).expect("the spool");
    while std::fs::metadata(&spool).expect("the spool").len() < 100_000 {
        std::thread::yield_now();
    }
    child.kill().expect("a child");
    let ended = finish(KILLED, child);
    assert!(!ended.status.success());
    let summary = recover(&path, pid).expect("it left its spool").expect("convertible");
    assert_eq!(one(&path), summary);
    assert!(summary.spawned >= 9, "{summary:?}");
    assert_eq!(folder.names(), ["out.perfetto"]);
    let report = check(&path, None).expect("a trace");
    assert_eq!(report.overlaps, [""; 0], "{report}");
}

const LEFT: &str = "leaked_runtime_is_traced_to_process_exit";

#[test]
fn leaked_runtime_is_traced_to_process_exit() {
    if is_child(LEFT) {
        thread::spawn(work).join().expect("no panic");
        return;
    }
    if !has_vps(LEFT) {
        return;
    }
    let folder = Folder::new("left");
    let path = folder.file("out-%p.perfetto");
    let ended = again(LEFT, &[("KUMI_TRACE", path.to_str().expect("UTF-8"))]);
    assert!(ended.status.success(), "{ended:?}");
    let names = folder.names();
    assert!(names.len() == 1 && !names[0].contains('%'), "{names:?}");
    assert_eq!(one(&folder.file(&names[0])).spawned, 9);
}

#[test]
fn invalid_buffer_size_fails_build() {
    const NAME: &str = "invalid_buffer_size_fails_build";
    if is_child(NAME) {
        let error = Builder::new().build().expect_err("refused").to_string();
        assert!(error.contains("KUMI_LAB=trace_buffer=many"), "{error}");
        return;
    }
    let folder = Folder::new("many");
    let path = folder.file("x");
    let ended = again(
        NAME,
        &[("KUMI_TRACE", path.to_str().expect("UTF-8")), ("KUMI_LAB", "trace_buffer=many")],
    );
    assert!(ended.status.success(), "{ended:?}");
}

/// What another user puts at the output, and part of the error.
type Planted<'a> = (&'a dyn Fn(&Path), &'a str);

/// Another user, and one whose files are overwritten.
const STRANGER: u32 = 54_321;

/// As in /tmp: everybody can create files, and remove only their own.
fn shared_folder(name: &str) -> Option<Folder> {
    if !rustix::process::geteuid().is_root() {
        kumihimo_tests::skip(name, "only root can plant files of another user");
        return None;
    }
    let folder = Folder::new(name);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(&folder.0, mode).expect("its mode");
    Some(folder)
}

#[test]
fn planted_output_is_refused_and_kept() {
    const NAME: &str = "planted_output_is_refused_and_kept";
    let Some(folder) = shared_folder(NAME) else { return };
    alone(NAME, || {
        let victim = folder.file("victim");
        std::fs::write(&victim, "kept").expect("written");
        let foreign = |path: &Path| {
            std::os::unix::fs::lchown(path, Some(STRANGER), Some(STRANGER)).expect("root may");
        };
        let planted: [Planted<'_>; 5] = [
            (
                &|path| {
                    std::os::unix::fs::symlink(&victim, path).expect("a link");
                    foreign(path);
                },
                "symbolic link of user 54321",
            ),
            (
                &|path| {
                    std::os::unix::fs::symlink(folder.file("new"), path).expect("a link");
                    foreign(path);
                },
                "symbolic link of user 54321",
            ),
            (&|path| std::fs::hard_link(&victim, path).expect("a second name"), "hard links"),
            (
                &|path| {
                    std::fs::write(path, "kept").expect("written");
                    foreign(path);
                },
                "belongs to user 54321",
            ),
            // Its reader never comes: opening it would block for ever.
            (
                &|path| {
                    let fifo = rustix::fs::FileType::Fifo;
                    let mode = rustix::fs::Mode::from_raw_mode(0o666);
                    rustix::fs::mknodat(rustix::fs::CWD, path, fifo, mode, 0).expect("a pipe");
                    foreign(path);
                },
                "belongs to user 54321",
            ),
        ];
        for (plant, part) in planted {
            let path = folder.file("out.perfetto");
            plant(&path);
            let error = Builder::new().trace(&path).build().expect_err("refused").to_string();
            assert!(error.contains(part) && error.contains("out.perfetto"), "{error}");
            assert_eq!(std::fs::read(&victim).expect("there"), b"kept");
            std::fs::remove_file(&path).expect("there");
            assert_eq!(folder.names(), ["victim"], "nothing was created");
        }
    });
}

#[test]
fn planted_spool_is_not_used() {
    const NAME: &str = "planted_spool_is_not_used";
    alone(NAME, || {
        if !has_vps(NAME) {
            return;
        }
        let folder = Folder::new(NAME);
        let (path, victim) = (folder.file("out.perfetto"), folder.file("victim"));
        std::fs::write(&victim, "kept").expect("written");
        // A name that can be predicted, by one that knows the next process id.
        let spool = folder.file(&format!("out.perfetto.{}.spool", std::process::id()));
        std::os::unix::fs::symlink(&victim, &spool).expect("a link");
        let traced = Builder::new().trace(&path).build().expect("a runtime");
        traced.run(|| drop(work()));
        assert_eq!(std::fs::read(&victim).expect("there"), b"kept");
        assert!(spool.symlink_metadata().is_ok_and(|there| there.is_symlink()), "left alone");
        assert!(one(&path).spawned >= 8);
        assert_eq!(folder.names().len(), 3, "its own spool is gone");
    });
}
