use super::*;

#[test]
fn notified_thread_leaves_only_the_core_of_its_notifier() {
    if cores().len() < 2 {
        eprintln!("[skip] notified_thread_leaves_only_the_core_of_its_notifier: needs two cores");
        return;
    }
    let [one, other] = [cores()[0], cores()[1]];
    // A kernel thread of its own, since its affinity changes.
    let moves = std::thread::spawn(move || {
        assert!(keep_to(&[one]));
        assert_eq!(core(), Some(one));
        keep_off(other);
        assert_eq!(core(), Some(one), "no notification came from that core");
        keep_off(one);
        assert_ne!(core(), Some(one));
    });
    moves.join().expect("no panic");
}
