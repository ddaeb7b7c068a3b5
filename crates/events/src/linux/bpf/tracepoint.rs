//! The programs at the scheduler's tracepoint (`bpf/switch.bpf.c`), loaded once for the machine.
//!
//! The programs run at every switch of every process, so each further copy costs all of them. The
//! first process loads and attaches them. Later ones find the live link (`identity`) and
//! hold descriptors of their own. The kernel frees everything with the last descriptor, however
//! its process ends. Nothing is pinned: a pinned link would survive a crash and go on costing every
//! switch.
//!
//! Two processes that begin at once both attach, and the lowest link wins: each opens the links
//! with lower ids than its own, and drops its own if it finds the same programs there. A link has
//! its id before it is attached, and BPF_LINK_GET_FD_BY_ID answers EAGAIN until then; so no lower
//! one is overlooked. No lock file is needed, which containers would not share.
//!
//! To find a link takes CAP_SYS_ADMIN. A process with CAP_BPF and CAP_PERFMON alone loads programs
//! for itself ([`Origin::Alone`]).

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kumihimo_arch::descriptor::Descriptor;

use super::identity::{self, Identities};
use super::ids::{self, ObjectKind};
use super::load::{create, map, number, unavailable};
use super::program::{Program, Symbol};
use super::sys::{self, Map, Use, errno};
use super::{btf, object, types};
use crate::report::unavailable::Unavailable;

/// The most processes of one program: entries of its maps.
const MOST_PROCESSES: u32 = 1024;
/// The maps that all processes share. The digit counts changes in what the processes agree on
/// beyond the instructions: what a key is, and when an entry may be removed.
const THREADS: &str = "kumi_threads_1";
const PAGES: &str = "kumi_pages_1";
const BUFFERS: &str = "kumi_buffers_1";
const WORKS: &str = "kumi_works_1";

/// How the programs at the tracepoint are loaded. The default is what the event source does; tests
/// and measurements choose otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Another name for the programs, at most 15 bytes: they are shared under this name only.
    pub name: Option<String>,
    /// Whether the programs of another process are used, if there are any.
    pub shares: bool,
    /// Whether a SIGTRAP tells of the return, where the kernel can send it (Linux 6.18).
    pub traps: bool,
    /// Delay between the search for other programs and attaching. A test sets it so that several
    /// processes find none.
    pub pause: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { name: None, shares: true, traps: true, pause: Duration::ZERO }
    }
}

/// Where a process's programs come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Loaded earlier, by another process or an earlier runtime of this one.
    Found,
    /// Loaded by this process, for all.
    Loaded,
    /// Loaded by this process for itself alone, for this reason.
    Alone(String),
}

/// The programs at the tracepoint, as one process uses them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The id of the program at `sched_switch`.
    pub program: u32,
    /// The ids of its links, at `sched_switch` and `sched_process_exec`.
    pub links: [u32; 2],
    /// The ids of its maps.
    pub maps: Vec<u32>,
    /// Where the programs come from.
    pub origin: Origin,
    /// How many processes use it, this one included.
    pub processes: usize,
    /// Whether it sends a SIGTRAP on the return.
    pub traps: bool,
}

impl Report {
    /// Whether the program, one of its links or one of its maps still exists.
    ///
    /// # Errors
    /// The error of bpf(2): EPERM without CAP_SYS_ADMIN.
    pub fn remains(&self) -> io::Result<bool> {
        let programs = [self.program].map(|id| (ObjectKind::Program, id));
        let links = self.links.map(|id| (ObjectKind::Link, id));
        let maps = self.maps.iter().map(|id| (ObjectKind::Map, *id));
        for (kind, id) in programs.into_iter().chain(links).chain(maps) {
            if ids::exists(kind, id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {} at sched_switch, ", self.program)?;
        let others = self.processes.saturating_sub(1);
        match &self.origin {
            Origin::Found => write!(f, "found; other processes that use it: {others}")?,
            Origin::Loaded => {
                write!(f, "loaded by this process; other processes that use it: {others}")?;
            }
            Origin::Alone(why) => write!(f, "loaded for this process alone: {why}")?,
        }
        if self.traps { Ok(()) } else { f.write_str("; it tells of blocks, not of returns") }
    }
}

/// The attached programs and their maps. The programs run while any process holds one.
#[derive(Debug)]
pub(super) struct Tracepoint {
    /// A thread -> the key of its process, and its slot.
    pub(super) threads: Arc<Descriptor>,
    /// The key of a process -> its slots, ...
    pub(super) pages: Descriptor,
    /// ... its records, ...
    pub(super) buffers: Descriptor,
    /// ... and its traps under way. None: without traps.
    pub(super) works: Option<Descriptor>,
    pub(super) origin: Origin,
    pub(super) program: u32,
    links: [Descriptor; 2],
}

/// The programs, loaded and not attached.
struct Candidate {
    threads: Descriptor,
    pages: Descriptor,
    buffers: Descriptor,
    works: Option<Descriptor>,
    switch: Descriptor,
    exec: Descriptor,
}

/// One map of each kind that a process registers. The kernel checks inner maps against a template,
/// so the first process's are the template. `work`: None: without traps.
#[derive(Clone, Copy)]
pub(super) struct Inner<'a> {
    pub(super) page: &'a Descriptor,
    pub(super) buffer: &'a Descriptor,
    pub(super) work: Option<&'a Descriptor>,
}

pub(super) fn load_types() -> Result<Descriptor, Unavailable> {
    sys::types_load(&types::blob()).map_err(|e| unavailable("loading type information", &e))
}

impl Candidate {
    fn load(
        kernel: &btf::Traced,
        inner: Inner<'_>,
        name: Option<&str>,
    ) -> Result<Candidate, Unavailable> {
        let types = load_types()?;
        let storage = map(sys::MAP_TASK_STORAGE, THREADS, 4, 8, 0);
        let described = Some((types.as_fd(), [types::U32, types::U64]));
        let threads =
            create("the threads", &Map { flags: sys::NO_PREALLOC, types: described, ..storage })?;
        let of = |name, inner: &Descriptor| {
            let outer = map(sys::MAP_HASH_OF_MAPS, name, 4, 4, MOST_PROCESSES);
            create("the map of maps", &Map { inner: Some(inner.as_fd()), ..outer })
        };
        let pages = of(PAGES, inner.page)?;
        let buffers = of(BUFFERS, inner.buffer)?;
        let works = inner.work.map(|inner| of(WORKS, inner)).transpose()?;
        let traps = works.as_ref().zip(kernel.task_work);

        let callback = object::SWITCH.instructions.len() as u32;
        let find = |symbol: &str| match (symbol, traps) {
            ("threads", _) => Symbol::Map(number(&threads)),
            ("pages", _) => Symbol::Map(number(&pages)),
            ("buffers", _) => Symbol::Map(number(&buffers)),
            ("works", Some((works, _))) => Symbol::Map(number(works)),
            ("came_back", Some(_)) => Symbol::Own(callback),
            ("bpf_task_work_schedule_resume_impl", Some((_, kernel))) => {
                Symbol::Function(kernel.schedule)
            }
            ("bpf_send_signal_task", Some((_, kernel))) => Symbol::Function(kernel.send),
            _ => unreachable!(
                "bpf/object.rs has the symbol {symbol}, which the loader does not know"
            ),
        };
        let load = |program: &Program, instructions: &[u64], of: &Use<'_>| {
            sys::program_load(instructions, name.unwrap_or(program.name), of)
                .map_err(|e| unavailable("loading the BPF program for the tracepoint", &e))
        };
        let switch = if traps.is_some() {
            let functions = [[0, types::SWITCHED], [callback, types::CAME_BACK]];
            let instructions = [object::SWITCH.with(find), object::BACK.with(find)].concat();
            let types = Some((types.as_fd(), &functions[..]));
            let of = Use::Tracepoint { id: kernel.sched_switch, types };
            load(&object::SWITCH, &instructions, &of)?
        } else {
            let of = Use::Tracepoint { id: kernel.sched_switch, types: None };
            load(&object::BLOCK, &object::BLOCK.with(find), &of)?
        };
        let of = Use::Tracepoint { id: kernel.sched_process_exec, types: None };
        let exec = load(&object::EXEC, &object::EXEC.with(find), &of)?;
        Ok(Candidate { threads, pages, buffers, works, switch, exec })
    }

    /// The link at `sched_process_exec` first: where another process finds the one at
    /// `sched_switch`, it finds this one, too.
    fn attach(self, origin: Origin) -> io::Result<Tracepoint> {
        let exec = sys::trace(self.exec.as_fd())?;
        let switch = sys::trace(self.switch.as_fd())?;
        let program = ids::program(self.switch.as_fd())?.id;
        let Candidate { threads, pages, buffers, works, .. } = self;
        let (threads, links) = (Arc::new(threads), [switch, exec]);
        Ok(Tracepoint { threads, pages, buffers, works, origin, program, links })
    }
}

/// Why the programs of others are not used.
fn alone(error: &io::Error) -> Origin {
    let why = match error.raw_os_error() {
        Some(libc::EPERM) => "to find those of other processes takes CAP_SYS_ADMIN",
        _ => "those of other processes cannot be found",
    };
    Origin::Alone(format!("{why}: {}", errno(error)))
}

impl Tracepoint {
    /// The programs of the machine, found or loaded. `inner`: this process's own maps.
    pub(super) fn open(
        kernel: &btf::Traced,
        inner: Inner<'_>,
        options: &Options,
    ) -> Result<Tracepoint, Unavailable> {
        let candidate = Candidate::load(kernel, inner, options.name.as_deref())?;
        let attach = |candidate: Candidate, origin| {
            candidate
                .attach(origin)
                .map_err(|e| unavailable("attaching the BPF programs to their tracepoints", &e))
        };
        if !options.shares {
            return attach(candidate, Origin::Alone("as it was asked for".to_owned()));
        }
        let identities = Identities::of(&candidate.switch, &candidate.exec);
        let found = identities.and_then(|all| Ok((Tracepoint::find(&all, u32::MAX)?, all)));
        let identities = match found {
            Ok((Some(found), _)) => return Ok(found),
            Ok((None, identities)) => identities,
            Err(error) => return attach(candidate, alone(&error)),
        };
        if !options.pause.is_zero() {
            thread::sleep(options.pause);
        }
        let mut own = attach(candidate, Origin::Loaded)?;
        // Another process may have attached its own meanwhile.
        let earlier = own.links().and_then(|[id, _]| Tracepoint::find(&identities, id));
        match earlier {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) => own.origin = alone(&error),
        }
        Ok(own)
    }

    /// The programs of another process with the lowest link below `below`.
    fn find(wanted: &Identities, below: u32) -> io::Result<Option<Tracepoint>> {
        let Some(mut found) = identity::find(wanted, THREADS, below)? else { return Ok(None) };
        let mut take = |name| found.take_map(name);
        let (Some(threads), Some(pages), Some(buffers)) =
            (take(THREADS), take(PAGES), take(BUFFERS))
        else {
            return Ok(None);
        };
        let (works, threads) = (take(WORKS), Arc::new(threads));
        let identity::Found { program, links, .. } = found;
        let origin = Origin::Found;
        Ok(Some(Tracepoint { threads, pages, buffers, works, origin, program, links }))
    }

    fn links(&self) -> io::Result<[u32; 2]> {
        let id = |link: &Descriptor| {
            Ok::<_, io::Error>(ids::link(link.as_fd())?.map_or(u32::MAX, |info| info.id))
        };
        Ok([id(&self.links[0])?, id(&self.links[1])?])
    }

    pub(super) fn report(&self) -> io::Result<Report> {
        let mut maps = Vec::new();
        for map in [&*self.threads, &self.pages, &self.buffers].into_iter().chain(&self.works) {
            maps.push(ids::map(map.as_fd())?.0);
        }
        Ok(Report {
            program: self.program,
            links: self.links()?,
            maps,
            origin: self.origin.clone(),
            processes: sys::map_keys(self.pages.as_fd())?.len(),
            traps: self.works.is_some(),
        })
    }
}
