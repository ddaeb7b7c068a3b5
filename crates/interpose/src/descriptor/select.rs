//! select(2).

use std::ffi::c_int;
use std::time::{Duration, Instant};

use kumihimo_runtime::park;
use kumihimo_runtime::readiness::Interest;
use libc::{fd_set, timeval};

use crate::descriptor::poll::{Chance, Several};
use crate::failed;
use crate::real::libc;
use crate::signal::cancel;
use crate::signal::section::Section;
use crate::time::deadline::Deadline;

/// The words of a set with `FD_SETSIZE` bits.
const WORDS: usize = libc::FD_SETSIZE / 64;

/// The sets of a call; null where the program passes none. Their memory has the words for the bits
/// of the call, and not always more: the kernel reads and writes that many (select(2)).
struct Sets {
    all: [*mut fd_set; 3],
    words: usize,
}

impl Sets {
    fn save(&self) -> [[u64; WORDS]; 3] {
        self.all.map(|set| {
            let mut copy = [0; WORDS];
            if !set.is_null() {
                // SAFETY: the caller's promise: a set with these words.
                unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(set.cast(), self.words) };
            }
            copy
        })
    }

    fn restore(&self, saved: &[[u64; WORDS]; 3]) {
        for (set, saved) in self.all.iter().zip(saved) {
            if !set.is_null() {
                // SAFETY: as above.
                unsafe { saved.as_ptr().copy_to_nonoverlapping(set.cast(), self.words) };
            }
        }
    }
}

/// What to wait for: each descriptor of the sets and a direction.
fn awaited(saved: &[[u64; WORDS]; 3], numbers: c_int) -> impl Iterator<Item = (c_int, Interest)> {
    let directions = [Interest::Read, Interest::Write, Interest::Read];
    saved.iter().zip(directions).flat_map(move |(set, interest)| {
        let is_set = |fd: &c_int| set[*fd as usize / 64] & 1 << (*fd % 64) != 0;
        (0..numbers).filter(is_set).map(move |fd| (fd, interest))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_select(
    numbers: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    special: *mut fd_set,
    time: *mut timeval,
) -> c_int {
    // SAFETY: the caller's promise.
    cancel::around(|| unsafe { select(numbers, read, write, special, time) })
}

/// # Safety
/// As select(2).
unsafe fn select(
    numbers: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    special: *mut fd_set,
    time: *mut timeval,
) -> c_int {
    // SAFETY: the caller's promise.
    let real = |time: *mut timeval| unsafe { libc::select(numbers, read, write, special, time) };
    // SAFETY: as above.
    let wanted = unsafe { time.as_ref() }.copied();
    let is_look = wanted.is_some_and(|time| time.tv_sec == 0 && time.tv_usec == 0);
    // The kernel takes more numbers than a set has room for, in longer memory.
    if is_look || !park::may_switch() || !(0..=libc::FD_SETSIZE as c_int).contains(&numbers) {
        return real(time);
    }
    let length = match wanted {
        None => None,
        // The kernel takes more than a million microseconds, and carries them over.
        Some(time) => match (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec)) {
            (Ok(seconds), Ok(microseconds)) => Some(
                Duration::from_secs(seconds).saturating_add(Duration::from_micros(microseconds)),
            ),
            _ => return failed(libc::EINVAL),
        },
    };
    let deadline = length.map_or(Deadline::Never, Deadline::after);
    let begun = Instant::now();
    let words = (numbers as usize).div_ceil(64);
    let sets = Sets { all: [read, write, special], words };
    let saved = sets.save();
    let section = Section::enter();
    let mut none = timeval { tv_sec: 0, tv_usec: 0 };
    let Some(mut several) = Several::new(awaited(&saved, numbers)) else {
        drop(section);
        return real(time);
    };
    let done = loop {
        several.note();
        match real(&raw mut none) {
            0 if deadline.has_passed() => break 0,
            0 => sets.restore(&saved),
            done => break done,
        }
        match several.wait(deadline) {
            Chance::Look => {}
            Chance::Interrupted => break failed(libc::EINTR),
            Chance::None => {
                drop(section);
                return real(time);
            }
        }
    };
    if let (Some(length), false) = (length, time.is_null()) {
        // Linux leaves what is left of the time there (select(2)).
        let left = length.saturating_sub(begun.elapsed());
        // SAFETY: the caller's promise.
        unsafe {
            (*time).tv_sec = left.as_secs().cast_signed();
            (*time).tv_usec = left.subsec_micros().into();
        }
    }
    done
}
