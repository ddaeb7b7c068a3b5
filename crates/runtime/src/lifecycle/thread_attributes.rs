//! Answers to the C library functions that the program calls to read or change the attributes of
//! "the calling thread" ([`kumihimo_arch::thread_attributes`]).

use std::io;
use std::sync::atomic::Ordering;

use kumihimo_arch::{signal_mask, thread_attributes, tls};

use crate::kernel_thread::attributes;
use crate::kernel_thread::gs_record::{KernelThread, current_mp};
use crate::memory::pool;
use crate::microprocess::attributes::{Attributes, SignalStack};
use crate::microprocess::record::Mp;
use crate::scheduler::instance;
use crate::upcall::bind;

/// Registers the answers. Called once per process, before the first microprocess runs.
pub(crate) fn install() {
    tls::setxid::set_renewed_mask(attributes::renewed_mask);
    thread_attributes::register(&Answers);
}

struct Answers;

/// Calls `f` with the calling microprocess and its kernel thread, which stay together meanwhile.
/// Returns `None` on a kernel thread that runs no microprocess.
fn with_caller<R>(f: impl FnOnce(&'static Mp, &KernelThread) -> R) -> Option<R> {
    let mp = current_mp()?;
    // SAFETY: a microprocess: GS is set. `f` does not switch.
    let kt = unsafe { KernelThread::begin_guard() };
    let done = f(mp, kt);
    // SAFETY: as above.
    unsafe { kt.end_guard() };
    Some(done)
}

fn number_of(error: &io::Error) -> i32 {
    match error.kind() {
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        _ => error.raw_os_error().unwrap_or(libc::EINVAL),
    }
}

impl thread_attributes::ThreadAttributes for Answers {
    fn is_starting(&self) -> bool {
        // SAFETY: a microprocess: GS is set. It cannot leave the kernel thread while it starts.
        current_mp().is_some() && unsafe { KernelThread::here() }.is_starting.get()
    }

    fn signal_mask(&self, change: &dyn Fn(u64) -> u64) -> Option<u64> {
        let (before, after) = with_caller(|mp, kt| {
            let before = mp.attributes().signal_mask;
            let after = change(before);
            if after != before {
                kt.note_signal_mask(mp, after);
            }
            (before, after)
        })?;
        if after != before {
            // Outside of the guard: a handler of a signal that this unblocks may wait.
            signal_mask::set(after);
        }
        Some(before)
    }

    fn foreign_mask(&self, mask: u64) {
        attributes::note_foreign_change();
        instance::visit(|instance| {
            if let Some(instance) = instance {
                attributes::hold_back(mask, || {
                    let threads = instance.kernel.slots();
                    threads.map(|slot| slot.tid.load(Ordering::SeqCst)).filter(|tid| *tid != 0)
                });
            }
        });
    }

    fn signal_stack(&self, new: Option<libc::stack_t>) -> Option<Result<libc::stack_t, i32>> {
        if new.is_none() && self.is_starting() {
            // std installs a stack of its own unless there is one. Overflows of a microprocess are
            // reported on the stack of its kernel thread.
            return Some(Ok(libc::stack_t {
                ss_sp: std::ptr::null_mut(),
                ss_flags: 0,
                ss_size: 0,
            }));
        }
        with_caller(|mp, kt| {
            let before = mp.attributes().signal_stack;
            if let Some(new) = new {
                let is_end = new.ss_flags & libc::SS_DISABLE != 0;
                let wanted = (!is_end).then(|| SignalStack::of(new));
                if wanted != before {
                    kt.set_signal_stack(mp, wanted).map_err(|error| number_of(&error))?;
                }
            }
            let none = libc::stack_t {
                ss_sp: std::ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: 0,
            };
            Ok(before.map_or(none, |stack| stack.as_seen_from(std::ptr::from_ref(&none).addr())))
        })
    }

    fn nice(&self, new: Option<i32>) -> Option<Result<i32, i32>> {
        let before = with_caller(|mp, _| mp.attributes().nice)?;
        let Some(new) = new.filter(|new| *new != before) else { return Some(Ok(before)) };
        if !bind::is_bound()
            && !attributes::may_lower_nice()
            && let Some(Err(error)) = bind::bind()
        {
            return Some(Err(number_of(&error)));
        }
        with_caller(|mp, kt| {
            let values = Attributes { nice: new, ..mp.attributes() };
            kt.set_scheduling(mp, values).map(|()| new).map_err(|error| number_of(&error))
        })
    }

    fn timer_slack(&self, new: Option<u64>) -> Option<u64> {
        with_caller(|mp, kt| {
            let usual = crate::microprocess::attributes::usual().timer_slack;
            if let Some(new) = new {
                let timer_slack = if new == 0 { usual } else { new };
                let values = Attributes { timer_slack, ..mp.attributes() };
                if values != mp.attributes() {
                    // The nice value is unchanged, so this cannot fail.
                    let _ = kt.set_scheduling(mp, values);
                }
            }
            mp.attributes().timer_slack
        })
    }

    fn foreign_change(&self) {
        attributes::note_foreign_change();
    }

    fn cpu_time(&self) -> Option<u64> {
        with_caller(|mp, kt| kt.cpu_time_of(mp))
    }

    fn cpu_time_of(&self, block: usize) -> Option<u64> {
        living_on(block).and_then(|mp| mp.own_attributes.cpu_clock.read())
    }

    fn set_name(&self, block: usize, name: &[u8]) -> Option<bool> {
        if block == 0 {
            return current_mp().map(|mp| mp.set_thread_name(name)).map(|()| true);
        }
        let mp = living_on(block);
        if let Some(mp) = mp {
            mp.set_thread_name(name);
        }
        Some(mp.is_some())
    }

    fn name(&self, block: usize, out: &mut [u8; 16]) -> Option<usize> {
        let mp = if block == 0 { current_mp() } else { living_on(block) }?;
        Some(mp.thread_name(out))
    }

    fn bind(&self) -> Option<Result<(), i32>> {
        bind::bind().map(|bound| bound.map_err(|error| number_of(&error)))
    }
}

/// Returns the living microprocess with this thread block.
fn living_on(block: usize) -> Option<&'static Mp> {
    if let Some(mp) = current_mp().filter(|mp| mp.fs.get() == block) {
        return Some(mp);
    }
    pool::find(|mp| mp.fs.get() == block && mp.reference().is_alive())
}
