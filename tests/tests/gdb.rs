//! gdb and its script: live processes, core files, stepping. Skipped if gdb is not installed.
//!
//! gdb prints many unrelated messages (about debug information, libraries without symbols), so the
//! tests check only for specific lines.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use kumihimo::runtime::{Events, Runtime};
use kumihimo::thread::{self, Suspended};
use kumihimo_tests::process::{is_child, is_one_to_one};
use kumihimo_tests::{root, skip};

/// Breakpoint of the tests: all expected microprocesses exist here.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn kumi_test_stop_here() {
    std::hint::black_box(0);
}

#[inline(never)]
fn parks_here() {
    thread::park();
    std::hint::black_box(0);
}

#[inline(never)]
fn receives_here(from: &kumihimo::sync::mpsc::Receiver<u32>) -> u32 {
    std::hint::black_box(from.recv().expect("a number"))
}

#[inline(never)]
fn yields_here() {
    thread::yield_now();
    std::hint::black_box(0);
}

static BLOCKS: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn blocks_here(mut reader: &std::io::PipeReader) {
    use std::io::Read;
    BLOCKS.store(true, Relaxed);
    assert_eq!(std::hint::black_box(reader.read(&mut [0]).expect("a pipe")), 1);
}

fn named<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    thread::Builder::new().name(name.into()).spawn(f).expect("a microprocess")
}

/// Starts microprocesses in each state on one virtual processor. Without events, so that the VP is
/// not handed over while gdb has stopped the process.
fn one_of_each() {
    use std::io::Write;
    Runtime::builder().vps(1).events(Events::Off).build().expect("a runtime").run(|| {
        let (sender, receiver) = kumihimo::sync::mpsc::channel();
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let parked = named("parks", parks_here);
        let receives = named("receives", move || receives_here(&receiver));
        let blocked = named("blocks", move || thread::blocking(|| blocks_here(&reader)));
        // The VP may have been handed over before the microprocess reaches its flag.
        while kumihimo::runtime::metrics().expect("it runs").bound == 0 || !BLOCKS.load(Relaxed) {
            thread::yield_now();
        }
        let held = named("held", yields_here);
        let stopped = named("stopped", parks_here);
        thread::yield_now();
        for one in [&held, &stopped] {
            assert_ne!(one.thread().suspend().expect("a microprocess"), Suspended::Gone);
        }
        // One microprocess was queued and is set aside, the other one waits.
        thread::yield_now();
        let yields = named("yields", yields_here);
        thread::yield_now();
        let fresh = named("fresh", || 7);
        kumi_test_stop_here();
        parked.thread().unpark();
        sender.send(5).expect("a listening socket");
        writer.write_all(b"x").expect("it reads");
        stopped.thread().unpark();
        for one in [held, stopped] {
            assert!(one.thread().resume().expect("a microprocess"));
            one.join().expect("no panic");
        }
        parked.join().expect("no panic");
        blocked.join().expect("no panic");
        yields.join().expect("no panic");
        assert_eq!(receives.join().expect("no panic") + fresh.join().expect("no panic"), 12);
    });
    println!("all of them ended");
}

/// Returns whether gdb with Python is installed and microprocesses are visible to it. Reports
/// `test` as skipped otherwise.
fn has_gdb(test: &str) -> bool {
    if is_one_to_one() {
        skip(test, "microprocesses are kernel threads, which gdb shows without the script");
        return false;
    }
    let found =
        Command::new("gdb").args(["-nx", "-batch", "-ex", "python print('py' + 'thon')"]).output();
    let has = found.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("python"));
    if !has {
        skip(test, "no gdb with Python");
    }
    has
}

/// Runs gdb with the script and `commands`, and returns its output. The program is this one, for
/// the test `name`.
fn gdb(name: &str, core: Option<&str>, commands: &[&str]) -> String {
    let script = root().join("crates/runtime/gdb/kumihimo.py");
    let mut gdb = Command::new("timeout");
    gdb.args(["-k", "5", "100", "gdb", "-nx", "-batch"]);
    let source = format!("source {}", script.display());
    // Containers may refuse personality(2), downloads would be slow, and libthread_db is disabled:
    // see docs/src/reference/limits/tools.md.
    for command in [
        "set pagination off",
        "set debuginfod enabled off",
        "set disable-randomization off",
        "set libthread-db-search-path /nonexistent",
        &source,
    ] {
        gdb.args(["-ex", command]);
    }
    for command in commands {
        gdb.args(["-ex", command]);
    }
    let program = std::env::current_exe().expect("this program");
    match core {
        Some(core) => gdb.arg(program).arg(core),
        None => gdb.arg("--args").arg(program).args([
            "--exact",
            name,
            "--nocapture",
            "--test-threads=1",
        ]),
    };
    gdb.env("KUMI_TEST_CHILD", name).env_remove("RUST_BACKTRACE").stdin(Stdio::null());
    let out = gdb.output().expect("gdb");
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(!text.contains("Traceback (most recent call last)"), "{text}");
    text
}

/// Returns whether gdb may trace processes: a container may refuse ptrace(2).
fn may_trace(name: &str, said: &str) -> bool {
    let refused = said.contains("ptrace: Operation not permitted")
        || said.contains("Could not trace the inferior");
    if refused {
        skip(name, "ptrace is refused");
    }
    !refused
}

/// The lines about one microprocess in the output of `kumi backtrace all`.
fn about<'a>(said: &'a str, name: &str) -> Vec<&'a str> {
    let head = format!(" {name}: ");
    let from = said
        .lines()
        .skip_while(|line| !(line.starts_with("microprocess ") && line.contains(&head)));
    let (first, rest): (Vec<_>, Vec<_>) = from.enumerate().partition(|(i, _)| *i == 0);
    let rest = rest.into_iter().take_while(|(_, line)| line.starts_with("  "));
    first.into_iter().chain(rest).map(|(_, line)| line).collect()
}

/// Checks the output of `kumi backtrace all` for [`one_of_each`].
fn check_each(said: &str) {
    let (main, parks) = (about(said, "main"), about(said, "parks"));
    assert!(main[0].contains("on kernel thread "), "{said}");
    assert!(main.iter().any(|line| line.contains("kumi_test_stop_here")), "{said}");
    for (name, state, function) in [
        ("parks", "waits for an unpark", "parks_here"),
        ("receives", "waits for the channel at 0x", "receives_here"),
        ("yields", "queued", "yields_here"),
        ("blocks", "blocked", "blocks_here"),
        ("fresh", "has not begun", "will call"),
        ("held", "suspended until it is resumed", "yields_here"),
        ("stopped", "waits for an unpark", "parks_here"),
    ] {
        let lines = about(said, name);
        assert!(lines.first().is_some_and(|head| head.contains(state)), "{name}\n{said}");
        assert_eq!(
            lines.iter().filter(|line| line.contains(function)).count(),
            1,
            "{name}\n{said}"
        );
    }
    // The backtrace reaches the first frame.
    assert!(parks.last().is_some_and(|line| line.contains("first_step")), "{said}");
}

// gdb takes minutes for a core file with the sanitizer's shadow memory.
#[cfg(not(kumihimo_asan))]
#[test]
fn gdb_shows_a_live_process_and_its_core_file() {
    const NAME: &str = "gdb_shows_a_live_process_and_its_core_file";
    if is_child(NAME) {
        return one_of_each();
    }
    if !has_gdb(NAME) {
        return;
    }
    let core = std::env::temp_dir().join(format!("kumihimo-gdb-{}.core", std::process::id()));
    let path = core.to_str().expect("UTF-8");
    let said = gdb(
        NAME,
        None,
        &[
            "break kumi_test_stop_here",
            "run",
            "kumi backtrace all",
            &format!("kumi core {path}"),
            "kumi select parks",
            "up 2",
            "info frame",
            "kumi backtrace no-such-one",
            "continue",
        ],
    );
    if !may_trace(NAME, &said) {
        return;
    }
    check_each(&said);
    // Inspection does not affect the process.
    assert!(said.contains("all of them ended") && said.contains("exited normally"), "{said}");
    assert!(said.contains("kumi: no microprocess is called no-such-one"), "{said}");
    let said = gdb(
        NAME,
        Some(path),
        &[
            "kumi microprocesses",
            "echo each\\n",
            "kumi backtrace all",
            "echo one\\n",
            "kumi backtrace receives",
            "kumi select parks",
            "echo selected\\n",
            "bt",
        ],
    );
    std::fs::remove_file(core).expect("gdb wrote it");
    let (list, said) = said.split_once("each\n").expect("the list comes first");
    assert!(
        list.contains("parks: waits for an unpark, priority 32")
            && list.contains("8 microprocesses"),
        "{list}"
    );
    for (name, state) in
        [("held", "suspended until it is resumed"), ("stopped", "waits for an unpark")]
    {
        let line = list
            .lines()
            .find(|line| line.contains(&format!(" {name}: ")))
            .unwrap_or_else(|| panic!("{list}"));
        assert!(
            line.contains(&format!(" {name}: {state}, priority")) && line.ends_with(", suspended"),
            "{line}"
        );
    }
    let (all, said) = said.split_once("one\n").expect("then all of them");
    check_each(all);
    let (one, selected) = said.split_once("selected\n").expect("then two of them");
    assert!(
        one.contains("receives_here")
            && !about(one, "receives").iter().any(|line| line.contains("parks_here"))
    );
    assert!(selected.contains("parks_here"), "{selected}");
}

/// A core file written by the kernel.
#[test]
fn core_file_of_the_kernel_shows_microprocesses() {
    const NAME: &str = "core_file_of_the_kernel_shows_microprocesses";
    if is_child(NAME) {
        let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a live structure.
        if unsafe { libc::setrlimit(libc::RLIMIT_CORE, &limit) } != 0 {
            println!("no core files");
            return;
        }
        std::env::set_current_dir(std::env::var("KUMI_CORE_IN").expect("set"))
            .expect("it is there");
        return abort_with_some();
    }
    if !has_gdb(NAME) {
        return;
    }
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").expect("procfs");
    if pattern.starts_with(['|', '/']) {
        return skip(
            NAME,
            "core files are not written to the working directory (kernel.core_pattern)",
        );
    }
    let folder = std::env::temp_dir().join(format!("kumihimo-core-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let ended =
        kumihimo_tests::process::again(NAME, &[("KUMI_CORE_IN", folder.to_str().expect("UTF-8"))]);
    let core = std::fs::read_dir(&folder).expect("a folder").flatten().next();
    let said = core
        .map(|core| gdb(NAME, Some(core.path().to_str().expect("UTF-8")), &["kumi backtrace all"]));
    std::fs::remove_dir_all(&folder).expect("it is ours");
    let Some(said) = said else {
        return skip(NAME, "no core files are written here (ulimit -c)");
    };
    assert!(!ended.status.success());
    for (name, function) in
        [("main", "abort_with_some"), ("parks", "parks_here"), ("yields", "yields_here")]
    {
        assert!(about(&said, name).iter().any(|line| line.contains(function)), "{name}\n{said}");
    }
}

#[inline(never)]
fn abort_with_some() {
    Runtime::builder().vps(1).build().expect("a runtime").run(|| {
        named("parks", parks_here);
        named("yields", yields_here);
        thread::yield_now();
        std::process::abort();
    });
}

/// The script is embedded in the program, and its exported root needs no debug information.
#[test]
fn gdb_script_is_loaded_with_the_program() {
    const NAME: &str = "gdb_script_is_loaded_with_the_program";
    if !has_gdb(NAME) {
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let trust = format!("add-auto-load-safe-path {}", program.display());
    let out = Command::new("gdb")
        .args([
            "-nx",
            "-batch",
            "-iex",
            &trust,
            "-ex",
            "kumi microprocesses",
            "-ex",
            "info signals SIGTRAP",
        ])
        .arg(&program)
        .output()
        .expect("gdb");
    let said =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("0 microprocesses on 0 kernel threads"), "{said}");
    // Columns of `info signals`: stop, print, pass.
    let words: Vec<_> = said
        .lines()
        .find(|line| line.starts_with("SIGTRAP"))
        .expect("a row")
        .split_whitespace()
        .collect();
    assert_eq!(words[1..4], ["No", "No", "No"], "{said}");
}

/// A program that switches often, while gdb steps through one microprocess.
fn busy() {
    Runtime::builder().vps(2).build().expect("a runtime").run(|| {
        let (sender, receiver) = kumihimo::sync::mpsc::channel();
        let others: Vec<_> = (0..8u64)
            .map(|i| {
                let sender = sender.clone();
                thread::spawn(move || {
                    for k in 0..200 {
                        sender.send(i * k).expect("a listening socket");
                        thread::yield_now();
                    }
                })
            })
            .collect();
        drop(sender);
        kumi_test_stop_here();
        let mut sum = 0;
        for k in 0..200u64 {
            thread::yield_now();
            sum += std::hint::black_box(k);
        }
        sum += receiver.iter().sum::<u64>();
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        assert_eq!(sum, 19_900 * 29);
    });
    println!("the sum is right");
}

#[test]
fn gdb_steps_through_a_switching_program() {
    const NAME: &str = "gdb_steps_through_a_switching_program";
    if is_child(NAME) {
        return busy();
    }
    if !has_gdb(NAME) {
        return;
    }
    // A step that changes kernel threads may last to the end of the program, and gdb may fail at a
    // thread that ends meanwhile. Only the result of the program matters.
    let script = "\
def steps(command, n):
    for i in range(n):
        if not gdb.selected_thread():
            return
        try:
            gdb.execute(command, to_string=True)
        except gdb.error as e:
            print('after', i, command, e)
            return
print('stopped' if gdb.selected_thread() else 'lost')
steps('stepi', 400)
print('stepped')
steps('next', 100)
steps('continue', 5)
";
    let file = std::env::temp_dir().join(format!("kumihimo-gdb-{}.steps", std::process::id()));
    let text = format!("break kumi_test_stop_here\nrun\npython\n{script}end\n");
    std::fs::write(&file, text).expect("a file");
    let said = gdb(NAME, None, &[&format!("source {}", file.display())]);
    std::fs::remove_file(file).expect("it is there");
    if !may_trace(NAME, &said) {
        return;
    }
    assert!(said.contains("stopped") && said.contains("stepped"), "{said}");
    assert!(said.contains("the sum is right"), "{said}");
}

/// Attaches in the middle of a run, with or without pending traps.
#[test]
fn gdb_attaches_to_a_running_process() {
    use std::io::{BufRead, BufReader, Write};
    const NAME: &str = "gdb_attaches_to_a_running_process";
    if is_child(NAME) {
        // Otherwise Yama allows only the parent to attach: see ptrace(2).
        // SAFETY: integers only.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
        return Runtime::builder().vps(2).build().expect("a runtime").run(|| {
            let waits = named("waits", parks_here);
            let reads = named("reads", || {
                println!("attach now");
                thread::blocking(|| std::io::stdin().read_line(&mut String::new()).expect("a line"))
            });
            reads.join().expect("no panic");
            // The event source reports these blocks, and their ends by traps if it can.
            let naps = (0..20)
                .map(|_| thread::spawn(|| std::thread::sleep(std::time::Duration::from_millis(1))));
            naps.collect::<Vec<_>>().into_iter().for_each(|nap| nap.join().expect("no panic"));
            waits.thread().unpark();
            waits.join().expect("no panic");
            println!("all of them ended");
        });
    }
    if !has_gdb(NAME) {
        return;
    }
    let mut child = kumihimo_tests::process::start(NAME, &[]);
    let mut says = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("attach now") {
        line.clear();
        assert_ne!(says.read_line(&mut line).expect("a pipe"), 0, "it ended");
    }
    let mut input = child.stdin.take().expect("a pipe");
    let seen = std::env::temp_dir().join(format!("kumihimo-gdb-{}.seen", std::process::id()));
    let (attach, say) =
        (format!("attach {}", child.id()), format!("shell touch {}", seen.display()));
    let said = std::thread::scope(|scope| {
        // The process continues while gdb is attached, and ends under gdb.
        let gdb =
            scope.spawn(|| gdb(NAME, None, &[&attach, "kumi backtrace waits", &say, "continue"]));
        while !seen.exists() && !gdb.is_finished() {
            std::thread::yield_now();
        }
        input.write_all(b"go on\n").expect("a listening socket");
        gdb.join().expect("no panic")
    });
    let _ = std::fs::remove_file(seen);
    let output = std::io::read_to_string(says).expect("text");
    let status = child.wait().expect("it ends");
    if !may_trace(NAME, &said) {
        return;
    }
    assert!(status.success() && output.contains("all of them ended"), "{status}\n{output}\n{said}");
    assert!(about(&said, "waits").iter().any(|line| line.contains("parks_here")), "{said}");
    assert!(said.contains("exited normally"), "{said}");
}
