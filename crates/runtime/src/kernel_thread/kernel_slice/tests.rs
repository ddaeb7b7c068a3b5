use super::*;

#[test]
fn level_sets_the_slice_and_new_threads_have_the_usual_one() {
    begin();
    let usual = USUAL.get().copied().unwrap_or(0);
    if usual == 0 {
        eprintln!(
            "[skip] level_sets_the_slice_and_new_threads_have_the_usual_one: needs Linux 6.12"
        );
        return;
    }
    let now = || get().expect("sched_getattr succeeds").sched_runtime;
    let own = KernelSlice::default();
    let (low, default, high) =
        (Priority::DEFAULT.get() - 1, Priority::DEFAULT.get(), Priority::HIGHEST.get());
    own.before_sleep(default, false);
    assert_eq!(now(), usual);
    own.before_sleep(default, true);
    assert_eq!(now(), usual / 4);
    own.before_sleep(low, true);
    assert_eq!(now(), usual);
    own.before_sleep(high, false);
    assert_eq!(now(), usual / 4);
    assert!(!own.computing(high, false));
    assert_eq!(now(), usual / 4);
    assert!(own.computing(low, false));
    assert_eq!(now(), LONGEST);
    let inherits = std::thread::spawn(|| {
        let before = get().expect("sched_getattr succeeds").sched_runtime;
        begin();
        (before, get().expect("sched_getattr succeeds").sched_runtime)
    });
    assert_eq!(inherits.join().expect("no panic"), (LONGEST, usual));
    assert!(!own.computing(high, false));
    assert_eq!(now(), usual);
    assert!(own.computing(low, false));
    own.before_sleep(low, false);
    assert_eq!(now(), usual);
    own.before_sleep(high, false);
    own.give_back();
    assert_eq!(now(), usual);
    own.gives_way();
    assert_eq!(now(), 2 * usual);
    assert!(!own.computing(default, true));
    assert_eq!(now(), 2 * usual);
    assert!(!own.computing(default, false));
    assert_eq!(now(), usual);
}
