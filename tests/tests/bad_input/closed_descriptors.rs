//! A program that closes descriptors that it has not opened, and opens its own files in their
//! place, as a daemon does.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::time::Duration;

use kumihimo::runtime::{Events, Runtime};
use kumihimo::signal;
use kumihimo::thread;
use kumihimo_tests::process::{again, is_child};

/// More than the runtime has descriptors.
const FILES: usize = 64;

/// Closes all descriptors but the standard streams, opens as many files, and runs `then`. The
/// process may end, with a line that names the cause, but it must not write to the files.
fn after_closing(name: &str, environment: &[(&str, &str)], then: impl FnOnce()) {
    if is_child(name) {
        // The runtime starts, and everything in it that starts at the first use.
        thread::spawn(|| thread::sleep(Duration::from_millis(1))).join().expect("no panic");
        thread::blocking(|| ());
        // SAFETY: the point of the test.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        let place = PathBuf::from(std::env::var("KUMI_TEST_PLACE").expect("the parent sets it"));
        let open = |n: usize| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).open(place.join(n.to_string()))
        };
        let _files: Vec<_> = (0..FILES).map(|n| open(n).expect("a file")).collect();
        return then();
    }
    let place =
        std::env::temp_dir().join(format!("kumi-closed-{}-{}", std::process::id(), name.len()));
    fs::create_dir(&place).expect("a directory");
    let path = place.display().to_string();
    let mut environment = environment.to_vec();
    environment.push(("KUMI_TEST_PLACE", &path));
    let ended = again(name, &environment);
    let written: Vec<_> = (0..FILES)
        .filter_map(|n| fs::read(place.join(n.to_string())).ok())
        .filter(|text| !text.is_empty())
        .collect();
    fs::remove_dir_all(&place).expect("removed");
    assert!(written.is_empty(), "{written:?}: {}", ended.told());
    let says_why = ended.stderr.contains("kumihimo: the program has closed descriptor ");
    assert!(ended.status.success() || says_why, "{}", ended.told());
    assert!(ended.stderr.lines().count() <= 1, "{}", ended.told());
}

fn spawns_and_waits() {
    for _ in 0..50 {
        thread::spawn(|| thread::sleep(Duration::from_millis(2))).join().expect("no panic");
        thread::spawn(|| std::thread::sleep(Duration::from_millis(2))).join().expect("no panic");
        thread::spawn(|| thread::blocking(|| ())).join().expect("no panic");
    }
}

#[test]
fn microprocesses_after_all_descriptors_were_closed_write_to_no_file() {
    const NAME: &str =
        "closed_descriptors::microprocesses_after_all_descriptors_were_closed_write_to_no_file";
    after_closing(NAME, &[], spawns_and_waits);
}

#[test]
fn runtime_that_ends_after_all_descriptors_were_closed_writes_to_no_file() {
    const NAME: &str =
        "closed_descriptors::runtime_that_ends_after_all_descriptors_were_closed_writes_to_no_file";
    after_closing(NAME, &[("KUMI_EVENTS", "off")], || {
        spawns_and_waits();
        std::process::exit(0);
    });
}

#[test]
fn signal_after_all_descriptors_were_closed_writes_to_no_file() {
    const NAME: &str =
        "closed_descriptors::signal_after_all_descriptors_were_closed_writes_to_no_file";
    let stream = is_child(NAME).then(|| signal::stream(signal::Kind::USER_1).expect("a stream"));
    after_closing(NAME, &[("KUMI_DUMP_SIGNAL", "USR2")], || {
        // SAFETY: no memory is passed.
        unsafe {
            libc::raise(libc::SIGUSR2);
            libc::raise(libc::SIGUSR1);
        }
        std::mem::forget(stream);
    });
}

#[test]
fn explicit_runtime_after_all_descriptors_were_closed_works() {
    const NAME: &str =
        "closed_descriptors::explicit_runtime_after_all_descriptors_were_closed_works";
    if is_child(NAME) {
        // SAFETY: no runtime has started; libtest has no descriptors.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        let runtime = Runtime::builder().vps(2).events(Events::Watch).build().expect("a runtime");
        return runtime.run(spawns_and_waits);
    }
    let ended = again(NAME, &[]);
    assert!(ended.status.success(), "{}", ended.told());
}
