//! Process-wide handlers: fork, preemption signals, stack overflow and set-id calls.
//!
//! The first runtime of a process installs them, and they stay installed after its end.

use std::io;
use std::sync::{Mutex, PoisonError};

use kumihimo_arch::{cpu, overflow, tls};
use kumihimo_resource::id::Printed;

use crate::kernel_thread::{fork, gs_record};
use crate::lifecycle::thread_attributes;
use crate::process::mode;
use crate::scheduler::{carrier, instance};
use crate::upcall::preempt;

/// Installs the handlers and runs the process-wide self-tests, at the first runtime of a process.
pub(crate) fn install_once() -> io::Result<()> {
    static DONE: Mutex<bool> = Mutex::new(false);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !*done {
        mode::decide()?;
        fork::install(instance::forget);
        preempt::prepare();
        // SAFETY: `describe` is async-signal-safe: it reads atomics of a record that lives for
        // ever.
        unsafe { overflow::install_process_handler(describe) };
        // SAFETY: `recover` is async-signal-safe, and repairs or replaces the page.
        unsafe { overflow::set_bus_recovery(kumihimo_arbiter::board::recover) };
        tls::setxid::set_carrier_fs(gs_record::carrier_fs);
        thread_attributes::install();
        *done = true;
    }
    Ok(())
}

/// Writes name and ID of the microprocess on a slot, for the overflow message. Async-signal-safe.
fn describe(slot_end: usize, out: &mut [u8]) -> usize {
    // A new microprocess may overflow before it is marked as one: the compiler may give the
    // closure's locals to the first function on the stack. So the record is taken from GS, which is
    // set on every kernel thread that runs on a slot.
    let new = (cpu::gs_base() != 0)
        // SAFETY: GS is set.
        .then(|| unsafe { gs_record::running_here() })
        .flatten()
        .filter(|mp| mp.slot_end().addr() == slot_end);
    let Some(mp) = new.or_else(|| carrier::running_on(slot_end)) else { return 0 };
    let mut label = [0u8; 47];
    let n = mp.label(&mut label);
    let mut w = Cut { out, len: 0 };
    use std::fmt::Write;
    let name = std::str::from_utf8(&label[..n]).unwrap_or("?");
    let id = Printed(mp.id());
    let _ = if n == 0 { write!(w, "(no name) (id {id})") } else { write!(w, "'{name}' (id {id})") };
    w.len
}

/// Formats into a buffer without allocating, and truncates what does not fit.
struct Cut<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl std::fmt::Write for Cut<'_> {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let n = s.len().min(self.out.len() - self.len);
        self.out[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}
