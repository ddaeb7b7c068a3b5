//! Runs one test of this test program in a process of its own, or the whole program under other settings.

use std::process::{Command, Output};

/// Output of this test program, run again for the one test `name` with `env` set.
pub fn once_more(name: &str, env: &[(&str, &str)]) -> Output {
    let exe = std::env::current_exe().expect("this program");
    Command::new(exe)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("KUMI_TEST_CHILD", name)
        // AddressSanitizer, if this is built with it, shall leave faults to the program.
        .env("ASAN_OPTIONS", "detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_abort=0")
        .envs(env.iter().copied())
        .output()
        .expect("the test program again")
}

/// True in the process that `once_more` started for this test.
pub fn is_child(name: &str) -> bool {
    std::env::var("KUMI_TEST_CHILD").is_ok_and(|v| v == name)
}

/// Runs `body` in a process of its own, where no other test disturbs its measurements.
pub fn alone(name: &str, body: impl FnOnce()) {
    if is_child(name) {
        return body();
    }
    let out = once_more(name, &[]);
    assert!(out.status.success(), "{name}: {}\n{}{}", out.status, text(&out.stdout), text(&out.stderr));
}

/// Runs all tests of this program but `but` with `env` set.
pub fn all_with(but: &str, env: &[(&str, &str)]) {
    if std::env::var_os("KUMI_TEST_CHILD").is_some() {
        return;
    }
    let exe = std::env::current_exe().expect("this program");
    let out = Command::new(exe)
        .args(["--skip", but])
        .env("KUMI_TEST_CHILD", "all")
        .env_remove("KUMI_TLS")
        .envs(env.iter().copied())
        .output()
        .expect("the test program again");
    assert!(out.status.success(), "{env:?}: {}\n{}{}", out.status, text(&out.stdout), text(&out.stderr));
}

/// True if this is built with AddressSanitizer, whose shadow memory needs the address space that some tests use up.
pub fn address_sanitizer() -> bool {
    let at: usize;
    // SAFETY: loads an address from the global offset table; null if nobody defines the (weak) symbol.
    unsafe {
        core::arch::asm!(
            ".weak __asan_init",
            "mov {}, [rip + __asan_init@GOTPCREL]",
            out(reg) at,
            options(nostack, preserves_flags, readonly)
        );
    }
    at != 0
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
