use super::*;

/// Makes `calls` calls, of which a plain one takes `plain` and a batched one `batched` nanoseconds.
/// Returns how many were batched.
fn run(trial: &Trial, of: u32, clock: &Cell<u64>, (plain, batched): (u64, u64), calls: u32) -> u32 {
    (0..calls)
        .map(|_| {
            let way = trial.in_batches(of, 0, || Reading { thread: 1, on_core: clock.get() });
            clock.set(clock.get() + if way { batched } else { plain });
            u32::from(way)
        })
        .sum()
}

#[test]
fn faster_alternative_is_used_and_the_other_retried() {
    for (costs, few) in [((1000, 1200), true), ((1000, 950), true), ((1000, 800), false)] {
        let (trial, clock) = (Trial::default(), Cell::new(5));
        let n = 100 * WINDOW;
        let batched = run(&trial, 1, &clock, costs, n);
        let other = if few { batched } else { n - batched };
        // The first window, the 4th, 8th, 16th, 32nd and 64th.
        let windows =
            FIRST_WINDOW + 4 * WINDOW..=3 * FIRST_WINDOW + 5 * (WINDOW + WINDOW / WARM_UP);
        assert!(windows.contains(&other), "{costs:?}: {other} of {n}");
    }
}

#[test]
fn changed_load_changes_the_choice() {
    let (trial, clock) = (Trial::default(), Cell::new(0));
    run(&trial, 1, &clock, (1000, 1500), 50 * WINDOW);
    run(&trial, 1, &clock, (1000, 500), 40 * AGAIN * WINDOW);
    let batched = run(&trial, 1, &clock, (1000, 500), 10 * WINDOW);
    // Except for one window of the other alternative.
    assert!(batched >= 8 * WINDOW, "{batched}");
}

#[test]
fn measurements_of_two_kernel_threads_are_not_compared() {
    let (trial, n) = (Trial::default(), Cell::new(0));
    // Each reading comes from another kernel thread, so every window seems to take no time.
    let batched = (0..50 * WINDOW).filter(|_| {
        let reading = || Reading { thread: n.replace(n.get() + 1), on_core: 0 };
        trial.in_batches(1, 0, reading)
    });
    assert!(batched.count() as u32 <= 6 * (WINDOW + WINDOW / WARM_UP));
    assert_eq!(trial.took, [Cell::new(0), Cell::new(0)]);
}

/// Batches are slower, but for a while they find the caches warm from the plain calls before them.
#[test]
fn effects_of_the_previous_alternative_are_not_measured() {
    const CROWD: u32 = 10_000;
    let (trial, clock, changed, before) =
        (Trial::default(), Cell::new(0), Cell::new(0), Cell::new(false));
    let way = |n: u32| {
        let way = trial.in_batches(1, CROWD, || Reading { thread: 1, on_core: clock.get() });
        if before.replace(way) != way {
            changed.set(n);
        }
        let warm = n - changed.get() < CROWD * ROUND;
        clock.set(clock.get() + if way { if warm { 500 } else { 1100 } } else { 1000 });
        u32::from(way)
    };
    let batched = (0..100 * CROWD * ROUND * ROUNDS).map(way).sum::<u32>();
    assert!(batched < 10 * CROWD * ROUND * ROUNDS, "{batched}");
}

/// The trial runs while a server's clients connect; afterwards the server serves all of them.
#[test]
fn measurements_with_few_descriptors_do_not_apply_to_many() {
    let (trial, clock) = (Trial::default(), Cell::new(0));
    run(&trial, 1, &clock, (1000, 500), 50 * WINDOW);
    const CROWD: u32 = 10_000;
    let batched = (0..6 * CROWD * ROUND * ROUNDS).filter(|_| {
        let way = trial.in_batches(1, CROWD, || Reading { thread: 1, on_core: clock.get() });
        clock.set(clock.get() + if way { 1200 } else { 1000 });
        way
    });
    // The first window of each alternative, and the 4th.
    assert!(batched.count() as u32 <= 3 * CROWD * ROUND + CROWD * ROUND * ROUNDS + WINDOW);
}

#[test]
fn new_setting_restarts_the_trial() {
    let (trial, clock) = (Trial::default(), Cell::new(0));
    run(&trial, 1, &clock, (1000, 1500), 50 * WINDOW);
    let batched = run(&trial, 2, &clock, (1000, 500), 50 * WINDOW);
    assert!(batched >= 40 * WINDOW, "{batched}");
}
