//! Changes of attributes.

use kumihimo_store::{Changes, Errno, Kind, Result, Stamp};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, chmod, chownat,
    ftruncate, utimensat,
};

use crate::inode::Descriptor;
use crate::resolve::{Seen, magic, reopen};

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o0010;

/// Changes size, owner, permissions and times. The order matters, because the host's kernel adjusts
/// the later attributes when an earlier one changes. If a step fails, the earlier ones remain in
/// effect. `ctime` is set by the host.
pub fn change(inode: &Descriptor, kind: Kind, changes: &Changes) -> Result<Seen> {
    if let Some(size) = changes.size {
        match kind {
            Kind::File => ftruncate(reopen(inode, OFlags::WRONLY)?, size)?,
            Kind::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
    }
    // An empty change becomes a chown(2) that changes neither ID, which updates `ctime`.
    if changes.uid.is_some() || changes.gid.is_some() || *changes == Changes::default() {
        let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
        chownat(inode, "", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    if let Some(permissions) = changes.permissions {
        permit(inode, kind, permissions)?;
    } else if changes.kill_privileges {
        let now = Seen::at(inode)?.permissions();
        let mut after = now & !SET_USER_ID;
        // Without group execute permission, the set-group-ID bit historically marks mandatory
        // locking and is kept: see chown(2).
        if now & GROUP_EXECUTES != 0 {
            after &= !SET_GROUP_ID;
        }
        if kind != Kind::Directory && after != now {
            permit(inode, kind, after)?;
        }
    }
    if changes.atime.is_some() || changes.mtime.is_some() {
        let times = Timestamps {
            last_access: stamp(changes.atime),
            last_modification: stamp(changes.mtime),
        };
        utimensat(inode, "", &times, AtFlags::EMPTY_PATH)?;
    }
    Seen::at(inode)
}

fn permit(inode: &Descriptor, kind: Kind, permissions: u32) -> Result<()> {
    if kind == Kind::Symlink {
        return Err(Errno::OPNOTSUPP);
    }
    chmod(magic(inode), Mode::from_raw_mode(permissions & 0o7777))
}

fn stamp(to: Option<Stamp>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match to {
        None => special(UTIME_OMIT),
        Some(Stamp::Now) => special(UTIME_NOW),
        Some(Stamp::At(time)) => {
            Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
        }
    }
}
