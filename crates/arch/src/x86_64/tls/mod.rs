//! Thread-local storage of a microprocess: a block that the C library takes for a thread's.
//!
//! FS points to a block: below the pointer lie the thread-local variables of all modules loaded at
//! start, above it the C library's `struct pthread`. A microprocess with a block of its own may be
//! moved between kernel threads at any switch: `thread_local!`, errno, exceptions, `malloc`'s
//! caches and pthread keys go with it.
//!
//! - `Clone`: written from a template that was found by comparing blocks of the C library [120-300
//!   ns].
//! - `Donor`: by pthread_create, whose kernel thread ends at once [35-180 us].
//! - `Kernel`: not at all: a microprocess is a kernel thread.
//!
//! Nothing here is tied to a version of glibc: the tests pass with 2.35, 2.36, 2.39, 2.41 and 2.43,
//! with cloned blocks in each. [`get`] decides at the first call, by a self-test;
//! `KUMI_LAB=tls=clone|donor|kernel` asks for less.
//!
//! What glibc's functions make of a block: pthread_self, mutexes of all ordinary kinds, keys,
//! `pthread_getattr_np` and `pthread_getaffinity_np` work. The thread id in it is no kernel
//! thread's, so pthread_kill, pthread_cancel and pthread_join of a microprocess find nobody (ESRCH,
//! or wait for ever), and contended priority-inheritance mutexes fail. pthread_exit unwinds to the
//! next `catch_unwind`, where std aborts, as it does on a std thread. A block is never freed once
//! it was used: it is on the C library's list at times, and malloc's cache hangs on it. Reuse it.

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kumihimo_config::Tls as Asked;

pub use crate::kind::Kind;
use crate::lock::Lock;
use donor::Donor;
use examine::{leaked_memory, models, robust_list_is_known, thread_sanitizer};
use failure::Failure;
use glibc::{Calls, Layout};
use inner::{Inner, READY};
use keys::Keys;
use template::{CURRENT, HEAD, Template};

mod chain;
mod donor;
mod examine;
mod exit;
mod failure;
mod glibc;
mod inner;
mod interpose;
pub use interpose::dlopen::while_linking;
pub use interpose::setxid;
use interpose::{dlopen, fork};
mod keys;
mod modules;
mod next_symbol;
pub(crate) use next_symbol::next;
mod probe;
mod template;

/// What this process can do about thread-local storage. See [`get`].
pub struct Tls {
    kind: Kind,
    why: String,
    inner: Option<&'static Inner>,
    state: State,
}

/// What to think of a [`Tls`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// As the environment, or nobody, asked.
    AsAsked,
    /// Kernel threads 1:1, although nobody asked for them.
    Degraded,
    /// As `Degraded`, for want of kernel threads or memory.
    Short,
}

/// The answer to [`get`]; null before the first call.
static FOUND: AtomicPtr<Tls> = AtomicPtr::new(std::ptr::null_mut());

fn found() -> Option<&'static Tls> {
    // SAFETY: null or a leaked box, published after it was written.
    unsafe { FOUND.load(Ordering::Acquire).as_ref() }
}

/// Examines the C library at the first call, and remembers [0.3-1 ms; makes three short-lived
/// kernel threads]. Never panics.
///
/// `KUMI_LAB=tls=...` may ask for `clone`, `donor` or `kernel`; what the machine cannot do falls to
/// the next, and [`Tls::why`] says so.
pub fn get() -> &'static Tls {
    found().unwrap_or_else(|| examine_unless(|_| true))
}

/// As [`get`], but examines again where the last examination [lacked a kernel thread or
/// memory](Tls::is_short). For the start of a runtime; later the answer must not change.
pub fn get_anew() -> &'static Tls {
    examine_unless(|tls| !tls.is_short())
}

/// One examination at a time, unless the last answer is good enough.
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
    /// Examines, and waits for kernel threads or memory where these are short: 1, 2, 4, ... 256 ms,
    /// half a second in all. Every other failure is final.
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
            let text = "no blocks at the moment; the next start of a runtime examines again";
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
            // Threads that load libraries meanwhile may make models differ for a moment.
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
        if thread_sanitizer() {
            return Err(
                "ThreadSanitizer keeps its own state of each kernel thread in thread-local storage"
                    .into(),
            );
        }
        let layout = Layout::find()?;
        let calls = Calls::find()?;
        let mut keys = Keys::find(&calls)?;
        let loads = modules::loads();
        let donors = models(&calls, &layout)?;
        robust_list_is_known(&layout, &donors[0])?;
        let scan = modules::scan(&calls, &layout)?;
        for d in &donors {
            // SAFETY: donors have a dtv that nobody has used.
            let dtv = unsafe {
                modules::read_dtv(glibc::word(d.fs, layout.dtv) as *const _, d.fs, &layout)?
            };
            if dtv != scan.dtv {
                return Err("ld.so gives a donor another dtv than scratch memory (a dlopen at the same time?)".into());
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
            // SAFETY: fresh zero memory around `fs`, never unmapped, used by nobody else.
            unsafe {
                t.write(&layout, fs, donors[2].lo, donors[2].size).map_err(|e| e.to_string())?;
                t.check(&layout, fs, &donors[2])?;
                let found = probe::probe(&calls, &layout, fs, outside)?;
                keys.used = found.keys_used;
                libc_words = found.keep;
            }
            t.settle(&layout, &scan.regions, &libc_words);
            if !chain::anchor(&layout, &donors) {
                return Err("no two neighbours on the C library's list".into());
            }
            t
        } else {
            // SAFETY: a donor's block, which nobody uses.
            keys.used = unsafe { probe::probe(&calls, &layout, donors[2].fs, outside)? }.keys_used;
            Template::of_modules(&layout, &scan)?
        };
        setxid::wrap()?;
        fork::register()?;
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
        // SAFETY: under the lock.
        self.lock.with(|| unsafe { *self.donors.get() })
    }

    /// Asks ld.so for the state of things and returns the template for it, the very same one if
    /// nothing changed.
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
            // SAFETY: under the lock.
            let known = unsafe { &mut *self.known.get() };
            if let Some(t) = known.iter().find(|t| ***t == new) {
                return *t;
            }
            let new: &'static Template = Box::leak(Box::new(new));
            known.push(new);
            new
        }))
    }

    /// After a dlopen or dlclose. `entered`: the chain was hung into the list for it.
    fn changed(&self, entered: bool) {
        let mut publish = None;
        for _ in 0..100 {
            // A ticket taken before looking: the taker of a later one has seen at least what we
            // have.
            let ticket = self.scans.fetch_add(1, Ordering::AcqRel) + 1;
            if let Some(new) = self.renewed() {
                publish =
                    (self.published.fetch_max(ticket, Ordering::AcqRel) < ticket).then_some(new);
                break;
            }
            // Another thread is in the middle of a dlopen: models differ.
            dlopen::wait_for_others();
        }
        chain::leave(&self.layout, publish, entered, self.listed);
    }

    /// Where dlopen passes us by: has one been called since we looked?
    fn catch_up(&self) {
        let now = modules::loads();
        if self.loads.load(Ordering::Acquire) < now {
            dlopen::wait_for_others();
            self.changed(false);
            // Only now: a thread that finds the count reached relies on the new template.
            self.loads.fetch_max(now, Ordering::AcqRel);
        }
    }

    /// In the child of a fork: the C library has forgotten our donors.
    #[cold]
    fn adopt(&self) {
        if self.orphaned.swap(false, Ordering::AcqRel)
            && let Ok(new) = models(&self.calls, &self.layout)
        {
            // SAFETY: under the lock.
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
    /// How blocks are made.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The reason for [`Tls::kind`], for people.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Whether microprocesses are kernel threads although nobody asked for that.
    pub fn is_degraded(&self) -> bool {
        self.state != State::AsAsked
    }

    /// Whether that is for want of kernel threads or memory, and may end: see [`get_anew`].
    pub fn is_short(&self) -> bool {
        self.state == State::Short
    }

    /// Bytes that a block takes at the top of a stack, at most. 0 where there are none.
    pub fn bytes(&self) -> usize {
        self.inner.map_or(0, |i| {
            let slack = i.layout.align - 64;
            i.layout.size.next_multiple_of(64) + i.layout.below + HEAD + slack
        })
    }

    /// Makes a block at the top of the stack [lo, hi) and returns its FS base. It carries a fresh
    /// dtv from `malloc`, and may be run on by any kernel thread, one at a time.
    ///
    /// # Errors
    /// Out of memory; for donors, that no kernel thread can be made; [`Kind::Kernel`].
    ///
    /// # Safety
    /// [lo, hi) is mapped, writable, all zero (its top [`Tls::bytes`] at least), unused, and is
    /// never unmapped; `lo` is page-aligned and `hi` 64-aligned. After an error the memory's
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
            // SAFETY: granted by the caller.
            return unsafe { inner.donate(lo, size, template) };
        }
        let fs = Template::place(layout, hi);
        // SAFETY: granted by the caller; the block is complete before it is added.
        unsafe {
            template.write(layout, fs, lo, size)?;
            chain::add(layout, fs, template);
            if inner.listed {
                // ld.so counts a library before it writes its image into the blocks: if the count
                // is the old one, the block was on the list in time.
                inner.catch_up();
                template::current().patch(&*(*template::head(fs, layout.below)).template, fs);
            }
        }
        // A library that the C library loaded for itself has passed us by; its image shows in the
        // donors.
        if inner.builds.fetch_add(1, Ordering::Relaxed) % 256 == 255
            && template.stale(layout, &inner.donors()[0])
        {
            inner.changed(false);
        }
        Ok(fs)
    }

    /// The highest address usable as stack below the block `fs`, 64-aligned.
    ///
    /// # Safety
    /// `fs` is from [`Tls::build`].
    pub unsafe fn stack_top(&self, fs: *mut u8) -> *mut u8 {
        let below = self.inner.map_or(0, |i| i.layout.below);
        template::head(fs, below).cast()
    }

    /// To be called on the block, first thing of every microprocess that starts on it: points its
    /// character tables at the locale in force [2 ns].
    ///
    /// # Safety
    /// The caller runs on a block from [`Tls::build`].
    pub unsafe fn first_run(&self) {
        if let Some(inner) = self.inner {
            // SAFETY: writes three pointers into the caller's block.
            unsafe { (inner.calls.ctype_init)() };
        }
    }

    /// To be called on the block at the microprocess's end: runs the destructors of thread-local
    /// variables and of pthread keys, lets go of robust mutexes, and notes what [`Tls::recycle`]
    /// has to do. Destructors are the program's code: they may block or switch. A Rust destructor
    /// that panics aborts the process, as on any thread.
    ///
    /// # Safety
    /// The caller runs on a block from [`Tls::build`], and afterwards uses no thread-local variable
    /// with a destructor.
    pub unsafe fn exit_current(&self) {
        if let Some(inner) = self.inner {
            // SAFETY: granted by the caller.
            unsafe { exit::exit_current(inner, inner.kind) };
        }
    }

    /// Where the lines of memory lie, counted from the FS base, that [`first_run`](Tls::first_run),
    /// [`exit_current`](Tls::exit_current) and [`recycle`](Tls::recycle) look at: to have them at
    /// hand before a microprocess begins.
    pub fn lines(&self) -> Vec<isize> {
        let Some(inner) = self.inner else { return Vec::new() };
        let (layout, template) = (&inner.layout, template::current());
        let words =
            [layout.errno, layout.h_errno, layout.robust, layout.tid, layout.dtv, inner.keys.used];
        let head = -(layout.below as isize) - HEAD as isize;
        let watched = template.watched.iter().map(|(o, ..)| *o);
        let mut lines: Vec<isize> =
            words.into_iter().chain([head]).chain(watched).map(|o| o & !63).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// Makes a used block fresh: every thread-local variable has its initial value, errno is 0;
    /// malloc's cache, thread id and memory stay [3-20 ns; 200-500 ns if the last user changed the
    /// C library's own state: locale, dynamic thread-local variables, or if libraries were loaded
    /// meanwhile].
    ///
    /// # Safety
    /// Nobody runs on `fs`, which is from [`Tls::build`] with the same `lo` and `hi`;
    /// [`Tls::exit_current`] has run on it.
    pub unsafe fn recycle(&self, fs: *mut u8, _lo: *mut u8, _hi: *mut u8) {
        if let Some(inner) = self.inner {
            if inner.listed {
                inner.catch_up();
            }
            // SAFETY: granted by the caller.
            unsafe { exit::recycle(inner, fs) };
        }
    }
}

impl Inner {
    /// [`Tls::build`] for [`Kind::Donor`].
    unsafe fn donate(
        &self,
        lo: usize,
        size: usize,
        template: &'static Template,
    ) -> io::Result<*mut u8> {
        let layout = &self.layout;
        // SAFETY: granted by the caller of `build`.
        unsafe {
            let d = donor::make(&self.calls, layout, lo, size)?;
            let frames = lo as u64..(d.fs as usize - layout.below) as u64;
            for o in layout.words().filter(|o| *o >= 0 && !layout.special(*o)) {
                // Where pthread_exit would unwind to, in the donor's dead frames. `lo` itself is
                // the stack's base.
                let w = glibc::word(d.fs, o);
                if frames.contains(&w) && w != frames.start {
                    glibc::set_word(d.fs, o, template::head(d.fs, layout.below) as u64);
                }
            }
            template::unregistered_rseq(layout, d.fs);
            // The kernel thread's last frames lay here.
            template::head(d.fs, layout.below).write(template::Head::new(template, lo, size));
            Ok(d.fs)
        }
    }
}
