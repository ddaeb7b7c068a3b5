//! `kumi tour`: demonstrates microprocesses on real work. Every number is measured during the run.
//!
//! Fifteen chapters, each a function that prints a part and may add rows to the final table of
//! figures. They are grouped by subject: `threads`, `io`, `kernel`, `processes`. `page` contains
//! the output functions.
//!
//! A chapter that needs a separate process starts this program with a hidden option. Chapters use
//! the benchmarks' contenders for the same measurements.

mod io;
mod kernel;
mod page;
mod processes;
mod threads;

use std::path::PathBuf;
use std::time::Instant;

use page::text;

/// Options of `kumi tour`.
#[derive(clap::Args)]
pub struct Args {
    /// Directory whose files are hashed [default: documentation or the Rust toolchain]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Run only this chapter, 1 to 15
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=15))]
    chapter: Option<u8>,
    /// File for the trace of chapter 8
    #[arg(long, default_value = "tour.perfetto")]
    trace: PathBuf,
    /// Overflow a microprocess's stack: the child process of chapter 13
    #[arg(long, hide = true)]
    overflow: bool,
    /// Run a clock beside microprocesses that block: the child process of a chapter
    #[arg(long, hide = true)]
    clock: bool,
    /// Run a clock beside an endless loop: the child process of another one
    #[arg(long, hide = true)]
    endless: bool,
    /// One side of calls over a Unix socket: both child processes of a chapter
    #[arg(long, hide = true, num_args = 1.., value_name = "KEY=VALUE")]
    socket: Vec<String>,
}

/// Figures for the final table.
#[derive(Default)]
struct Figures(Vec<Vec<String>>);

impl Figures {
    fn add(
        &mut self,
        what: impl Into<String>,
        kernel: impl Into<String>,
        micro: impl Into<String>,
    ) {
        self.0.push(vec![what.into(), kernel.into(), micro.into()]);
    }
}

type Chapter = fn(&Args, &mut Figures) -> Result<(), String>;

/// Runs the chapters. Continues after a failing chapter, and returns an error at the end.
pub fn run(args: Args) -> Result<(), String> {
    if args.overflow {
        return kernel::faults::overflow();
    }
    if args.clock {
        return kernel::blocks::child();
    }
    if args.endless {
        return kernel::loops::child();
    }
    if !args.socket.is_empty() {
        return processes::gates::child(args.socket);
    }
    let start = Instant::now();
    text::say(
        "A microprocess is a thread that the program schedules in user mode. It has its own stack and thread-local \
         storage, and runs ordinary blocking code. A few kernel threads are its virtual processors (VPs): when a \
         microprocess waits, its VP runs the next one, without a system call. A program can have one microprocess \
         for each connection, file or number, and a million in total. All figures below are measured now, on this \
         machine.",
    );
    if one_to_one() {
        println!();
        text::say(
            "On this machine, a microprocess cannot have its own thread-local storage (`kumi doctor` prints the \
             reason), so each one is a kernel thread. The program is the same; the figures below are measured with \
             kernel threads.",
        );
    }
    let chapters: [(&str, Chapter); 15] = [
        ("A sieve of 126 threads", threads::sieve::run),
        ("A million microprocesses", threads::million::run),
        ("The ring", threads::ring::run),
        ("A microprocess per file", io::files::run),
        ("A microprocess per connection", io::echo::run),
        ("Ten thousand connections", io::many::run),
        ("Blocking in the kernel", kernel::blocks::run),
        ("Endless loops", kernel::loops::run),
        ("Observation and control by other processes", processes::steered::run),
        ("Locking designs", threads::locks::run),
        ("Calls between processes", processes::gates::run),
        ("A file server in five organisations", io::mounts::run),
        ("Panics and stack overflows", kernel::faults::run),
        ("Unmodified programs", processes::unmodified::run),
        ("A hot microprocess and a held lock", processes::found::run),
    ];
    let mut figures = Figures::default();
    let mut failed = Vec::new();
    for (number, (title, chapter)) in (1..).zip(chapters) {
        if args.chapter.is_some_and(|only| only != number) {
            continue;
        }
        text::heading(number, title);
        if let Err(why) = chapter(&args, &mut figures) {
            text::say(&format!("FAILED: {why}"));
            failed.push(title);
        }
    }
    text::heading(16, "This machine");
    text::table(&["", "kernel threads", "microprocesses"], &figures.0);
    println!();
    text::say(&format!("{}. The tour took {}.", machine(), text::time(start.elapsed())));
    if failed.is_empty() { Ok(()) } else { Err(format!("failed chapters: {}", failed.join(", "))) }
}

fn machine() -> String {
    let all = kumi::host::description::description();
    let of = |name| all.iter().find(|(n, _)| *n == name).map_or("?", |(_, value)| value.as_str());
    format!("{} cores of {}, {}", of("cores"), of("cpu"), of("kernel"))
}

/// A process can have only one runtime, and tests share a process.
#[cfg(test)]
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Returns whether every microprocess is a kernel thread, on this machine or because of
/// KUMI_LAB=tls=kernel.
fn one_to_one() -> bool {
    kumihimo_arch::tls::get().kind() == kumihimo_arch::tls::Kind::Kernel
}

/// Runs `body` in a runtime with default settings.
fn in_runtime<T: Send>(body: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    #[cfg(test)]
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    kumihimo::runtime::run(body).map_err(|e| format!("no runtime: {e}"))?
}

/// Fails with a message unless a condition holds.
fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
