//! Thread-local storage of a microprocess: a block with the layout of a C library thread.
//!
//! The thread pointer (FS on x86_64) points into the block, between the thread-local variables of
//! all modules loaded at start and the C library's `struct pthread`. A microprocess with its own
//! block may move between kernel threads at any switch, together with its `thread_local!`
//! variables, errno, exceptions, `malloc` caches and pthread keys. "FS base" in this folder means
//! the value of the thread pointer on every architecture.
//!
//! - `Clone`: the block is copied from a template, which was derived by comparing blocks of the C
//!   library [120-300 ns].
//! - `Donor`: pthread_create makes the block, and its kernel thread ends at once [35-180 us].
//! - `Kernel`: no blocks; each microprocess is a kernel thread.
//!
//! No code depends on a version of glibc: the tests pass with 2.35, 2.36, 2.39, 2.41 and 2.43, with
//! cloned blocks in each. The first call of [`get`] selects the kind by a self-test.
//! `KUMI_LAB=tls=clone|donor|kernel` limits the choice.
//!
//! In a microprocess, pthread_self, all ordinary kinds of mutexes, keys, `pthread_getattr_np` and
//! `pthread_getaffinity_np` work. The thread ID in the block belongs to no kernel thread. Therefore
//! pthread_kill, pthread_cancel and pthread_join of a microprocess fail with ESRCH or wait forever,
//! and contended priority-inheritance mutexes fail. pthread_exit unwinds to the next
//! `catch_unwind`, where std aborts, as it does on a std thread.
//!
//! A used block is never freed, only reused: it is at times on the C library's list, and malloc's
//! cache for it is still reachable.

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kumihimo_config::Tls as Asked;

pub use crate::kind::Kind;
use crate::lock::Lock;
use crate::machine::thread_block;
use donor::Donor;
use examine::{leaked_memory, models, robust_list_is_known};
use failure::Failure;
use glibc::{Calls, Keys, Layout, modules};
use inner::{Inner, READY};
use template::{CURRENT, HEAD, Template};

mod chain;
mod donor;
mod examine;
mod exit;
mod failure;
mod glibc;
pub(crate) use glibc::next_symbol::{next, next_sigaction};

mod inner;
pub(super) mod interpose;
use interpose::dlopen;
pub use interpose::dlopen::while_linking;
pub use interpose::fork::hold_locks_over_forks;
pub use interpose::setxid;
mod number;
pub use number::{block_of, numbered_blocks};
mod probe;
mod template;
mod watched;

/// The thread-local storage support of this process. See [`get`].
pub struct Tls {
    kind: Kind,
    why: String,
    inner: Option<&'static Inner>,
    state: State,
}

/// How the result of an examination relates to the request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The requested kind, or the default choice.
    AsAsked,
    /// Kernel threads 1:1, although they were not requested.
    Degraded,
    /// As `Degraded`, because kernel threads or memory were short.
    Short,
}

/// The result of [`get`]; null before the first call.
static FOUND: AtomicPtr<Tls> = AtomicPtr::new(std::ptr::null_mut());

fn found() -> Option<&'static Tls> {
    // SAFETY: null or a leaked box, published after initialisation.
    unsafe { FOUND.load(Ordering::Acquire).as_ref() }
}

/// Returns the thread-local storage support. The first call examines the C library [0.3-1 ms;
/// creates three short-lived kernel threads]. Never panics.
///
/// `KUMI_LAB=tls=...` requests `clone`, `donor` or `kernel`. If the machine cannot provide the
/// requested kind, the next kind in this order is used, and [`Tls::why`] gives the reason.
pub fn get() -> &'static Tls {
    found().unwrap_or_else(|| examine_unless(|_| true))
}

/// Returns the same as [`get`], but repeats an examination that [lacked a kernel thread or
/// memory](Tls::is_short). For use at the start of a runtime; afterwards the result must not
/// change.
pub fn get_anew() -> &'static Tls {
    examine_unless(|tls| !tls.is_short())
}

/// Examines unless the last result satisfies `is_enough`. One examination runs at a time.
#[cold]
fn examine_unless(is_enough: impl Fn(&Tls) -> bool) -> &'static Tls {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(tls) = found().filter(|tls| is_enough(tls)) {
        return tls;
    }
    let tls: &'static Tls = Box::leak(Box::new(Tls::patiently()));
    FOUND.store(std::ptr::from_ref(tls).cast_mut(), Ordering::Release);
    tls
}

impl Tls {
    /// Examines, and retries while kernel threads or memory are short. Sleeps 1, 2, 4, ... 256 ms
    /// between tries, half a second in all. Every other failure is final.
    fn patiently() -> Tls {
        const LONGEST: Duration = Duration::from_millis(256);
        let mut pause = Duration::from_millis(1);
        loop {
            let tls = Tls::examine();
            if !tls.is_short() || pause > LONGEST {
                return tls;
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
    }

    fn examine() -> Tls {
        let asked = kumihimo_config::get().lab.tls;
        let kernel = |why: String, state| Tls { kind: Kind::Kernel, why, inner: None, state };
        let short = |why: String| {
            let text = "no blocks at the moment; the next start of a runtime tries again";
            kernel(format!("{text}: {why}"), State::Short)
        };
        let mut why =
            asked.map_or_else(String::new, |asked| format!("KUMI_LAB=tls={}", asked.name()));
        let best = match asked {
            None | Some(Asked::Clone) => Kind::Clone,
            Some(Asked::Donor) => Kind::Donor,
            Some(Asked::Kernel) => return kernel(why, State::AsAsked),
            Some(Asked::Fail) => return kernel(why, State::Degraded),
        };
        if best == Kind::Clone {
            // While other threads load libraries, the models may differ for a moment.
            let examine = || Inner::examine(Kind::Clone);
            let again = |failure| match failure {
                Failure::Final(_) => examine(),
                short => Err(short),
            };
            match examine().or_else(again).or_else(again) {
                Ok(inner) => {
                    if why.is_empty() {
                        why = "a clone equals a thread block of the C library in every word".into();
                    }
                    return Tls {
                        kind: Kind::Clone,
                        why,
                        inner: Some(inner),
                        state: State::AsAsked,
                    };
                }
                Err(Failure::Short(e)) => return short(e),
                Err(Failure::Final(e)) => why = format!("blocks cannot be cloned: {e}"),
            }
        }
        match Inner::examine(Kind::Donor) {
            Ok(inner) => Tls { kind: Kind::Donor, why, inner: Some(inner), state: State::AsAsked },
            Err(Failure::Short(e)) => short(e),
            Err(Failure::Final(e)) if why.is_empty() => {
                kernel(format!("no blocks: {e}"), State::Degraded)
            }
            Err(Failure::Final(e)) => kernel(format!("{why}; no donors: {e}"), State::Degraded),
        }
    }
}

impl Inner {
    fn examine(kind: Kind) -> Result<&'static Inner, Failure> {
        if let Some(obstacle) = thread_block::obstacle() {
            return Err(obstacle.into());
        }
        let layout = Layout::find()?;
        let calls = Calls::find()?;
        let mut keys = Keys::find(&calls)?;
        let loads = modules::loads();
        let donors = models(&calls, &layout)?;
        robust_list_is_known(&layout, &donors[0])?;
        let scan = modules::scan(&calls, &layout)?;
        for d in &donors {
            // SAFETY: donors have a dtv that no thread has used.
            let dtv = unsafe {
                modules::read_dtv(glibc::word(d.fs, layout.dtv) as *const _, d.fs, &layout)?
            };
            if dtv != scan.dtv {
                return Err("ld.so gives a donor and scratch memory different dtvs (possibly a concurrent dlopen)".into());
            }
        }
        let outside = |o: isize| {
            scan.regions
                .iter()
                .any(|r| !r.libc && o + 8 > r.offset && o < r.offset + r.len as isize)
        };
        let mut libc_words = Vec::new();
        let template = if kind == Kind::Clone {
            let mut t = Template::derive(&layout, &donors[0], &donors[1], &scan)?;
            let fs = Template::place(
                &layout,
                leaked_memory(layout.below + layout.size + HEAD + 2 * layout.align)?,
            );
            // SAFETY: zeroed memory around `fs`, never unmapped and not used elsewhere.
            unsafe {
                t.write(&layout, fs, donors[2].lo, donors[2].size).map_err(|e| e.to_string())?;
                t.check(&layout, fs, &donors[2])?;
                let found = probe::probe(&calls, &layout, fs, outside)?;
                keys.used = found.keys_used;
                libc_words = found.keep;
            }
            t.settle(&layout, &scan.regions, &libc_words);
            if !chain::anchor(&layout, &donors) {
                return Err("no two donors are adjacent on the C library's list".into());
            }
            t
        } else {
            // SAFETY: a donor's block, on which no thread runs.
            keys.used = unsafe { probe::probe(&calls, &layout, donors[2].fs, outside)? }.keys_used;
            Template::of_modules(&layout, &scan)?
        };
        setxid::wrap()?;
        crate::glibc::interpose::prepare();
        hold_locks_over_forks()?;
        let template: &'static Template = Box::leak(Box::new(template));
        CURRENT.store(std::ptr::from_ref(template).cast_mut(), Ordering::Release);
        let inner: &'static Inner = Box::leak(Box::new(Inner {
            kind,
            layout,
            calls,
            keys,
            libc_words,
            lock: Lock::new(),
            donors: UnsafeCell::new(donors),
            known: UnsafeCell::new(vec![template]),
            listed: kind == Kind::Clone && !dlopen::interposed(),
            loads: AtomicU64::new(loads),
            orphaned: AtomicBool::new(false),
            builds: AtomicU64::new(0),
            scans: AtomicU64::new(0),
            published: AtomicU64::new(0),
        }));
        if inner.listed {
            chain::enter(&inner.layout);
        }
        READY.store(std::ptr::from_ref(inner).cast_mut(), Ordering::Release);
        Ok(inner)
    }

    fn donors(&self) -> [Donor; 3] {
        // SAFETY: the lock is held.
        self.lock.with(|| unsafe { *self.donors.get() })
    }

    /// Returns the template for the modules that are loaded now, or None if the donors differ at
    /// the moment. If nothing changed, it returns the identical template.
    fn renewed(&self) -> Option<&'static Template> {
        let scan = modules::scan(&self.calls, &self.layout).ok()?;
        let [a, b, _] = self.donors();
        let now = template::current();
        let mut new = if self.kind == Kind::Clone {
            now.renewed(&self.layout, &a, &b, &scan).ok()?
        } else {
            Template::of_modules(&self.layout, &scan).ok()?
        };
        if self.kind == Kind::Clone {
            new.settle(&self.layout, &scan.regions, &self.libc_words);
        } else {
            new.same_dtv(now);
        }
        Some(self.lock.with(|| {
            // SAFETY: the lock is held.
            let known = unsafe { &mut *self.known.get() };
            if let Some(t) = known.iter().find(|t| ***t == new) {
                return *t;
            }
            let new: &'static Template = Box::leak(Box::new(new));
            known.push(new);
            new
        }))
    }

    /// Updates the template after a dlopen or dlclose. `entered`: the chain was linked into the C
    /// library's list for the call.
    fn changed(&self, entered: bool) {
        let mut publish = None;
        for _ in 0..100 {
            // The ticket is taken before the scan, so the scan of a later ticket sees at least what
            // this scan sees. Only the highest ticket publishes.
            let ticket = self.scans.fetch_add(1, Ordering::AcqRel) + 1;
            if let Some(new) = self.renewed() {
                publish =
                    (self.published.fetch_max(ticket, Ordering::AcqRel) < ticket).then_some(new);
                break;
            }
            // Another thread is inside dlopen, so the models differ.
            dlopen::wait_for_others();
        }
        chain::leave(&self.layout, publish, entered, self.listed);
    }

    /// Without interposed dlopen: updates the template if a library was loaded since the last
    /// update.
    fn catch_up(&self) {
        let now = modules::loads();
        if self.loads.load(Ordering::Acquire) < now {
            dlopen::wait_for_others();
            self.changed(false);
            // Stored last: a thread that reads this count relies on the new template.
            self.loads.fetch_max(now, Ordering::AcqRel);
        }
    }

    /// Creates new donors in the child of a fork, where the C library's list no longer contains the
    /// old ones.
    #[cold]
    fn adopt(&self) {
        if self.orphaned.swap(false, Ordering::AcqRel)
            && let Ok(new) = models(&self.calls, &self.layout)
        {
            // SAFETY: the lock is held.
            self.lock.with(|| unsafe { *self.donors.get() = new });
            chain::anchor(&self.layout, &new);
        }
    }

    fn check_orphaned(&self) {
        if self.orphaned.load(Ordering::Relaxed) {
            self.adopt();
        }
    }
}

impl Tls {
    /// Returns how blocks are made.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the reason for [`Tls::kind`] as text.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Returns whether microprocesses are kernel threads although that was not requested.
    pub fn is_degraded(&self) -> bool {
        self.state != State::AsAsked
    }

    /// Returns whether the degradation is due to a lack of kernel threads or memory, which may end;
    /// see [`get_anew`].
    pub fn is_short(&self) -> bool {
        self.state == State::Short
    }

    /// Returns the largest number of bytes that a block takes at the top of a stack; 0 without
    /// blocks.
    pub fn bytes(&self) -> usize {
        self.inner.map_or(0, |i| {
            let slack = i.layout.align - 64 + thread_block::HEAD_SLACK;
            i.layout.size.next_multiple_of(64) + i.layout.below + HEAD + slack
        })
    }

    /// Builds a block at the top of the stack [lo, hi) and returns its FS base. The block has a new
    /// dtv from `malloc`. Any kernel thread may run on it, one at a time.
    ///
    /// # Errors
    /// Returns an error if memory is short, if a donor's kernel thread cannot be created, or for
    /// [`Kind::Kernel`].
    ///
    /// # Safety
    /// [lo, hi) is mapped, writable, unused and never unmapped. At least its top [`Tls::bytes`]
    /// bytes are zero. `lo` is page-aligned and `hi` 64-aligned. After an error the memory's
    /// contents are unspecified.
    pub unsafe fn build(&self, lo: *mut u8, hi: *mut u8) -> io::Result<*mut u8> {
        let Some(inner) = self.inner else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, self.why.clone()));
        };
        let layout = &inner.layout;
        inner.check_orphaned();
        let (lo, size) = (lo as usize, hi as usize - lo as usize);
        let template = template::current();
        if inner.kind == Kind::Donor {
            // SAFETY: guaranteed by the caller.
            return unsafe { inner.donate(lo, size, template) };
        }
        let fs = Template::place(layout, hi);
        // SAFETY: guaranteed by the caller; the block is complete before it is added.
        unsafe {
            template.write(layout, fs, lo, size)?;
            chain::add(layout, fs, template);
            if inner.listed {
                // ld.so increments the count of libraries before it writes a library's image into
                // the blocks. If the count is unchanged, this block was on the list in time.
                inner.catch_up();
                template::current().patch(&*(*template::head(fs, layout.below)).template, fs);
            }
        }
        // Libraries that the C library loads for itself bypass the interposed dlopen. Their images
        // appear in the donors, so every 256th build compares.
        if inner.builds.fetch_add(1, Ordering::Relaxed) % 256 == 255
            && template.stale(layout, &inner.donors()[0])
        {
            inner.changed(false);
        }
        Ok(fs)
    }

    /// Returns the highest usable stack address below the block `fs`, 64-aligned.
    ///
    /// # Safety
    /// `fs` is from [`Tls::build`].
    pub unsafe fn stack_top(&self, fs: *mut u8) -> *mut u8 {
        let below = self.inner.map_or(0, |i| i.layout.below);
        template::head(fs, below).cast()
    }

    /// Points the block's character tables at the current locale [2 ns]. Every microprocess calls
    /// this first when it starts on the block.
    ///
    /// # Safety
    /// The caller runs on a block from [`Tls::build`].
    pub unsafe fn first_run(&self) {
        if let Some(inner) = self.inner {
            // SAFETY: writes three pointers into the caller's block.
            unsafe { (inner.calls.ctype_init)() };
        }
    }

    /// Runs the destructors of thread-local variables and pthread keys, releases robust mutexes,
    /// and records the work left for [`Tls::recycle`]. A microprocess calls this on its block at
    /// its end. Destructors are application code and may block or switch. A Rust destructor that
    /// panics aborts the process, as on any thread.
    ///
    /// # Safety
    /// The caller runs on a block from [`Tls::build`], and afterwards uses no thread-local variable
    /// with a destructor.
    pub unsafe fn exit_current(&self) {
        if let Some(inner) = self.inner {
            // SAFETY: guaranteed by the caller.
            unsafe { exit::exit_current(inner, inner.kind) };
        }
    }

    /// Returns the cache lines, as offsets from the FS base, that [`first_run`](Tls::first_run),
    /// [`exit_current`](Tls::exit_current) and [`recycle`](Tls::recycle) access. The caller
    /// prefetches them before a microprocess starts.
    pub fn lines(&self) -> Vec<isize> {
        let Some(inner) = self.inner else { return Vec::new() };
        let (layout, template) = (&inner.layout, template::current());
        let words =
            [layout.errno, layout.h_errno, layout.robust, layout.tid, layout.dtv, inner.keys.used];
        let head = -(layout.below as isize) - HEAD as isize;
        let watched = template.watched.offsets();
        let mut lines: Vec<isize> =
            words.into_iter().chain([head]).chain(watched).map(|o| o & !63).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// Resets a used block: every thread-local variable has its initial value and errno is 0;
    /// malloc's cache, thread ID and memory stay. [3-20 ns; 200-500 ns if the last user changed the
    /// C library's own state (locale, dynamic thread-local variables) or if libraries were loaded
    /// meanwhile].
    ///
    /// # Safety
    /// No thread runs on `fs`, which comes from [`Tls::build`] with the same `lo` and `hi`.
    /// [`Tls::exit_current`] has run on it.
    pub unsafe fn recycle(&self, fs: *mut u8, _lo: *mut u8, _hi: *mut u8) {
        if let Some(inner) = self.inner {
            if inner.listed {
                inner.catch_up();
            }
            // SAFETY: guaranteed by the caller.
            unsafe { exit::recycle(inner, fs) };
        }
    }
}

impl Inner {
    /// Builds a block for [`Kind::Donor`]; see [`Tls::build`].
    unsafe fn donate(
        &self,
        lo: usize,
        size: usize,
        template: &'static Template,
    ) -> io::Result<*mut u8> {
        let layout = &self.layout;
        // SAFETY: guaranteed by the caller of `build`.
        unsafe {
            let d = donor::make(&self.calls, layout, lo, size)?;
            let frames = lo as u64..(d.fs as usize - layout.below) as u64;
            for o in layout.words().filter(|o| layout.thread.contains(o) && !layout.special(*o)) {
                // Redirects pthread_exit's unwind target, which lies in the donor's dead frames, to
                // the block's head. `lo` itself is the stack's base address.
                let w = glibc::word(d.fs, o);
                if frames.contains(&w) && w != frames.start {
                    glibc::set_word(d.fs, o, template::head(d.fs, layout.below) as u64);
                }
            }
            template::unregistered_rseq(layout, d.fs);
            number::note(d.fs.offset(layout.tid).cast::<u32>().read(), d.fs);
            // The kernel thread's last frames used this memory, so the head is written last.
            template::head(d.fs, layout.below).write(template::Head::new(template, lo, size));
            Ok(d.fs)
        }
    }
}
