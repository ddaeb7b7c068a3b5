use super::*;

#[test]
fn notified_thread_leaves_only_the_core_of_its_notifier() {
    if cores().len() < 2 {
        eprintln!(
            "[skip] notified_thread_leaves_only_the_core_of_its_notifier: there is one core only"
        );
        return;
    }
    let [one, other] = [cores()[0], cores()[1]];
    // A kernel thread of its own, since it keeps what it is given.
    let moves = std::thread::spawn(move || {
        assert!(keep_to(&[one]));
        assert_eq!(core(), Some(one));
        keep_off(other);
        assert_eq!(core(), Some(one), "nobody told from there");
        keep_off(one);
        assert_ne!(core(), Some(one));
    });
    moves.join().expect("no panic");
}
