//! Mounting and unmounting, by mount(2) if that is permitted, otherwise through fusermount3(1).

pub mod mountinfo;

use std::ffi::OsStr;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kumihimo::fuse::Device;
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

/// File system type of these mounts.
pub const KIND: &str = "fuse.kumi";

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// Source of the mount, as mount(8) and df(1) show it.
    pub source: PathBuf,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Whether users other than the mounting user may access the mount.
    pub allow_other: bool,
    /// Further restrictions, of those of the file system that is served: `NOEXEC` and
    /// `NOSYMFOLLOW`.
    pub restrictions: MountFlags,
}

fn error(kind: ErrorKind, text: String) -> io::Error {
    io::Error::new(kind, text)
}

/// Checks that a file system can be mounted on `point`, and returns its canonical path.
///
/// # Errors
/// Fails if the directory is missing, is not a directory, is not empty, or is a mount point. The
/// error has a readable message.
pub fn check_point(point: &Path) -> io::Result<PathBuf> {
    let shown = point.display();
    let found = point.canonicalize().map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::NOTCONN) => error(
            ErrorKind::ResourceBusy,
            format!("{shown}: the server of the mount there has died; unmount it first: kumi umount {shown}"),
        ),
        _ => error(e.kind(), format!("{shown}: no mount point: {e}; make the directory first")),
    })?;
    if !found.is_dir() {
        return Err(error(
            ErrorKind::NotADirectory,
            format!("{shown}: not a directory; choose a directory as mount point"),
        ));
    }
    if let Some(mount) = mountinfo::at(&found)? {
        return Err(error(
            ErrorKind::ResourceBusy,
            format!(
                "{shown}: {} ({}) is mounted there; unmount it, or choose another mount point",
                mount.source.display(),
                mount.kind
            ),
        ));
    }
    if found.read_dir().map_err(|e| error(e.kind(), format!("{shown}: {e}")))?.next().is_some() {
        return Err(error(
            ErrorKind::DirectoryNotEmpty,
            format!("{shown}: not empty; the mount would hide its contents"),
        ));
    }
    Ok(found)
}

/// Mounts at a path that [`check_point`] has returned. The first request waits in the channel.
///
/// # Errors
/// Fails without `/dev/fuse`, and if mounting is not permitted and fusermount3 is missing or fails.
/// The error has a readable message.
pub fn mount(point: &Path, options: &Options) -> io::Result<Device> {
    let device = match Device::open() {
        Ok(device) => device,
        Err(e)
            if matches!(e.kind(), ErrorKind::NotFound)
                || Errno::from_io_error(&e) == Some(Errno::NODEV) =>
        {
            return Err(error(
                e.kind(),
                format!("/dev/fuse: {e}; this kernel has no FUSE (try: modprobe fuse)"),
            ));
        }
        // fusermount3, which is set-user-id, may be able to open it.
        Err(e) if e.kind() == ErrorKind::PermissionDenied => return by_fusermount(point, options),
        Err(e) => return Err(error(e.kind(), format!("/dev/fuse: {e}"))),
    };
    let mode = point.metadata()?.mode();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!(
        "fd={},rootmode={mode:o},user_id={uid},group_id={gid},default_permissions",
        device.as_fd().as_raw_fd()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = std::ffi::CString::new(data).map_err(io::Error::other)?;
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV | options.restrictions;
    flags.set(MountFlags::RDONLY, options.read_only);
    match rustix::mount::mount(&*options.source, point, KIND, flags, &*data) {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => by_fusermount(point, options),
        Err(e) => Err(error(e.kind(), format!("mounting at {}: {e}", point.display()))),
    }
}

/// Returns whether this process can mount, with the method or with the reason and a remedy.
#[must_use]
pub fn is_possible() -> (bool, String) {
    if let Err(e) = kumihimo::fuse::supported() {
        return (false, e.to_string());
    }
    if let Err(e) = std::fs::metadata("/dev/fuse") {
        return (
            false,
            format!(
                "/dev/fuse: {e}; to enable: modprobe fuse, or in a container --device /dev/fuse"
            ),
        );
    }
    // CAP_SYS_ADMIN is bit 21: capabilities(7).
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|directory| directory.join("fusermount3").is_file())
    });
    match (mask >> 21 & 1 == 1, found) {
        (true, _) => (true, "by mount(2)".to_owned()),
        (false, true) => (
            true,
            "by fusermount3, for this user alone unless /etc/fuse.conf has user_allow_other"
                .to_owned(),
        ),
        (false, false) => {
            (false, "not root, and no fusermount3; to enable: apt-get install fuse3".to_owned())
        }
    }
}

/// Mounts through fusermount3(1), which opens `/dev/fuse`, mounts, and sends the descriptor over
/// the socket that `_FUSE_COMMFD` names.
fn by_fusermount(point: &Path, options: &Options) -> io::Result<Device> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    // fusermount3 parses a comma as the end of an option, unless a backslash precedes it.
    let source: Vec<u8> = options
        .source
        .as_os_str()
        .as_bytes()
        .iter()
        .flat_map(|byte| match byte {
            b',' | b'\\' => vec![b'\\', *byte],
            other => vec![*other],
        })
        .collect();
    let mut said = b"nosuid,nodev,default_permissions,subtype=kumi,fsname=".to_vec();
    said.extend(source);
    if options.read_only {
        said.extend(b",ro");
    }
    if options.allow_other {
        said.extend(b",allow_other");
    }
    for (flag, name) in [(MountFlags::NOEXEC, ",noexec"), (MountFlags::NOSYMFOLLOW, ",nosymfollow")]
    {
        if options.restrictions.contains(flag) {
            said.extend(name.as_bytes());
        }
    }
    let mut command = Command::new("fusermount3");
    command.arg("-o").arg(OsStr::from_bytes(&said)).arg("--").arg(point);
    command
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| match e.kind() {
        ErrorKind::NotFound => error(
            ErrorKind::PermissionDenied,
            "mounting is not permitted and fusermount3 is missing: install it (apt-get install fuse3), or become root"
                .to_owned(),
        ),
        _ => error(e.kind(), format!("fusermount3: {e}")),
    })?;
    drop(theirs);
    let device = receive(&ours);
    let done = child.wait_with_output()?;
    match device {
        Some(fd) if done.status.success() => Device::adopt(fd),
        _ => {
            let said = String::from_utf8_lossy(&done.stderr);
            let said = said.trim().trim_start_matches("fusermount3: ");
            Err(error(
                ErrorKind::PermissionDenied,
                format!("{}: fusermount3: {said}", point.display()),
            ))
        }
    }
}

fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )
    .ok()?;
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

/// Returns the path of a mount without entering the mount, whose server may have died.
fn place(point: &Path) -> io::Result<PathBuf> {
    let name = match point.components().next_back() {
        Some(std::path::Component::Normal(name)) => name,
        _ => return point.canonicalize(),
    };
    let parent = match point.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok(parent.canonicalize()?.join(name))
}

/// Unmounts a file system that this crate has mounted.
///
/// With `lazily`, the mount disappears at once and ends with its last user. A busy mount whose
/// server has died is always detached in this way: its users only get errors.
///
/// # Errors
/// Fails if no mount of this crate is there, if the mount is in use, and if unmounting is not
/// permitted. The error has a readable message.
pub fn unmount(point: &Path, lazily: bool) -> io::Result<()> {
    let shown = point.display();
    let found = place(point).map_err(|e| error(e.kind(), format!("{shown}: {e}")))?;
    match mountinfo::at(&found)? {
        None => {
            return Err(error(
                ErrorKind::InvalidInput,
                format!("{shown}: nothing is mounted there"),
            ));
        }
        Some(mount) if mount.kind != KIND => {
            let text = format!(
                "{shown}: {} ({}) is mounted there, which is not ours",
                mount.source.display(),
                mount.kind
            );
            return Err(error(ErrorKind::InvalidInput, text));
        }
        Some(_) => {}
    }
    match detach(&found, lazily) {
        Err(e) if e.kind() == ErrorKind::ResourceBusy => match has_died(&found) {
            true => detach(&found, true),
            false => Err(error(
                ErrorKind::ResourceBusy,
                format!(
                    "{shown}: busy: a file there is open or a process is in it; to detach it all the same: kumi umount --lazy {shown}"
                ),
            )),
        },
        done => done,
    }
}

/// Decides whether the server of the mount has died.
///
/// While cached attributes are valid, the kernel serves a plain stat(2) from them, even after the
/// server's death. `STATX_FORCE_SYNC` sends the request to the server, and fails if there is none
/// (statx(2)).
fn has_died(found: &Path) -> bool {
    let asked = rustix::fs::statx(CWD, found, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    matches!(asked, Err(Errno::NOTCONN | Errno::CONNABORTED))
}

fn detach(found: &Path, lazily: bool) -> io::Result<()> {
    let flags =
        if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() } | UnmountFlags::NOFOLLOW;
    match rustix::mount::unmount(found, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => detach_by_fusermount(found, lazily),
        Err(e) => Err(error(io::Error::from(e).kind(), format!("{}: {e}", found.display()))),
    }
}

fn detach_by_fusermount(point: &Path, lazily: bool) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(point);
    let done = command.stdin(Stdio::null()).output().map_err(|e| match e.kind() {
        ErrorKind::NotFound => error(
            ErrorKind::PermissionDenied,
            "unmounting is not permitted and fusermount3 is missing: install it (apt-get install fuse3), or become root"
                .to_owned(),
        ),
        _ => error(e.kind(), format!("fusermount3: {e}")),
    })?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    if said.contains("busy") {
        return Err(error(ErrorKind::ResourceBusy, said.trim().to_owned()));
    }
    Err(error(ErrorKind::PermissionDenied, said.trim().to_owned()))
}
