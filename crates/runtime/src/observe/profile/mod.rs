//! Profiles: where the process uses CPU time, where its microprocesses wait, and all their stacks.
//!
//! The process samples itself, on the kernel thread of the request. Nothing is installed on the way
//! of a switch or of a wait, so a process costs nothing before and after a profile.
//!
//! - [`cpu`] samples the running kernel threads by timers of their CPU clocks.
//! - [`waits`] looks at the waiting microprocesses at random times.
//! - [`stacks`] reads the stack of every microprocess once.
//! - [`table`] adds up equal stacks, and sends them.
//! - [`pprof`] makes a file of what was sent.
//!
//! The stacks are sent as addresses: the client resolves the names, when the profile is complete.

pub(crate) mod cpu;
pub mod pprof;
pub(crate) mod stacks;
pub(crate) mod table;
pub(crate) mod waits;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use kumihimo_arch::kernel_attributes::{cpu_time, process_cpu_time};
use kumihimo_backtrace::Walker;
use kumihimo_machine::handler::{ProfileClient, Refused};
use kumihimo_machine::profile::{
    ProfileItem, ProfileKind, ProfileModule, ProfileProgress, ProfileQuery, RATES,
};

use crate::microprocess::record::Mp;
use crate::observe::names::{label, prefix};
use crate::scheduler::instance::{self, Instance};
use table::Table;

/// Time between two messages to the client.
const SEND: Duration = Duration::from_millis(250);

/// Profiles the process, and sends what it finds to `client` until the time is over or the client
/// wants no more. Blocks the kernel thread, which must not belong to the runtime.
///
/// # Errors
/// `Busy` if a profile is in progress, `Unsupported` without microprocesses, `Invalid` for a rate
/// that is not allowed, and `Failed` if the client has gone.
pub(crate) fn run(query: &ProfileQuery, client: &mut dyn ProfileClient) -> Result<(), Refused> {
    static ONE: Mutex<()> = Mutex::new(());
    if Instance::one_to_one() {
        return Err(Refused::Unsupported(
            "microprocesses are kernel threads in that address space (1:1): use perf(1) for those"
                .into(),
        ));
    }
    if query.kind != ProfileKind::Stacks && !RATES.contains(&query.rate) {
        return Err(Refused::Invalid(format!(
            "a rate of {} is not possible: expected {} to {}",
            query.rate,
            RATES.start(),
            RATES.end()
        )));
    }
    let Ok(_one) = ONE.try_lock() else {
        return Err(Refused::Busy(format!(
            "process {} is being profiled already; try again when that profile has ended",
            std::process::id()
        )));
    };
    let walker = Walker::of_all_loaded();
    for module in modules(&walker) {
        client.send(ProfileItem::Module(module)).map_err(gone)?;
    }
    let session = Session::new(query, client);
    match query.kind {
        ProfileKind::Cpu => cpu::run(session, query.rate, walker),
        ProfileKind::OffCpu => waits::run(session, query.rate, walker),
        ProfileKind::Stacks => stacks::run(session, walker),
    }
}

fn gone(error: std::io::Error) -> Refused {
    Refused::Failed(format!("the client of the profile: {error}"))
}

fn modules(walker: &Walker) -> impl Iterator<Item = ProfileModule> {
    walker.modules.iter().map(|module| {
        let is_program = module.path.as_os_str() == "/proc/self/exe";
        let program = || std::fs::read_link(&module.path).ok();
        let path = if is_program { program() } else { None };
        ProfileModule {
            path: path.as_ref().unwrap_or(&module.path).to_string_lossy().into_owned(),
            is_program,
            bias: module.bias,
            start: module.addresses.start,
            end: module.addresses.end,
        }
    })
}

/// A profile in progress.
pub(crate) struct Session<'a> {
    client: &'a mut dyn ProfileClient,
    table: Table,
    begin: Instant,
    end: Option<Instant>,
    sent: Instant,
    lost: u64,
    process_cpu: u64,
    own_cpu: u64,
}

impl<'a> Session<'a> {
    fn new(query: &ProfileQuery, client: &'a mut dyn ProfileClient) -> Session<'a> {
        let begin = Instant::now();
        let length = query.milliseconds.map(Duration::from_millis);
        Session {
            client,
            table: Table::default(),
            begin,
            end: length.and_then(|length| begin.checked_add(length)),
            sent: begin,
            lost: 0,
            process_cpu: process_cpu_time(),
            own_cpu: cpu_time(),
        }
    }

    /// Waits, at most until the end. Returns whether the profile goes on.
    fn wait(&mut self, time: Duration) -> bool {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        let is_last = left.is_some_and(|left| left <= time);
        self.client.wait(left.map_or(time, |left| left.min(time))) && !is_last
    }

    /// Sends what there is if it is time to, or `at_once`.
    fn send(&mut self, at_once: bool) -> Result<(), Refused> {
        if !at_once && self.sent.elapsed() < SEND {
            return Ok(());
        }
        self.sent = Instant::now();
        self.table.send(self.client).map_err(gone)?;
        let progress = ProfileProgress {
            elapsed_ns: self.begin.elapsed().as_nanos() as u64,
            samples: self.table.samples(),
            lost: self.lost,
            process_cpu_ns: process_cpu_time().saturating_sub(self.process_cpu),
            profiler_cpu_ns: cpu_time().saturating_sub(self.own_cpu),
        };
        self.client.send(ProfileItem::Progress(progress)).map_err(gone)
    }
}

/// Returns what a visit of the running instance returns.
///
/// # Errors
/// `Unsupported` if no runtime runs.
fn visit<R>(f: impl FnOnce(&Instance) -> R) -> Result<R, Refused> {
    instance::visit(|instance| instance.map(f))
        .ok_or_else(|| Refused::Unsupported("no runtime runs in that process".into()))
}

/// Returns the name that a microprocess shares with its equals.
fn name_of(mp: &Mp) -> String {
    prefix(&label(mp)).to_owned()
}
