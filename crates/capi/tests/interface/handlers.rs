//! Guarantees to handlers: closing waits for them, cancellation is an error number, and each gets
//! its own argument.

use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kumihimo::gate::{ErrorKind, RawGate};
use kumihimo::sync::{mpmc, mpsc};
use kumihimo::thread;
use kumihimo_c::gate::serve::{
    Caller, Reply, Serving, kumi_gate_serve, kumi_reply_set, kumi_reply_unwanted,
    kumi_serving_close,
};
use kumihimo_c::gate::{Gate, kumi_gate_call, kumi_gate_close, kumi_gate_connect};
use kumihimo_c::options::{LAYOUT, RawOptions, kumi_options_init};
use kumihimo_tests::process::{again, is_child};

use crate::place::Place;

/// Time limit of waits; only a hang exceeds it.
const LONG: Duration = Duration::from_secs(30);

/// Runs `f` in a child process with its own run-time directory.
fn alone(test: &str, f: impl FnOnce()) {
    if is_child(test) {
        return f();
    }
    let place = Place::new(test);
    let ended = again(test, &[("KUMI_DIR", place.text())]);
    assert!(ended.status.success(), "{}", ended.told());
}

/// Handler in Rust, whose address is the argument of the C handler.
trait Handle {
    fn handle(&self, reply: *mut Reply) -> c_int;
}

extern "C" fn handle<H: Handle>(
    _: *const c_void,
    _: usize,
    reply: *mut Reply,
    _: *const Caller,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: `serve` passed the handler's address as the argument.
    unsafe { &*arg.cast::<H>() }.handle(reply)
}

/// Serves a gate with a handler that outlives it.
fn serve<H: Handle>(name: &str, threads: u32, handler: &H) -> *mut Serving {
    #[repr(align(16))]
    struct Room([u8; 256]);
    let mut room = Room([0; 256]);
    let options: *mut RawOptions = (&raw mut room.0).cast();
    let at = LAYOUT.2.iter().find(|(name, _)| *name == "threads").expect("a field").1;
    let name = CString::new(name).expect("a name");
    let mut serving = null_mut();
    // SAFETY: the options have enough memory and contain `threads`. All other arguments are valid,
    // the handler until the gate is closed.
    unsafe {
        assert_eq!(kumi_options_init(options, LAYOUT.1), 0);
        options.cast::<u8>().add(at).cast::<u32>().write(threads);
        let arg = std::ptr::from_ref(handler).cast_mut().cast();
        let name = name.as_ptr();
        assert_eq!(kumi_gate_serve(&raw mut serving, name, options, Some(handle::<H>), arg), 0);
    }
    serving
}

/// Handler that reports its start and waits for permission to end.
struct Slow {
    begun: mpsc::Sender<()>,
    may_end: mpmc::Receiver<()>,
    ended: AtomicBool,
}

impl Slow {
    fn new() -> (Slow, mpsc::Receiver<()>, mpmc::Sender<()>) {
        let ((begun, begins), (end, may_end)) = (mpsc::channel(), mpmc::channel());
        (Slow { begun, may_end, ended: AtomicBool::new(false) }, begins, end)
    }
}

impl Handle for Slow {
    fn handle(&self, reply: *mut Reply) -> c_int {
        self.begun.send(()).expect("the test listens");
        // Unlike a C handler, this Rust handler has a cancellation point, which must not unwind.
        let waited = thread::without_cancellation(|| self.may_end.recv_timeout(LONG));
        self.ended.store(waited.is_ok(), Ordering::Release);
        // SAFETY: the pointer that the handler received.
        unsafe { kumi_reply_set(reply, c"late".as_ptr().cast(), 4) }
    }
}

fn close_waits(threads: u32) {
    let (its, begins, end) = Slow::new();
    let serving = serve("slow", threads, &its);
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let mut reply = Vec::new();
            RawGate::connect("slow").and_then(|gate| gate.call(b"", &mut reply)).map(|()| reply)
        });
        begins.recv_timeout(LONG).expect("the handler begins");
        scope.spawn(move || {
            // A gate that is being closed accepts no connections.
            while RawGate::connect("slow").is_ok() {
                std::thread::yield_now();
            }
            end.send(()).expect("the handler waits");
        });
        // SAFETY: from `serve`.
        assert_eq!(unsafe { kumi_serving_close(serving) }, 0);
        assert!(its.ended.load(Ordering::Acquire), "closed before the handler had ended");
        match caller.join().expect("no panic") {
            Ok(reply) => assert_eq!(reply, b"late"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Gone, "{error}"),
        }
    });
}

#[test]
fn closing_waits_for_microprocesses() {
    alone("handlers::closing_waits_for_microprocesses", || close_waits(0));
}

#[test]
fn closing_waits_for_kernel_threads() {
    alone("handlers::closing_waits_for_kernel_threads", || close_waits(2));
}

/// Handler that closes its own gate, whose handle it holds.
struct Own(Mutex<*mut Serving>);

// SAFETY: the interface's handles may be used on any thread.
unsafe impl Sync for Own {}

impl Handle for Own {
    fn handle(&self, _: *mut Reply) -> c_int {
        // SAFETY: the gate is open while a handler runs.
        unsafe { kumi_serving_close(*self.0.lock().unwrap_or_else(PoisonError::into_inner)) }
    }
}

#[test]
fn handler_cannot_close_its_own_gate() {
    alone("handlers::handler_cannot_close_its_own_gate", || {
        for threads in [0, 1] {
            let own = Own(Mutex::new(null_mut()));
            let serving = serve("own", threads, &own);
            *own.0.lock().unwrap_or_else(PoisonError::into_inner) = serving;
            let gate = RawGate::connect("own").expect("it is there");
            for _ in 0..3 {
                let error = gate.call(b"", &mut Vec::new()).expect_err("it would deadlock");
                assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
            }
            // SAFETY: from `serve`, and not called in a handler.
            assert_eq!(unsafe { kumi_serving_close(serving) }, 0);
        }
    });
}

/// Handler that calls another gate and reports the result.
struct Outer {
    gate: *mut Gate,
    got: mpsc::Sender<(c_int, c_int)>,
}

impl Handle for Outer {
    fn handle(&self, reply: *mut Reply) -> c_int {
        // SAFETY: the gate is open.
        let (failed, unwanted) = unsafe {
            let failed = kumi_gate_call(self.gate, null_mut(), 0, null_mut(), -1);
            (failed, kumi_reply_unwanted(reply))
        };
        self.got.send((failed, unwanted)).expect("the test listens");
        failed
    }
}

#[test]
fn cancellation_returns_an_error_number_in_c() {
    alone("handlers::cancellation_returns_an_error_number_in_c", || {
        let (its, begins, end) = Slow::new();
        let inner = serve("slow", 0, &its);
        let (got, gets) = mpsc::channel();
        let mut gate = null_mut();
        let (out, name, limit) = (&raw mut gate, c"slow".as_ptr(), std::ptr::null());
        // SAFETY: all arguments are valid.
        assert_eq!(unsafe { kumi_gate_connect(out, name, limit) }, 0);
        let between = Outer { gate, got };
        let serving = serve("outer", 0, &between);

        let caller = thread::spawn(|| {
            RawGate::connect("outer").and_then(|gate| gate.call(b"", &mut Vec::new()))
        });
        begins.recv_timeout(LONG).expect("the inner handler begins");
        caller.cancel();
        assert!(caller.join().expect_err("it unwinds").is::<thread::Cancelled>());
        assert_eq!(gets.recv_timeout(LONG), Ok((libc::ECANCELED, 1)));

        // A timeout has its own error number; the chain of calls is left to the caller.
        let mut reply = Vec::new();
        let late = RawGate::connect("outer").expect("it is there");
        let error = late
            .call_within(b"", &mut reply, Duration::from_millis(1))
            .expect_err("the inner one does not answer");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        // Each started handler of the inner gate waits for one message.
        for _ in 0..2 {
            end.send(()).expect("they wait");
        }
        // SAFETY: from `serve` and `kumi_gate_connect`; no call is in progress once the handlers
        // have ended.
        unsafe {
            assert_eq!(kumi_serving_close(serving), 0);
            kumi_gate_close(gate);
            assert_eq!(kumi_serving_close(inner), 0);
        }
    });
}
