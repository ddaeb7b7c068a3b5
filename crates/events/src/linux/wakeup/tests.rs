use super::*;
use std::os::fd::AsFd;

fn set() -> Descriptor {
    // SAFETY: integers only; a new descriptor without another owner.
    unsafe { Descriptor::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }
}

fn received(set: &Descriptor) -> Vec<u64> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
    // SAFETY: room for four events.
    let n = unsafe { libc::epoll_wait(set.as_raw_fd(), events.as_mut_ptr(), 4, 0) };
    events[..usize::try_from(n).expect("no error")].iter().map(|event| event.u64).collect()
}

#[test]
fn wake_up_is_received_once() {
    let set = set();
    let waker = EpollWaker::new(set.as_fd(), 7).expect("a waker");
    assert!(received(&set).is_empty());
    for _ in 0..3 {
        waker.wake();
        waker.wake();
        assert_eq!(received(&set), [7]);
        assert!(received(&set).is_empty());
    }
}

#[test]
fn wake_up_reaches_a_thread_that_waits() {
    let set = set();
    let waker = EpollWaker::new(set.as_fd(), 7).expect("a waker");
    std::thread::scope(|scope| {
        for _ in 0..1000 {
            let thread = scope.spawn(|| {
                let mut event = libc::epoll_event { events: 0, u64: 0 };
                // SAFETY: room for one event.
                unsafe { libc::epoll_wait(set.as_raw_fd(), &raw mut event, 1, -1) }
            });
            waker.wake();
            assert_eq!(thread.join().expect("no panic"), 1);
        }
    });
}

#[test]
fn only_an_eventfd_counts_as_one() {
    let file = std::fs::File::open("/proc/self/exe").expect("readable");
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    // SAFETY: integers only; a new descriptor without another owner.
    let eventfd = unsafe { Descriptor::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
    assert!(is_anonymous(eventfd.as_raw_fd()));
    assert!(!is_anonymous(file.as_raw_fd()) && !is_anonymous(reader.as_raw_fd()));
    assert!(!is_anonymous(-1));
    assert!(!add_to_eventfd(file.as_fd()) && !add_to_eventfd(reader.as_fd()));
    assert!(add_to_eventfd(eventfd.as_fd()));
    let mut n = 0u64;
    // SAFETY: 8 live bytes.
    assert_eq!(unsafe { libc::read(eventfd.as_raw_fd(), (&raw mut n).cast(), 8) }, 8);
    assert_eq!(n, 1);
}
