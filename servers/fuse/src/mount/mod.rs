//! Mounting and unmounting: by mount(2) where that is allowed, else through fusermount3(1).

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

/// The type that mounts of ours have.
pub const KIND: &str = "fuse.kumi";

/// How a mount is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is mounted, as mount(8) and df(1) show it.
    pub source: PathBuf,
    /// Nothing is changed through it.
    pub read_only: bool,
    /// Users other than the mounting one may enter.
    pub allow_other: bool,
}

fn error(kind: ErrorKind, text: String) -> io::Error {
    io::Error::new(kind, text)
}

/// The directory as the kernel calls it, if something can be mounted there.
///
/// # Errors
/// That it is missing, no directory, not empty, or has something mounted there; in words.
pub fn check_point(point: &Path) -> io::Result<PathBuf> {
    let shown = point.display();
    let found = point.canonicalize().map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::NOTCONN) => error(
            ErrorKind::ResourceBusy,
            format!("{shown}: a server that has died is still mounted there; clear it by: kumi umount {shown}"),
        ),
        _ => error(e.kind(), format!("{shown}: no mount point: {e}; make the directory first")),
    })?;
    if !found.is_dir() {
        return Err(error(
            ErrorKind::NotADirectory,
            format!("{shown}: not a directory; nothing can be mounted there"),
        ));
    }
    if let Some(mount) = mountinfo::at(&found)? {
        return Err(error(
            ErrorKind::ResourceBusy,
            format!("{shown}: {} ({}) is mounted there", mount.source.display(), mount.kind),
        ));
    }
    if found.read_dir().map_err(|e| error(e.kind(), format!("{shown}: {e}")))?.next().is_some() {
        return Err(error(
            ErrorKind::DirectoryNotEmpty,
            format!("{shown}: not empty; what is in it would be hidden"),
        ));
    }
    Ok(found)
}

/// Mounts at a place that [`check_point`] has given. The first request waits in the channel.
///
/// # Errors
/// In words: no `/dev/fuse`, not permitted and no fusermount3, or what it said.
pub fn mount(point: &Path, options: &Options) -> io::Result<Device> {
    let device = match Device::open() {
        Ok(device) => device,
        Err(e)
            if matches!(e.kind(), ErrorKind::NotFound)
                || Errno::from_io_error(&e) == Some(Errno::NODEV) =>
        {
            return Err(error(
                e.kind(),
                format!("/dev/fuse: {e}; the kernel has no FUSE here (modprobe fuse)"),
            ));
        }
        // fusermount3 may open it.
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
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, options.read_only);
    match rustix::mount::mount(&*options.source, point, KIND, flags, &*data) {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => by_fusermount(point, options),
        Err(e) => Err(error(e.kind(), format!("mounting at {}: {e}", point.display()))),
    }
}

/// Whether this process can mount, and how; or why not, and what would enable it.
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

/// fusermount3(1) opens `/dev/fuse`, mounts, and sends the descriptor over the socket that
/// `_FUSE_COMMFD` names.
fn by_fusermount(point: &Path, options: &Options) -> io::Result<Device> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
    // A comma ends an option: fusermount3 takes a backslash before it.
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
    let mut command = Command::new("fusermount3");
    command.arg("-o").arg(OsStr::from_bytes(&said)).arg("--").arg(point);
    command
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| match e.kind() {
        ErrorKind::NotFound => error(
            ErrorKind::PermissionDenied,
            "mounting is not permitted, and there is no fusermount3 to do it: apt-get install fuse3, or be root"
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

/// The place of a mount, without entering it: its server may have died.
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

/// Unmounts a file system of ours.
///
/// `lazily`: the mount disappears at once and ends with its last user. A mount whose server has
/// died is always detached this way if it is busy: its users only get errors from it.
///
/// # Errors
/// In words: nothing of ours is mounted there, it is in use, not permitted.
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
                    "{shown}: busy: a file there is open or somebody is in it; kumi umount --lazy {shown} takes it away all the same"
                ),
            )),
        },
        done => done,
    }
}

/// Decides whether the server of the mount has died.
///
/// The kernel answers a plain stat(2) from its cached attributes for as long as they are valid,
/// also after the server's death. `STATX_FORCE_SYNC` sends the request to the server, and fails if
/// there is none.
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
            "unmounting is not permitted, and there is no fusermount3 to do it: apt-get install fuse3, or be root"
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
