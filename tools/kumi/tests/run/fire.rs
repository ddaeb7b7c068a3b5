//! Stress of all locks of the C library at once. A lost wake-up is a program that hangs.

use std::process::Command;

use kumihimo_tests::rounds;

use crate::bed::{Built, KUMI, run, threads};

/// Holders of a spin lock sleep, and threads are preempted inside `malloc`. The program checks that
/// the first ones need no kernel thread each.
#[test]
fn holders_that_lose_the_processor_get_on() {
    let test = "fire::holders_that_lose_the_processor_get_on";
    let Some(built) = Built::new(test, "held.c") else { return };
    for source in sources() {
        for vps in ["1", "2"] {
            let mut command = built.by_kumi(&["--strict", "--vps", vps]);
            if let Some(source) = source {
                command.env("KUMI_EVENTS", source);
            }
            let ended = run(test, &mut command);
            let what = format!("{source:?} --vps {vps}: {}", ended.told());
            assert!(ended.status.success() && ended.stdout == "ok\n", "{what}");
            assert_eq!(threads(&ended), Some((200, 200)), "{what}");
        }
    }
}

/// The program checks that no thread waits in poll(2). With source `off`, the first block would
/// keep the virtual processor.
#[test]
fn wait_after_a_block_in_the_kernel_is_a_microprocess_s() {
    let test = "fire::wait_after_a_block_in_the_kernel_is_a_microprocess_s";
    let Some(built) = Built::new(test, "back.c") else { return };
    for source in sources().into_iter().flatten().filter(|source| *source != "off") {
        for vps in ["1", "2"] {
            let mut command = built.by_kumi(&["--strict", "--vps", vps]);
            command.env("KUMI_EVENTS", source);
            let ended = run(test, &mut command);
            let what = format!("{source} --vps {vps}: {}", ended.told());
            assert!(ended.status.success() && ended.stdout == "ok\n", "{what}");
            assert_eq!(threads(&ended), Some((40, 40)), "{what}");
        }
    }
}

/// Event sources: the machine's choice, and each that it allows by its name.
fn sources() -> Vec<Option<&'static str>> {
    let output = Command::new(KUMI).arg("doctor").output().expect("kumi doctor");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_allowed = |name: &str| {
        let mut of_it = report.lines().filter_map(|line| line.strip_prefix("events: "));
        of_it.any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(name) && words.next() == Some("yes:")
        })
    };
    assert!(is_allowed("off"), "the source that needs nothing: {report}");
    let named = ["bpf", "perf", "watch", "off"].into_iter().filter(|name| is_allowed(name));
    std::iter::once(None).chain(named.map(Some)).collect()
}

/// Each event source with one, two and four virtual processors. `make soak` repeats it beside
/// busy processes, `make stress` as well.
#[test]
fn locks_under_fire_lose_no_wake_up() {
    let test = "fire::locks_under_fire_lose_no_wake_up";
    let Some(built) = Built::new(test, "fire.c") else { return };
    for mut round in rounds(test) {
        let count = 2 * (1 + round.random.below(32));
        let words = [count.to_string(), "100".to_owned(), round.random.number().to_string()];
        // In the first round, that of `make test`, one number of virtual processors each.
        let alone = round.random.below(3) as usize;
        for (index, source) in sources().into_iter().enumerate() {
            for (number, vps) in ["1", "2", "4"].into_iter().enumerate() {
                if round.number == 0 && (index + alone) % 3 != number {
                    continue;
                }
                let mut command = built.by_kumi(&["--strict", "--vps", vps]);
                if let Some(source) = source {
                    command.env("KUMI_EVENTS", source);
                }
                let ended = run(test, command.args(&words));
                let what = format!("{source:?} --vps {vps} {words:?}: {}", ended.told());
                assert!(ended.status.success() && ended.stdout == "ok\n", "{what}");
                assert_eq!(threads(&ended), Some((count, count)), "{what}");
            }
        }
    }
}
