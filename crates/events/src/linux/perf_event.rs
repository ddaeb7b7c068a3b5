//! Opens software events by perf_event_open(2). Neither libc nor rustix provides a wrapper.

use std::io;
use std::os::fd::FromRawFd;

use kumihimo_arch::descriptor::Descriptor;

use crate::linux::watch::Tid;

/// The parameters of a software event. Fields that are zero have no effect.
#[derive(Default)]
pub(crate) struct Software {
    /// The counted event, such as [`TASK_CLOCK`].
    pub(crate) config: u64,
    /// The number of events after which the event overflows.
    pub(crate) period: u64,
    pub(crate) flags: u64,
    /// With [`WATERMARK`]: the descriptor becomes readable when this many bytes are in the buffer.
    pub(crate) wakeup_watermark: u32,
    /// With [`SIGTRAP`]: the `si_perf_data` of the signal.
    pub(crate) sig_data: u64,
}

/// `struct perf_event_attr` up to `sig_data` (PERF_ATTR_SIZE_VER7, Linux 5.13).
///
/// An older kernel accepts the longer structure if the fields that it does not have are zero
/// (kernel/events/core.c, `perf_copy_attr`).
#[repr(C)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    unused: [u64; 8],
    sig_data: u64,
}
const _: () = assert!(size_of::<Attr>() == 128);

/// Values of [`Software::config`].
pub(crate) const TASK_CLOCK: u64 = 1;
pub(crate) const CONTEXT_SWITCHES: u64 = 3;
pub(crate) const DUMMY: u64 = 9;

/// Bits of [`Software::flags`].
pub(crate) const DISABLED: u64 = 1;
pub(crate) const EXCLUDE_KERNEL: u64 = 1 << 5;
pub(crate) const EXCLUDE_HV: u64 = 1 << 6;
pub(crate) const WATERMARK: u64 = 1 << 14;
pub(crate) const CONTEXT_SWITCH: u64 = 1 << 26;
pub(crate) const REMOVE_ON_EXEC: u64 = 1 << 36;
pub(crate) const SIGTRAP: u64 = 1 << 37;

/// Opens the event on kernel thread `tid` (0: the caller) on any core, in no group.
///
/// # Errors
/// Those of perf_event_open(2).
pub(crate) fn open(event: Software, tid: Tid) -> io::Result<Descriptor> {
    const PERF_TYPE_SOFTWARE: u32 = 1;
    const FD_CLOEXEC: u64 = 1 << 3;
    let attr = Attr {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<Attr>() as u32,
        config: event.config,
        period: event.period,
        sample_type: 0,
        read_format: 0,
        flags: event.flags,
        wakeup_watermark: event.wakeup_watermark,
        bp_type: 0,
        unused: [0; 8],
        sig_data: event.sig_data,
    };
    let (any_core, no_group) = (-1i64, -1i64);
    // SAFETY: `attr` lives through the call and states its own size.
    let fd = unsafe {
        kumihimo_arch::call!(
            libc::SYS_perf_event_open,
            &raw const attr,
            i64::from(tid),
            any_core,
            no_group,
            FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { Descriptor::from_raw_fd(fd as i32) })
}
