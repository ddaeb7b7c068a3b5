//! A running case: system calls that record their results.
//!
//! Two file systems with the same behaviour produce the same record. The record contains names of
//! errors, modes, link counts, sizes, and which times changed. It never contains a time, an inode
//! number or a position in a directory.

mod rendering;

use std::fmt::{Display, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags,
    SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::{Errno, Result};

pub use rendering::errno_name;
use rendering::{describe, names, runs, shown};

/// The calls of a case and their results. The case's directory is the current one.
pub struct Trial {
    transcript: String,
    /// Name of the calling user, empty for root.
    who: String,
}

/// An open file, or a file that could not be opened.
pub struct Open(Option<OwnedFd>);

/// Times, size and links at some moment.
pub struct Before(Option<Stat>);

impl Open {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd).ok_or(Errno::BADF)
    }
}

impl AsFd for Open {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().map_or(CWD, AsFd::as_fd)
    }
}

fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

/// A path or a name: text, or bytes that are not valid UTF-8.
pub trait Path: AsRef<[u8]> + Copy {}
impl<T: AsRef<[u8]> + Copy> Path for T {}

impl Trial {
    pub(crate) fn new() -> Trial {
        Trial { transcript: String::new(), who: String::new() }
    }

    pub(crate) fn transcript(self) -> String {
        self.transcript
    }

    /// Records a line.
    pub fn say(&mut self, line: impl Display) {
        let _ = writeln!(self.transcript, "{}{line}", self.who);
    }

    fn done<T>(&mut self, what: impl Display, outcome: Result<T>) -> Option<T> {
        self.gave(what, outcome, |_| "ok".into())
    }

    fn gave<T>(
        &mut self,
        what: impl Display,
        outcome: Result<T>,
        show: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        match outcome {
            Ok(value) => {
                let shown = show(&value);
                self.say(format_args!("{what} = {shown}"));
                Some(value)
            }
            Err(e) => {
                self.say(format_args!("{what} = {}", errno_name(e)));
                None
            }
        }
    }

    /// Runs `body` as another user with one group.
    ///
    /// # Panics
    /// If the process lacks the privilege.
    pub fn as_user(&mut self, id: u32, body: impl FnOnce(&mut Trial) + Send) {
        self.as_member(id, &[id], body);
    }

    /// Runs `body` as another user. The first group is the primary one, the others are
    /// supplementary.
    ///
    /// # Panics
    /// If the process lacks the privilege.
    pub fn as_member(&mut self, id: u32, groups: &[u32], body: impl FnOnce(&mut Trial) + Send) {
        use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
        let before = std::mem::replace(&mut self.who, format!("[{id}] "));
        // The kernel keeps credentials per thread, see nptl(7). Current directory and umask are
        // shared with the new thread.
        std::thread::scope(|scope| {
            let run = || {
                let all: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
                let (group, user) = (all[0], Uid::from_raw(id));
                set_thread_groups(&all).expect("setgroups");
                set_thread_res_gid(group, group, group).expect("setresgid");
                set_thread_res_uid(user, user, user).expect("setresuid");
                body(self);
            };
            scope.spawn(run).join().expect("the case goes on");
        });
        self.who = before;
    }

    /// Sets the umask from here on.
    pub fn umask(&mut self, bits: u32) {
        rustix::process::umask(mode(bits));
        self.say(format_args!("umask {bits:o}"));
    }

    /// open(2).
    pub fn open(&mut self, path: impl Path, flags: OFlags, bits: u32) -> Open {
        let opened = rustix::fs::open(path.as_ref(), flags | OFlags::CLOEXEC, mode(bits));
        let flags: Vec<&str> =
            flags.iter_names().map(|(name, _)| name).filter(|name| *name != "ACCMODE").collect();
        Open(self.done(format_args!("open {} {} {bits:o}", shown(path), flags.join("|")), opened))
    }

    /// Creates a file with `content`. Recorded only if it fails.
    pub fn file(&mut self, path: impl Path, content: impl AsRef<[u8]>) {
        let make = || {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::open(path.as_ref(), flags, mode(0o644))?;
            let content = content.as_ref();
            let wrote = rustix::io::write(&file, content)?;
            if wrote == content.len() { Ok(()) } else { Err(Errno::NOSPC) }
        };
        if let Err(e) = make() {
            self.say(format_args!("file {} = {}", shown(path), errno_name(e)));
        }
    }

    /// Creates a directory. Recorded only if it fails.
    pub fn directory(&mut self, path: impl Path) {
        if let Err(e) = rustix::fs::mkdir(path.as_ref(), mode(0o755)) {
            self.say(format_args!("directory {} = {}", shown(path), errno_name(e)));
        }
    }

    /// Opens an existing file for reading and writing. Recorded only if it fails.
    pub fn opened(&mut self, path: impl Path) -> Open {
        match rustix::fs::open(path.as_ref(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => Open(Some(file)),
            Err(e) => {
                self.say(format_args!("opened {} = {}", shown(path), errno_name(e)));
                Open(None)
            }
        }
    }

    /// close(2).
    pub fn close(&mut self, file: Open) {
        drop(file);
        self.say("close");
    }

    /// mkdir(2).
    pub fn mkdir(&mut self, path: impl Path, bits: u32) {
        let made = rustix::fs::mkdir(path.as_ref(), mode(bits));
        self.done(format_args!("mkdir {} {bits:o}", shown(path)), made);
    }

    /// rmdir(2).
    pub fn rmdir(&mut self, path: impl Path) {
        let removed = rustix::fs::rmdir(path.as_ref());
        self.done(format_args!("rmdir {}", shown(path)), removed);
    }

    /// unlink(2).
    pub fn unlink(&mut self, path: impl Path) {
        let removed = rustix::fs::unlink(path.as_ref());
        self.done(format_args!("unlink {}", shown(path)), removed);
    }

    /// rename(2).
    pub fn rename(&mut self, from: impl Path, to: impl Path) {
        let renamed = rustix::fs::rename(from.as_ref(), to.as_ref());
        self.done(format_args!("rename {} {}", shown(from), shown(to)), renamed);
    }

    /// renameat2(2).
    pub fn rename_with(&mut self, from: impl Path, to: impl Path, flags: RenameFlags) {
        let renamed = rustix::fs::renameat_with(CWD, from.as_ref(), CWD, to.as_ref(), flags);
        let flags: Vec<&str> = flags.iter_names().map(|(name, _)| name).collect();
        self.done(
            format_args!("rename {} {} {}", shown(from), shown(to), flags.join("|")),
            renamed,
        );
    }

    /// link(2).
    pub fn link(&mut self, from: impl Path, to: impl Path) {
        let linked = rustix::fs::link(from.as_ref(), to.as_ref());
        self.done(format_args!("link {} {}", shown(from), shown(to)), linked);
    }

    /// linkat(2) with `AT_SYMLINK_FOLLOW`.
    pub fn link_followed(&mut self, from: impl Path, to: impl Path) {
        let linked =
            rustix::fs::linkat(CWD, from.as_ref(), CWD, to.as_ref(), AtFlags::SYMLINK_FOLLOW);
        self.done(format_args!("link followed {} {}", shown(from), shown(to)), linked);
    }

    /// linkat(2) with `AT_EMPTY_PATH`: gives an open file a name.
    pub fn link_open(&mut self, file: &Open, to: impl Path) {
        let linked = file
            .fd()
            .and_then(|fd| rustix::fs::linkat(fd, "", CWD, to.as_ref(), AtFlags::EMPTY_PATH));
        self.done(format_args!("link the open file {}", shown(to)), linked);
    }

    /// symlink(2).
    pub fn symlink(&mut self, target: impl Path, path: impl Path) {
        let made = rustix::fs::symlink(target.as_ref(), path.as_ref());
        self.done(format_args!("symlink {} {}", shown(target), shown(path)), made);
    }

    /// readlink(2).
    pub fn readlink(&mut self, path: impl Path) {
        let target = rustix::fs::readlink(path.as_ref(), Vec::new());
        self.gave(format_args!("readlink {}", shown(path)), target, |target| {
            shown(target.to_bytes())
        });
    }

    /// mknod(2); `device` is major and minor.
    pub fn mknod(&mut self, path: impl Path, kind: FileType, bits: u32, device: (u32, u32)) {
        let number = rustix::fs::makedev(device.0, device.1);
        let made = rustix::fs::mknodat(CWD, path.as_ref(), kind, mode(bits), number);
        self.done(format_args!("mknod {} {kind:?} {bits:o} {device:?}", shown(path)), made);
    }

    /// mkfifo(3).
    pub fn mkfifo(&mut self, path: impl Path, bits: u32) {
        self.mknod(path, FileType::Fifo, bits, (0, 0));
    }

    /// chmod(2).
    pub fn chmod(&mut self, path: impl Path, bits: u32) {
        let changed = rustix::fs::chmod(path.as_ref(), mode(bits));
        self.done(format_args!("chmod {} {bits:o}", shown(path)), changed);
    }

    /// fchmod(2).
    pub fn fchmod(&mut self, file: &Open, bits: u32) {
        let changed = file.fd().and_then(|fd| rustix::fs::fchmod(fd, mode(bits)));
        self.done(format_args!("fchmod {bits:o}"), changed);
    }

    /// chown(2).
    pub fn chown(&mut self, path: impl Path, user: Option<u32>, group: Option<u32>) {
        let changed =
            rustix::fs::chown(path.as_ref(), user.map(Uid::from_raw), group.map(Gid::from_raw));
        self.done(format_args!("chown {} {user:?} {group:?}", shown(path)), changed);
    }

    /// lchown(2).
    pub fn lchown(&mut self, path: impl Path, user: Option<u32>, group: Option<u32>) {
        let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
        let changed =
            rustix::fs::chownat(CWD, path.as_ref(), user, group, AtFlags::SYMLINK_NOFOLLOW);
        self.done(format_args!("lchown {} {user:?} {group:?}", shown(path)), changed);
    }

    /// fchown(2).
    pub fn fchown(&mut self, file: &Open, user: Option<u32>, group: Option<u32>) {
        let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
        let changed = file.fd().and_then(|fd| rustix::fs::fchown(fd, user, group));
        self.done(format_args!("fchown {user:?} {group:?}"), changed);
    }

    /// truncate(2).
    pub fn truncate(&mut self, path: impl Path, size: i64) {
        let changed = nix::unistd::truncate(path.as_ref(), size)
            .map_err(|e| Errno::from_raw_os_error(e as i32));
        self.done(format_args!("truncate {} {size}", shown(path)), changed);
    }

    /// ftruncate(2).
    pub fn ftruncate(&mut self, file: &Open, size: u64) {
        let changed = file.fd().and_then(|fd| rustix::fs::ftruncate(fd, size));
        self.done(format_args!("ftruncate {size}"), changed);
    }

    /// utimensat(2).
    pub fn utimens(&mut self, path: impl Path, atime: Timespec, mtime: Timespec, flags: AtFlags) {
        let times = Timestamps { last_access: atime, last_modification: mtime };
        let changed = rustix::fs::utimensat(CWD, path.as_ref(), &times, flags);
        self.done(format_args!("utimensat {}", shown(path)), changed);
    }

    /// futimens(3).
    pub fn futimens(&mut self, file: &Open, atime: Timespec, mtime: Timespec) {
        let times = Timestamps { last_access: atime, last_modification: mtime };
        let changed = file.fd().and_then(|fd| rustix::fs::futimens(fd, &times));
        self.done("futimens", changed);
    }

    /// access(2).
    pub fn access(&mut self, path: impl Path, how: rustix::fs::Access) {
        let allowed = rustix::fs::access(path.as_ref(), how);
        let how: Vec<&str> = how.iter_names().map(|(name, _)| name).collect();
        self.done(format_args!("access {} {}", shown(path), how.join("|")), allowed);
    }

    /// stat(2).
    pub fn stat(&mut self, path: impl Path) {
        let stat = rustix::fs::stat(path.as_ref());
        self.gave(format_args!("stat {}", shown(path)), stat, describe);
    }

    /// lstat(2).
    pub fn lstat(&mut self, path: impl Path) {
        let stat = rustix::fs::lstat(path.as_ref());
        self.gave(format_args!("lstat {}", shown(path)), stat, describe);
    }

    /// fstat(2).
    pub fn fstat(&mut self, file: &Open) {
        let stat = file.fd().and_then(rustix::fs::fstat);
        self.gave("fstat", stat, describe);
    }

    /// The times themselves, for times that the case has set.
    pub fn times(&mut self, path: impl Path) {
        let stat = rustix::fs::lstat(path.as_ref());
        let show = |stat: &Stat| {
            format!(
                "atime {}.{:09} mtime {}.{:09}",
                stat.st_atime, stat.st_atime_nsec, stat.st_mtime, stat.st_mtime_nsec
            )
        };
        self.gave(format_args!("times of {}", shown(path)), stat, show);
    }

    /// Sets atime and mtime to the year 2001, saves all times, and waits until the clock has
    /// advanced by the granularity of the file system, which may be one second.
    pub fn before(&mut self, path: impl Path) -> Before {
        let past = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        let times = Timestamps { last_access: past, last_modification: past };
        let set = rustix::fs::utimensat(CWD, path.as_ref(), &times, AtFlags::SYMLINK_NOFOLLOW);
        if let Err(e) = set {
            self.say(format_args!("before {} = {}", shown(path), errno_name(e)));
        }
        let stat = rustix::fs::lstat(path.as_ref()).ok();
        let second = || rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse).tv_sec;
        let begun = second();
        while second() == begun {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Before(stat)
    }

    /// Records which times have increased, decreased, or stayed the same.
    pub fn after(&mut self, path: impl Path, before: &Before) {
        let now = rustix::fs::lstat(path.as_ref());
        let (Ok(now), Some(then)) = (now, &before.0) else {
            return self.say(format_args!("after {} = none", shown(path)));
        };
        let compare = |then: (i64, u64), now: (i64, u64)| match now.cmp(&then) {
            std::cmp::Ordering::Less => "went back",
            std::cmp::Ordering::Equal => "stayed",
            std::cmp::Ordering::Greater => "advanced",
        };
        let atime = compare((then.st_atime, then.st_atime_nsec), (now.st_atime, now.st_atime_nsec));
        let mtime = compare((then.st_mtime, then.st_mtime_nsec), (now.st_mtime, now.st_mtime_nsec));
        let ctime = compare((then.st_ctime, then.st_ctime_nsec), (now.st_ctime, now.st_ctime_nsec));
        self.say(format_args!("{}: atime {atime}, mtime {mtime}, ctime {ctime}", shown(path)));
    }

    /// Records whether two names refer to the same inode.
    pub fn same(&mut self, one: impl Path, other: impl Path) {
        let inode = |path: &[u8]| rustix::fs::lstat(path).map(|stat| (stat.st_dev, stat.st_ino));
        let same =
            inode(one.as_ref()).and_then(|one| inode(other.as_ref()).map(|other| one == other));
        self.gave(format_args!("{} is {}", shown(one), shown(other)), same, bool::to_string);
    }

    /// Records whether the file has blocks.
    pub fn allocated(&mut self, path: impl Path) {
        let stat = rustix::fs::lstat(path.as_ref());
        let show = |stat: &Stat| {
            if stat.st_blocks > 0 { "allocated".into() } else { "no blocks".to_string() }
        };
        self.gave(format_args!("blocks of {}", shown(path)), stat, show);
    }

    /// read(2).
    pub fn read(&mut self, file: &Open, length: usize) {
        let mut bytes = vec![0; length];
        let read =
            file.fd().and_then(|fd| rustix::io::read(fd, &mut bytes)).map(|n| bytes[..n].to_vec());
        self.gave(format_args!("read {length}"), read, |bytes| shown(bytes));
    }

    /// pread(2).
    pub fn pread(&mut self, file: &Open, length: usize, offset: u64) {
        let mut bytes = vec![0; length];
        let read = file
            .fd()
            .and_then(|fd| rustix::io::pread(fd, &mut bytes, offset))
            .map(|n| bytes[..n].to_vec());
        self.gave(format_args!("pread {length} at {offset}"), read, |bytes| shown(bytes));
    }

    /// write(2).
    pub fn write(&mut self, file: &Open, bytes: impl AsRef<[u8]>) {
        let wrote = file.fd().and_then(|fd| rustix::io::write(fd, bytes.as_ref()));
        self.gave(format_args!("write {}", shown(bytes.as_ref())), wrote, usize::to_string);
    }

    /// pwrite(2).
    pub fn pwrite(&mut self, file: &Open, bytes: impl AsRef<[u8]>, offset: u64) {
        let wrote = file.fd().and_then(|fd| rustix::io::pwrite(fd, bytes.as_ref(), offset));
        self.gave(
            format_args!("pwrite {} at {offset}", shown(bytes.as_ref())),
            wrote,
            usize::to_string,
        );
    }

    /// Records a file's size and contents, with repeated bytes abbreviated.
    pub fn content(&mut self, path: impl Path) {
        let all = rustix::fs::open(path.as_ref(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|file| {
                let mut all = Vec::new();
                std::io::Read::read_to_end(&mut std::fs::File::from(file), &mut all)
                    .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
                Ok(all)
            });
        self.gave(format_args!("content of {}", shown(path)), all, |all| runs(all));
    }

    /// lseek(2).
    pub fn seek(&mut self, file: &Open, to: SeekFrom) {
        let at = file.fd().and_then(|fd| rustix::fs::seek(fd, to));
        self.gave(format_args!("seek {to:?}"), at, u64::to_string);
    }

    /// fallocate(2).
    pub fn fallocate(&mut self, file: &Open, how: FallocateFlags, offset: u64, length: u64) {
        let done = file.fd().and_then(|fd| rustix::fs::fallocate(fd, how, offset, length));
        let how: Vec<&str> = how.iter_names().map(|(name, _)| name).collect();
        self.done(format_args!("fallocate {} {offset} {length}", how.join("|")), done);
    }

    /// copy_file_range(2) in one call.
    pub fn copy_range(
        &mut self,
        from: &Open,
        to: &Open,
        mut at: u64,
        mut into: u64,
        length: usize,
    ) {
        let copied = from.fd().and_then(|from| {
            rustix::fs::copy_file_range(from, Some(&mut at), to.fd()?, Some(&mut into), length)
        });
        self.gave(format_args!("copy_file_range {length}"), copied, usize::to_string);
    }

    /// fsync(2).
    pub fn fsync(&mut self, file: &Open) {
        let synced = file.fd().and_then(rustix::fs::fsync);
        self.done("fsync", synced);
    }

    /// fdatasync(2).
    pub fn fdatasync(&mut self, file: &Open) {
        let synced = file.fd().and_then(rustix::fs::fdatasync);
        self.done("fdatasync", synced);
    }

    /// syncfs(2).
    pub fn syncfs(&mut self, file: &Open) {
        let synced = file.fd().and_then(rustix::fs::syncfs);
        self.done("syncfs", synced);
    }

    /// Records names and types in a directory, sorted.
    pub fn list(&mut self, path: impl Path) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path.as_ref(), flags, Mode::empty());
        let listed = opened.and_then(|opened| names(&opened));
        self.gave(format_args!("list {}", shown(path)), listed, |names| names.join(" "));
    }

    /// As [`list`](Trial::list), for an open directory, from its beginning.
    pub fn list_open(&mut self, directory: &Open) {
        let listed = directory.fd().and_then(|fd| {
            rustix::fs::seek(fd, SeekFrom::Start(0))?;
            names(fd)
        });
        self.gave("list the open directory", listed, |names| names.join(" "));
    }

    /// setxattr(2).
    pub fn set_xattr(
        &mut self,
        path: impl Path,
        name: impl Path,
        value: impl AsRef<[u8]>,
        flags: XattrFlags,
    ) {
        let set = rustix::fs::lsetxattr(path.as_ref(), name.as_ref(), value.as_ref(), flags);
        let flags: Vec<&str> = flags.iter_names().map(|(name, _)| name).collect();
        let length = value.as_ref().len();
        self.done(
            format_args!(
                "setxattr {} {} {length} bytes {}",
                shown(path),
                shown(name),
                flags.join("|")
            ),
            set,
        );
    }

    /// getxattr(2) with a buffer of `room` bytes.
    pub fn get_xattr(&mut self, path: impl Path, name: impl Path, room: usize) {
        let mut value = vec![0u8; room];
        let got =
            rustix::fs::lgetxattr(path.as_ref(), name.as_ref(), &mut value[..]).map(|n| (n, value));
        let show = |(n, value): &(usize, Vec<u8>)| {
            format!("{n}: {}", runs(&value[..(*n).min(value.len())]))
        };
        self.gave(format_args!("getxattr {} {} {room}", shown(path), shown(name)), got, show);
    }

    /// listxattr(2) with a buffer of `room` bytes; the names are sorted.
    pub fn list_xattr(&mut self, path: impl Path, room: usize) {
        let mut list = vec![0u8; room];
        let got = rustix::fs::llistxattr(path.as_ref(), &mut list[..]).map(|n| (n, list));
        let show = |(n, list): &(usize, Vec<u8>)| {
            let given = &list[..(*n).min(list.len())];
            let mut names: Vec<String> = given.split(|byte| *byte == 0).map(shown).collect();
            names.sort();
            format!("{n}:{}", names.join(" "))
        };
        self.gave(format_args!("listxattr {} {room}", shown(path)), got, show);
    }

    /// removexattr(2).
    pub fn remove_xattr(&mut self, path: impl Path, name: impl Path) {
        let removed = rustix::fs::lremovexattr(path.as_ref(), name.as_ref());
        self.done(format_args!("removexattr {} {}", shown(path), shown(name)), removed);
    }

    /// flock(2).
    pub fn flock(&mut self, file: &Open, how: FlockOperation) {
        let done = file.fd().and_then(|fd| rustix::fs::flock(fd, how));
        self.done(format_args!("flock {how:?}"), done);
    }

    /// A lock of the whole file by fcntl(2).
    pub fn lock(&mut self, file: &Open, how: FlockOperation) {
        let done = file.fd().and_then(|fd| rustix::fs::fcntl_lock(fd, how));
        self.done(format_args!("fcntl lock {how:?}"), done);
    }

    /// chdir(2). Affects this case only.
    pub fn chdir(&mut self, path: impl Path) {
        let done = rustix::process::chdir(path.as_ref());
        self.done(format_args!("chdir {}", shown(path)), done);
    }

    /// statvfs(3): the fields that do not depend on the size or on the free space.
    pub fn statvfs(&mut self, path: impl Path) {
        let got = rustix::fs::statvfs(path.as_ref());
        self.gave(format_args!("statvfs {}", shown(path)), got, |got| {
            format!(
                "names of {}, {}",
                got.f_namemax,
                if got.f_bfree <= got.f_blocks { "sound" } else { "absurd" }
            )
        });
    }
}
