use super::*;

struct Pair {
    main: Context,
    other: Context,
    count: u64,
}

extern "C" fn bounce(argument: *mut u8) -> ! {
    let pair = argument.cast::<Pair>();
    loop {
        // SAFETY: the test passes a live Pair and runs both sides on one kernel thread.
        unsafe {
            (*pair).count += 1;
            switch_same(&raw mut (*pair).other, (*pair).main);
        }
    }
}

#[test]
fn foreign_thread_has_no_record() {
    let record = 0u64;
    // SAFETY: nothing accesses the record before the word is 0 again.
    unsafe { set_gs_base((&raw const record).expose_provenance()) };
    assert_eq!(std::thread::spawn(gs_base).join().expect("no panic"), 0);
    // SAFETY: 0 is no record.
    unsafe { set_gs_base(0) };
}

/// Runs `rounds` switches to a context that switches back at once.
fn bounce_times(rounds: u64, mut at: impl FnMut(u64)) {
    let mut stack = vec![0u128; 4096];
    let mut pair = Pair { main: Context::NULL, other: Context::NULL, count: 0 };
    let argument: *mut u8 = (&raw mut pair).cast();
    // SAFETY: the stack is 64 KiB, 16-aligned and not used elsewhere; `argument` points to the live
    // pair.
    unsafe {
        (*argument.cast::<Pair>()).other =
            Context::prepare(stack.as_mut_ptr().add(4096).cast(), bounce, argument);
        let fs = fs_base();
        for round in 1..=rounds {
            let to = (*argument.cast::<Pair>()).other;
            if round % 2 == 0 {
                switch_fs(&raw mut (*argument.cast::<Pair>()).main, to, fs);
            } else {
                switch_same(&raw mut (*argument.cast::<Pair>()).main, to);
            }
            assert_eq!((*argument.cast::<Pair>()).count, round);
            at(round);
        }
    }
}

#[test]
fn switches_return_to_each_side_in_turn() {
    bounce_times(1000, |_| ());
}

fn fpcr() -> u64 {
    let value: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, fpcr", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

#[test]
fn rounding_mode_belongs_to_the_context() {
    /// FPCR.RMode: towards minus infinity (Arm ARM, C5.2.8).
    const DOWN: u64 = 2 << 22;
    let own = fpcr();
    // SAFETY: changes the rounding mode of this thread, which the end of the test restores.
    let set = |value: u64| unsafe { asm!("msr fpcr, {}", in(reg) value, options(nomem, nostack)) };
    set(own | DOWN);
    let mut kept = true;
    bounce_times(10, |_| kept &= fpcr() == own | DOWN);
    set(own);
    assert!(kept);
}

#[test]
fn floating_point_values_survive_a_switch() {
    let values: [f64; 16] = std::array::from_fn(|i| i as f64 * 1.5 + 0.25);
    let mut sum = std::hint::black_box(values);
    bounce_times(100, |round| sum.iter_mut().for_each(|value| *value += round as f64));
    for (i, value) in sum.iter().enumerate() {
        assert_eq!(*value, values[i] + 5050.0);
    }
}

#[test]
fn new_block_gets_the_record_before_it_runs() {
    let word = 5usize;
    let fs = fs_base();
    // SAFETY: the word outlives its use as a record's address, which nothing dereferences. The
    // block is this thread's own.
    unsafe {
        set_gs_base((&raw const word).addr());
        set_fs_base(fs);
        let kept = gs_base();
        set_gs_base(0);
        assert_eq!(kept, (&raw const word).addr());
    }
}
