//! Files that are slow to read, with the necessary part of the FUSE protocol.
//!
//! Source: linux/fuse.h (protocol 7.31), fuse(4). The crate `fuser` is not used, because it would
//! add 25 dependencies, two versions of `syn` among them.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kumihimo_bench_stall::{PAGE, STALLERS};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::slowness;

/// One thread for each concurrent stall, and one for quick requests.
const SERVERS: usize = STALLERS + 1;
/// At least FUSE_MIN_READ_BUFFER.
const BUFFER: usize = 64 << 10;
const IN_HEADER: usize = 40;
const ROOT: u64 = 1;
/// First node number: `read0` ..., followed by `page0` ...
const FIRST: u64 = 2;
const FIRST_MAPPED: u64 = FIRST + STALLERS as u64;
const END: u64 = FIRST_MAPPED + STALLERS as u64;
/// File size, larger than any offset that a staller uses.
const SIZE: u64 = 1 << 40;
const FOPEN_DIRECT_IO: u32 = 1;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const ENOENT: i32 = 2;
const ENOSYS: i32 = 38;

/// The mounted files. Unmounted when dropped.
pub struct Mount {
    path: PathBuf,
}

impl Mount {
    /// Mounts the files at `path`, a directory.
    pub fn new(path: PathBuf) -> io::Result<Mount> {
        let device = Arc::new(OpenOptions::new().read(true).write(true).open("/dev/fuse")?);
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = CString::new(options).expect("no 0 in it");
        mount(
            "kumi-bench",
            &path,
            "fuse",
            MountFlags::NODEV | MountFlags::NOSUID,
            options.as_c_str(),
        )?;
        let mount = Mount { path };
        for _ in 0..SERVERS {
            let device = device.clone();
            thread::Builder::new().spawn(move || {
                super::load::precise();
                serve(&device);
            })?;
        }
        Ok(mount)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Detached, so that a hanging contender cannot keep the mount.
        if let Err(e) = unmount(&self.path, UnmountFlags::DETACH) {
            eprintln!("outside: {} stays mounted: {e}", self.path.display());
        }
    }
}

/// Serves until the file system is unmounted.
fn serve(mut device: &File) {
    let mut buffer = vec![0; BUFFER];
    loop {
        match device.read(&mut buffer) {
            Ok(n) => {
                let Some(request) = Request::parse(&buffer[..n]) else { return };
                if let Some(reply) = request.answer() {
                    // ENOENT: the calling process was interrupted meanwhile.
                    let _ = device.write_all(&reply);
                }
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::NotFound) => {}
            // ENODEV: unmounted.
            Err(_) => return,
        }
    }
}

struct Request<'a> {
    opcode: u32,
    unique: u64,
    node: u64,
    body: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Consecutive numbers as in a C struct.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn u32s(mut self, words: &[u32]) -> Self {
        words.iter().for_each(|word| self.0.extend_from_slice(&word.to_ne_bytes()));
        self
    }

    fn u64s(mut self, words: &[u64]) -> Self {
        words.iter().for_each(|word| self.0.extend_from_slice(&word.to_ne_bytes()));
        self
    }

    /// struct fuse_attr.
    fn attributes(self, node: u64) -> Self {
        let (mode, size) =
            if node == ROOT { (S_IFDIR | 0o755, 0) } else { (S_IFREG | 0o444, SIZE) };
        self.u64s(&[node, size, 0, 0, 0, 0]).u32s(&[0, 0, 0, mode, 1, 0, 0, 0, PAGE as u32, 0])
    }
}

impl<'a> Request<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Request<'a>> {
        let body = bytes.get(IN_HEADER..)?;
        Some(Request {
            opcode: u32_at(bytes, 4)?,
            unique: u64_at(bytes, 8)?,
            node: u64_at(bytes, 16)?,
            body,
        })
    }

    /// The reply to a request; `None` if it has none.
    fn answer(&self) -> Option<Vec<u8>> {
        let outcome = match self.opcode {
            // FORGET, INTERRUPT (an interrupted reader keeps waiting), BATCH_FORGET.
            2 | 36 | 42 => return None,
            1 => self.look_up(),
            // GETATTR: attributes are valid for an hour.
            3 => Ok(Out::default().u64s(&[3_600]).u32s(&[0, 0]).attributes(self.node)),
            // OPEN: mapped files must use the page cache, read files must not.
            14 => Ok(Out::default()
                .u64s(&[0])
                .u32s(&[if self.is_mapped() { 0 } else { FOPEN_DIRECT_IO }, 0])),
            15 => self.read(),
            // RELEASE, FLUSH, DESTROY.
            18 | 25 | 38 => Ok(Out::default()),
            26 => self.init(),
            _ => Err(ENOSYS),
        };
        let (error, body) = match outcome {
            Ok(out) => (0, out.0),
            Err(error) => (-error, Vec::new()),
        };
        let mut reply =
            Out::default().u32s(&[16 + body.len() as u32, error as u32]).u64s(&[self.unique]).0;
        reply.extend_from_slice(&body);
        Some(reply)
    }

    fn is_mapped(&self) -> bool {
        self.node >= FIRST_MAPPED
    }

    /// struct fuse_init_out. No readahead, so that each page causes a separate wait.
    fn init(&self) -> Result<Out, i32> {
        let background = u32::from(32u16) | u32::from(24u16) << 16;
        Ok(Out::default().u32s(&[7, 31, 0, 0, background, PAGE as u32, 1]).u32s(&[0; 9]))
    }

    fn look_up(&self) -> Result<Out, i32> {
        let name = self
            .body
            .split(|b| *b == 0)
            .next()
            .and_then(|name| std::str::from_utf8(name).ok())
            .ok_or(ENOENT)?;
        let numbered = |prefix: &str, first: u64| {
            let i: u64 = name.strip_prefix(prefix)?.parse().ok()?;
            (i < STALLERS as u64).then_some(first + i)
        };
        let node = numbered("read", FIRST)
            .or_else(|| numbered("page", FIRST_MAPPED))
            .filter(|node| *node < END)
            .ok_or(ENOENT)?;
        Ok(Out::default().u64s(&[node, 0, 3_600, 3_600]).u32s(&[0, 0]).attributes(node))
    }

    fn read(&self) -> Result<Out, i32> {
        let offset = u64_at(self.body, 8).ok_or(ENOSYS)?;
        let size = u32_at(self.body, 16).ok_or(ENOSYS)? as usize;
        thread::sleep(Duration::from_micros(slowness(self.is_mapped(), offset / PAGE as u64)));
        Ok(Out(vec![7; size.min(BUFFER)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let head = Out::default().u32s(&[0, opcode]).u64s(&[9, node]).u32s(&[0, 0, 0, 0]).0;
        let whole = [head.as_slice(), body].concat();
        Request::parse(&whole).unwrap().answer().unwrap()
    }

    #[test]
    fn replies_have_the_sizes_of_the_protocol() {
        for (opcode, node, body, size) in [
            (26, 0, [0; 64].as_slice(), 64),
            (1, ROOT, b"read7\0".as_slice(), 128),
            (3, ROOT, &[0; 16], 104),
            (14, FIRST, &[0; 8], 16),
            (15, FIRST, &Out::default().u64s(&[0, 0]).u32s(&[8, 0]).0, 8),
        ] {
            let reply = ask(opcode, node, body);
            assert_eq!(
                (reply.len(), u32_at(&reply, 0), u32_at(&reply, 4)),
                (16 + size, Some(16 + size as u32), Some(0))
            );
            assert_eq!(u64_at(&reply, 8), Some(9));
        }
    }

    #[test]
    fn missing_names_and_unknown_opcodes_are_refused() {
        for name in ["read8", "page", "other", "read-1"] {
            assert_eq!(
                u32_at(&ask(1, ROOT, format!("{name}\0").as_bytes()), 4),
                Some(-ENOENT as u32),
                "{name}"
            );
        }
        assert_eq!(u32_at(&ask(28, ROOT, &[]), 4), Some(-ENOSYS as u32));
        assert!(Request::parse(&[0; 10]).is_none());
    }
}
