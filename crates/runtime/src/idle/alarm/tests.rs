use super::*;

const MILLISECOND: u64 = 1_000_000;
const TOKEN: u64 = 7;

fn set() -> Descriptor {
    // SAFETY: no pointers.
    let fd = unsafe { kumihimo_arch::kernel::epoll_create1(libc::EPOLL_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: a new descriptor without another owner.
    unsafe { Descriptor::from_raw_fd(fd) }
}

/// Waits for an event of the set without a limit, and returns its data.
fn wait(set: &Descriptor) -> u64 {
    let mut event = libc::epoll_event { events: 0, u64: u64::MAX };
    // SAFETY: room for one event.
    let n = unsafe { kumihimo_arch::kernel::epoll_wait(set.as_raw_fd(), &raw mut event, 1, -1) };
    assert_eq!(n, 1);
    event.u64
}

fn is_own(limit: Limit) -> bool {
    matches!(limit, Limit::Own(_))
}

#[test]
fn second_sleep_with_the_same_limit_arms_the_alarm() {
    let (set, alarm) = (set(), Alarm::new(TOKEN));
    let limit = |now, time| alarm.limit(set.as_raw_fd(), now, Duration::from_nanos(time));
    assert_eq!(limit(1_000, MILLISECOND), Limit::Own(Duration::from_millis(1)));
    let until = 100_000 + MILLISECOND;
    assert!(is_own(limit(100_000, MILLISECOND)), "another limit");
    assert!(!is_own(limit(150_000, until - 150_000)));
    // All further sleeps until then, and later limits, are served.
    assert!(!is_own(limit(900_000, until - 900_000)));
    assert!(!is_own(limit(900_000, 5 * MILLISECOND)));
    assert!(is_own(limit(900_000, 10_000)), "it rings later");
    assert!(is_own(limit(until, MILLISECOND)), "it has rung");
}

#[test]
fn alarm_rings_each_time_that_it_is_armed() {
    let (set, alarm) = (set(), Alarm::new(TOKEN));
    for round in 1..=3 {
        let now = round * 100 * MILLISECOND;
        let sleep = || alarm.limit(set.as_raw_fd(), now, Duration::from_millis(1));
        assert!(is_own(sleep()) && !is_own(sleep()));
        assert_eq!(wait(&set), TOKEN);
    }
}

#[test]
fn foreign_descriptor_in_the_place_of_the_timer_is_left_alone() {
    let (set, alarm) = (set(), Alarm::new(TOKEN));
    let arm = |now| {
        let sleep = || alarm.limit(set.as_raw_fd(), now, Duration::from_millis(1));
        assert!(is_own(sleep()));
        sleep()
    };
    assert!(!is_own(arm(0)));
    let fd = alarm.timer().expect("it is armed");
    // The program closes it and makes a timer of its own there.
    let other = make(set.as_raw_fd(), TOKEN).expect("a timer");
    // SAFETY: no pointers; the number stays the alarm's until it is dropped.
    assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), fd) }, fd);
    assert!(is_own(arm(100 * MILLISECOND)));
    let mut left = libc::itimerspec {
        it_interval: timespec(Duration::ZERO),
        it_value: timespec(Duration::MAX),
    };
    // SAFETY: a live structure.
    assert_eq!(unsafe { libc::timerfd_gettime(fd, &raw mut left) }, 0);
    assert_eq!((left.it_value.tv_sec, left.it_value.tv_nsec), (0, 0), "nobody has armed it");
    assert!(is_own(arm(200 * MILLISECOND)), "it is lost");
}
