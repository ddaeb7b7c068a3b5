//! `kumi_options`: a structure that later versions may extend. Its user passes the size with which
//! it was compiled.

use std::mem::{MaybeUninit, offset_of, size_of};
use std::time::Duration;

use kumihimo::gate::{Options, Placement};

use crate::error::Failure;
use crate::gate::bytes::Layout;
use crate::sized::{self, MOST, Sized};

/// `KUMI_ALLOW_EVERYBODY`: every user may call.
pub const ALLOW_EVERYBODY: u32 = 1;
/// `KUMI_NO_INHERITANCE`: handlers run at the server's priority.
pub const NO_INHERITANCE: u32 = 2;

/// `kumi_options`. The default of a field is 0, and -1 for the priority.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawOptions {
    size: usize,
    in_flight: u32,
    inline_bytes: u32,
    largest: u64,
    handlers: u32,
    threads: u32,
    placement: u32,
    priority: i32,
    flags: u32,
    reserved: u32,
    patience_ns: u64,
    allow: *const u32,
    allow_count: usize,
}

/// Maximum number of users that a gate can allow by name.
const MOST_ALLOWED: usize = 4096;

/// Options for handlers that the gate itself does not receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandlerThreads {
    /// Number of kernel threads that run handlers; 0 if microprocesses run them.
    pub(crate) count: usize,
}

// SAFETY: as the trait requires. The users are read by `options`.
unsafe impl Sized for RawOptions {
    const LEAST: usize = offset_of!(RawOptions, allow_count) + size_of::<usize>();
    const INITIALISED_BY: &'static str = "KUMI_OPTIONS_INIT, or call kumi_options_init";

    fn defaults() -> RawOptions {
        // SAFETY: the fields are integers and a pointer, for which all zeroes are valid.
        let zero: RawOptions = unsafe { MaybeUninit::zeroed().assume_init() };
        RawOptions { size: size_of::<RawOptions>(), priority: -1, ..zero }
    }
}

impl RawOptions {
    /// # Safety
    /// `allow` points to `allow_count` users, unless that is 0.
    unsafe fn options(&self) -> Result<(Options, HandlerThreads), Failure> {
        let mut options = Options::new();
        if self.in_flight != 0 {
            options = options.in_flight(self.in_flight);
        }
        if self.inline_bytes != 0 {
            options = options.inline(self.inline_bytes);
        }
        if self.largest != 0 {
            options = options.largest(usize::try_from(self.largest).unwrap_or(usize::MAX));
        }
        if self.threads > 1024 {
            return Err(Failure::invalid(format!(
                "{} kernel threads for handlers: at most 1,024 are allowed",
                self.threads
            )));
        }
        match (self.handlers, self.threads) {
            (0, 0) => {}
            // Twice as many, so that the next request is ready when a thread finishes its handler.
            (0, threads) => options = options.handlers(2 * threads as usize),
            (handlers, _) => options = options.handlers(handlers as usize),
        }
        options = options.placement(match self.placement {
            0 => Placement::Adaptive,
            1 => Placement::Handoff,
            2 => Placement::Scheduled,
            3 => Placement::Spin,
            other => {
                return Err(Failure::invalid(format!(
                    "placement {other}: expected a value of enum kumi_placement"
                )));
            }
        });
        match self.priority {
            -1 => {}
            priority @ 0..=63 => options = options.priority(priority as u8),
            other => {
                return Err(Failure::invalid(format!("priority {other}: expected 0 to 63, or -1")));
            }
        }
        if self.flags & !(ALLOW_EVERYBODY | NO_INHERITANCE) != 0 || self.reserved != 0 {
            return Err(Failure::invalid(format!(
                "flags {:#x}: an unknown flag is set, or `reserved` is not 0",
                self.flags
            )));
        }
        if self.flags & ALLOW_EVERYBODY != 0 {
            options = options.allow_everybody();
        }
        options = options.inherit(self.flags & NO_INHERITANCE == 0);
        if self.patience_ns != 0 {
            options = options.patience(Duration::from_nanos(self.patience_ns));
        }
        if self.allow_count > MOST_ALLOWED {
            return Err(Failure::invalid(format!(
                "{} users to allow: at most {MOST_ALLOWED} are allowed",
                self.allow_count
            )));
        }
        if self.allow_count != 0 {
            if self.allow.is_null() || !self.allow.is_aligned() {
                return Err(Failure::invalid(
                    "allow is NULL or not aligned, but allow_count is not 0",
                ));
            }
            // SAFETY: by the interface's contract `allow_count` users exist.
            let allowed = unsafe { std::slice::from_raw_parts(self.allow, self.allow_count) };
            options = allowed.iter().fold(options, |options, uid| options.allow(*uid));
        }
        Ok((options, HandlerThreads { count: self.threads as usize }))
    }
}

/// Reads `options`; NULL means all defaults.
///
/// # Safety
/// `options` is NULL, or points to as many bytes as its first field states.
pub(crate) unsafe fn read(
    options: *const RawOptions,
) -> Result<(Options, HandlerThreads), Failure> {
    if options.is_null() {
        return Ok((Options::new(), HandlerThreads::default()));
    }
    // SAFETY: the caller's contract.
    unsafe { sized::read(options)?.options() }
}

/// Sets `options` to the defaults. `size` is `sizeof(kumi_options)` of the caller's header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_options_init(options: *mut RawOptions, size: usize) -> i32 {
    crate::error::catch_failure(|| {
        if options.is_null() || !options.is_aligned() {
            return Err(Failure::invalid("options is NULL or not aligned"));
        }
        if !(RawOptions::LEAST..=MOST).contains(&size) {
            return Err(Failure::invalid(format!(
                "options of {size} bytes: pass sizeof(kumi_options)"
            )));
        }
        let new = RawOptions { size, ..RawOptions::defaults() };
        // SAFETY: by the interface's contract `options` has `size` bytes. At most this version's
        // size is copied, and the rest is zero.
        unsafe {
            options.cast::<u8>().write_bytes(0, size);
            std::ptr::copy_nonoverlapping(
                (&raw const new).cast::<u8>(),
                options.cast(),
                size.min(size_of::<RawOptions>()),
            );
        }
        Ok(())
    })
}

/// Name, size, and names and offsets of the fields, which a test compares with the header.
#[doc(hidden)]
pub const LAYOUT: Layout = (
    "kumi_options",
    size_of::<RawOptions>(),
    &[
        ("size", offset_of!(RawOptions, size)),
        ("in_flight", offset_of!(RawOptions, in_flight)),
        ("inline_bytes", offset_of!(RawOptions, inline_bytes)),
        ("largest", offset_of!(RawOptions, largest)),
        ("handlers", offset_of!(RawOptions, handlers)),
        ("threads", offset_of!(RawOptions, threads)),
        ("placement", offset_of!(RawOptions, placement)),
        ("priority", offset_of!(RawOptions, priority)),
        ("flags", offset_of!(RawOptions, flags)),
        ("reserved", offset_of!(RawOptions, reserved)),
        ("patience_ns", offset_of!(RawOptions, patience_ns)),
        ("allow", offset_of!(RawOptions, allow)),
        ("allow_count", offset_of!(RawOptions, allow_count)),
    ],
);
