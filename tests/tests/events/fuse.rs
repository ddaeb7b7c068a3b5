//! A file system that replies to reads only after a release, and a private mount namespace for it.
//!
//! A library for FUSE would add duplicate dependencies, and the test needs only a small part of the
//! protocol (linux/fuse.h, fuse(4)).
//!
//! A separate process serves the file system. A kernel thread that waits for a reply cannot be
//! killed, so a process that served itself could not end after a failed test. The mount is on /mnt
//! in a private mount namespace, which ends with the test.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::process::Child;
use std::sync::{Arc, Mutex, OnceLock};

use kumihimo_tests::process::start;

/// Mount point, visible to the test's process only. The Filesystem Hierarchy Standard requires the
/// directory.
const ROOT: &str = "/mnt";
/// Environment variable that marks the serving process.
const SERVER: &str = "KUMI_TEST_FUSE";
/// Line that the serving process prints after mounting.
const READY: &str = "mounted";
/// A file whose bytes are those of [`byte`].
pub const DATA: &str = "/mnt/data";
/// Length of the file in bytes.
pub const LENGTH: usize = 64 << 10;
/// A shell script that exits with 7.
pub const PROGRAM: &str = "/mnt/program";
const SCRIPT: &[u8] = b"#!/bin/sh\nexit 7\n";

/// Byte of [`DATA`] at an offset.
pub fn byte(at: usize) -> u8 {
    (at % 253) as u8
}

/// Creates a private mount namespace for the calling kernel thread and the threads that it starts.
/// Once for each process.
///
/// # Errors
/// Reason of the failure, usually a lack of CAP_SYS_ADMIN.
pub fn own_mounts() -> Result<(), String> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    let unshare = || {
        // SAFETY: integers only; a string that lives on; null where mount(2) ignores the argument.
        let failed = unsafe {
            libc::unshare(libc::CLONE_NEWNS) != 0
                || libc::mount(
                    c"none".as_ptr(),
                    c"/".as_ptr(),
                    std::ptr::null(),
                    libc::MS_REC | libc::MS_PRIVATE,
                    std::ptr::null(),
                ) != 0
        };
        if failed {
            Err(format!("cannot create a mount namespace: {}", io::Error::last_os_error()))
        } else {
            Ok(())
        }
    };
    DONE.get_or_init(unshare).clone()
}

/// The mounted file system. Reads of its files block until [`Slow::release`].
#[derive(Debug)]
pub struct Slow(Child);

impl Slow {
    /// Mounts the file system for the test `name`. Blocks the kernel thread until it is mounted.
    ///
    /// # Errors
    /// Reason why mounting is impossible on this machine.
    pub fn mount(name: &str) -> Result<Slow, String> {
        own_mounts()?;
        drop(open_device()?);
        let mut server = start(name, &[(SERVER, "1")]);
        let lines = BufReader::new(server.stdout.as_mut().expect("a pipe")).lines();
        // libtest prints a line first, without a line feed.
        if lines.map_while(Result::ok).any(|line| line.ends_with(READY)) {
            return Ok(Slow(server));
        }
        let ended = server.wait_with_output().expect("it ended");
        panic!(
            "the file system's process: {}: {}",
            ended.status,
            String::from_utf8_lossy(&ended.stderr)
        );
    }

    /// Returns a function that lets all reads complete from then on.
    pub fn release(&mut self) -> impl FnOnce() + Send + use<> {
        let mut gate = self.0.stdin.take().expect("once");
        move || {
            gate.write_all(b"1").expect("a listening socket");
            // Closing the pipe would signal the end of the test.
            std::mem::forget(gate);
        }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        // SAFETY: a string that lives on.
        let gone = unsafe { libc::umount2(c"/mnt".as_ptr(), libc::MNT_DETACH) };
        assert_eq!(gone, 0, "{ROOT}: {}", io::Error::last_os_error());
        self.0.kill().expect("not yet waited for");
        self.0.wait().expect("our own child");
    }
}

/// Returns whether this is the serving process.
pub fn is_server() -> bool {
    std::env::var_os(SERVER).is_some()
}

/// Serves until the test ends.
pub fn serve() {
    // The server ends with the test, however the test ends: kernel threads that wait for a reply
    // can end only after the connection is closed.
    // SAFETY: integers only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::alarm(150);
    }
    let gate = Arc::new(Gate {
        device: open_device().expect("the parent tried it"),
        held: Mutex::default(),
    });
    let options = format!("fd={},rootmode=40755,user_id=0,group_id=0", gate.device.as_raw_fd());
    let options = CString::new(options).expect("no NUL");
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: strings that live on.
    let r = unsafe {
        libc::mount(
            c"kumihimo-test".as_ptr(),
            c"/mnt".as_ptr(),
            c"fuse".as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    };
    assert_eq!(r, 0, "{ROOT}: {}", io::Error::last_os_error());
    let its = gate.clone();
    std::thread::spawn(move || answer_all(&its));
    println!("{READY}");
    let mut byte = [0];
    while io::stdin().read(&mut byte).expect("a pipe") == 1 {
        gate.open();
    }
}

fn open_device() -> Result<File, String> {
    File::options().read(true).write(true).open("/dev/fuse").map_err(|e| format!("/dev/fuse: {e}"))
}

/// Connection to the kernel. Replies are withheld until it is opened.
struct Gate {
    device: File,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    open: bool,
    answers: Vec<(u64, Vec<u8>)>,
}

impl Gate {
    fn open(&self) {
        let mut held = self.held.lock().expect("not poisoned");
        held.open = true;
        for (request, bytes) in held.answers.drain(..) {
            self.send(request, Ok(&bytes));
        }
    }

    fn pass(&self, request: u64, bytes: Vec<u8>) {
        let mut held = self.held.lock().expect("not poisoned");
        if held.open {
            self.send(request, Ok(&bytes));
        } else {
            held.answers.push((request, bytes));
        }
    }

    /// Replies to a request: a header (length, negative errno, request number) and the payload, in
    /// one write.
    fn send(&self, request: u64, outcome: Result<&[u8], i32>) {
        let bytes = outcome.unwrap_or_default();
        let mut all = (16 + bytes.len() as u32).to_ne_bytes().to_vec();
        all.extend((-outcome.err().unwrap_or(0)).to_ne_bytes());
        all.extend(request.to_ne_bytes());
        all.extend(bytes);
        match (&self.device).write(&all) {
            Ok(n) => assert_eq!(n, all.len()),
            // The process that made the request is gone.
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::ENOENT), "{e}"),
        }
    }
}

/// FUSE operations, see fuse(4).
mod operation {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const RELEASE: u32 = 18;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const INTERRUPT: u32 = 36;
    pub const BATCH_FORGET: u32 = 42;
}

/// Numbers of the root and of its two files.
const ROOT_FILE: u64 = 1;
const DATA_FILE: u64 = 2;
const PROGRAM_FILE: u64 = 3;
/// Time in seconds for which the kernel may cache replies. Longer than any test.
const LONG: u64 = 3600;

fn number(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes[..8].try_into().expect("eight"))
}

fn half(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes[..4].try_into().expect("four"))
}

/// Serves until the file system is unmounted.
fn answer_all(gate: &Gate) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n) = (&gate.device).read(&mut buffer) {
        // The header: length, operation, request number, file; the calling process, which is
        // ignored.
        let (operation, request, file) =
            (half(&buffer[4..]), number(&buffer[8..]), number(&buffer[16..]));
        let body = &buffer[40..n];
        match operation {
            operation::INIT => gate.send(request, Ok(&init())),
            operation::LOOKUP => match body {
                b"data\0" => gate.send(request, Ok(&entry(DATA_FILE))),
                b"program\0" => gate.send(request, Ok(&entry(PROGRAM_FILE))),
                _ => gate.send(request, Err(libc::ENOENT)),
            },
            operation::GETATTR => {
                gate.send(request, Ok(&[words(&[LONG, 0]), attributes(file)].concat()))
            }
            // A file handle and flags, both unused.
            operation::OPEN => gate.send(request, Ok(&[0; 16])),
            operation::READ => {
                let all = contents(file);
                let from = (number(&body[8..]) as usize).min(all.len());
                let to = (from + half(&body[16..]) as usize).min(all.len());
                gate.pass(request, all[from..to].to_vec());
            }
            operation::RELEASE | operation::FLUSH => gate.send(request, Ok(&[])),
            // FORGET has no reply. An interrupted request is replied to after the release, like the
            // others.
            operation::FORGET | operation::BATCH_FORGET | operation::INTERRUPT => {}
            _ => gate.send(request, Err(libc::ENOSYS)),
        }
    }
}

fn words(all: &[u64]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn halves(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|half| half.to_ne_bytes()).collect()
}

/// Reply to INIT: version 7.31; readahead 128 KiB; no flags, no limits of background requests;
/// writes of one page; times in seconds.
fn init() -> Vec<u8> {
    halves(&[7, 31, 128 << 10, 0, 0, 4096, 1_000_000_000, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

/// File, generation, and validity of name and attributes (seconds, then nanoseconds).
fn entry(file: u64) -> Vec<u8> {
    [words(&[file, 0, LONG, LONG, 0]), attributes(file)].concat()
}

fn attributes(file: u64) -> Vec<u8> {
    let size = contents(file).len() as u64;
    let kind = if file == ROOT_FILE { libc::S_IFDIR } else { libc::S_IFREG };
    // Number, size, blocks of 512 bytes, three times; nanoseconds of the times, mode, links, owner,
    // group, device, block size, flags.
    let numbers = words(&[file, size, size.div_ceil(512), 0, 0, 0]);
    [numbers, halves(&[0, 0, 0, kind | 0o755, 1, 0, 0, 0, 4096, 0])].concat()
}

fn contents(file: u64) -> Vec<u8> {
    match file {
        DATA_FILE => (0..LENGTH).map(byte).collect(),
        PROGRAM_FILE => SCRIPT.to_vec(),
        _ => Vec::new(),
    }
}
