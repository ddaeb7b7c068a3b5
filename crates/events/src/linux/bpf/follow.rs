//! A process at the scheduler's tracepoint, for kernel threads that have no event of their own.
//!
//! A thread with a perf event pays for it at every switch: half a microsecond to take its events
//! off the core, and as much to put them on, whatever they are. Here it does not. Seats cannot be
//! had so: any process could claim any thread.
//!
//! The programs are the machine's ([`super::tracepoint`]). A process adds an entry to their maps:
//! from a key to its own maps. The key is the id of a map that only its descriptors keep in
//! existence. So it is unique over all pid namespaces, no later process has the same, and others
//! see whether the process is there: entries of one that crashed are removed by the next that
//! begins. The entry of a thread is in its task storage and ends with the thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::thread;

use kumihimo_arch::descriptor::Descriptor;
use kumihimo_arch::signal_mask;

use super::ids::{self, ObjectKind};
use super::load::{SeatMaps, create, map, number, unavailable};
use super::sys::{self, Map, errno};
use super::tracepoint::{Inner, Options, Origin, Report, Tracepoint, load_types};
use super::{btf, types};
use crate::report::unavailable::Unavailable;

/// The process's entry; removed on drop.
#[derive(Debug)]
pub(super) struct Follower {
    tracepoint: Tracepoint,
    key: u32,
    /// Has the id `key`.
    _alive: Descriptor,
    /// The kernel schedules no task work from a map that no process has open. None: without traps.
    work: Option<Descriptor>,
}

/// A kernel thread with a slot, until it is dropped.
#[derive(Debug)]
pub(crate) struct Followed {
    threads: Arc<Descriptor>,
    thread: Descriptor,
}

impl Follower {
    pub(super) fn open(slots: u32, options: &Options) -> Result<(Follower, SeatMaps), Unavailable> {
        let kernel = btf::traced()?;
        let maps = SeatMaps::of_any_size(slots)?;
        let work = || {
            let types = load_types()?;
            let described = Some((types.as_fd(), [types::U32, types::WORK]));
            let array = map(sys::MAP_ARRAY, "kumi_work", 4, 8, slots + 1);
            create("the traps", &Map { flags: sys::INNER_MAP, types: described, ..array })
        };
        let traps = options.traps && kernel.task_work.is_some();
        let work = traps.then(work).transpose()?;
        let inner = Inner { page: &maps.page, buffer: &maps.buffer, work: work.as_ref() };
        let failed = |e: io::Error| unavailable("registering with the BPF program", &e);

        let found = Tracepoint::open(&kernel, inner, options)?;
        let program = found.program;
        let (tracepoint, (key, alive)) = match enter(&found, inner) {
            Ok(entered) => (found, entered),
            Err(error) if found.origin == Origin::Found => {
                let options = Options { shares: false, ..options.clone() };
                let mut own = Tracepoint::open(&kernel, inner, &options)?;
                let why = format!("program {program} takes no entry: {}", errno(&error));
                own.origin = Origin::Alone(why);
                let entered = enter(&own, inner).map_err(failed)?;
                (own, entered)
            }
            Err(error) => return Err(failed(error)),
        };
        let follower = Follower { tracepoint, key, _alive: alive, work };
        Ok((follower, maps))
    }

    /// Whether a thread that is back gets a SIGTRAP.
    pub(super) fn traps(&self) -> bool {
        self.work.is_some()
    }

    pub(super) fn report(&self) -> io::Result<Report> {
        self.tracepoint.report()
    }

    /// The calling kernel thread has `slot` from here on.
    pub(super) fn follow(&self, slot: u32) -> Result<Followed, (&'static str, io::Error)> {
        let thread = sys::this_thread().map_err(|e| ("pidfd_open", e))?;
        let threads = self.tracepoint.threads.clone();
        sys::map_set_words(threads.as_fd(), thread.as_raw_fd() as u32, [self.key, slot])
            .map_err(|e| ("BPF_MAP_UPDATE_ELEM", e))?;
        Ok(Followed { threads, thread })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        remove(&self.tracepoint, self.key);
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        // It fails if the thread has ended, or runs another program: then it is gone already.
        let _ = sys::map_remove(self.threads.as_fd(), self.thread.as_raw_fd() as u32);
    }
}

/// The maps from a key to a process's own, and the process's own.
fn by_process<'a>(
    tracepoint: &'a Tracepoint,
    inner: Inner<'a>,
) -> impl Iterator<Item = (BorrowedFd<'a>, &'a Descriptor)> {
    let Tracepoint { pages, buffers, works, .. } = tracepoint;
    let outer = [pages, buffers].into_iter().chain(works).map(AsFd::as_fd);
    outer.zip([inner.page, inner.buffer].into_iter().chain(inner.work))
}

/// Calls `change` for each of the maps, all at once. The kernel ends each change of a map of maps
/// with a wait for all running programs, some ten milliseconds (`maybe_wait_bpf_programs` in
/// kernel/bpf/syscall.c), and waits at the same time share one.
///
/// Without signals, so that no handler of the program runs on one of these threads.
fn change_all<T: Copy + Send>(
    maps: impl IntoIterator<Item = T>,
    change: impl Fn(T) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let change = &change;
    signal_mask::while_blocked(|| {
        thread::scope(|scope| {
            let begin = |map| {
                let thread = thread::Builder::new().spawn_scoped(scope, move || change(map));
                (map, thread)
            };
            let begun: Vec<_> = maps.into_iter().map(begin).collect();
            // All have to be waited for, so the first error comes after that.
            let done: Vec<io::Result<()>> = begun
                .into_iter()
                .map(|(map, thread)| match thread {
                    Ok(thread) => {
                        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                    }
                    // No further thread is allowed: one after the other.
                    Err(_) => change(map),
                })
                .collect();
            done.into_iter().collect()
        })
    })
}

/// Adds the process's maps under a new key. Returns it, and what keeps it valid.
fn enter(tracepoint: &Tracepoint, inner: Inner<'_>) -> io::Result<(u32, Descriptor)> {
    let alive = sys::map_create(&map(sys::MAP_ARRAY, "kumi_alive", 4, 4, 1))?;
    let (key, _) = ids::map(alive.as_fd())?;
    let entered = change_all(by_process(tracepoint, inner), |(outer, own)| {
        // Without CAP_SYS_ADMIN it cannot be seen which processes are there.
        let _ = remove_ended(outer);
        sys::map_set(outer, key, number(own))
    });
    if let Err(error) = entered {
        remove(tracepoint, key);
        return Err(error);
    }
    Ok((key, alive))
}

/// Removes a process's entry, unless it is the last: then the maps go, too.
fn remove(tracepoint: &Tracepoint, key: u32) {
    if sys::map_keys(tracepoint.pages.as_fd()).is_ok_and(|keys| keys == [key]) {
        return;
    }
    let Tracepoint { pages, buffers, works, .. } = tracepoint;
    let maps = [pages, buffers].into_iter().chain(works);
    // What is left after a failure is removed by the next process that begins.
    let _ = change_all(maps, |outer| sys::map_remove(outer.as_fd(), key));
}

/// Removes the entries of processes that have ended without doing so.
fn remove_ended(outer: BorrowedFd<'_>) -> io::Result<()> {
    for key in sys::map_keys(outer)? {
        if !ids::exists(ObjectKind::Map, key)? {
            let _ = sys::map_remove(outer, key);
        }
    }
    Ok(())
}
