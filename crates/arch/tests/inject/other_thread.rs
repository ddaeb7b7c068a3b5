//! A microprocess that goes on on another kernel thread inside the call.

use super::*;

static WANDERER: AtomicPtr<Fire> = AtomicPtr::new(std::ptr::null_mut());
/// While set, the microprocess is not interrupted: it is elsewhere, or about to be. Like the
/// runtime's mask, it goes up in the handler and down when the microprocess runs again, with its
/// own FS.
static MASKED: AtomicBool = AtomicBool::new(true);
static TURN: AtomicUsize = AtomicUsize::new(0);

/// As `on_signal`, but touches no thread-local variable: whose they are depends on where the signal
/// came.
extern "C" fn on_signal_to_carrier(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    clear_ac();
    let fire = WANDERER.load(Acquire);
    // SAFETY: the test leaves the record where it is; the context is the kernel's.
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

/// Back to the carrier; the other one continues it.
extern "C" fn wander() {
    // SAFETY: set before the microprocess first ran.
    unsafe { (*WANDERER.load(Acquire)).begun.fetch_add(1, Relaxed) };
    harness::pause();
    MASKED.store(false, Release);
}

#[test]
fn it_goes_on_on_another_kernel_thread() {
    needs_context!();
    needs_blocks!();
    const NAME: &str = "other_thread::it_goes_on_on_another_kernel_thread";
    again::alone(NAME, || {
        const EACH: u64 = 1000;
        inject::prepare();
        handle(libc::SIGUSR1, on_signal_to_carrier, libc::SA_ONSTACK);
        let mut micro = Micro::new(256 << 10, || {
            // SAFETY: set before this runs, never freed.
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
                    // No allocation in here: the microprocess may have been interrupted within
                    // malloc, with a lock of it.
                    while !ended.load(Acquire) {
                        if TURN.load(Acquire) != me {
                            std::thread::yield_now();
                            continue;
                        }
                        // SAFETY: it is this carrier's turn, so the other does not touch it.
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
            "each call was a pause, the end is another"
        );
        assert!(
            pauses[1].load(Relaxed) >= calls / 2,
            "each call went on on the other kernel thread"
        );
    });
}
