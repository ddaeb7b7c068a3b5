//! What peers pass that is no memory to be shared, and what is refused here.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use rustix::fs::{MemfdFlags, SealFlags, memfd_create};

use crate::error::{Error, ErrorKind};
use crate::memory::{self, Memory, Pages, SIZE_SEALS};
use crate::region::sealed::{Region, RegionMut};

pub(crate) const LEN: usize = 8192;

/// A memfd of this size, with these seals.
pub(crate) fn memfd(len: usize, seals: SealFlags) -> OwnedFd {
    let fd =
        memfd_create("kumihimo-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, len as u64).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

pub(crate) fn malformed<T>(result: Result<T, Error>, says: &str) {
    let error = result.err().expect("refused");
    assert!(
        error.kind() == ErrorKind::Malformed && error.to_string().contains(says),
        "{error}: not {says}"
    );
}

#[test]
fn both_mappings_share_memory_and_unmap_it() {
    let (one, fd) = Memory::create("kumihimo-both", LEN, Pages::Now).unwrap();
    let two = Memory::map(fd.as_fd(), LEN).unwrap();
    assert_ne!(one.start(), two.start());
    // SAFETY: both mappings live, and nobody else has them; plain accesses by one kernel thread.
    unsafe {
        one.start().add(LEN - 1).write_volatile(7);
        assert_eq!(two.start().add(LEN - 1).read_volatile(), 7);
    }
    let mapped = || fs::read_to_string("/proc/self/maps").unwrap().matches("kumihimo-both").count();
    assert_eq!(mapped(), 2);
    drop((one, two));
    assert_eq!(mapped(), 0);
    malformed(
        rustix::fs::ftruncate(&fd, 4096)
            .map_err(|e| Error::new(ErrorKind::Malformed, e.to_string())),
        "permitted",
    );
}

#[test]
fn memory_of_the_wrong_seals_or_size_is_refused() {
    malformed(Memory::map(memfd(LEN, SealFlags::empty()).as_fd(), LEN), "seals");
    for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
        malformed(Memory::map(memfd(LEN, SIZE_SEALS - missing).as_fd(), LEN), "seals");
    }
    for len in [0, 1, 4096, LEN - 1, LEN + 1, 2 * LEN] {
        malformed(Memory::map(memfd(len, SIZE_SEALS).as_fd(), LEN), &format!("it has {len} bytes"));
    }
    malformed(Memory::map(memfd(LEN, SIZE_SEALS).as_fd(), usize::MAX), "the most");
    malformed(Memory::map(memfd(LEN, SIZE_SEALS | SealFlags::WRITE).as_fd(), LEN), "for writing");
    malformed(
        Memory::map(memfd(LEN, SIZE_SEALS | SealFlags::FUTURE_WRITE).as_fd(), LEN),
        "for writing",
    );
    Memory::map(memfd(LEN, SIZE_SEALS).as_fd(), LEN).unwrap();
}

#[test]
fn descriptor_other_than_a_memfd_is_refused() {
    let (pipe, _other) = std::io::pipe().unwrap();
    let pipe = OwnedFd::from(pipe);
    let null = OwnedFd::from(fs::File::open("/dev/null").unwrap());
    let directory = OwnedFd::from(fs::File::open("/proc/self").unwrap());
    for fd in [&pipe, &null, &directory] {
        malformed(Memory::map(fd.as_fd(), LEN), "no memfd");
        malformed(Region::receive(fd.try_clone().unwrap(), LEN), "no memfd");
    }
    // A file on a tmpfs has seals, and none that help.
    let path = format!("/dev/shm/kumihimo-test-{}", std::process::id());
    if let Ok(file) = fs::File::create_new(&path) {
        fs::remove_file(&path).unwrap();
        file.set_len(LEN as u64).unwrap();
        malformed(Memory::map(file.as_fd(), LEN), "it ");
    }
    // Huge pages may run out while they are mapped.
    let flags = MemfdFlags::CLOEXEC
        | MemfdFlags::ALLOW_SEALING
        | MemfdFlags::HUGETLB
        | MemfdFlags::HUGE_2MB;
    if let Ok(fd) = memfd_create("kumihimo-test", flags)
        && rustix::fs::ftruncate(&fd, 2 << 20).is_ok()
        && rustix::fs::fcntl_add_seals(&fd, SIZE_SEALS | SealFlags::WRITE).is_ok()
    {
        malformed(memory::check(fd.as_fd(), 2 << 20, SIZE_SEALS), "ordinary pages");
        malformed(Region::receive(fd, 2 << 20), "ordinary pages");
    }
}

#[test]
fn excessive_size_is_refused_before_creation() {
    let exhausted =
        |result: Result<(), Error>| assert_eq!(result.unwrap_err().kind(), ErrorKind::Exhausted);
    exhausted(Memory::create("kumihimo-test", usize::MAX, Pages::AsTouched).map(drop));
    exhausted(Memory::create("kumihimo-test", memory::MOST_BYTES + 1, Pages::AsTouched).map(drop));
    exhausted(RegionMut::new(Region::MOST + 1).map(drop));
}

/// A kernel thread of its own, for which memfd_create(2) ends in this error.
fn refused_memfd(errno: i32, f: impl FnOnce() + Send) {
    let instruction =
        |code: u32, yes, no, k| libc::sock_filter { code: code as u16, jt: yes, jf: no, k };
    let mut filter = [
        // The number of the call is the first word.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::SYS_memfd_create as u32,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    std::thread::scope(|s| {
        s.spawn(move || {
            let program =
                libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            // SAFETY: a filter for this kernel thread alone, which ends with the test; prctl(2)
            // copies it.
            unsafe {
                assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
                assert_eq!(
                    libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program),
                    0
                );
            }
            f();
        });
    });
}

#[test]
fn refused_memfd_create_is_a_clear_error() {
    for errno in [libc::ENOSYS, libc::EPERM] {
        refused_memfd(errno, || {
            let regions = [Region::copy_of(b"one").map(drop), RegionMut::new(5).map(drop)];
            let memory = Memory::create("kumihimo-test", LEN, Pages::AsTouched).map(drop);
            for result in regions.into_iter().chain([memory]) {
                let error = result.unwrap_err();
                assert!(
                    error.kind() == ErrorKind::Io && error.to_string().contains("seccomp"),
                    "{error}"
                );
            }
        });
    }
}

/// In a process of its own, whose limits nobody else has.
#[test]
fn process_limits_are_clear_errors() {
    if let Some(limit) = std::env::var_os("KUMI_TEST_LIMIT") {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let set = |resource, most| {
            setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).unwrap()
        };
        let error = match limit.to_str().unwrap() {
            "files" => {
                set(Resource::Nofile, 3);
                Region::copy_of(b"one").unwrap_err()
            }
            "size" => {
                set(Resource::Fsize, 4096);
                Region::copy_of(&[0; 4096]).unwrap();
                // Would be SIGXFSZ.
                Region::copy_of(&[0; 4097]).unwrap_err()
            }
            _ => {
                set(Resource::As, 64 << 20);
                RegionMut::new(256 << 20).map(drop).unwrap_err()
            }
        };
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        return;
    }
    // AddressSanitizer's shadow is larger than any limit of address space.
    let limits: &[_] =
        if cfg!(kumihimo_asan) { &["files", "size"] } else { &["files", "size", "space"] };
    for limit in limits {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args([
            "memory::tests::process_limits_are_clear_errors",
            "--exact",
            "--test-threads=1",
        ]);
        let output = again.env("KUMI_TEST_LIMIT", limit).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{limit}: {}: {text}",
            output.status
        );
    }
}
