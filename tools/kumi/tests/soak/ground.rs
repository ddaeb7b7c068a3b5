//! The place of a round, and a guard process that clears it whatever becomes of the test.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Variable with the directory that a guard clears.
const PLACE: &str = "KUMI_TEST_PLACE";
/// Written to the guard when the round has succeeded.
const SUCCESS: &[u8] = b"success";

/// A directory with a small file system in it.
pub struct Ground {
    pub place: PathBuf,
    pub small: PathBuf,
    guard: Child,
}

impl Ground {
    /// Makes the directory. `guard` starts this program as a guard.
    pub fn new(round: u64, mut guard: Command) -> Ground {
        let name = format!("kumi-soak-{}-{round}", std::process::id());
        let place = std::env::temp_dir().join(name);
        let small = place.join("small");
        fs::create_dir_all(&small).expect("a directory");
        // In a group of its own: an interrupt from the terminal ends the test and not the guard.
        guard.env(PLACE, &place).process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        let guard = guard.spawn().expect("this program");
        mount("kumi-soak", &small, "tmpfs", MountFlags::empty(), c"size=64m").expect("a tmpfs");
        // The mount point is in a file system that cannot be written, so that nothing comes into
        // it while its server has ended.
        let below = place.join("below");
        fs::create_dir(&below).expect("a directory");
        mount("kumi-soak", &below, "tmpfs", MountFlags::empty(), c"size=64k").expect("a tmpfs");
        fs::create_dir(point(&place)).expect("a directory");
        mount_remount(&below, MountFlags::RDONLY, c"").expect("without writes");
        let machine = place.join("machine");
        fs::create_dir(&machine).expect("a directory");
        fs::set_permissions(&machine, fs::Permissions::from_mode(0o700)).expect("a mode");
        Ground { place, small, guard }
    }
}

/// Where the directory is mounted.
pub fn point(place: &Path) -> PathBuf {
    place.join("below/point")
}

impl Drop for Ground {
    fn drop(&mut self) {
        let mut told = self.guard.stdin.take().expect("a pipe");
        if !std::thread::panicking() {
            told.write_all(SUCCESS).expect("the guard reads");
        }
        drop(told);
        let status = self.guard.wait().expect("our child");
        if std::thread::panicking() {
            eprintln!("{} has the messages of all processes", self.place.display());
        } else {
            assert!(status.success(), "the guard: {status}");
        }
    }
}

/// Waits for the end of the test, however it comes, and clears its directory.
pub fn guard() -> ! {
    let place = PathBuf::from(std::env::var_os(PLACE).expect("a directory"));
    let mut told = Vec::new();
    std::io::stdin().read_to_end(&mut told).expect("a pipe");
    end_processes(&place);
    // Not mounted any more, unless a server was killed.
    let _ = unmount(point(&place), UnmountFlags::DETACH);
    for at in ["below", "small"] {
        // Not yet mounted, if the test has failed early.
        let _ = unmount(place.join(at), UnmountFlags::DETACH);
    }
    // After a failure, the messages of all processes stay.
    if told == SUCCESS {
        fs::remove_dir_all(&place).expect("nothing is mounted there");
    }
    std::process::exit(0)
}

/// Ends all processes whose run-time directory is below `place`.
pub fn end_processes(place: &Path) {
    let own = [b"KUMI_DIR=", place.join("machine").as_os_str().as_encoded_bytes()].concat();
    for entry in fs::read_dir("/proc").expect("procfs").flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = number.and_then(Pid::from_raw) else { continue };
        // Opened before the look, so that the process cannot be another one meanwhile.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|&byte| byte == 0).any(|variable| variable == own) {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}
