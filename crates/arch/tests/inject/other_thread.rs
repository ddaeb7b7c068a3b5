//! A microprocess that continues on another kernel thread during the injected call.

use super::*;

static WANDERER: AtomicPtr<Fire> = AtomicPtr::new(std::ptr::null_mut());
/// While set, the microprocess is not interrupted, because it is suspended or about to be. Like the
/// runtime's mask, it is set in the handler, and cleared when the microprocess runs again with its
/// own FS.
static MASKED: AtomicBool = AtomicBool::new(true);
static TURN: AtomicUsize = AtomicUsize::new(0);

/// Handles the signal as `on_signal` does, but uses no thread-local variable, because FS may belong
/// to the carrier or to the microprocess.
extern "C" fn on_signal_to_carrier(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    clear_ac();
    let fire = WANDERER.load(Acquire);
    // SAFETY: the test keeps the record at its address; the context is the kernel's.
    unsafe {
        let context = context.cast::<ucontext_t>();
        if interrupted_on(context, (*fire).stack.clone())
            && !MASKED.load(Acquire)
            && inject(context, wander, (*fire).stack.start).is_ok()
        {
            MASKED.store(true, Release);
            (*fire).injected.fetch_add(1, Relaxed);
        }
    }
}

/// Returns to the carrier; the other carrier resumes the microprocess.
extern "C" fn wander() {
    // SAFETY: set before the microprocess first runs.
    unsafe { (*WANDERER.load(Acquire)).begun.fetch_add(1, Relaxed) };
    harness::pause();
    MASKED.store(false, Release);
}

#[test]
fn interrupted_microprocess_continues_on_another_kernel_thread() {
    needs_context!();
    needs_blocks!();
    const NAME: &str = "other_thread::interrupted_microprocess_continues_on_another_kernel_thread";
    again::alone(NAME, || {
        const EACH: u64 = 1000;
        inject::prepare();
        handle(libc::SIGUSR1, on_signal_to_carrier, libc::SA_ONSTACK);
        let mut micro = Micro::new(256 << 10, || {
            // SAFETY: set before this code runs, never freed.
            let fire = unsafe { &*WANDERER.load(Acquire) };
            let me = harness::current();
            MASKED.store(false, Release);
            whole_numbers(fire, EACH);
            floating_point(fire, EACH);
            if wide() == 2 {
                vectors(fire, EACH, hold::zmm, 8);
            }
            until(fire, EACH, |_| {
                assert_eq!(black_box(harness::current as fn() -> _)(), me, "its own variables")
            });
            MASKED.store(true, Release);
        });
        WANDERER.store(
            Box::into_raw(Box::new(Fire::new(micro.lo as usize..micro.hi as usize, wander))),
            Release,
        );
        let ended = AtomicBool::new(false);
        let pauses = [AtomicU64::new(0), AtomicU64::new(0)];
        let one = AtomicPtr::new(&raw mut *micro);
        std::thread::scope(|scope| {
            for me in 0..2 {
                let (ended, pauses, one) = (&ended, &pauses, &one);
                scope.spawn(move || {
                    let _alt = overflow::alt_stack_for_this_thread().expect("an alternate stack");
                    let _timer = Timer::start();
                    // No allocation in this loop: the microprocess may be interrupted within malloc
                    // while it holds one of malloc's locks.
                    while !ended.load(Acquire) {
                        if TURN.load(Acquire) != me {
                            std::thread::yield_now();
                            continue;
                        }
                        // SAFETY: only the carrier whose turn it is touches the microprocess.
                        if unsafe { (*one.load(Relaxed)).resume() } {
                            ended.store(true, Release);
                        }
                        pauses[me].fetch_add(1, Relaxed);
                        TURN.store(1 - me, Release);
                    }
                });
            }
        });
        assert!(!micro.panicked(), "the microprocess panicked");
        // SAFETY: as above.
        let fire = unsafe { &*WANDERER.load(Acquire) };
        let calls = fire.injected.load(Relaxed);
        assert_eq!(fire.begun.load(Relaxed), calls, "every injected call ran");
        assert_eq!(
            pauses[0].load(Relaxed) + pauses[1].load(Relaxed),
            calls + 1,
            "one resumption per call, and one for the end"
        );
        assert!(
            pauses[1].load(Relaxed) >= calls / 2,
            "each call continued on the other kernel thread"
        );
    });
}
