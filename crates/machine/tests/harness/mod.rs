//! Shared parts of this crate's tests: separate directories and processes, and an address space
//! with configurable answers.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kumihimo_machine::directory::Directory;
use kumihimo_machine::handler::{
    Action, ControlHandler, Done, Metric, Microprocess, Refused, Resource, Space, State,
};
use kumihimo_machine::space::{Control, Limits, Number};
use kumihimo_machine::{Machine, Neighbour};
use kumihimo_resource::id::{Id, Kind, Location, Serial};

/// Reports that a test cannot run on this machine, and why; the scripts count it as skipped.
/// Bypasses libtest's capture.
pub fn skip(test: &str, why: &str) {
    io::stderr()
        .write_all(format!("\n[skip] {test}: {why}\n").as_bytes())
        .expect("standard error is open");
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A directory for one test, searchable by other users; removed when dropped.
pub struct Room(pub PathBuf);

impl Room {
    pub fn new() -> Room {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "kumi-machine-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a directory for the test");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755))
            .expect("the test owns the directory");
        Room(path)
    }

    /// Opens a run-time directory in this directory.
    pub fn directory(&self) -> Directory {
        Directory::own(&self.path()).expect("a run-time directory")
    }

    pub fn path(&self) -> PathBuf {
        self.0.join("kumihimo")
    }

    pub fn machine(&self) -> Machine {
        machine(&self.path())
    }

    pub fn number(&self) -> Arc<Number> {
        Arc::new(Number::take_in(self.directory()).expect("a number"))
    }

    pub fn serve(&self, double: Double) -> Served {
        self.serve_within(double, Limits::default())
    }

    pub fn serve_within(&self, mut double: Double, limits: Limits) -> Served {
        let number = self.number();
        double.location = number.location();
        let double = Arc::new(double);
        let answer: Arc<dyn ControlHandler> = double.clone();
        let control = Control::start_within(number.clone(), Arc::downgrade(&answer), limits)
            .expect("a control socket");
        let space = number.location().space();
        Served { control, number, double, space, path: self.path() }
    }
}

/// Returns the machine with a time limit that a busy machine meets, because no test is about speed.
fn machine(path: &Path) -> Machine {
    Machine::at(path).expect("the run-time directory").time_limit(Duration::from_secs(60))
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An address space with a number and a control socket.
pub struct Served {
    pub control: Control,
    pub number: Arc<Number>,
    pub double: Arc<Double>,
    pub space: u16,
    path: PathBuf,
}

impl Served {
    pub fn neighbour(&self) -> Neighbour {
        machine(&self.path).neighbour(self.space).expect("the address space is alive")
    }

    /// Connects to its control socket and reads the greeting.
    pub fn raw(&self) -> Raw {
        let mut raw = Raw::connect(&self.path.join(format!("{}.socket", self.space)));
        assert!(raw.line().contains(r#""protocol":1"#));
        raw
    }
}

/// A client on the level of lines.
pub struct Raw(pub BufReader<UnixStream>);

impl Raw {
    pub fn connect(path: &Path) -> Raw {
        Raw(BufReader::new(UnixStream::connect(path).expect("a control socket")))
    }

    pub fn say(&mut self, text: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(text.as_ref()).expect("the server reads the request");
    }

    /// Reads the next line; empty at the end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(_) => line,
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => String::new(),
            Err(e) => panic!("{e}"),
        }
    }

    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => rest,
            Err(e) => panic!("{e}"),
        }
    }
}

pub type Hook = Box<dyn Fn() + Send + Sync>;

/// A handler for the tests, in place of the runtime's.
#[derive(Default)]
pub struct Double {
    pub location: Location,
    pub microprocesses: u32,
    pub acted: Mutex<Vec<(Id, Action)>>,
    pub metrics: Vec<Metric>,
    pub trace: Option<Vec<u8>>,
    /// Called before each answer about one microprocess.
    pub before: Option<Hook>,
    /// Called at each notification.
    pub notified: Option<Hook>,
    /// Called when the handler is dropped.
    pub at_end: AtEnd,
}

/// Calls the hook when dropped.
#[derive(Default)]
pub struct AtEnd(pub Option<Hook>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(at_end) = &self.0 {
            at_end();
        }
    }
}

impl Double {
    pub fn with(microprocesses: u32) -> Double {
        Double { microprocesses, ..Double::default() }
    }

    pub fn id(&self, slot: u32) -> Id {
        Id::new(self.location, Kind::MICROPROCESS, Serial::new(slot, 1))
    }

    pub fn one(&self, slot: u32) -> Microprocess {
        let waits = slot % 2 == 1;
        Microprocess {
            id: self.id(slot),
            name: (slot % 4 == 1).then(|| format!("worker \"{slot}\"\n")),
            state: if waits { State::Waiting } else { State::Runnable },
            stopping: slot % 8 == 2,
            waits_for: waits.then(|| "a message".into()),
            holder: None,
            priority: (slot % 64) as u8,
            inherited: (slot % 16 == 3).then_some(63),
            vp: (slot % 2) as u16,
            kernel_thread: slot.is_multiple_of(32).then_some(4711),
            sticky: None,
        }
    }

    pub fn row(&self, slot: u32) -> Resource {
        let id = Id::new(self.location, Kind::TIMER, Serial::new(slot, 1));
        Resource {
            id,
            owner: Some(self.id(slot)),
            state: "armed".into(),
            names: vec![format!("/timer/{slot}")],
        }
    }
}

impl ControlHandler for Double {
    fn on_notification(&self, _: u32) {
        if let Some(notified) = &self.notified {
            notified();
        }
    }

    fn space(&self) -> Space {
        Space {
            id: Id::new(self.location, Kind::SPACE, Serial::new(0, 0)),
            pid: std::process::id(),
            program: "double".into(),
            version: "0".into(),
            vps: 2,
            living: self.microprocesses.into(),
            queue: "ring".into(),
            policy: "fifo".into(),
            events: "off".into(),
            locking: "vp".into(),
            mode: "microprocesses".into(),
            why: None,
            kernel_threads: 0,
            most_kernel_threads: 0,
        }
    }

    fn microprocesses(&self, each: &mut dyn FnMut(Microprocess)) {
        (0..self.microprocesses).for_each(|slot| each(self.one(slot)));
    }

    fn microprocess(&self, id: Id) -> Result<Microprocess, Refused> {
        if let Some(before) = &self.before {
            before();
        }
        let slot = id.serial().slot();
        if slot >= self.microprocesses || id != self.id(slot) {
            return Err(Refused::Stale(format!("{id} has ended")));
        }
        Ok(self.one(slot))
    }

    fn resources(&self, kind: Option<Kind>, each: &mut dyn FnMut(Resource)) {
        if kind.is_none_or(|kind| kind == Kind::TIMER) {
            (0..self.microprocesses).for_each(|slot| each(self.row(slot)));
        }
    }

    fn act(&self, id: Id, action: Action) -> Result<Done, Refused> {
        self.microprocess(id)?;
        self.acted.lock().unwrap().push((id, action));
        Ok(Done::Now)
    }

    fn backtrace(&self, id: Id) -> Result<String, Refused> {
        self.microprocess(id).map(|one| format!("{one:?}\nmain\n"))
    }

    fn metrics(&self) -> Vec<Metric> {
        self.metrics.clone()
    }

    fn trace(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.trace {
            Some(trace) => out.write_all(trace),
            None => Err(io::Error::new(io::ErrorKind::Unsupported, "nothing is traced here")),
        }
    }
}

/// A process of the test, killed when dropped.
pub struct Process(pub i32);

/// Runs `body` in a process of its own, as user `uid` if that is not 0. The process exits with 0 if
/// `body` returns.
pub fn fork(uid: u32, body: impl FnOnce()) -> Process {
    // SAFETY: the child is one kernel thread with a copy of this one's stack. It allocates, which
    // glibc permits after fork, and never returns.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", io::Error::last_os_error());
    if pid > 0 {
        return Process(pid);
    }
    // The process ends with the test's kernel thread, in any case.
    // SAFETY: the call has only integer arguments.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let done = catch_unwind(AssertUnwindSafe(|| {
        if uid != 0 {
            // SAFETY: integer arguments, and an empty list of groups.
            let set = unsafe {
                libc::setgroups(0, std::ptr::null()) == 0
                    && libc::setgid(uid) == 0
                    && libc::setuid(uid) == 0
            };
            assert!(set, "{}", io::Error::last_os_error());
        }
        body();
    }));
    if let Err(panic) = &done {
        let text = panic.downcast_ref::<String>().map_or("a panic in the child", |text| text);
        let _ = io::stderr().write_all(format!("in the child: {text}\n").as_bytes());
    }
    // SAFETY: ends the process without running code that belongs to the parent.
    unsafe { libc::_exit(i32::from(done.is_err())) }
}

/// Runs `body` in a process of its own. Processes forked by other tests have copies of this
/// process's locks, which would then last too long.
pub fn alone(body: impl FnOnce()) {
    fork(0, body).ends_well();
}

/// Locks a file as the holder of its number does.
pub fn locked(path: &Path) -> std::fs::File {
    let file = std::fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .expect("the file opens");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .expect("the lock is free");
    file
}

impl Process {
    /// Waits for the end of the process, which must exit with 0.
    pub fn ends_well(mut self) {
        let status = self.reap();
        assert_eq!(status, 0, "the process ended with {status:#x}");
    }

    /// Waits for the end of the process, which must be killed by SIGKILL.
    pub fn was_killed(mut self) {
        assert_eq!(self.reap(), libc::SIGKILL);
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: integer arguments; the process is an unreaped child.
        assert_eq!(unsafe { libc::kill(self.0, signal) }, 0);
    }

    pub fn kill(self) {
        self.signal(libc::SIGKILL);
        self.was_killed();
    }

    /// Kills the process, unless it has already exited with 0.
    pub fn kill_if_it_lives(mut self) {
        self.signal(libc::SIGKILL);
        let status = self.reap();
        assert!(status == 0 || status == libc::SIGKILL, "the process ended with {status:#x}");
    }

    /// Stops the process, and waits until it is stopped.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: the status is a live variable.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, libc::WUNTRACED) }, self.0);
        assert!(libc::WIFSTOPPED(status));
    }

    fn reap(&mut self) -> i32 {
        let mut status = 0;
        // SAFETY: the status is a live variable.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        self.0 = 0;
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.0 != 0 {
            // SAFETY: integer arguments, and no status.
            unsafe {
                libc::kill(self.0, libc::SIGKILL);
                libc::waitpid(self.0, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// Returns a pipe between two processes.
pub fn pipe() -> (io::PipeReader, io::PipeWriter) {
    io::pipe().expect("a pipe")
}

/// Starts a process that serves `double` in `room`, and returns it with its number once it serves.
pub fn serving(room: &Room, double: Double) -> (Process, u16) {
    let (mut from_child, mut to_test) = pipe();
    let process = fork(0, move || {
        let served = room.serve(double);
        to_test.write_all(&served.space.to_ne_bytes()).unwrap();
        wait_for_ever();
    });
    let mut number = [0; 2];
    from_child.read_exact(&mut number).expect("the process starts to serve");
    (process, u16::from_ne_bytes(number))
}

pub fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Runs `body` as root of a mount namespace of its own.
pub fn with_mounts(test: &str, body: impl FnOnce()) {
    if !is_root() {
        return skip(test, "only root can mount");
    }
    fork(0, || {
        // SAFETY: an integer argument; this process has one kernel thread.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
        let private = rustix::mount::MountPropagationFlags::PRIVATE
            | rustix::mount::MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).unwrap();
        body();
    })
    .ends_well();
}

/// Mounts a tmpfs.
pub fn mount(at: &Path, options: &std::ffi::CStr, flags: rustix::mount::MountFlags) {
    std::fs::create_dir_all(at).unwrap();
    rustix::mount::mount("kumihimo", at, "tmpfs", flags, options).unwrap();
}
