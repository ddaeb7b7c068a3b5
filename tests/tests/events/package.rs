//! The thread package on which the cases run: Kumihimo's own, or, with
//! `KUMI_TEST_SCHEDULER=minimal`, the user scheduler in crates/events/examples/minimal. With the
//! latter, waits of the other microprocesses block in the kernel as well.

#[path = "../../../crates/events/examples/minimal/scheduler.rs"]
#[allow(dead_code)]
mod scheduler;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kumihimo::net;
use kumihimo::runtime::{Runtime, metrics};
use kumihimo::thread;
use kumihimo_events::kernel::Settings;
use kumihimo_events::limit::Limit;
use kumihimo_events::preempt::Means;
use kumihimo_events::source::Kind;
use scheduler::Scheduler;

/// Priority of all microprocesses.
const PRIORITY: u8 = 32;
const MOST_KERNEL_THREADS: usize = 2000;

/// The running minimal scheduler, if any.
static MINIMAL: Mutex<Option<Arc<Scheduler>>> = Mutex::new(None);

fn minimal() -> Option<Arc<Scheduler>> {
    MINIMAL.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns whether `KUMI_TEST_SCHEDULER` selects the minimal scheduler.
///
/// # Panics
/// If the variable has an unknown value.
pub fn is_minimal() -> bool {
    match std::env::var("KUMI_TEST_SCHEDULER").as_deref() {
        Err(_) | Ok("kumihimo") => false,
        Ok("minimal") => true,
        Ok(other) => panic!("KUMI_TEST_SCHEDULER={other}: expected kumihimo or minimal"),
    }
}

/// Runs `f` as the first microprocess on `vps` virtual processors.
pub fn run<T: Send>(vps: usize, f: impl FnOnce() -> T + Send) -> T {
    if !is_minimal() {
        return Runtime::builder().vps(vps).build().expect("a runtime").run(f);
    }
    let source = std::env::var("KUMI_EVENTS").ok();
    let source = source.map(|name| Kind::from_name(&name).expect("a source"));
    let max_threads = MOST_KERNEL_THREADS;
    let settings = Settings {
        vps: vps as u32,
        parked: 0,
        concurrency: 1,
        limit: Limit::asked(max_threads, "the test"),
        source,
        preempt: Some(Means::Off),
        record: false,
    };
    let package = Scheduler::open(settings).expect("a scheduler");
    let set = |now| *MINIMAL.lock().unwrap_or_else(PoisonError::into_inner) = now;
    set(Some(package.clone()));
    let result = Mutex::new(None);
    let body = || *result.lock().expect("no panic while locked") = Some(f());
    let body: Box<dyn FnOnce() + Send + '_> = Box::new(body);
    // SAFETY: joined below, within the lifetime of the borrowed values.
    let body: Box<dyn FnOnce() + Send> = unsafe { std::mem::transmute(body) };
    let outcome = package.spawn(PRIORITY, body).expect("memory").join();
    set(None);
    package.wait();
    outcome.expect("no panic");
    result.into_inner().expect("no panic while locked").expect("it has run")
}

/// Handle of a microprocess.
pub enum JoinHandle<T> {
    Kumihimo(thread::JoinHandle<T>),
    Minimal(scheduler::handle::Handle<T>),
}

impl<T> JoinHandle<T> {
    pub fn join(self) -> std::thread::Result<T> {
        match self {
            JoinHandle::Kumihimo(handle) => handle.join(),
            JoinHandle::Minimal(handle) => handle.join(),
        }
    }
}

pub fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match minimal() {
        None => JoinHandle::Kumihimo(thread::spawn(f)),
        Some(package) => JoinHandle::Minimal(package.spawn(PRIORITY, f).expect("memory")),
    }
}

pub fn yield_now() {
    if is_minimal() { scheduler::yield_now() } else { thread::yield_now() }
}

pub fn sleep(time: Duration) {
    if is_minimal() { std::thread::sleep(time) } else { thread::sleep(time) }
}

/// Number of kernel threads according to the package.
pub fn threads() -> usize {
    minimal().map_or_else(
        || metrics().expect("it runs").kernel_threads,
        |package| package.kernel().counts().threads,
    )
}

/// A bidirectional byte stream.
pub trait Both: Read + Write + Send {}
impl<S: Read + Write + Send> Both for S {}
pub type Stream = Box<dyn Both>;

/// A listening socket on the loopback interface.
pub enum Listener {
    Kumihimo(net::TcpListener),
    Minimal(std::net::TcpListener),
}

impl Listener {
    pub fn new() -> Listener {
        let any = "127.0.0.1:0";
        if is_minimal() {
            Listener::Minimal(std::net::TcpListener::bind(any).expect("a port"))
        } else {
            Listener::Kumihimo(net::TcpListener::bind(any).expect("a port"))
        }
    }

    pub fn address(&self) -> SocketAddr {
        match self {
            Listener::Kumihimo(listener) => listener.local_addr(),
            Listener::Minimal(listener) => listener.local_addr(),
        }
        .expect("it has one")
    }

    pub fn accept(&self) -> Stream {
        match self {
            Listener::Kumihimo(listener) => Box::new(listener.accept().expect("a client").0),
            Listener::Minimal(listener) => Box::new(listener.accept().expect("a client").0),
        }
    }
}

pub fn connect(address: SocketAddr) -> Stream {
    if is_minimal() {
        Box::new(std::net::TcpStream::connect(address).expect("a listening socket"))
    } else {
        Box::new(net::TcpStream::connect(address).expect("a listening socket"))
    }
}

pub fn pair() -> (Stream, Stream) {
    if is_minimal() {
        let (one, other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        (Box::new(one), Box::new(other))
    } else {
        let (one, other) = net::UnixStream::pair().expect("a pair");
        (Box::new(one), Box::new(other))
    }
}
