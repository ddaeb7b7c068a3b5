//! Events where nothing is allowed: a look at each carrying kernel thread, now and then.
//!
//! Only one whose CPU clock stands still while its slot is open costs more: a look at its state in /proc (proc_pid_stat(5)).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::page::Page;
use crate::refused::Refused;
use crate::source::{EventSource, Kind};

/// Between two looks while a virtual processor is in user code.
const PERIOD: Duration = Duration::from_micros(100);
/// Between two looks while none is, at most.
const LONGEST: Duration = Duration::from_millis(1);

/// The source that looks.
#[derive(Debug, Default)]
pub struct Watch {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    carriers: Vec<u32>,
    /// CPU time at the last look, by slot.
    seen: HashMap<u32, u64>,
    period: Duration,
}

impl Watch {
    /// Of no kernel threads yet.
    ///
    /// # Errors
    /// There is no /proc to look at.
    pub fn new() -> Result<Watch, Refused> {
        // SAFETY: takes nothing, cannot fail.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        if state_of(tid).is_none() || cpu_time(tid).is_none() {
            return Err(Refused::new("/proc/self/task cannot be read", "mount -t proc proc /proc"));
        }
        Ok(Watch::default())
    }
}

impl EventSource for Watch {
    fn kind(&self) -> Kind {
        Kind::Watch
    }

    fn looks(&self) -> bool {
        true
    }

    fn begin(&self, index: u32, _epoll: std::os::fd::BorrowedFd<'_>) -> std::io::Result<()> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).carriers.push(index);
        Ok(())
    }

    fn end(&self, index: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.carriers.retain(|i| *i != index);
        state.seen.remove(&index);
    }

    fn look(&self, page: &Page, blocked: &mut dyn FnMut(u32)) -> Option<Duration> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { carriers, seen, period } = &mut *state;
        let mut open = false;
        let mut asleep = Vec::new();
        for index in carriers.iter().copied() {
            let slot = page.slot(index);
            if !slot.is_open() {
                seen.remove(&index);
                continue;
            }
            open = true;
            let tid = slot.tid.load(std::sync::atomic::Ordering::Relaxed);
            let Some(now) = cpu_time(tid) else { continue };
            if seen.insert(index, now) == Some(now) && matches!(state_of(tid), Some(b'S' | b'D')) {
                asleep.push(index);
            }
        }
        *period = if open { PERIOD } else { (*period * 2).clamp(PERIOD, LONGEST) };
        let pause = *period;
        drop(state);
        asleep.into_iter().for_each(blocked);
        Some(pause)
    }
}

/// Nanoseconds that kernel thread `tid` of this process has run; none if it has ended.
#[must_use]
pub fn cpu_time(tid: u32) -> Option<u64> {
    // CPUCLOCK_SCHED of one thread (include/linux/posix-timers.h): what pthread_getcpuclockid makes.
    let clock = (!(tid as i32) << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live timespec.
    (unsafe { libc::clock_gettime(clock, &mut time) } == 0)
        .then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The state letter of kernel thread `tid` of this process. Allocates nothing: for signal handlers too.
#[must_use]
pub fn state_of(tid: u32) -> Option<u8> {
    let mut path = [0u8; 40];
    {
        use std::io::Write;
        write!(&mut path[..39], "/proc/self/task/{tid}/stat").ok()?;
    }
    // SAFETY: a terminated path.
    let fd = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    let mut text = [0u8; 96];
    // SAFETY: room for as many bytes; our own descriptor.
    let n = unsafe {
        let n = libc::read(fd, text.as_mut_ptr().cast(), text.len());
        libc::close(fd);
        n
    };
    // The name, in parentheses, may hold anything; the state follows the last one.
    let text = &text[..usize::try_from(n).ok()?];
    text.iter().rposition(|b| *b == b')').and_then(|at| text.get(at + 2)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::sync::mpsc;

    #[test]
    fn one_that_reads_an_empty_pipe_sleeps_and_one_that_computes_does_not() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: takes nothing, cannot fail.
            let me = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
            assert_eq!(state_of(me), Some(b'R'));
            tell.send(me).expect("it listens");
            reader.read_to_end(&mut Vec::new()).expect("the end")
        });
        let other = told.recv().expect("it tells");
        while state_of(other) != Some(b'S') {
            std::thread::yield_now();
        }
        let still = cpu_time(other).expect("alive");
        assert_eq!(cpu_time(other), Some(still));
        drop(writer);
        thread.join().expect("no panic");
        assert_eq!(state_of(other), None);
    }
}
