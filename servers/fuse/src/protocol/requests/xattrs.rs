//! Extended attributes.

use fuse_abi::linux::{FUSE_SETXATTR_ACL_KILL_SGID, fuse_getxattr_in, fuse_getxattr_out};
use kumihimo::sync::atomic::Ordering;
use kumihimo_store::{Changes, Errno, Node, Result, XattrMode, acl};

use crate::protocol::service::{Request, Service};
use crate::protocol::wire::Reply;

/// `XATTR_CREATE` and `XATTR_REPLACE` of setxattr(2).
const CREATE: u32 = 1;
const REPLACE: u32 = 2;
const BOTH: u32 = CREATE | REPLACE;
const SET_GROUP_ID: u32 = 0o2000;

/// Prefix of attributes of the kernel. Of these, access control lists are served: the client's
/// kernel enforces them (`FUSE_POSIX_ACL`).
const SYSTEM: &[u8] = b"system.";

fn served(name: &[u8]) -> Result<&[u8]> {
    let is_served = !name.starts_with(SYSTEM) || acl::is_acl(name);
    if is_served { Ok(name) } else { Err(Errno::OPNOTSUPP) }
}

/// Writes the value to the reply, or only its size if the caller passes size 0.
fn answer(value: &[u8], size: u32, reply: &mut Reply) -> Result<()> {
    let length = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    match size {
        0 => reply.push(&fuse_getxattr_out { size: length, padding: 0 }),
        size if length > size => return Err(Errno::RANGE),
        _ => reply.extend(value),
    }
    Ok(())
}

impl Service {
    pub(crate) fn get_xattr(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let size = request.arguments.take::<fuse_getxattr_in>()?.size;
        let name = served(request.arguments.name()?)?;
        let value = self.store.xattr(request.node, name).map_err(|errno| match errno {
            // The kernel asks for the list to check a permission. Where the store has no lists, the
            // mode decides; any other error denies access.
            Errno::OPNOTSUPP if acl::is_acl(name) => Errno::NODATA,
            other => other,
        })?;
        answer(&value, size, reply)
    }

    pub(crate) fn list_xattrs(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let size = request.arguments.take::<fuse_getxattr_in>()?.size;
        // xattr(7): attributes of the trusted class are visible to privileged processes only.
        let hidden = |name: &[u8]| {
            let name = name.strip_suffix(b"\0").unwrap_or(name);
            served(name).is_err() || (request.header.uid != 0 && name.starts_with(b"trusted."))
        };
        let names = self.store.xattrs(request.node)?;
        let visible = names.split_inclusive(|byte| *byte == 0).filter(|name| !hidden(name));
        answer(&visible.flatten().copied().collect::<Vec<u8>>(), size, reply)
    }

    pub(crate) fn set_xattr(&self, request: &mut Request<'_>) -> Result<()> {
        let [size, flags] = request.arguments.take::<[u32; 2]>()?;
        let [more, _] = match self.long_set_xattr.load(Ordering::Relaxed) {
            true => request.arguments.take::<[u32; 2]>()?,
            false => [0; 2],
        };
        let name = served(request.arguments.name()?)?;
        let value = request.arguments.bytes(usize::try_from(size).map_err(|_| Errno::INVAL)?)?;
        let mode = match flags {
            0 => XattrMode::Any,
            CREATE => XattrMode::Create,
            REPLACE => XattrMode::Replace,
            // No name can satisfy both flags.
            BOTH => {
                return Err(self
                    .store
                    .xattr(request.node, name)
                    .map_or_else(|errno| errno, |_| Errno::EXIST));
            }
            _ => return Err(Errno::INVAL),
        };
        if more & FUSE_SETXATTR_ACL_KILL_SGID != 0 {
            self.clear_set_group_id(request.node)?;
        }
        self.store.set_xattr(request.node, name, value, mode)
    }

    pub(crate) fn remove_xattr(&self, request: &mut Request<'_>) -> Result<()> {
        let name = served(request.arguments.name()?)?;
        match self.store.remove_xattr(request.node, name) {
            // A list that is not there is removed: acl_delete_def_file(3).
            Err(Errno::NODATA) if acl::is_acl(name) => Ok(()),
            other => other,
        }
    }

    /// Clears set-group-id, which the caller may not keep when it changes a list: it is not in the
    /// file's group. The host's kernel would keep it, because the server is root.
    fn clear_set_group_id(&self, node: Node) -> Result<()> {
        let now = self.store.attributes(node)?.permissions;
        if now & SET_GROUP_ID != 0 {
            let permissions = Some(now & !SET_GROUP_ID);
            self.store.change(node, &Changes { permissions, ..Changes::default() })?;
        }
        Ok(())
    }
}
