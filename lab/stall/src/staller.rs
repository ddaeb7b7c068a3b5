//! A staller: ordinary code that does not use any runtime.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::ops::AddAssign;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo_bench_kit::work::spin;
use rustix::fs::{FlockOperation, flock};

use crate::fault::Pages;
use crate::{LONG_EVERY, LONG_US, PAGE, PAGES, PAUSE_US, Plan, SHORT_US, STALLERS};

#[derive(Debug)]
enum How {
    Read {
        ask: File,
        answer: File,
    },
    Flock {
        ask: File,
        locks: [File; 2],
    },
    Fuse(File),
    Fault {
        quick: Pages,
        slow: Pages,
    },
    /// Computes until the flag is set, without entering the kernel.
    Loop(Arc<AtomicBool>),
}

/// Rounds of [`spin`] between two checks of the flag.
const CHUNK: u32 = 1_000;

/// Code that blocks in the kernel repeatedly.
#[derive(Debug)]
pub struct Staller {
    how: How,
    number: usize,
    turn: u64,
    totals: Totals,
}

/// Totals of stallers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Number of stalls, including long ones. For looping stallers, the number of those that ran.
    pub stalls: u64,
    /// Number of long stalls.
    pub long: u64,
    /// Time in the calls or in the loop, including waits for a processor.
    pub blocked: Duration,
    /// Rounds of [`spin`] in loops.
    pub rounds: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.stalls += other.stalls;
        self.long += other.long;
        self.blocked += other.blocked;
        self.rounds += other.rounds;
    }
}

impl Staller {
    /// Creates staller `number` of a run.
    ///
    /// # Errors
    /// As open(2) or mmap(2) of the peer's files; or if the kind is unknown.
    pub fn open(plan: &Plan, number: usize) -> io::Result<Staller> {
        let place = &plan.place;
        let how = match plan.kind.as_str() {
            "read" | "blocking" => How::Read {
                ask: for_writing(&place.ask(number))?,
                answer: for_reading(&place.answer(number))?,
            },
            "flock" => {
                let [a, b] = place.locks(number);
                How::Flock {
                    ask: for_writing(&place.ask(number))?,
                    locks: [for_reading(&a)?, for_reading(&b)?],
                }
            }
            "fuse" => How::Fuse(for_reading(&place.slow(number))?),
            "fault" => How::Fault {
                quick: Pages::map(&place.pages(), number * PAGES, PAGES)?,
                slow: Pages::map(&place.slow_pages(number), 0, PAGES)?,
            },
            "loop" => {
                if number == 0 {
                    // A kernel thread sets the flag: without preemption, no microprocess would get
                    // to run.
                    let (over, time) = (plan.over.clone(), plan.time);
                    std::thread::spawn(move || {
                        std::thread::sleep(time);
                        over.store(true, Relaxed);
                    });
                }
                How::Loop(plan.over.clone())
            }
            other => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{other}: unknown kind of stall"),
                ));
            }
        };
        // Long stalls of different stallers are staggered.
        let turn = number as u64 * (LONG_EVERY / STALLERS as u64);
        Ok(Staller { how, number, turn, totals: Totals::default() })
    }

    /// Stalls once. Blocks the kernel thread; a loop lasts as long as the run.
    ///
    /// # Panics
    /// If the peer has ended, or a call was interrupted.
    pub fn once(&mut self) {
        if let How::Loop(over) = &self.how {
            self.totals += endless(over);
            return;
        }
        self.turn += 1;
        let long = self.turn.is_multiple_of(LONG_EVERY);
        let us = if long { LONG_US } else { SHORT_US };
        let which = (self.turn % 2) as usize;
        match &mut self.how {
            How::Read { ask, .. } | How::Flock { ask, .. } => {
                ask.write_all(&us.to_le_bytes()).expect("the other side")
            }
            How::Fault { quick, slow } => if long { slow } else { quick }.drop_next(),
            How::Fuse(_) | How::Loop(_) => {}
        }
        let since = Instant::now();
        let mut byte = [0];
        match &mut self.how {
            How::Read { answer, .. } => {
                assert_eq!(answer.read(&mut byte).expect("no EINTR"), 1, "the other side")
            }
            How::Flock { locks, .. } => {
                flock(&locks[which], FlockOperation::LockExclusive).expect("no EINTR")
            }
            How::Fuse(file) => {
                assert_eq!(
                    file.read_at(&mut byte, u64::from(us) * PAGE as u64).expect("no EINTR"),
                    1,
                    "the other side"
                );
            }
            How::Fault { quick, slow } => byte = [if long { slow } else { quick }.touch()],
            How::Loop(_) => {}
        }
        black_box(byte);
        self.totals += Totals { stalls: 1, long: long.into(), blocked: since.elapsed(), rounds: 0 };
        if let How::Flock { locks, .. } = &self.how {
            flock(&locks[which], FlockOperation::Unlock).expect("held");
        }
    }

    /// Time to sleep before the next stall, with the runtime's own sleep.
    #[must_use]
    pub fn pause(&self) -> Option<Duration> {
        matches!(self.how, How::Fault { .. }).then_some(Duration::from_micros(PAUSE_US))
    }

    /// Number of the staller.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Totals so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }
}

/// Computes until `over`, without any call, not even to read the clock.
///
/// # Panics
/// If an interruption changed the result.
fn endless(over: &AtomicBool) -> Totals {
    let since = Instant::now();
    let right = spin(1, CHUNK);
    let (mut chunks, mut wrong) = (0u64, 0u64);
    while !over.load(Relaxed) {
        wrong += u64::from(spin(black_box(1), CHUNK) != right);
        chunks += 1;
    }
    assert_eq!(wrong, 0, "chunks computed wrongly");
    let computed = u64::from(chunks > 0);
    Totals {
        stalls: computed,
        long: computed,
        blocked: since.elapsed(),
        rounds: chunks * u64::from(CHUNK),
    }
}

fn for_reading(path: &Path) -> io::Result<File> {
    File::open(path).map_err(|e| named(path, &e))
}

fn for_writing(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path).map_err(|e| named(path, &e))
}

fn named(path: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_ends_when_the_flag_is_set() {
        let over = Arc::new(AtomicBool::new(true));
        assert_eq!((endless(&over).stalls, endless(&over).rounds), (0, 0));
        over.store(false, Relaxed);
        let other = over.clone();
        let looper = std::thread::spawn(move || endless(&other));
        std::thread::sleep(Duration::from_millis(5));
        over.store(true, Relaxed);
        let totals = looper.join().expect("no panic");
        // On a busy machine, the loop may not have run at all.
        assert_eq!(totals.stalls > 0, totals.rounds > 0);
        assert!(totals.rounds.is_multiple_of(u64::from(CHUNK)));
    }
}
