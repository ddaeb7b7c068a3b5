use super::*;

#[test]
fn unmount_during_a_receive_ends_without_an_error() {
    use rustix::io::Errno;
    let mut errors = [Errno::CONNABORTED, Errno::NODEV].into_iter();
    let received = received::<()>(|| Err(errors.next().expect("not after the end").into()));
    assert_eq!((received, errors.next()), (None, None));
}

#[test]
fn small_request_releases_the_buffer_of_a_large_one() {
    let mut buffer = Buffer::default();
    let large = vec![7; 500_000];
    assert_eq!(buffer.take(&large), large.len());
    assert_eq!(buffer.first(large.len()), large);
    assert_eq!(buffer.take(b"small"), 5);
    assert_eq!(buffer.first(5), b"small");
    assert!(buffer.0.capacity() < KEPT);
    assert_eq!(buffer.room().len(), REQUEST);
}
