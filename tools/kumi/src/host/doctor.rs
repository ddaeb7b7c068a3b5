//! `kumi doctor`: prints the features of this machine, and how the runtime uses them.

mod waits;

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use kumihimo::resource::Locking;
use kumihimo::runtime::{DEFAULT_DESIGN, Mode, Share, mode};
use kumihimo_arch::{cpu, stack, tls};
use kumihimo_config::{MachineDir, Origin};
use kumihimo_events::cores::Cores;
use kumihimo_events::limit::Limit;
use kumihimo_events::{preempt, source};
use kumihimo_machine::client::Machine;
use kumihimo_machine::directory::Directory;
use kumihimo_machine::space::Number;

use super::description::description;
use crate::show::board::Seen;
use crate::text::{Plain, say};

/// Options of `kumi doctor`.
#[derive(clap::Args)]
pub struct Args {
    /// Measure the cost of a wait outside of the runtime (within a second)
    #[arg(long)]
    waits: bool,
    /// Print what `kumi run` would do with this program, and nothing else
    #[arg(long, value_name = "PROGRAM", conflicts_with = "waits")]
    run: Option<OsString>,
}

/// Prints one line for each finding.
pub fn run(args: &Args) -> Result<(), String> {
    if let Some(program) = &args.run {
        return crate::run::explain(program);
    }
    for (name, value) in description().into_iter().chain(runtime()) {
        say!("{name:<24} {value}");
    }
    settings();
    preemption(events());
    virtual_processors();
    kernel_threads();
    batches();
    mounts();
    machine();
    board();
    share();
    locking();
    if args.waits { waits::measure() } else { Ok(()) }
}

/// Prints each setting of this process with its origin and effect, and errors in the environment.
fn settings() {
    if kumihimo_config::is_privileged() {
        say!(
            "{:<24} ignored: this program is set-user-ID, set-group-ID, or has file capabilities",
            "environment"
        );
    }
    for line in kumihimo_config::describe() {
        let origin = match line.origin {
            Origin::Default => "default",
            Origin::Environment => "environment",
            Origin::Lab => "KUMI_LAB",
            Origin::Std => "RUST_MIN_STACK",
            Origin::Refused => "default, because its value is invalid",
            Origin::Privileged => "default, because the environment is ignored",
        };
        say!("{:<24} {} ({origin}): {}", line.name, Plain(&line.value), line.effect);
    }
    if let Err(error) = kumihimo_config::check() {
        for problem in error.problems() {
            say!("{:<24} {problem}; no runtime begins", "refused setting");
        }
    }
    for (name, setting) in kumihimo_config::misspelled() {
        say!("{:<24} {} is not read: {setting} is similar", "unknown variable", Plain(&name));
    }
}

/// Prints the available event sources, and for each other one the reason and the remedy. Changes
/// nothing. Returns the source that a runtime would use now.
fn events() -> source::Kind {
    let all = source::probe();
    let chosen = all.iter().find(|(_, refused)| refused.is_none()).map(|(kind, _)| *kind);
    let asked = kumihimo_config::get().events.map(source::Kind::from);
    for (kind, refused) in all {
        let name = format!("events: {kind}");
        match refused {
            None => {
                let chosen = if chosen == Some(kind) {
                    " (used unless KUMI_EVENTS selects another one)"
                } else {
                    ""
                };
                say!("{name:<24} yes: {}{chosen}", what(kind));
                if let Some(note) = source::note(kind) {
                    say!("{:<24} {note}", "");
                }
            }
            Some(refused) => {
                say!("{name:<24} no: {}", refused.why);
                say!("{:<24} to enable: {}", "", refused.remedy);
            }
        }
    }
    asked.or(chosen).unwrap_or(source::Kind::Off)
}

/// Prints how a computing microprocess is preempted with event source `source`. If this is not the
/// best mechanism, also why, and how to enable a better one.
fn preemption(source: source::Kind) {
    let asked = kumihimo_config::get().preempt.map(preempt::Means::from);
    let off = match preempt::choose(asked, source) {
        Ok((_, off)) => off.map(str::to_owned),
        Err(e) => Some(format!("{e}; no runtime begins")),
    };
    if let Some(why) = off {
        say!(
            "{:<24} no: {why}; a computing microprocess yields only when it enters the runtime",
            "preemption"
        );
        return;
    }
    let by_signal = format!(
        "interrupts by signal {}; an active system call may end early",
        preempt::DEFAULT_SIGNAL
    );
    let (clock, signal) = ("preemption: clock", "preemption: signal");
    match preempt::probe() {
        Ok(()) => {
            say!(
                "{clock:<24} yes: interrupts in user mode only, no system call (used unless KUMI_PREEMPT selects another one)"
            );
            say!("{signal:<24} yes: {by_signal}");
        }
        Err(refused) => {
            say!("{clock:<24} no: {}", refused.why);
            say!("{:<24} to enable: {}", "", refused.remedy);
            say!("{signal:<24} yes: {by_signal} (used unless KUMI_PREEMPT selects another one)");
        }
    }
}

/// Prints the default number of VPs of a runtime and its origin.
fn virtual_processors() {
    let (name, cores) = ("virtual processors", Cores::of_process());
    match kumihimo_config::get().vps {
        Some(vps) => say!("{name:<24} {vps}, from KUMI_VPS (without it: {cores})"),
        None => say!("{name:<24} {cores} (used unless KUMI_VPS selects another number)"),
    }
}

/// Prints the limit on kernel threads of a runtime and its origin.
fn kernel_threads() {
    let name = "kernel threads";
    let limit = match kumihimo_config::get().kernel_threads {
        Some(threads) => Limit::asked(threads, "KUMI_KERNEL_THREADS"),
        None => Limit::of_machine(),
    };
    say!("{name:<24} at most {limit}");
}

/// Prints whether system calls can enter the kernel in batches, and the measured costs.
fn batches() {
    let name = "batches: uring";
    let (backend, refused) = kumihimo_batch::open(kumihimo_batch::LARGEST as u32);
    match refused {
        None => {
            say!("{name:<24} yes: one kernel entry for up to {} calls", kumihimo_batch::LARGEST)
        }
        Some(why) => {
            say!("{name:<24} no: {why}; plain system calls are used, and some are merged");
            say!(
                "{:<24} to enable: Linux 5.6 or later, kernel.io_uring_disabled=0, no seccomp filter against io_uring_setup",
                ""
            );
        }
    }
    let mut batch = kumihimo_batch::Batch::new(backend);
    if let Ok(costs) = kumihimo_batch::Costs::measure(&mut batch)
        && costs.entry > 0.0
    {
        say!("{:<24} {:.0} ns (D of paper P2)", "kernel entry", costs.entry);
        for policy in [kumihimo_batch::Policy::Adaptive, kumihimo_batch::Policy::Paper] {
            say!("{:<24} {}", format!("batches: {policy}"), policy.explain(&costs).join("; "));
        }
    }
}

/// Prints whether `kumi mount` can mount, and how it receives requests.
fn mounts() {
    let (mounts, uring) = ("kumi mount", "mounts: uring");
    let (may, why) = kumihimo_files::can_mount();
    say!("{mounts:<24} {}: {why}", if may { "yes" } else { "no" });
    if kumihimo::fuse::uring::is_enabled() {
        say!(
            "{uring:<24} yes: one kernel entry replies to a request and waits for the next (used unless --uring=off)"
        );
    } else {
        say!("{uring:<24} no: each request takes two kernel entries through /dev/fuse");
        say!("{:<24} to enable: {}", "", kumihimo::fuse::uring::REMEDY);
    }
}

/// Prints whether this user's address spaces can be observed and steered from outside, and where.
/// As a test, takes a number like a new address space, and returns it.
fn machine() {
    let (place, name) = ("run-time directory", "address space");
    if kumihimo_config::get().dir == MachineDir::Off {
        say!(
            "{name:<24} no: KUMI_DIR=off; microprocesses run, but cannot be observed or steered from outside"
        );
        say!("{:<24} to enable: leave KUMI_DIR unset", "");
        return;
    }
    let taken = Directory::mine().and_then(|directory| {
        say!("{place:<24} {} ({})", directory.path().display(), why(directory.path()));
        for why in directory.passed_over() {
            say!("{:<24} not used: {}", "", Plain(why));
        }
        Number::take_in(directory)
    });
    // Given back before a line is written, which may end the program.
    match taken.map(|number| number.location().space()) {
        Ok(number) => {
            say!(
                "{name:<24} yes: a new address space gets a number ({number} in a test) and is visible to kumi ps (unless KUMI_DIR=off)"
            );
        }
        Err(error) => {
            say!("{name:<24} no: {error}");
            say!("{:<24} microprocesses run, but cannot be observed or steered from outside", "");
        }
    }
}

/// Prints where this user's address spaces share the cores, and whether they do so by priority.
/// Creates no board.
fn board() {
    let (name, arbiter) = ("board", "arbiter");
    let directory = || Ok(Machine::mine().map_err(|e| e.to_string())?.path().to_owned());
    let seen = kumihimo_runtime::board::path_in(directory)
        .and_then(|path| Seen::at(&path).map(|seen| (path, seen)).map_err(|e| e.to_string()));
    let is_used = match seen {
        Ok((path, seen)) => {
            let there = seen.map_or_else(
                || "none yet: the first program that starts creates it".to_owned(),
                |seen| seen.told(),
            );
            say!("{name:<24} yes: {} (KUMI_ARBITER selects another one); {there}", path.display());
            true
        }
        Err(why) => {
            say!("{name:<24} no: {why}");
            say!(
                "{:<24} gates wake each other through their sockets, and priorities apply within an address space only",
                ""
            );
            false
        }
    };
    match (is_used, kumihimo_runtime::board::arbitrates()) {
        (true, true) => {
            say!(
                "{arbiter:<24} on: the address spaces at the board share the cores by priority (KUMI_ARBITER)"
            )
        }
        (false, true) => say!("{arbiter:<24} has no effect without a board"),
        (_, false) => {
            say!(
                "{arbiter:<24} off: the kernel shares the cores among address spaces (KUMI_ARBITER; on: by priority)"
            )
        }
    }
}

/// Prints the limit on the CPU time of an address space.
fn share() {
    let name = "CPU time";
    match kumihimo_config::get().share.map(Share::from) {
        Some(share) => say!("{name:<24} {share} of a core (KUMI_SHARE)"),
        None => say!("{name:<24} unlimited (KUMI_SHARE=50%, for example, limits it)"),
    }
}

/// Reason for the choice of the run-time directory.
fn why(path: &Path) -> &'static str {
    let session = kumihimo_config::trusted_variable("XDG_RUNTIME_DIR");
    if matches!(kumihimo_config::get().dir, MachineDir::At(_)) {
        "KUMI_DIR"
    } else if session.is_some_and(|session| path.starts_with(session)) {
        "in XDG_RUNTIME_DIR; KUMI_DIR selects another one"
    } else if path.starts_with("/run/user") {
        "directory of your session; KUMI_DIR selects another one"
    } else {
        "no session directory; KUMI_DIR selects another one"
    }
}

/// Prints the locking design of the resource table.
fn locking() {
    let name = "resource table";
    match kumihimo_config::get().lab.locking.and_then(|of| of.name().parse::<Locking>().ok()) {
        Some(design) => say!("{name:<24} locking design {design} (KUMI_LAB)"),
        None => say!(
            "{name:<24} locking design {} (used unless KUMI_LAB=locking=... selects another one)",
            Locking::default()
        ),
    }
}

fn what(kind: source::Kind) -> &'static str {
    match kind {
        source::Kind::Bpf => "the kernel reports every block and every return",
        source::Kind::Perf => {
            "the kernel reports every block; returns are detected when the microprocess next enters the runtime"
        }
        source::Kind::Watch => {
            "a kernel thread checks for blocks every 100 us; returns as with perf"
        }
        source::Kind::Off => "only `blocking` and Kumihimo's own I/O hand the VP over",
    }
}

fn runtime() -> Vec<(&'static str, String)> {
    let block = tls::get();
    let mode = match mode() {
        Mode::Microprocesses => Mode::Microprocesses.to_string(),
        mode @ Mode::KernelThreads { why } => {
            format!("{mode}: 1:1, one kernel thread for each microprocess ({why})")
        }
    };
    let kind = match block.kind() {
        tls::Kind::Clone => "one block for each microprocess, cloned from donor threads",
        tls::Kind::Donor => "one block for each microprocess, from donor threads only",
        tls::Kind::Kernel => "none: each microprocess is a kernel thread (1:1)",
    };
    let why = if block.why().is_empty() { String::new() } else { format!(" ({})", block.why()) };
    let fs = if cpu::fsgsbase() { cpu::BASES } else { "arch_prctl, about ten times slower" };
    vec![
        ("mode", mode),
        ("thread-local storage", format!("{kind}{why}; {} bytes", block.bytes())),
        ("FS and GS base", fs.to_owned()),
        ("stack guards", stack::guard_kind().to_owned()),
        ("smallest stack", format!("{} bytes", stack::minimum())),
        ("default queue", DEFAULT_DESIGN.name().to_owned()),
        ("mappings", setting("/proc/sys/vm/max_map_count")),
        ("threads", setting("/proc/sys/kernel/threads-max")),
        ("perf_event_paranoid", setting("/proc/sys/kernel/perf_event_paranoid")),
    ]
}

fn setting(path: &str) -> String {
    fs::read_to_string(path)
        .map_or_else(|e| format!("not readable: {e}"), |text| text.trim().to_owned())
}
