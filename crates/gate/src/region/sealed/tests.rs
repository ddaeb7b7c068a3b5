//! Regions, and memory that is refused as one.

use std::fs;
use std::os::fd::AsFd;
use std::process::Command;

use rustix::fs::SealFlags;

use crate::memory::tests::{LEN, malformed, memfd};
use crate::memory::{Access, Memory, Pages, SIZE_SEALS};
use crate::region::sealed::{Region, RegionMut};

#[test]
fn region_has_the_written_bytes() {
    for len in [0, 1, 4095, 4096, 4097, 1 << 20] {
        let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let one = Region::copy_of(&bytes).unwrap();
        let two = Region::new(len, |to| {
            assert!(to.iter().all(|byte| *byte == 0));
            to.copy_from_slice(&bytes);
        })
        .unwrap();
        assert!(one[..] == bytes && two[..] == bytes && two.as_ref().len() == len);
        let passed = Region::receive(one.as_fd().try_clone_to_owned().unwrap(), len).unwrap();
        drop(one);
        let clone = passed.clone();
        drop(passed);
        assert!(clone[..] == bytes);
        malformed(
            Region::receive(clone.as_fd().try_clone_to_owned().unwrap(), len + 1),
            "bytes, not",
        );
        assert_eq!(format!("{clone:?}"), format!("Region({len} bytes)"));
    }
}

/// By no way that the kernel has can a region change.
#[test]
fn sealed_region_cannot_be_changed() {
    use rustix::fs::FallocateFlags;
    let region = Region::copy_of(&[5; LEN]).unwrap();
    assert!(rustix::io::pwrite(&region, &[6], 0).is_err());
    assert!(
        rustix::fs::ftruncate(&region, 0).is_err()
            && rustix::fs::ftruncate(&region, 2 * LEN as u64).is_err()
    );
    assert!(
        rustix::fs::fallocate(
            &region,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            0,
            4096
        )
        .is_err()
    );
    assert!(Memory::of(region.as_fd(), LEN, Access::Write, Pages::AsTouched).is_err());
    // SAFETY: a mapping of our own, of which only the protection is to change; that it does not is
    // what is tested.
    let loosened = unsafe {
        libc::mprotect(region.as_ptr() as *mut _, LEN, libc::PROT_READ | libc::PROT_WRITE)
    };
    assert_eq!(loosened, -1);
    assert!(rustix::fs::fcntl_add_seals(&region, SealFlags::empty()).is_err(), "no more seals");
    assert!(region.iter().all(|byte| *byte == 5));
}

#[test]
fn unsealed_memory_is_refused_as_a_region() {
    malformed(Region::receive(memfd(LEN, SIZE_SEALS), LEN), "seals");
    malformed(Region::receive(memfd(LEN, SIZE_SEALS | SealFlags::FUTURE_WRITE), LEN), "seals");
    malformed(
        Region::receive(memfd(LEN, (SIZE_SEALS | SealFlags::WRITE) - SealFlags::SEAL), LEN),
        "seals",
    );
    Region::receive(memfd(LEN, SIZE_SEALS | SealFlags::WRITE), LEN).unwrap();
}

/// What somebody else, say a forked child, can still write is not the region, but was copied.
#[test]
fn region_mapped_elsewhere_is_copied() {
    for len in [1, LEN, (1 << 16) + 5] {
        let mut written = RegionMut::new(len).unwrap();
        written.fill(3);
        let writable = Memory::of(written.as_fd(), len, Access::Write, Pages::AsTouched).unwrap();
        let region = written.seal().unwrap();
        // SAFETY: mapped, and nobody else has this memory any more.
        unsafe { writable.start().write_volatile(4) };
        assert!(region.len() == len && region.iter().all(|byte| *byte == 3));
        Region::receive(region.as_fd().try_clone_to_owned().unwrap(), len).unwrap();
    }
}

/// In a process of its own, so that nobody else's descriptors count.
#[test]
fn regions_leak_nothing() {
    if std::env::var_os("KUMI_TEST_LEAK").is_some() {
        let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
        let maps = || fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:").count();
        let before = (descriptors(), maps());
        for len in (0..100).map(|n| n * 1000) {
            let region = Region::new(len, |to| to.fill(1)).unwrap();
            let clone =
                Region::receive(region.as_fd().try_clone_to_owned().unwrap(), len).unwrap().clone();
            assert_eq!(region[..], clone[..]);
            drop(RegionMut::new(len).unwrap());
            assert!(
                Region::receive(region.as_fd().try_clone_to_owned().unwrap(), len + 1).is_err()
            );
        }
        assert_eq!((descriptors(), maps()), before);
        return;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["region::sealed::tests::regions_leak_nothing", "--exact", "--test-threads=1"]);
    let output = again.env("KUMI_TEST_LEAK", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
}
