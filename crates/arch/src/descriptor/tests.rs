use std::fs::File;

use super::*;

fn eventfd() -> Descriptor {
    // SAFETY: integers only.
    let fd = unsafe { crate::kernel::eventfd(0, libc::EFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: new, without another owner.
    unsafe { Descriptor::from_raw_fd(fd) }
}

fn is_open(fd: RawFd) -> bool {
    Inode::of(fd).is_some()
}

/// A number high enough that no other test's descriptor gets it.
fn moved(of: Descriptor, to: RawFd) -> Descriptor {
    // SAFETY: integers only.
    assert_eq!(unsafe { libc::dup2(of.as_raw_fd(), to) }, to);
    // SAFETY: new, without another owner.
    unsafe { Descriptor::from_raw_fd(to) }
}

#[test]
fn drop_closes_it() {
    let own = moved(eventfd(), 900);
    assert!(is_open(900));
    drop(own);
    assert!(!is_open(900));
}

#[test]
fn closed_by_the_program_it_is_not_closed_again() {
    let own = moved(eventfd(), 901);
    // SAFETY: what a program may do with any number.
    assert_eq!(unsafe { libc::close(901) }, 0);
    // SAFETY: the calling thread's.
    unsafe { *libc::__errno_location() = 7 };
    drop(own);
    // SAFETY: as above.
    assert_eq!(unsafe { *libc::__errno_location() }, 7);
}

#[test]
fn program_keeps_its_file_under_the_same_number() {
    let own = moved(eventfd(), 902);
    let file = File::open("/dev/null").expect("a file");
    // SAFETY: what a program may do with any number.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 902) }, 902);
    drop(own);
    assert!(is_open(902));
    // SAFETY: this test's.
    unsafe { libc::close(902) };
}

#[test]
fn object_kept_by_its_number_is_closed_unless_a_file_is_there() {
    // SAFETY: this test's number.
    let close = || unsafe { close_anonymous(903) };
    std::mem::forget(moved(eventfd(), 903));
    close();
    assert!(!is_open(903));
    close();
    let file = File::open("/dev/null").expect("a file");
    // SAFETY: what a program may do with any number.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 903) }, 903);
    close();
    assert!(is_open(903));
    // SAFETY: this test's.
    unsafe { libc::close(903) };
}
