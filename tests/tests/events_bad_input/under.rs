//! Runs tests under each event source, with limits on the process.

use kumihimo::runtime::{Builder, Events, Runtime};
use kumihimo_events::source;
use kumihimo_tests::process::{Ended, again, is_child};
use kumihimo_tests::skip;

/// Returns whether `source` is available on this machine for this user. Reports `test` as skipped
/// otherwise.
pub fn may(test: &str, source: Events) -> bool {
    match source::open_one(source, 8) {
        Ok(_) => true,
        Err(refused) => {
            skip(&format!("{source}: {test}"), &refused.to_string());
            false
        }
    }
}

/// In a child process: makes a panic of any thread end the process at once, because other threads
/// might wait for the panicked one indefinitely.
pub fn end_at_a_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        report(what);
        // SAFETY: nothing is left to clean up. `abort` is not used, because a core dump waits for
        // kernel threads that may be in uninterruptible sleep.
        unsafe { libc::_exit(101) };
    }));
}

/// Runs `body` in a child process for each available source of `sources`, and passes the results to
/// `check`.
pub fn under(
    name: &str,
    sources: &[Events],
    body: impl Fn(Events),
    check: impl Fn(Events, &Ended),
) {
    if is_child(name) {
        end_at_a_panic();
        let source = std::env::var("KUMI_EVENTS").expect("the parent sets it");
        return body(Events::from_name(&source).expect("a source"));
    }
    for source in sources.iter().copied().filter(|source| may(name, *source)) {
        let ended = again(name, &[("KUMI_EVENTS", source.name())]);
        for line in ended.stderr.lines() {
            if let Some(rest) = line.strip_prefix("[skip] ") {
                skip(&format!("{source}: {name}"), rest);
            }
        }
        check(source, &ended);
    }
}

/// The sources that report blocks.
pub const ALL: [Events; 3] = [Events::Bpf, Events::Perf, Events::Watch];

/// Asserts that the process succeeded.
pub fn well(source: Events, ended: &Ended) {
    let (out, err) = (&ended.stdout, &ended.stderr);
    assert!(
        ended.status.success() && out.contains("1 passed"),
        "under {source}: {}\n{out}\n{err}",
        ended.status
    );
}

/// Asserts that the process succeeded and printed a line with `words` once on standard error.
pub fn well_and_said_once(words: &str) -> impl Fn(Events, &Ended) {
    move |source, ended| {
        well(source, ended);
        if !ended.stderr.contains("[skip]") {
            assert_eq!(ended.stderr.matches(words).count(), 1, "under {source}: {}", ended.stderr);
        }
    }
}

/// Runs `body` under each source.
pub fn under_each(name: &str, body: impl Fn(Events)) {
    under(name, &ALL, body, well);
}

/// Runs `body` in a runtime with the source of this process. Skips if microprocesses are kernel
/// threads.
pub fn with_vps(vps: usize, body: impl FnOnce() + Send) {
    with(Runtime::builder().vps(vps), body);
}

/// Runs `body` in a runtime with these settings. Skips if microprocesses are kernel threads.
pub fn with(builder: Builder, body: impl FnOnce() + Send) {
    builder.build().expect("a runtime").run(|| {
        if kumihimo_tests::process::one_to_one() {
            eprintln!("\n[skip] microprocesses are kernel threads, without virtual processors to hand over");
        } else {
            body();
        }
    });
}

/// Sets the soft limit, and lowers the hard limit if necessary.
pub fn limit(resource: libc::__rlimit_resource_t, to: u64) {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a limit to be written, and one to be read.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &raw mut now), 0);
        now.rlim_cur = to.min(now.rlim_max);
        assert_eq!(
            libc::setrlimit(resource, &raw const now),
            0,
            "{}",
            std::io::Error::last_os_error()
        );
    }
}
