//! Credentials, capabilities, namespaces and filters of the calling thread, and `prctl`, which sets
//! attributes of many kinds.
//!
//! setuid(2) and its like are not here: the C library applies them to all threads of the process
//! (nptl(7)). setfsuid(2), setfsgid(2) and capset(2) change one kernel thread.
//!
//! Sources: setfsuid(2), setfsgid(2), capset(2), unshare(2), setns(2), personality(2), pkeys(7),
//! prctl(2).

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use super::{call, call_bound, failed, runtime};

/// Replaces setfsuid(2). -1 only reads the present value.
#[unsafe(no_mangle)]
pub extern "C" fn setfsuid(id: libc::uid_t) -> c_int {
    set_unless_query(libc::SYS_setfsuid, id)
}

/// Replaces setfsgid(2). -1 only reads the present value.
#[unsafe(no_mangle)]
pub extern "C" fn setfsgid(id: libc::gid_t) -> c_int {
    set_unless_query(libc::SYS_setfsgid, id)
}

fn set_unless_query(number: libc::c_long, id: u32) -> c_int {
    let arguments = [id as usize, 0, 0, 0, 0, 0];
    // SAFETY: integers only.
    unsafe {
        (if id == u32::MAX { call(number, arguments) } else { call_bound(number, arguments) })
            as c_int
    }
}

/// Replaces capset(2).
///
/// # Safety
/// Same requirements as capset(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn capset(header: *mut c_void, data: *const c_void) -> c_int {
    let arguments = [header.expose_provenance(), data.expose_provenance(), 0, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { call_bound(libc::SYS_capset, arguments) as c_int }
}

/// Replaces unshare(2).
#[unsafe(no_mangle)]
pub extern "C" fn unshare(what: c_int) -> c_int {
    // SAFETY: integers only.
    unsafe { call_bound(libc::SYS_unshare, [what as usize, 0, 0, 0, 0, 0]) as c_int }
}

/// Replaces setns(2).
#[unsafe(no_mangle)]
pub extern "C" fn setns(namespace: c_int, kind: c_int) -> c_int {
    let arguments = [namespace as usize, kind as usize, 0, 0, 0, 0];
    // SAFETY: integers only.
    unsafe { call_bound(libc::SYS_setns, arguments) as c_int }
}

/// Replaces personality(2). `0xffffffff` only reads the present value.
#[unsafe(no_mangle)]
pub extern "C" fn personality(persona: c_ulong) -> c_int {
    set_unless_query(libc::SYS_personality, persona as u32)
}

/// Replaces pkey_set(3), which writes a register of the calling thread (PKRU on x86_64). Fails with
/// ENOSYS on an architecture whose register a switch does not keep.
#[unsafe(no_mangle)]
pub extern "C" fn pkey_set(key: c_int, rights: c_uint) -> c_int {
    if !(0..16).contains(&key) || rights > 3 {
        return failed(libc::EINVAL) as c_int;
    }
    if let Some(Err(error)) = runtime().and_then(|runtime| runtime.bind()) {
        return failed(error) as c_int;
    }
    // SAFETY: checked above. Programs call this function only where pkey_alloc(2) has succeeded.
    if !unsafe { crate::cpu::set_protection_key(key.cast_unsigned(), rights) } {
        return failed(libc::ENOSYS) as c_int;
    }
    0
}

/// Options of prctl(2) that change the calling kernel thread in a way that is not reset when
/// another microprocess runs there.
fn binds(option: c_int, first: c_ulong) -> bool {
    // prctl(2); absent from the libc crate.
    const SET_SPECULATION_CTRL: c_int = 53;
    const SET_IO_FLUSHER: c_int = 57;
    const SET_SYSCALL_USER_DISPATCH: c_int = 59;
    const SCHED_CORE: c_int = 62;
    /// `PR_SCHED_CORE_GET`.
    const GET: c_ulong = 0;
    match option {
        libc::PR_SET_NO_NEW_PRIVS
        | libc::PR_SET_SECCOMP
        | libc::PR_CAPBSET_DROP
        | libc::PR_SET_SECUREBITS
        | libc::PR_SET_KEEPCAPS
        | SET_SPECULATION_CTRL
        | libc::PR_SET_TSC
        | libc::PR_MCE_KILL
        | SET_IO_FLUSHER
        | SET_SYSCALL_USER_DISPATCH => true,
        libc::PR_CAP_AMBIENT => first != libc::PR_CAP_AMBIENT_IS_SET as c_ulong,
        SCHED_CORE => first != GET,
        _ => false,
    }
}

/// Replaces prctl(2).
///
/// # Safety
/// Same requirements as prctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    first: c_ulong,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
) -> c_int {
    let runtime = runtime();
    let arguments =
        [option as usize, first as usize, second as usize, third as usize, fourth as usize, 0];
    match (option, runtime) {
        (libc::PR_SET_TIMERSLACK, Some(runtime)) => {
            if runtime.timer_slack(Some(first)).is_some() {
                return 0;
            }
            runtime.foreign_change();
        }
        (libc::PR_GET_TIMERSLACK, Some(runtime)) => {
            if let Some(slack) = runtime.timer_slack(None) {
                return c_int::try_from(slack).unwrap_or(c_int::MAX);
            }
        }
        (libc::PR_SET_NAME, Some(runtime)) => {
            // SAFETY: the caller passes a string. The kernel reads 15 bytes at most.
            let name = unsafe { name_at(first) };
            if runtime.set_name(0, name) == Some(true) {
                return 0;
            }
        }
        (libc::PR_GET_NAME, Some(runtime)) => {
            let mut name = [0; 16];
            if runtime.name(0, &mut name).is_some() {
                let to = std::ptr::with_exposed_provenance_mut::<[u8; 16]>(first as usize);
                // SAFETY: the caller passes 16 bytes.
                unsafe { to.write_unaligned(name) };
                return 0;
            }
        }
        _ if binds(option, first) => {
            // SAFETY: the caller's promise.
            return unsafe { call_bound(libc::SYS_prctl, arguments) as c_int };
        }
        _ => {}
    }
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_prctl, arguments) as c_int }
}

/// The string at `address`, cut to the 15 bytes that the kernel keeps.
///
/// # Safety
/// A string, terminated or at least 15 bytes long, is there.
unsafe fn name_at<'a>(address: c_ulong) -> &'a [u8] {
    let at = std::ptr::with_exposed_provenance::<c_char>(address as usize);
    // SAFETY: the caller's promise.
    unsafe {
        let length = libc::strnlen(at, 15);
        std::slice::from_raw_parts(at.cast::<u8>(), length)
    }
}
