//! Creation of files, directories, links and devices.

use std::os::fd::{AsFd, OwnedFd};

use kumihimo_store::acl::{self, Acl};
use kumihimo_store::{Caller, Errno, Kind, New, Result, Time};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, chmod, chownat, getxattr, mkdirat, mknodat,
    symlinkat, unlinkat,
};

use crate::inode::Descriptor;
use crate::resolve::{Seen, magic, open_beneath, reopen};

const SET_GROUP_ID: u32 = 0o2000;
/// Size of the longest list that the client's kernel accepts: a page.
const LONGEST_LIST: usize = 4096;

/// Creates `name` with the given mode and, as root, the given owner. Returns an `O_PATH` descriptor
/// and the attributes.
///
/// A default access control list of the directory decides about the mode in place of the caller's
/// umask. The umask of the server removes bits from the initial mode, and an inode that root
/// creates for another user starts without permissions. The inode therefore never allows more than
/// its final mode. Mode and owner are corrected afterwards, if necessary. (A umask of 0 would
/// affect the whole process. File system IDs, setfsuid(2), belong to a kernel thread, which
/// microprocesses share.)
pub fn make(
    directory: &Descriptor,
    name: &[u8],
    what: New<'_>,
    caller: &Caller,
    as_root: bool,
) -> Result<(OwnedFd, Seen)> {
    let above = Seen::at(directory)?;
    let inherits = above.permissions() & SET_GROUP_ID != 0;
    let group = if inherits { above.owner().1 } else { caller.gid };
    let default = default_list(directory)?;
    let mode = match what {
        New::Symlink { .. } => None,
        New::Directory { mode } if inherits => Some(mode | SET_GROUP_ID),
        New::File { mode } | New::Directory { mode } | New::Special { mode, .. } => Some(mode),
    };
    let mode = mode.map(|mode| acl::mode_of_new(default.as_ref(), mode, caller.umask));
    let own = rustix::process::geteuid().as_raw();
    let is_mine = !as_root
        || (caller.uid, group)
            == (own, if inherits { group } else { rustix::process::getegid().as_raw() });
    // The set-ID bits are set after the owner: chown(2) clears them.
    let at_first = Mode::from_raw_mode(if is_mine { mode.unwrap_or(0) & 0o1777 } else { 0 });
    let made = begin(directory, name, what, at_first)?;
    let settled = (|| {
        if !is_mine {
            chownat(
                &made,
                "",
                Some(Uid::from_raw(caller.uid)),
                Some(Gid::from_raw(group)),
                AtFlags::EMPTY_PATH,
            )?;
        }
        let mut seen = Seen::at(&made)?;
        if mode.is_some_and(|mode| mode & 0o7777 != seen.permissions()) {
            chmod(magic(&made), Mode::from_raw_mode(mode.unwrap_or(0) & 0o7777))?;
            seen = Seen::at(&made)?;
        }
        // A descriptor for writing would make execve(2) fail with ETXTBSY, and count as a writer.
        let path = if let New::File { .. } = what { reopen(&made, OFlags::PATH)? } else { made };
        Ok((path, seen))
    })();
    settled.inspect_err(|_| unmake(directory, name, what))
}

/// The access control list that new inodes in a directory inherit. The host's kernel passes it on,
/// but restricts it by the initial mode, which is not the final one.
fn default_list(directory: &Descriptor) -> Result<Option<Acl>> {
    let mut value = [0; LONGEST_LIST];
    match getxattr(magic(directory), acl::DEFAULT, &mut value[..]) {
        Ok(length) => Acl::decode(&value[..length]).map(Some).ok_or(Errno::IO),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Removes an inode whose creation failed half-way.
fn unmake(directory: &Descriptor, name: &[u8], what: New<'_>) {
    let flags =
        if let New::Directory { .. } = what { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    let _ = unlinkat(directory, name, flags);
}

/// Returns a descriptor of the new inode. For a file, it is the descriptor that created it.
fn begin(directory: &Descriptor, name: &[u8], what: New<'_>, mode: Mode) -> Result<OwnedFd> {
    let before = coarse_now();
    let (kind, done) = match what {
        New::File { .. } => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOCTTY;
            return open_beneath(directory, name, flags, mode);
        }
        New::Directory { .. } => (Kind::Directory, mkdirat(directory, name, mode)),
        New::Symlink { target } => (Kind::Symlink, symlinkat(target, directory, name)),
        New::Special { kind, device, .. } => {
            let raw = FileType::from_raw_mode(kind.mode());
            (kind, mknodat(directory, name, raw, mode, u64::from(device)))
        }
    };
    done?;
    let made = open_beneath(directory, name, OFlags::PATH, Mode::empty());
    let made = made.inspect_err(|_| unmake(directory, name, what))?;
    // Another process on the host may have replaced the name, for example by a hard link to a file
    // of another user. The owner of such a file must not be changed.
    let seen = Seen::at(&made)?;
    let links = if kind == Kind::Directory { seen.links() <= 2 } else { seen.links() == 1 };
    let is_new = seen.identity.born.is_none_or(|born| born >= before);
    let is_it = seen.identity.kind == kind
        && links
        && is_new
        && seen.owner().0 == rustix::process::geteuid().as_raw();
    if is_it { Ok(made) } else { Err(Errno::STALE) }
}

/// The clock that file systems use for timestamps.
fn coarse_now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Time { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// Adds a name to the inode of a descriptor.
pub fn link(inode: impl AsFd, directory: &Descriptor, name: &[u8]) -> Result<()> {
    rustix::fs::linkat(CWD, magic(inode), directory, name, AtFlags::SYMLINK_FOLLOW)
}
