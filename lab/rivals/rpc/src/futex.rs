//! `futex`: both processes map a file in memory. Each caller has a slot, and a kernel thread on
//! either side. `placement=scheduled`: a waiter sleeps on the futex word; `spin`: it polls the
//! word.

use std::fs::File;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::thread;

use kumihimo_bench_kit::rpc::{ANSWER, Answer, Plan, Side, by_threads, serve, until_told};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::while_;

/// Distance between data written by different sides.
const LINE: usize = 128;
/// Size of a slot before its payload: the futex words of the request and of the reply, and the
/// reply, each on a separate cache line.
const HEAD: usize = 3 * LINE;

const EMPTY: u32 = 0;
const FULL: u32 = 1;
/// The slot is empty, and its reader sleeps until it is full.
const AWAITED: u32 = 2;

pub fn run(plan: &Plan) -> Result<(), String> {
    plan.placed(&["scheduled", "spin"])?;
    let path = plan.place.join("memory");
    let file = File::options()
        .read(true)
        .write(true)
        .create(plan.side == Side::Server)
        .truncate(false)
        .open(path);
    let file = file.map_err(while_("the memory"))?;
    if plan.side == Side::Server {
        file.set_len((size(plan) * plan.callers) as u64).map_err(while_("the memory"))?;
    }
    // SAFETY: a new mapping at an address that the kernel chooses.
    let memory = unsafe {
        mmap(
            null_mut(),
            size(plan) * plan.callers,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &file,
            0,
        )
    };
    let memory: *mut u8 = memory.map_err(while_("mmap"))?.cast();
    // SAFETY: within the mapping, which exists as long as the process; aligned, because a size is a
    // multiple of a line.
    let slot = |n: usize| unsafe { Slot(memory.add(n * size(plan))) };
    match plan.side {
        Side::Server => {
            for n in 0..plan.callers {
                let (slot, plan) = (slot(n), plan.clone());
                thread::Builder::new()
                    .stack_size(256 << 10)
                    .spawn(move || slot.answer(&plan))
                    .map_err(while_("a kernel thread"))?;
            }
            println!("ready");
            until_told();
            std::process::exit(0)
        }
        Side::Client => {
            let spin = plan.placement == "spin";
            by_threads(plan, |n| Ok(slot(n)), |slot, payload| Ok(slot.call(payload, spin)))
        }
    }
}

fn size(plan: &Plan) -> usize {
    (HEAD + plan.bytes).next_multiple_of(LINE)
}

/// Address of a slot.
struct Slot(*mut u8);

// SAFETY: one kernel thread of each process uses a slot, and the two take turns by the slot's
// words.
unsafe impl Send for Slot {}

impl Slot {
    fn word(&self, n: usize) -> &AtomicU32 {
        // SAFETY: within the slot and aligned; only accessed atomically.
        unsafe { AtomicU32::from_ptr(self.0.add(n * LINE).cast()) }
    }

    fn answer(&self, plan: &Plan) {
        let spin = plan.placement == "spin";
        loop {
            self.await_full(0, spin);
            // SAFETY: within the slot. The client wrote the payload before it set the word, and
            // waits for the reply.
            let payload = unsafe { std::slice::from_raw_parts(self.0.add(HEAD), plan.bytes) };
            let answer = serve(payload, plan.check).to_bytes();
            // SAFETY: as above.
            unsafe { self.0.add(2 * LINE).cast::<[u8; ANSWER]>().write(answer) };
            self.fill(1);
        }
    }

    fn call(&self, payload: &[u8], spin: bool) -> Answer {
        // SAFETY: within the slot, which is as large as the plan requires. The server reads it only
        // while the word is set.
        unsafe { self.0.add(HEAD).copy_from_nonoverlapping(payload.as_ptr(), payload.len()) };
        self.fill(0);
        self.await_full(1, spin);
        // SAFETY: the server wrote the reply before it set the word.
        Answer::from_bytes(unsafe { self.0.add(2 * LINE).cast::<[u8; ANSWER]>().read() })
    }

    fn fill(&self, n: usize) {
        if self.word(n).swap(FULL, AcqRel) == AWAITED {
            // SAFETY: the word lives as long as the process.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.word(n).as_ptr(),
                    libc::FUTEX_WAKE,
                    1,
                    null::<u8>(),
                    null::<u8>(),
                    0,
                )
            };
        }
    }

    /// Waits until the word is full, and empties it.
    fn await_full(&self, n: usize, spin: bool) {
        let word = self.word(n);
        while word.load(Acquire) != FULL {
            if spin {
                std::hint::spin_loop();
            } else if word.compare_exchange(EMPTY, AWAITED, AcqRel, Acquire) != Err(FULL) {
                // SAFETY: as above. The call returns at once if the word has changed.
                unsafe {
                    libc::syscall(
                        libc::SYS_futex,
                        word.as_ptr(),
                        libc::FUTEX_WAIT,
                        AWAITED,
                        null::<u8>(),
                        null::<u8>(),
                        0,
                    )
                };
            }
        }
        word.store(EMPTY, Relaxed);
    }
}
