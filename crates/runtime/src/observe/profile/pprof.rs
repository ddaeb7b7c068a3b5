//! Profiles of the calling process in pprof's format, for the program itself.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use kumihimo_backtrace::symbols::Call;
use kumihimo_backtrace::{Loaded, Symbols};
use kumihimo_machine::handler::{ProfileClient, Refused};
use kumihimo_machine::profile::{
    CPU_RATE, OFF_CPU_RATE, ProfileItem, ProfileKind, ProfileQuery, ProfileSums, Recording,
};
use kumihimo_trace::pprof::Builder;

use crate::observe::dump::apart;
use crate::wait::blocking::blocking;

/// What [`pprof`] profiles.
///
/// # Examples
///
/// ```
/// use kumihimo::observe::{Profile, pprof};
///
/// let waiting = kumihimo::thread::spawn(kumihimo::thread::park);
/// let stacks = pprof(Profile::Stacks)?;
/// assert_eq!(stacks[..2], [0x1f, 0x8b], "a gzipped file");
/// waiting.thread().unpark();
/// waiting.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// CPU time, for this long: 99 samples for each second of CPU time.
    Cpu(Duration),
    /// Time between park and wake, for this long: about 10 looks a second.
    OffCpu(Duration),
    /// The stacks of all microprocesses now, with the time for which each wait has lasted.
    Stacks,
}

/// Returns a profile of this process in the format of pprof: a file that `go tool pprof` and other
/// viewers read, for example as the answer of an HTTP server to `/debug/pprof/profile`.
///
/// Blocks the calling microprocess for the time of the profile, and some milliseconds more to find
/// names; other microprocesses continue. The work is done on a kernel thread of its own. A process
/// has one profile at a time.
///
/// # Errors
/// `ResourceBusy` if the process is being profiled, also by `kumi profile`; `Unsupported` if
/// microprocesses are kernel threads (1:1), if no runtime runs, or if the program has taken the
/// signal of samples; `OutOfMemory` if there is no kernel thread for the work.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use kumihimo::observe::{Profile, pprof};
/// # kumihimo::runtime::ensure()?;
///
/// let file = pprof(Profile::Cpu(Duration::from_millis(100)))?;
/// std::fs::write(std::env::temp_dir().join("cpu.pprof"), file)?;
/// # std::fs::remove_file(std::env::temp_dir().join("cpu.pprof"))?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn pprof(of: Profile) -> io::Result<Vec<u8>> {
    let length = |length: Duration| Some(length.as_millis() as u64);
    let (kind, rate, milliseconds) = match of {
        Profile::Cpu(time) => (ProfileKind::Cpu, CPU_RATE, length(time)),
        Profile::OffCpu(time) => (ProfileKind::OffCpu, OFF_CPU_RATE, length(time)),
        Profile::Stacks => (ProfileKind::Stacks, 1, None),
    };
    let query = ProfileQuery { kind, rate, milliseconds };
    blocking(|| {
        apart(|has_thread| {
            if !has_thread {
                let text = "no kernel thread is available for a profile";
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
            }
            let begin = SystemTime::now();
            let mut own = Own(Recording::new(kind));
            super::run(&query, &mut own).map_err(|refused| {
                let kind = match refused {
                    Refused::Busy(_) => io::ErrorKind::ResourceBusy,
                    Refused::Unsupported(_) => io::ErrorKind::Unsupported,
                    _ => io::ErrorKind::Other,
                };
                io::Error::new(kind, refused.to_string())
            })?;
            let modules = own.0.modules.iter().map(|module| Loaded {
                path: if module.is_program {
                    "/proc/self/exe".into()
                } else {
                    PathBuf::from(&module.path)
                },
                bias: module.bias,
                addresses: module.start..module.end,
            });
            let mut symbols = Symbols::new(modules.collect());
            Ok(encode(&own.0, begin, rate, &mut |stack| {
                symbols.calls(stack, kind != ProfileKind::Cpu)
            }))
        })
    })
}

/// The process itself as the client of its profile.
struct Own(Recording);

impl ProfileClient for Own {
    fn send(&mut self, item: ProfileItem) -> io::Result<()> {
        self.0.add(item);
        Ok(())
    }

    fn wait(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            if left.is_zero() {
                break;
            }
            std::thread::park_timeout(left);
        }
        true
    }
}

/// Makes a file of a recording. `calls` resolves the addresses of a stack.
#[must_use]
pub fn encode(
    recording: &Recording,
    begin: SystemTime,
    rate: u32,
    calls: &mut dyn FnMut(&[u64]) -> Vec<Call>,
) -> Vec<u8> {
    let kinds = match recording.kind {
        ProfileKind::Cpu => [("samples", "count"), ("cpu", "nanoseconds")],
        ProfileKind::OffCpu => [("looks", "count"), ("off-cpu", "nanoseconds")],
        ProfileKind::Stacks => [("waiting", "nanoseconds"), ("microprocesses", "count")],
    };
    let mut builder = Builder::new(&kinds);
    let progress = recording.progress;
    builder.set_time(begin, Duration::from_nanos(progress.elapsed_ns));
    if recording.kind != ProfileKind::Stacks {
        let (_, unit) = kinds[1];
        builder.set_period(kinds[1].0, unit, 1_000_000_000 / i64::from(rate.max(1)));
    }
    for module in &recording.modules {
        builder.add_mapping(module.start..module.end, &module.path);
    }
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    for (stack, ProfileSums { samples, ns }) in &recording.stacks {
        let mut locations: Vec<u64> = calls(&stack.frames)
            .iter()
            .map(|(address, lines)| {
                let lines = lines.iter().map(|line| (&*line.function, &*line.file, line.line));
                builder.location(*address, lines)
            })
            .collect();
        if locations.is_empty() {
            locations.push(builder.location(0, [(UNKNOWN, "", 0)].into_iter()));
        }
        let (samples, ns) = (number(*samples), number(*ns));
        let values = match recording.kind {
            ProfileKind::Stacks => vec![ns, samples],
            _ => vec![samples, ns],
        };
        let state = if recording.kind == ProfileKind::OffCpu { "wait" } else { "state" };
        builder.add_sample(locations, values, &[("name", &stack.name), (state, &stack.state)]);
    }
    builder.add_comment(&format!(
        "kumi profile: {} samples lost; the profiler used {} of {} ms of CPU time",
        progress.lost,
        progress.profiler_cpu_ns / 1_000_000,
        progress.process_cpu_ns / 1_000_000,
    ));
    builder.finish()
}

/// Stands for a stack that could not be read.
pub const UNKNOWN: &str = "(unknown stack)";
