//! Runs one test of this test program in a process of its own, or all tests with other settings.

use std::io::Write;
use std::process::{Command, Output};

/// Runs this test program again for the test `name` with `env` set, and returns its output.
pub fn once_more(name: &str, env: &[(&str, &str)]) -> Output {
    let exe = std::env::current_exe().expect("this program");
    let output = Command::new(exe)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("KUMI_TEST_CHILD", name)
        // If this is built with a sanitizer, the sanitizer must not handle faults.
        .env("ASAN_OPTIONS", "detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_abort=0")
        .env("TSAN_OPTIONS", "handle_segv=0:handle_sigbus=0:handle_abort=0:report_bugs=0")
        .envs(with_lab("", env))
        .output()
        .expect("the test program starts");
    // libtest succeeds if no test has the given name.
    assert!(
        !String::from_utf8_lossy(&output.stdout).contains("running 0 tests"),
        "there is no test {name}"
    );
    output
}

/// Returns `env`, completed by the values of this process's `KUMI_LAB` that `lab` and `env` do not
/// replace.
fn with_lab<'a>(
    lab: &str,
    env: &'a [(&str, &str)],
) -> impl Iterator<Item = (&'a str, String)> + use<'a> {
    let base = [("KUMI_LAB", kumihimo_config::lab_with(lab))];
    let lab = lab.to_owned();
    let own = env.iter().map(move |&(name, value)| match name {
        "KUMI_LAB" => (name, kumihimo_config::lab_with(&format!("{lab}{value}"))),
        _ => (name, value.to_owned()),
    });
    base.into_iter().chain(own)
}

/// Returns whether this process was started by `once_more` for this test.
pub fn is_child(name: &str) -> bool {
    std::env::var("KUMI_TEST_CHILD").is_ok_and(|v| v == name)
}

/// Runs `body` in a process of its own, where no other test disturbs its measurements.
pub fn alone(name: &str, body: impl FnOnce()) {
    if is_child(name) {
        return body();
    }
    let out = once_more(name, &[]);
    let errors = text(&out.stderr);
    if let Some((_, why)) =
        errors.lines().filter_map(|l| l.strip_prefix("[skip] ")).find_map(|l| l.split_once(": "))
    {
        skip(why);
    }
    assert!(out.status.success(), "{name}: {}\n{}{errors}", out.status, text(&out.stdout));
}

/// Runs all tests of this program except `but` with `env` set.
pub fn all_with(but: &str, env: &[(&str, &str)]) {
    if std::env::var_os("KUMI_TEST_CHILD").is_some() {
        return;
    }
    let exe = std::env::current_exe().expect("this program");
    let out = Command::new(exe)
        .args(["--skip", but])
        .env("KUMI_TEST_CHILD", "all")
        .envs(with_lab("tls=,", env))
        .output()
        .expect("the test program starts");
    assert!(
        out.status.success(),
        "{env:?}: {}\n{}{}",
        out.status,
        text(&out.stdout),
        text(&out.stderr)
    );
}

/// Returns the path of jemalloc's shared library, for `LD_PRELOAD`.
#[allow(dead_code)] // not used by every test program
pub fn jemalloc() -> Option<&'static str> {
    ["/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "/usr/lib64/libjemalloc.so.2"]
        .into_iter()
        .find(|path| cfg!(target_arch = "x86_64") && std::path::Path::new(path).exists())
}

/// Returns whether this is built with AddressSanitizer or ThreadSanitizer, whose shadow memory
/// needs the address space that some tests exhaust.
pub fn sanitizer() -> bool {
    sanitizers() != (false, false)
}

/// Returns whether this is built with ThreadSanitizer, which defers signals and then calls their
/// handlers with a copy of the context.
pub fn thread_sanitizer() -> bool {
    sanitizers().1
}

/// Returns whether AddressSanitizer and ThreadSanitizer are linked in.
fn sanitizers() -> (bool, bool) {
    let (asan, tsan): (usize, usize);
    // SAFETY: loads addresses from the global offset table, which are null if the weak symbols are
    // undefined.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!(
            ".weak __asan_init",
            ".weak __tsan_init",
            "adrp {0}, :got:__asan_init",
            "ldr {0}, [{0}, :got_lo12:__asan_init]",
            "adrp {1}, :got:__tsan_init",
            "ldr {1}, [{1}, :got_lo12:__tsan_init]",
            out(reg) asan,
            out(reg) tsan,
            options(nostack, preserves_flags, readonly)
        );
    }
    // SAFETY: as above.
    #[cfg(not(target_arch = "aarch64"))]
    unsafe {
        core::arch::asm!(
            ".weak __asan_init",
            ".weak __tsan_init",
            "mov {}, [rip + __asan_init@GOTPCREL]",
            "mov {}, [rip + __tsan_init@GOTPCREL]",
            out(reg) asan,
            out(reg) tsan,
            options(nostack, preserves_flags, readonly)
        );
    }
    (asan != 0, tsan != 0)
}

/// Reports that the calling test cannot run on this machine; the scripts count it as skipped.
pub fn skip(why: &str) {
    let name = std::thread::current().name().unwrap_or("main").to_string();
    // Bypasses libtest's capture, which covers only `print!`.
    let line = format!("\n[skip] {name}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
