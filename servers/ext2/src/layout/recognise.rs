//! Detection of other formats on a disk that is not ext2.

use crate::layout::get16;

/// Offset and bytes of a signature, and the name of its format.
const SIGNATURES: [(usize, &[u8], &str); 19] = [
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", "a Btrfs file system"),
    (0, b"hsqs", "a SquashFS image"),
    (0, b"sqsh", "a SquashFS image"),
    (1024, b"\xe2\xe1\xf5\xe0", "an EROFS image"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT1", "a FAT file system"),
    (82, b"FAT32   ", "a FAT file system"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (512, b"LABELONE", "a physical volume of LVM"),
    (0, b"\x1f\x8b", "compressed by gzip"),
    (0, b"BZh", "compressed by bzip2"),
    (0, b"\xfd7zXZ\0", "compressed by xz"),
    (0, b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (0, b"QFI\xfb", "a qcow2 image"),
];

/// Number of bytes at the start that suffice for the detection.
pub const ENOUGH: usize = 0x10100;

/// Describes the format that starts with these bytes.
pub fn recognise(start: &[u8]) -> String {
    let known = SIGNATURES.iter().find(|(at, signature, _)| {
        start.get(*at..).is_some_and(|rest| rest.starts_with(signature))
    });
    if let Some((.., name)) = known {
        (*name).to_owned()
    } else if start.is_empty() {
        "empty".to_owned()
    } else if start.iter().all(|&byte| byte == 0) {
        "all zeroes: run mke2fs first".to_owned()
    } else if start.len() > 1024 + 512 && start.starts_with(b"\x7fELF") {
        "a program".to_owned()
    } else if start.len() >= 512 && get16(start, 510) == 0xAA55 {
        "a disk with partitions: choose one of them".to_owned()
    } else {
        "unknown format: there is no superblock".to_owned()
    }
}
