//! Profiles of CPU time.

use std::hint::black_box;
use std::process::Command;

use kumihimo::thread;
use kumihimo_tests::process;
use kumihimo_trace::profile::Profile;

use super::served::{Folder, one_to_one, read, sums, wait_for_ever};

/// CPU time that the loops use in total, in nanoseconds.
const USED: u64 = 8_000_000_000;
/// The rate is limited by the kernel's tick.
const RATE: &str = "1000";
/// Least number of samples in [`USED`], with a tick of 100 Hz.
const SAMPLES: i64 = 500;

/// One function for all, so that the loops differ only in the number of its calls.
#[inline(never)]
fn work(seed: u64, rounds: u64) -> u64 {
    (0..rounds * 20_000).fold(seed, |sum, n| black_box(sum.rotate_left(5) ^ n))
}

#[inline(never)]
fn seventy(seed: u64) -> u64 {
    black_box(work(seed, 7)) + 1
}

#[inline(never)]
fn twenty(seed: u64) -> u64 {
    black_box(work(seed, 2)) + 1
}

#[inline(never)]
fn ten(seed: u64) -> u64 {
    black_box(work(seed, 1)) + 1
}

/// Computes until the process has used this much CPU time, in nanoseconds.
fn compute(used: u64) {
    let mut sum = 1;
    while kumihimo_arch::kernel_attributes::process_cpu_time() < used {
        for _ in 0..10 {
            sum = ten(twenty(seventy(sum)));
        }
    }
    black_box(sum);
}

/// Runs the test's child process under `kumi profile`, and returns the path of the profile and its
/// content.
fn profile_of_child(folder: &Folder, test: &str) -> (String, Profile) {
    let file = folder.file("cpu.pprof");
    let child = process::command(test, &[]);
    let mut command = folder.command(&["--rate", RATE, "-o", &file, "--"]);
    command.arg(child.get_program()).args(child.get_args()).env("KUMI_TEST_CHILD", test);
    let output = command.output().expect("kumi");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    assert!(complaints.contains("of CPU time within"), "{complaints}");
    let profile = read(&file);
    (file, profile)
}

/// Returns the time of the samples with this name, in nanoseconds.
fn time_of_name(profile: &Profile, name: &str) -> i64 {
    let text = |at: Option<i64>| &*profile.string_table[at.expect("set") as usize];
    let named = profile.sample.iter().filter(|one| {
        one.label.iter().any(|label| (text(label.key), text(label.str)) == ("name", name))
    });
    named.map(|one| one.value[1]).sum()
}

#[test]
fn profile_finds_the_split_of_three_loops() {
    let test = "cpu::profile_finds_the_split_of_three_loops";
    if process::is_child(test) {
        let name = |n| thread::Builder::new().name(format!("loops-{n}"));
        let all: Vec<_> =
            (0..2).map(|n| name(n).spawn(|| compute(USED)).expect("spawned")).collect();
        all.into_iter().for_each(|one| one.join().expect("no panic"));
        return;
    }
    if one_to_one(test) {
        return;
    }
    let folder = Folder::new(test);
    let (_, profile) = profile_of_child(&folder, test);
    let samples: i64 = profile.sample.iter().map(|one| one.value[0]).sum();
    assert!(samples >= SAMPLES, "{samples}");
    let (sums, total) = sums(&profile);
    assert!(total as u64 > USED / 2 && total as u64 <= USED * 3 / 2, "{total}: {sums:?}");
    let all = sums["compute"];
    assert!(all * 10 > total * 9, "{all} of {total}: {sums:?}");
    for (function, share) in [("seventy", 0.7), ("twenty", 0.2), ("ten", 0.1)] {
        let found = sums[function] as f64 / all as f64;
        // Four standard errors of an estimate from so many samples, whose weights vary by a third.
        let error = 4.0 * (1.1 * share * (1.0 - share) / samples as f64).sqrt();
        assert!(
            (found - share).abs() < error,
            "{function}: {found} in {samples} samples: {sums:?}"
        );
    }
    let named = time_of_name(&profile, "loops");
    assert!(named >= all, "{named} of {all}");
}

/// The first call of the tool builds it, which takes minutes.
#[test]
fn go_tool_pprof_reads_a_profile() {
    let test = "cpu::go_tool_pprof_reads_a_profile";
    if process::is_child(test) {
        return compute(USED / 8);
    }
    if one_to_one(test) {
        return;
    }
    let folder = Folder::new(test);
    let (file, _) = profile_of_child(&folder, test);
    let go = Command::new("go").args(["tool", "pprof", "-top", "-cum", &file]).output();
    match go {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("Type: cpu") && said.contains("seventy"), "{said}");
        }
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => kumihimo_tests::skip(test, "go is not installed: go tool pprof is not tested"),
    }
}

/// The profiler reads the samples after most of these microprocesses have ended.
#[test]
fn samples_of_ended_microprocesses_keep_their_names() {
    let test = "cpu::samples_of_ended_microprocesses_keep_their_names";
    if process::is_child(test) {
        while kumihimo_arch::kernel_attributes::process_cpu_time() < USED / 8 {
            let used = kumihimo_arch::kernel_attributes::process_cpu_time() + 2_000_000;
            let one = thread::Builder::new().name("short-1".into());
            one.spawn(move || compute(used)).expect("spawned").join().expect("no panic");
        }
        return;
    }
    if one_to_one(test) {
        return;
    }
    let folder = Folder::new(test);
    let (_, profile) = profile_of_child(&folder, test);
    let (sums, _) = sums(&profile);
    let (named, all) = (time_of_name(&profile, "short"), sums["compute"]);
    assert!(all > 0 && named >= all, "{named} of {all}");
}

#[test]
fn idle_program_has_no_samples_and_the_reason_is_named() {
    let test = "cpu::idle_program_has_no_samples_and_the_reason_is_named";
    if process::is_child(test) {
        return wait_for_ever();
    }
    if one_to_one(test) {
        return;
    }
    let folder = Folder::new(test);
    let served = folder.served(test, |all| !all.is_empty());
    let (code, said, complaints) = folder.profile(&["--seconds", "0.5", &served.pid()]);
    assert_eq!((code, &*said), (1, ""), "{complaints}");
    assert!(complaints.contains("no sample") && complaints.contains("--off-cpu"), "{complaints}");
}
