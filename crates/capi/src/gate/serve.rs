//! Server side of gates.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Instant;

use kumihimo::gate::{Context, Error, RawGate, Region as Shared, Serving as Open};
use kumihimo::sync::mpsc;
use kumihimo::thread;

use crate::error::{Failure, catch_failure, kind};
use crate::gate::bytes::{self, Layout, cleared_out, non_null, non_null_mut};
use crate::gate::region::Region;
use crate::gate::threads::Threads;
use crate::options::{self, RawOptions};

/// `kumi_handler`; NULL is `None`.
pub type Handler = Option<
    unsafe extern "C" fn(
        request: *const c_void,
        length: usize,
        reply: *mut Reply,
        caller: *const Caller,
        arg: *mut c_void,
    ) -> c_int,
>;

/// `kumi_caller`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    size: usize,
    uid: u32,
    pid: u32,
    priority: u32,
    reserved: u32,
    left_ns: u64,
}

impl Caller {
    fn of(context: &Context<'_>) -> Caller {
        let left =
            context.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
        Caller {
            size: size_of::<Caller>(),
            uid: context.uid(),
            pid: context.pid().unwrap_or(0),
            priority: u32::from(context.priority()),
            reserved: 0,
            left_ns: left
                .map_or(u64::MAX, |left| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX - 1)),
        }
    }
}

/// `kumi_reply`: a handler's request and its reply. The pointers are valid while the handler runs.
#[derive(Debug)]
pub struct Reply {
    answer: *mut Vec<u8>,
    context: *const Context<'static>,
    message: Option<String>,
    regions: Vec<Shared>,
}

impl Reply {
    fn answer(&mut self) -> &mut Vec<u8> {
        // SAFETY: `BoundHandler::run` has exclusive access, and lends it for the life of `self`.
        unsafe { &mut *self.answer }
    }

    fn context(&self) -> &Context<'_> {
        // SAFETY: as for `answer`. Other threads only read the context, which is `Sync`.
        unsafe { &*self.context }
    }
}

/// A handler may run on another kernel thread than the one that holds the request.
const _: () = {
    const fn assert_shared<T: Sync>() {}
    assert_shared::<Context<'static>>();
};

/// Handler function with its argument and the gate's name.
pub(crate) struct BoundHandler {
    function:
        unsafe extern "C" fn(*const c_void, usize, *mut Reply, *const Caller, *mut c_void) -> c_int,
    arg: *mut c_void,
    name: Box<str>,
}

// SAFETY: by the interface's contract the function may run on any thread and concurrently, always
// with `arg`.
unsafe impl Send for BoundHandler {}
// SAFETY: as above.
unsafe impl Sync for BoundHandler {}

thread_local! {
    /// Number of the handler that runs on this microprocess or kernel thread; 0 if none.
    static CURRENT_HANDLER: Cell<usize> = const { Cell::new(0) };
}

impl BoundHandler {
    /// Runs the C handler on a request. Nothing unwinds out of it, because the interface's
    /// functions catch panics.
    pub(crate) fn run(
        &self,
        request: &[u8],
        context: &Context<'_>,
        answer: &mut Vec<u8>,
    ) -> Result<Vec<Shared>, Error> {
        let caller = Caller::of(context);
        let mut reply = Reply {
            answer,
            context: std::ptr::from_ref(context).cast(),
            message: None,
            regions: Vec::new(),
        };
        let before = CURRENT_HANDLER.with(|inside| inside.replace(self.number()));
        // SAFETY: the interface's contract; all pointers are valid until the function returns.
        let failed = unsafe {
            (self.function)(
                request.as_ptr().cast(),
                request.len(),
                &raw mut reply,
                &raw const caller,
                self.arg,
            )
        };
        CURRENT_HANDLER.with(|inside| inside.set(before));
        if failed == 0 {
            return Ok(reply.regions);
        }
        let message =
            reply.message.unwrap_or_else(|| std::io::Error::from_raw_os_error(failed).to_string());
        Err(Error::new(
            kind(failed),
            format!("the handler of gate {:?} failed: {message}", self.name),
        ))
    }

    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// `kumi_serving`.
#[derive(Debug)]
pub struct Serving {
    open: Open,
    /// Disconnected once no handler runs or can start.
    ended: mpsc::Receiver<()>,
    handler: usize,
}

/// Serves a gate. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_gate_serve(
    out: *mut *mut Serving,
    name: *const c_char,
    options: *const RawOptions,
    handler: Handler,
    arg: *mut c_void,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let out = unsafe { cleared_out(out) }?;
        // SAFETY: the interface's contract.
        let (name, (options, threads)) =
            unsafe { (bytes::text(name, "the gate's name")?, options::read(options)?) };
        let function = handler.ok_or_else(|| Failure::invalid("handler is NULL"))?;
        let bound = Arc::new(BoundHandler { function, arg, name: name.into() });
        let number = bound.number();
        let (ends, ended) = mpsc::channel::<()>();
        // The last microprocess of the pool drops the closure, and `ends` with it.
        let open = if threads.count == 0 {
            RawGate::serve(name, &options, move |request, context, answer| {
                let _ends = &ends;
                bound.run(request, context, answer)
            })?
        } else {
            let threads = Threads::start(bound, threads.count)?;
            RawGate::serve(name, &options, move |request, context, answer| {
                let _ends = &ends;
                threads.run(request, context, answer)
            })?
        };
        *out = Box::into_raw(Box::new(Serving { open, ended, handler: number }));
        Ok(())
    })
}

/// Closes a gate and waits for its running handlers. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_serving_close(serving: *mut Serving) -> c_int {
    catch_failure(|| {
        if serving.is_null() {
            return Ok(());
        }
        // SAFETY: the interface's contract: from `kumi_gate_serve`, not closed yet.
        if CURRENT_HANDLER.with(Cell::get) == unsafe { non_null(serving, "serving") }?.handler {
            return Err(Failure::new(
                libc::EDEADLK,
                "a handler cannot close its own gate: it would wait for itself",
            ));
        }
        // SAFETY: as above, and the handle is not used any more.
        let Serving { open, ended, .. } = *unsafe { Box::from_raw(serving) };
        // Not cancellable: the C program must keep the handlers' data until they have ended.
        thread::without_cancellation(|| {
            drop(open);
            while ended.recv().is_ok() {}
        });
        Ok(())
    })
}

/// Returns the number of requests handled so far; 0 for NULL. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_serving_handled(serving: *const Serving) -> u64 {
    // SAFETY: the interface's contract.
    unsafe { non_null(serving, "serving") }.map_or(0, |serving| serving.open.handled())
}

/// Sets the reply. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_reply_set(
    reply: *mut Reply,
    data: *const c_void,
    length: usize,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (reply, data) =
            unsafe { (non_null_mut(reply, "reply")?, bytes::slice(data, length, "data")?) };
        let answer = reply.answer();
        answer.clear();
        reserve(answer, length)?;
        answer.extend_from_slice(data);
        Ok(())
    })
}

/// Appends to the reply. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_reply_append(
    reply: *mut Reply,
    data: *const c_void,
    length: usize,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (reply, data) =
            unsafe { (non_null_mut(reply, "reply")?, bytes::slice(data, length, "data")?) };
        reserve(reply.answer(), length)?;
        reply.answer().extend_from_slice(data);
        Ok(())
    })
}

fn reserve(answer: &mut Vec<u8>, more: usize) -> Result<(), Failure> {
    answer
        .try_reserve(more)
        .map_err(|e| Failure::new(libc::ENOMEM, format!("no memory for {more} reply bytes: {e}")))
}

/// Sets the message of a failing handler. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_reply_fail(
    reply: *mut Reply,
    error: c_int,
    message: *const c_char,
) -> c_int {
    // SAFETY: the interface's contract.
    if let Ok(reply) = unsafe { non_null_mut(reply, "reply") }
        && !message.is_null()
    {
        // SAFETY: the interface's contract.
        reply.message = Some(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned());
    }
    // 0 would mean success.
    if error == 0 { libc::EREMOTEIO } else { error }
}

/// Returns whether the caller has ended or given up. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_reply_unwanted(reply: *const Reply) -> c_int {
    // SAFETY: the interface's contract.
    c_int::from(
        unsafe { non_null(reply, "reply") }.is_ok_and(|reply| reply.context().is_cancelled()),
    )
}

/// Returns a region of the request. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_request_region(
    reply: *const Reply,
    index: usize,
    out: *mut *mut Region,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (reply, out) = unsafe { (non_null(reply, "reply")?, cleared_out(out)?) };
        let mut came = reply.context().regions()?;
        if index >= came.len() {
            return Err(Failure::new(
                libc::ERANGE,
                format!("no region {index}: the request has {}", came.len()),
            ));
        }
        *out = Region::sealed(came.swap_remove(index));
        Ok(())
    })
}

/// Passes a region with the reply. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_reply_region(reply: *mut Reply, region: *const Region) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (reply, region) =
            unsafe { (non_null_mut(reply, "reply")?, non_null(region, "region")?.shared()?) };
        reply.regions.push(region);
        Ok(())
    })
}

/// Name, size, and names and offsets of the fields, which a test compares with the header.
#[doc(hidden)]
pub const LAYOUT: Layout = (
    "kumi_caller",
    size_of::<Caller>(),
    &[
        ("size", offset_of!(Caller, size)),
        ("uid", offset_of!(Caller, uid)),
        ("pid", offset_of!(Caller, pid)),
        ("priority", offset_of!(Caller, priority)),
        ("reserved", offset_of!(Caller, reserved)),
        ("left_ns", offset_of!(Caller, left_ns)),
    ],
);
