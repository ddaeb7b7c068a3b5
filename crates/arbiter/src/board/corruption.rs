//! Detects processes that write to reserved parts of the board.
//!
//! A word on the board does not identify the process that wrote it. Therefore part of the file, the
//! canary, is reserved: no address space reads or writes it. If it is not zero, some process
//! corrupts the board. The page tables of each process record whether it ever touched a page of the
//! canary (proc_pid_pagemap(5)). The detector reads the page with a system call, so its own page
//! tables stay unaffected.
//!
//! A process that locks all its memory has every page in its page tables and is not suspected. A
//! process that corrupts only other parts of the board is not detected.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::board::layout::{CANARY_PAGE, PAGE};

/// Bits of a /proc/PID/pagemap entry: page present, or page swapped.
const IS_THERE: u64 = 0b11 << 62;

/// Returns whether any process has written to the canary.
pub(crate) fn is_corrupted(board: impl AsFd) -> bool {
    let mut page = [0; PAGE];
    let read = rustix::io::pread(board, &mut page, CANARY_PAGE as u64).unwrap_or(0);
    page[..read].iter().any(|&byte| byte != 0)
}

/// Zeroes the canary with a system call, which leaves the caller's page tables untouched. Otherwise
/// the detector would suspect the caller.
pub(crate) fn clear_canary(board: impl AsFd) {
    // On an error the canary keeps its content, and a later search may find no writer.
    let _ = rustix::io::pwrite(board, &[0; PAGE], CANARY_PAGE as u64);
}

/// Returns the pid and name of each process that touched the canary, as far as the caller may read
/// /proc.
pub(crate) fn find_writers(path: &Path, inode: u64) -> Vec<(u32, String)> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let touched = pids.filter(|&pid| has_touched(pid, path, inode).unwrap_or(false));
    touched
        .map(|pid| {
            (
                pid,
                fs::read_to_string(format!("/proc/{pid}/comm"))
                    .unwrap_or_default()
                    .trim_end()
                    .to_owned(),
            )
        })
        .collect()
}

fn has_touched(pid: u32, path: &Path, inode: u64) -> Option<bool> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let page = maps.lines().find_map(|line| page_in(line, path, inode))?;
    let mut entry = [0; 8];
    File::open(format!("/proc/{pid}/pagemap"))
        .ok()?
        .read_exact_at(&mut entry, page / PAGE as u64 * 8)
        .ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"))?.trim() != "0 kB";
    Some(u64::from_ne_bytes(entry) & IS_THERE != 0 && !locked)
}

/// Returns the address of the canary page, if this line of /proc/PID/maps describes a mapping of
/// the board that contains it. Compares inode and file name only: on some file systems the device
/// number differs from that of stat(2).
fn page_in(line: &str, path: &Path, inode: u64) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (begin, end) = fields.next()?.split_once('-')?;
    let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
    let (found, name) = (fields.nth(1)?.parse::<u64>().ok()?, Path::new(fields.next()?));
    let (begin, end) = (u64::from_str_radix(begin, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let page = (begin + CANARY_PAGE as u64).checked_sub(offset)?;
    (found == inode && name.file_name() == path.file_name() && (begin..end).contains(&page))
        .then_some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_detects_a_write_and_is_cleared() {
        let path = std::env::temp_dir().join(format!("kumihimo-canary-{}", std::process::id()));
        let file =
            File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        fs::remove_file(&path).expect("ours");
        file.set_len(crate::board::layout::SIZE as u64).expect("room");
        assert!(!is_corrupted(&file));
        file.write_all_at(&[1], (CANARY_PAGE - 1) as u64).expect("room");
        assert!(!is_corrupted(&file), "in another page");
        file.write_all_at(&[1], (CANARY_PAGE + PAGE - 1) as u64).expect("room");
        assert!(is_corrupted(&file));
        clear_canary(&file);
        assert!(!is_corrupted(&file));
    }

    #[test]
    fn canary_page_is_found_in_maps() {
        let board = Path::new("/run/user/0/kumihimo/board");
        let at = 0x7f00_0000_0000 + CANARY_PAGE as u64;
        let line = |begin: &str, offset: &str, inode: u32, name: &str| {
            format!("{begin}-7f0000400000 rw-s {offset} 00:1a {inode}    {name}")
        };
        let page = |line: &str| page_in(line, board, 77);
        assert_eq!(page(&line("7f0000000000", "00000000", 77, "/elsewhere/board")), Some(at));
        assert_eq!(
            page(&line("7f0000000000", "00001000", 77, "/elsewhere/board")),
            Some(at - 0x1000)
        );
        assert_eq!(page(&line("7f0000000000", "00000000", 78, "/elsewhere/board")), None);
        assert_eq!(page(&line("7f0000000000", "00000000", 77, "/elsewhere/other")), None);
        assert_eq!(page(&line("7f0000000000", "00400000", 77, "/elsewhere/board")), None);
        for none in
            ["", "7ffd1000-7ffd2000 rw-p 00000000 00:00 0 [stack]", "x-y rw-s 0 00:1a 77 /board"]
        {
            assert_eq!(page(none), None, "{none}");
        }
    }
}
