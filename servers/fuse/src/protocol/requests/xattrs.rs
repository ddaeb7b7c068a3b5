//! Extended attributes.

use fuse_abi::linux::{fuse_getxattr_in, fuse_getxattr_out};
use kumihimo_store::{Errno, Result, XattrMode};

use crate::protocol::service::{Request, Service};
use crate::protocol::wire::Reply;

/// `XATTR_CREATE` and `XATTR_REPLACE` of setxattr(2).
const CREATE: u32 = 1;
const REPLACE: u32 = 2;
const BOTH: u32 = CREATE | REPLACE;

/// Prefix of access control lists and of other attributes of the kernel. The server behaves as a
/// file system without them. A program that sets a list expects that the mode changes and that the
/// list is enforced; without `FUSE_POSIX_ACL` the kernel does neither. On `EOPNOTSUPP`, cp(1) and
/// other programs fall back to chmod(2).
const SYSTEM: &[u8] = b"system.";

fn served(name: &[u8]) -> Result<&[u8]> {
    if name.starts_with(SYSTEM) { Err(Errno::OPNOTSUPP) } else { Ok(name) }
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
        answer(&self.store.xattr(request.node, served(request.arguments.name()?)?)?, size, reply)
    }

    pub(crate) fn list_xattrs(&self, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        let size = request.arguments.take::<fuse_getxattr_in>()?.size;
        // xattr(7): attributes of the trusted class are visible to privileged processes only.
        let hidden = |name: &[u8]| {
            name.starts_with(SYSTEM) || (request.header.uid != 0 && name.starts_with(b"trusted."))
        };
        let names = self.store.xattrs(request.node)?;
        let visible = names.split_inclusive(|byte| *byte == 0).filter(|name| !hidden(name));
        answer(&visible.flatten().copied().collect::<Vec<u8>>(), size, reply)
    }

    pub(crate) fn set_xattr(&self, request: &mut Request<'_>) -> Result<()> {
        // The short form of the arguments: the longer form requires `FUSE_SETXATTR_EXT`.
        let [size, flags] = request.arguments.take::<[u32; 2]>()?;
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
        self.store.set_xattr(request.node, name, value, mode)
    }

    pub(crate) fn remove_xattr(&self, request: &mut Request<'_>) -> Result<()> {
        self.store.remove_xattr(request.node, served(request.arguments.name()?)?)
    }
}
