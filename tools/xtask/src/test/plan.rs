//! Selects the test programs to run, with their suite names and environments.

use super::binaries::Binary;
use super::matrix::{Designs, Events, Locking, Row, Switches};

/// One run of one test program.
#[derive(Clone, Debug)]
pub struct Job {
    /// The suite to which the tests count.
    pub suite: String,
    pub binary: Binary,
    pub environment: Vec<(String, String)>,
    /// Arguments for libtest.
    pub arguments: Vec<String>,
    /// True if no other job may run concurrently.
    pub alone: bool,
    /// Whether long tests do less than all that they can (`kumihimo_tests::extent`).
    pub is_brief: bool,
}

/// Programs that change or measure global state of the machine.
const ALONE: [&str; 1] = [
    // Changes kernel.perf_event_paranoid for some milliseconds.
    "kumihimo-events/bpf",
];

const MANY_GATES: &str = "bad_input::hundred_thousand_gates_can_be_served";

/// Tests that `make test` omits and `make check` runs: larger or alternative versions of other
/// tests that take minutes.
const THOROUGH: [(&str, &[&str]); 9] = [
    // A sanitizer's run of an example that runs without it as well; and each header of C++ alone:
    // another test compiles them together.
    (
        "kumihimo-capi/interface",
        &[
            "header::each_header_of_cpp_compiles_alone",
            "standard::sessions_run_under_address_sanitizer",
        ],
    ),
    // Proves the suite on the kernel's own ext2, and nothing of the product.
    ("kumihimo-conformance/itself", &["kernels_ext2_runs_the_workloads"]),
    // The other tests there detect some thousands.
    ("kumihimo-events/perf", &["each_of_ten_thousand_sleeps_is_detected"]),
    // Between the smallest blocks and the default ones.
    ("kumihimo-proof/ext2", &["blocks_of_2_kb"]),
    // The other tests there have up to a thousand microprocesses.
    ("kumihimo-tests/events", &["many::ten_blocked_of_ten_thousand_stall_no_one"]),
    ("kumihimo-tests/gates", &[MANY_GATES]),
    ("kumihimo-tests/leaks", &["million_microprocesses_leak_nothing"]),
    // Go builds its tool first.
    ("kumi/profile", &["cpu::go_tool_pprof_reads_a_profile"]),
    // Real workloads (git, tar, make, rsync, sqlite3) with this repository, half a minute of CPU
    // time each: every run has an excerpt of it. The conformance suite: every run has it on an
    // image in three organisations and without caches, and on a directory of the host in one.
    (
        "kumi/mount",
        &[
            "posix::host::kernel_threads",
            "posix::host::processes",
            "posix::host::sequential",
            "posix::host::user_threads",
            "posix::host::without_caches",
            "posix::ext2::blocks_of_1024",
            "posix::ext2::blocks_of_2048",
            "posix::ext2::processes",
            "posix::ext2::user_threads",
            "posix::ext2::with_a_thread_for_each_file",
            "posix::ext2::with_every_thread_its_request",
            "posix::ext2::with_readdirplus",
            "work::ext2::kernel_threads",
            "work::ext2::microprocesses",
            "work::ext2::processes",
            "work::ext2::sequential",
            "work::ext2::user_threads",
            "work::ext2::blocks_of_1024",
            "work::ext2::with_little_memory",
            "work::ext2::writeback_and_readdirplus",
            "work::on_the_host_by_microprocesses",
            "work::on_the_host_sequentially",
        ],
    ),
];

/// Tests that a row omits in `make test`, which has run them on the defaults: with the slowest
/// mechanisms they take minutes, or they do not depend on the mechanisms.
const ON_DEFAULTS: [(&str, &[&str]); 4] = [
    (
        "kumihimo-tests/container",
        &[
            "retirement::vps_follow_changes_of_the_affinity",
            "retirement::vps_follow_changes_of_the_quota",
        ],
    ),
    ("kumihimo-tests/counters", &["sampled_cpu_time_is_divided_as_it_was_used"]),
    ("kumihimo-tests/exact", &["wake_during_a_switch_outranks_the_next_microprocess"]),
    ("kumihimo-tests/watchdog", &["well_behaved_scheduler_is_not_accused"]),
];

/// Integration tests on which the event source has no effect unless it is off.
const ONLY_EVENTS: [&str; 4] = ["events", "events_bad_input", "gates", "board"];

/// Packages that use the resource table, whose locking design depends on the row. The unit tests of
/// kumihimo-resource run each locking design themselves.
const TABLE: [&str; 4] = ["kumihimo-sync", "kumihimo-io", "kumihimo-machine", "kumihimo-runtime"];

fn job(suite: &str, binary: &Binary, environment: &[(String, String)]) -> Job {
    Job {
        suite: suite.to_owned(),
        binary: binary.clone(),
        environment: environment.to_vec(),
        arguments: Vec::new(),
        alone: ALONE.contains(&binary.name().as_str()),
        is_brief: false,
    }
}

/// Arguments for libtest that exclude these tests by exact name.
fn without(tests: &[&str]) -> Vec<String> {
    let skipped = tests.iter().flat_map(|test| ["--skip".to_owned(), (*test).to_owned()]);
    std::iter::once("--exact".to_owned()).chain(skipped).collect()
}

/// Every suite with the default mechanisms, one for each package; and the conformance suite of the
/// events on the minimal user scheduler. Without some long tests, and with less of others, unless
/// `thorough`.
pub fn defaults(binaries: &[Binary], thorough: bool) -> Vec<Job> {
    let mut jobs: Vec<Job> =
        binaries.iter().map(|binary| job(&binary.package, binary, &[])).collect();
    if !thorough {
        jobs.iter_mut().for_each(|job| omit(job, &THOROUGH));
    }
    let minimal = [("KUMI_TEST_SCHEDULER".to_owned(), "minimal".to_owned())];
    for binary in binaries.iter().filter(|binary| binary.name() == "kumihimo-tests/events") {
        let mut job = job("conformance of the minimal scheduler", binary, &minimal);
        // The minimal scheduler has only one virtual processor.
        job.arguments = ["--skip", "many::", "--skip", "random::"].map(str::to_owned).to_vec();
        jobs.push(job);
    }
    jobs.iter_mut().for_each(|job| job.is_brief = !thorough);
    jobs
}

/// Has `job` skip the tests that the list names for its program.
fn omit(job: &mut Job, lists: &[(&str, &[&str])]) {
    let name = job.binary.name();
    let lists = lists.iter().filter(|(program, _)| *program == name);
    let tests: Vec<&str> = lists.flat_map(|(_, tests)| tests.iter().copied()).collect();
    if !tests.is_empty() {
        job.arguments.extend(without(&tests));
    }
}

/// The suites that a row of the matrix affects, in a build with these designs. Without some long
/// tests, and with less of others, unless `thorough`.
pub fn row(
    number: usize,
    row: &Row,
    designs: Designs,
    binaries: &[Binary],
    thorough: bool,
) -> Vec<Job> {
    let suite = format!("row {number}: {}", row.name(designs));
    let environment = row.environment(designs);
    let chosen = binaries.iter().filter(|binary| reaches(row, designs, binary));
    let mut jobs: Vec<Job> = chosen.map(|binary| job(&suite, binary, &environment)).collect();
    let omitted = if thorough {
        vec![("kumihimo-tests/gates", &[MANY_GATES][..])]
    } else {
        [&THOROUGH[..], &ON_DEFAULTS].concat()
    };
    for job in &mut jobs {
        omit(job, &omitted);
        job.is_brief = !thorough;
    }
    jobs
}

fn reaches(row: &Row, designs: Designs, binary: &Binary) -> bool {
    let of_table = TABLE.contains(&binary.package.as_str());
    if binary.package == "kumihimo-io" && row.forces_batches() {
        return true;
    }
    if of_table {
        return designs == Designs::All && row.locking != Locking::Vp;
    }
    if binary.package != "kumihimo-tests" || binary.target == "lib" || binary.target == "documents"
    {
        return false;
    }
    if !ONLY_EVENTS.contains(&binary.target.as_str()) {
        return true;
    }
    let of_events = binary.target.starts_with("events");
    if row.events == Events::Off || row.switches == Switches::Kernel {
        return true;
    }
    // Preemption by signal interrupts system calls (docs/src/reference/limits/preemption.md),
    // which the event suites do not allow.
    of_events && row.preempt != super::matrix::Preempt::Signal
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::matrix::ROWS;
    use super::*;

    fn binary(name: &str) -> Binary {
        let (package, target) = name.split_once('/').expect("package/target");
        let path = PathBuf::from("/");
        Binary {
            package: package.to_owned(),
            target: target.to_owned(),
            folder: path.clone(),
            packages: String::new(),
            path,
        }
    }

    fn chosen(number: usize, names: &[&str]) -> Vec<String> {
        let binaries: Vec<Binary> = names.iter().copied().map(binary).collect();
        row(number, &ROWS[number], Designs::All, &binaries, true)
            .iter()
            .map(|job| job.binary.name())
            .collect()
    }

    #[test]
    fn row_leaves_out_what_it_does_not_change() {
        let all = ["kumihimo-ext2/lib", "kumihimo-queue/lib", "kumihimo-tests/documents"];
        for number in 0..ROWS.len() {
            assert!(chosen(number, &all).is_empty(), "{number}");
        }
    }

    #[test]
    fn locking_of_a_row_reaches_the_table_only_where_the_build_has_it() {
        let sync = [binary("kumihimo-sync/lib")];
        for (designs, jobs) in [(Designs::All, 1), (Designs::Default, 0)] {
            assert_eq!(row(3, &ROWS[3], designs, &sync, true).len(), jobs, "{designs:?}");
        }
    }

    #[test]
    fn forced_batches_reach_sockets_and_events() {
        let all = ["kumihimo-io/batches", "kumihimo-tests/events", "kumihimo-tests/api"];
        assert_eq!(chosen(4, &all), all);
    }

    #[test]
    fn signals_that_preempt_leave_out_the_suites_of_the_events() {
        let all = ["kumihimo-tests/events", "kumihimo-tests/events_bad_input"];
        for number in [0, 1, 7, 9, 12] {
            assert!(chosen(number, &all).is_empty(), "{number}");
        }
    }

    #[test]
    fn gates_run_where_there_are_no_events() {
        let names = ["kumihimo-tests/gates"];
        assert_eq!(chosen(10, &names), names);
        assert!(chosen(3, &names).is_empty());
    }

    #[test]
    fn defaults_have_each_program_and_the_minimal_scheduler() {
        let binaries = [binary("kumihimo-tests/events"), binary("kumi/trace")];
        let suites: Vec<String> =
            defaults(&binaries, false).into_iter().map(|job| job.suite).collect();
        let wanted = ["kumihimo-tests", "kumi", "conformance of the minimal scheduler"];
        assert_eq!(suites, wanted);
    }

    #[test]
    fn row_omits_what_takes_minutes_unless_the_run_is_thorough() {
        let binaries = [binary("kumihimo-tests/exact")];
        let arguments =
            |thorough| row(3, &ROWS[3], Designs::All, &binaries, thorough)[0].arguments.clone();
        assert!(arguments(true).is_empty());
        let is_brief = |thorough| {
            let of_row = row(3, &ROWS[3], Designs::All, &binaries, thorough);
            let all = defaults(&binaries, thorough).into_iter().chain(of_row);
            all.map(|job| job.is_brief).collect::<Vec<_>>()
        };
        assert_eq!((is_brief(false), is_brief(true)), (vec![true; 2], vec![false; 2]));
        let omitted = "wake_during_a_switch_outranks_the_next_microprocess";
        assert_eq!(arguments(false), ["--exact", "--skip", omitted]);
    }

    #[test]
    fn long_tests_run_in_a_thorough_run_only() {
        let binaries = [binary("kumihimo-tests/gates")];
        assert!(defaults(&binaries, true)[0].arguments.is_empty());
        assert_eq!(defaults(&binaries, false)[0].arguments, ["--exact", "--skip", MANY_GATES]);
    }
}
