//! The mode of a process, as the environment and the machine determine it. Each case runs in a
//! process of its own, because a mode is final.

use std::process::{Command, Output};

use kumihimo_runtime::runtime::{Mode, Runtime, metrics, mode};
use kumihimo_runtime::thread;

const CHILD: &str = "KUMI_TEST_CHILD";

fn is_child(name: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|child| child == name)
}

/// Runs the test `name` again, in a process of its own.
fn alone(name: &str, tls: &str) -> Output {
    let words = ["--exact", name, "--nocapture", "--test-threads=1"];
    let program = std::env::current_exe().expect("this program");
    let folder = std::env::temp_dir().join(format!("kumihimo-mode-{}-{name}", std::process::id()));
    let output = Command::new(program)
        .args(words)
        .env(CHILD, name)
        .env("KUMI_LAB", kumihimo_config::lab_with(&format!("tls={tls}")))
        .env("KUMI_DIR", &folder)
        .output()
        .expect("the test program runs");
    let _ = std::fs::remove_dir_all(folder);
    // libtest succeeds for a name that matches no test.
    assert!(
        !String::from_utf8_lossy(&output.stdout).contains("running 0 tests"),
        "there is no test {name}"
    );
    output
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn passes(output: &Output) -> (String, String) {
    let (out, err) = texts(output);
    assert!(output.status.success(), "{out}{err}");
    (out, err)
}

/// Starts two runtimes, one after the other. The second one finds the mode decided.
fn run_twice() {
    for _ in 0..2 {
        let runtime = Runtime::builder().vps(1).build().expect("a runtime");
        let shown = runtime.run(|| {
            thread::spawn(|| ()).join().expect("no panic");
            metrics().expect("a runtime runs").mode
        });
        assert_eq!(shown, mode());
        println!("mode: {shown}");
    }
}

#[test]
fn requested_kernel_threads_are_not_reported() {
    const NAME: &str = "requested_kernel_threads_are_not_reported";
    if is_child(NAME) {
        assert!(
            matches!(mode(), Mode::KernelThreads { why } if why.contains("KUMI_LAB=tls=kernel"))
        );
        return run_twice();
    }
    let (out, err) = passes(&alone(NAME, "kernel"));
    assert!(out.contains("mode: kernel-threads"), "{out}");
    assert!(!err.contains("1:1"), "{err}");
}

#[test]
fn fallback_to_kernel_threads_is_reported_once() {
    const NAME: &str = "fallback_to_kernel_threads_is_reported_once";
    if is_child(NAME) {
        return run_twice();
    }
    let (out, err) = passes(&alone(NAME, "fail"));
    assert!(out.contains("mode: kernel-threads"), "{out}");
    if kumihimo_arch::HAS_MICROPROCESSES {
        assert_eq!(
            err.matches("kernel threads 1:1 in this process: KUMI_LAB=tls=fail").count(),
            1,
            "{err}"
        );
    }
}

/// Drops root and forbids this process any further kernel thread. Returns false where the limit has
/// no effect.
fn forbid_kernel_threads(limit: &mut libc::rlimit) -> bool {
    // SAFETY: changes IDs and limits of a test process of its own; live structures.
    unsafe {
        libc::setgid(65534);
        libc::setuid(65534);
        assert_eq!(libc::getrlimit(libc::RLIMIT_NPROC, limit), 0);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &libc::rlimit { rlim_cur: 1, ..*limit }), 0);
    }
    std::thread::Builder::new().spawn(|| ()).is_err()
}

#[test]
fn first_spawn_without_kernel_threads_fails_and_a_later_one_succeeds() {
    const NAME: &str = "first_spawn_without_kernel_threads_fails_and_a_later_one_succeeds";
    if is_child(NAME) {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if !forbid_kernel_threads(&mut limit) {
            return println!("not limited");
        }
        let error = thread::Builder::new().spawn(|| ()).expect_err("no kernel thread is available");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
        println!("error: {error}");
        // SAFETY: a live limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &limit) }, 0);
        thread::spawn(|| ()).join().expect("no panic");
        assert_eq!(metrics().expect("a runtime runs").mode, mode());
        return println!("mode: {}", mode());
    }
    let (out, err) = passes(&alone(NAME, ""));
    if out.contains("not limited") || mode() != Mode::Microprocesses {
        return eprintln!("\n[skip] {NAME}: RLIMIT_NPROC has no effect, or no microprocesses");
    }
    assert!(
        out.contains("error: the runtime cannot start") && out.contains("ulimit -u"),
        "{out}{err}"
    );
    assert!(out.contains("mode: microprocesses"), "{out}{err}");
}
