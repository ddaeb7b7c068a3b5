use super::*;

/// A source that the kernel refuses from the third thread on, as it refuses `bpf` after setuid(2).
#[derive(Debug)]
struct RefusedLater;

impl EventSource for RefusedLater {
    fn kind(&self) -> Kind {
        Kind::Bpf
    }

    fn attach(&self, index: u32) -> io::Result<()> {
        match index {
            1 | 2 => Ok(()),
            3 => Err(io::ErrorKind::PermissionDenied.into()),
            _ => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        }
    }

    fn lends(&self, _index: u32) -> bool {
        true
    }

    fn reports_returns(&self, _index: u32) -> bool {
        true
    }
}

#[test]
fn refused_threads_use_the_second_source_and_earlier_threads_keep_the_first() {
    let source = Fallback::new(Box::new(RefusedLater), 8, crate::source::open_one);
    // SAFETY: no pointers.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    assert!(epoll >= 0);
    // SAFETY: a new descriptor.
    let epoll: Descriptor = unsafe { std::os::fd::FromRawFd::from_raw_fd(epoll) };
    source.register(epoll.as_fd()).expect("nothing to do");
    source.attach(1).expect("it may");
    assert!(
        source.attach(4).is_err_and(|e| e.raw_os_error() == Some(libc::EMFILE)),
        "a transient error"
    );
    assert_eq!(source.fallback(), None);
    if let Err(refused) = source.attach(3) {
        return eprintln!("\n[skip] fallback: neither perf nor procfs is usable: {refused}");
    }
    assert!(matches!(source.fallback(), Some(Kind::Perf | Kind::Watch)));
    assert!(source.lends(1) && source.reports_returns(1) && source.reports_returns(2));
    assert!(!source.lends(3) && !source.reports_returns(3));
    // The slot is reused by a thread that may use the first source.
    source.by_other[2].store(true, Ordering::Relaxed);
    source.attach(2).expect("it may");
    assert!(source.lends(2));
}
