//! Client side of gates. [`serve`] is the server side; [`bytes`] and [`region`] are what a call
//! passes.

pub mod bytes;
pub mod region;
pub mod serve;
mod threads;

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use kumihimo::gate::{RawGate, Region as Shared};
use kumihimo::thread;

use crate::error::{Failure, catch_failure};
use crate::gate::bytes::{Bytes, cleared_out, non_null, non_null_mut};
use crate::gate::region::Region;
use crate::options::{self, RawOptions};

/// `kumi_gate`.
#[derive(Debug)]
pub struct Gate(RawGate);

/// Connects to a gate. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_gate_connect(
    out: *mut *mut Gate,
    name: *const c_char,
    options: *const RawOptions,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let out = unsafe { cleared_out(out) }?;
        // SAFETY: the interface's contract.
        let (name, options) =
            unsafe { (bytes::text(name, "the gate's name")?, options::read(options)?.0) };
        let gate = RawGate::connect_with(name, &options)?;
        *out = Box::into_raw(Box::new(Gate(gate)));
        Ok(())
    })
}

/// Calls a gate. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_gate_call(
    gate: *const Gate,
    request: *const c_void,
    length: usize,
    reply: *mut Bytes,
    timeout_ns: i64,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (gate, request) =
            unsafe { (non_null(gate, "gate")?, bytes::slice(request, length, "request")?) };
        // SAFETY: the interface's contract.
        unsafe {
            fill(reply, |answer| match u64::try_from(timeout_ns) {
                Ok(time) => gate.0.call_within(request, answer, Duration::from_nanos(time)),
                // A negative timeout means no limit.
                Err(_) => gate.0.call(request, answer),
            })
        }
    })
}

/// Runs a call that fills `reply`. NULL discards the reply.
///
/// # Safety
/// `reply` follows the contract of `kumi_bytes` in kumihimo.h.
unsafe fn fill<R>(
    reply: *mut Bytes,
    call: impl FnOnce(&mut Vec<u8>) -> Result<R, kumihimo::gate::Error>,
) -> Result<R, Failure> {
    if reply.is_null() {
        return Ok(call(&mut Vec::new())?);
    }
    // SAFETY: the caller's contract.
    let reply = unsafe { non_null_mut(reply, "reply") }?;
    // SAFETY: the caller's contract. If the call unwinds, `reply` is empty and the buffer is freed.
    let mut answer = unsafe { reply.take() }?;
    answer.clear();
    let done = call(&mut answer);
    if done.is_err() {
        answer.clear();
    }
    reply.put(answer);
    Ok(done?)
}

/// Calls a gate with regions. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_gate_call_regions(
    gate: *const Gate,
    request: *const c_void,
    length: usize,
    regions: *const *const Region,
    count: usize,
    reply: *mut Bytes,
    back: *mut *mut Region,
    back_count: *mut usize,
    timeout_ns: i64,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (gate, request) =
            unsafe { (non_null(gate, "gate")?, bytes::slice(request, length, "request")?) };
        // SAFETY: the interface's contract.
        let passed = unsafe { region::listed(regions, count) }?;
        if back.is_null() != back_count.is_null() || !back.is_aligned() || !back_count.is_aligned()
        {
            return Err(Failure::invalid("back and back_count: both or neither, aligned"));
        }
        // SAFETY: the interface's contract: NULL, or the size of `back`.
        let room = unsafe { back_count.as_ref() }.copied().unwrap_or(0);
        if !back_count.is_null() {
            // SAFETY: as above. No region has been received yet.
            unsafe { *back_count = 0 };
        }
        // SAFETY: the interface's contract.
        let received: Vec<Shared> = unsafe {
            fill(reply, |answer| match u64::try_from(timeout_ns) {
                Ok(time) => {
                    gate.0.call_with_within(request, &passed, answer, Duration::from_nanos(time))
                }
                // A negative timeout means no limit.
                Err(_) => gate.0.call_with(request, &passed, answer),
            })
        }?;
        for (i, region) in received.into_iter().take(room).enumerate() {
            // SAFETY: the interface's contract: `back` has `room` places.
            unsafe {
                back.add(i).write(Region::sealed(region));
                *back_count = i + 1;
            }
        }
        Ok(())
    })
}

/// Sends a request without a reply. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_gate_send(
    gate: *const Gate,
    request: *const c_void,
    length: usize,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (gate, request) =
            unsafe { (non_null(gate, "gate")?, bytes::slice(request, length, "request")?) };
        Ok(gate.0.send(request)?)
    })
}

/// Closes a connection; NULL has no effect. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_gate_close(gate: *mut Gate) {
    catch_failure(|| {
        if !gate.is_null() {
            // SAFETY: the interface's contract: from `kumi_gate_connect`, and not used any more.
            let gate = unsafe { Box::from_raw(gate) };
            thread::without_cancellation(|| drop(gate));
        }
        Ok(())
    });
}
