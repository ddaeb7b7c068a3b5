use super::*;

#[test]
fn accept_errors_are_classified() {
    let of = |n| Failure::of(&io::Error::from_raw_os_error(n));
    for (n, failure) in [
        (libc::EMFILE, Failure::Descriptors),
        (libc::ENFILE, Failure::Descriptors),
        (libc::ENOBUFS, Failure::Memory),
        (libc::ENOMEM, Failure::Memory),
        (libc::ECONNABORTED, Failure::Connection),
        (libc::EPERM, Failure::Connection),
        (libc::EBADF, Failure::Final),
        (libc::EINVAL, Failure::Final),
    ] {
        assert_eq!(of(n), failure, "{n}");
    }
    assert_eq!(Failure::of(&io::Error::new(ErrorKind::TimedOut, "the scope's")), Failure::Deadline);
}
