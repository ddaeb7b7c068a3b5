use super::*;

#[test]
fn sleep_ends_without_the_timer_that_the_program_has_closed() {
    let poller = Poller::new(0).expect("descriptors");
    let limit = |time| poller.alarm.limit(poller.epoll.as_raw_fd(), monotonic(), time);
    // The second sleep with the same limit arms the alarm. The limit is the same until then.
    let until = monotonic() + 2_000_000_000;
    let rest = || Duration::from_nanos(until.saturating_sub(monotonic()));
    while matches!(limit(rest()), Limit::Own(_)) {}
    let null = std::fs::File::open("/dev/null").expect("a file");
    let timer = poller.alarm.timer().expect("it is armed");
    // SAFETY: no pointers; the number stays the alarm's until it is dropped.
    assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), timer) }, timer);
    let minute = Duration::from_secs(60);
    assert!(matches!(limit(minute), Limit::Alarm(time) if time < minute));
    poller.sleep(Some(minute));
    // The sleep has ended, and no later one relies on the alarm.
    assert!((0..3).all(|_| matches!(limit(minute), Limit::Own(_))));
}
