//! Request handler, common to all organisations: it decodes a request, calls the store, and fills
//! the reply.

use std::fmt;
use std::time::Duration;

use fuse_abi::linux::{FUSE_ROOT_ID, fuse_in_header, fuse_opcode as Op};
use kumihimo::sync::Arc;
use kumihimo::sync::atomic::{AtomicBool, AtomicU32};
use kumihimo_store::{Caller, Errno, Node, Result, Store};

use crate::protocol::interrupts::Interrupts;
use crate::protocol::wire::{Arguments, Message, Reply};

/// Settings with which a mount exposes a store.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long the kernel may cache attributes and names.
    pub timeout: Duration,
    /// Whether the kernel keeps written data and sends it later, in larger pieces.
    pub writeback: bool,
    /// Whether listing a directory returns the attributes of its entries.
    pub readdirplus: bool,
    /// Whether only this server changes the store, so that the kernel's cached contents of a file
    /// stay valid from one open to the next.
    pub keep_cache: bool,
    /// Whether requests arrive through io_uring, if the kernel supports it.
    pub uring: bool,
    /// Whether every read goes to the server and bypasses the kernel's cache, for files whose
    /// content is computed on each read.
    pub direct: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        let timeout = Duration::from_secs(1);
        Settings {
            timeout,
            writeback: false,
            readdirplus: false,
            keep_cache: true,
            uring: false,
            direct: false,
        }
    }
}

/// Action after handling a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Send the reply.
    Send,
    /// Send nothing: the request has no reply.
    None,
}

/// Decoded request, as the handlers of operations receive it.
pub(crate) struct Request<'a> {
    pub(crate) header: fuse_in_header,
    pub(crate) node: Node,
    pub(crate) arguments: Arguments<'a>,
}

impl Request<'_> {
    pub(crate) fn caller(&self, umask: u32) -> Caller {
        Caller {
            uid: self.header.uid,
            gid: self.header.gid,
            pid: self.header.pid,
            umask: umask & 0o777,
        }
    }
}

/// Store as exposed by one mount.
pub struct Service {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: Settings,
    pub(crate) interrupts: Interrupts,
    /// Results of the negotiation: the largest write, and whether requests arrive through io_uring.
    pub(crate) max_write: AtomicU32,
    pub(crate) by_uring: AtomicBool,
    /// Whether the arguments of setxattr(2) are in their long form.
    pub(crate) long_set_xattr: AtomicBool,
    /// Whether an open with O_DIRECT bypasses the kernel's cache.
    pub(crate) passes_direct: AtomicBool,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Service {
    /// Creates a service for `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, settings: Settings) -> Service {
        Service {
            store,
            settings,
            interrupts: Interrupts::default(),
            max_write: AtomicU32::new(0),
            by_uring: AtomicBool::new(false),
            long_set_xattr: AtomicBool::new(false),
            passes_direct: AtomicBool::new(false),
        }
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the inode of a node id of the kernel. The kernel's id of the root is 1; the store's
    /// own number may differ.
    pub(crate) fn node(&self, id: u64) -> Node {
        if id == FUSE_ROOT_ID { self.store.root() } else { Node(id) }
    }

    /// Handles a request. Blocks the caller, microprocess or kernel thread, while the store does.
    pub fn handle(&self, message: Message<'_>, reply: &mut Reply) -> Answer {
        let Some((header, arguments)) = message.split() else {
            // No reply is possible: the message has no readable request number.
            eprintln!(
                "fuse: ignored a message of {} bytes, which is not a request",
                message.length()
            );
            return Answer::None;
        };
        reply.begin(512);
        let node = self.node(header.nodeid);
        let mut request = Request { header, node, arguments };
        let Ok(op) = Op::try_from(header.opcode) else {
            reply.finish(header.unique, Err(Errno::NOSYS));
            return Answer::Send;
        };
        match op {
            Op::FUSE_FORGET | Op::FUSE_BATCH_FORGET => {
                // An error cannot be reported, because the request has no reply.
                let _ = self.forget(op, &mut request);
                Answer::None
            }
            Op::FUSE_INTERRUPT => {
                let _ = self.interrupt(&mut request);
                Answer::None
            }
            _ => {
                let outcome = self
                    .interrupts
                    .check(header.unique)
                    .and_then(|()| self.carry_out(op, &mut request, reply));
                reply.finish(header.unique, outcome);
                Answer::Send
            }
        }
    }

    /// Dispatches an operation to its handler. After `ENOSYS` the kernel handles an operation
    /// itself or does without it.
    fn carry_out(&self, op: Op, request: &mut Request<'_>, reply: &mut Reply) -> Result<()> {
        match op {
            Op::FUSE_INIT => self.negotiate(request, reply),
            Op::FUSE_DESTROY => Ok(()),
            Op::FUSE_LOOKUP => self.lookup(request, reply),
            Op::FUSE_GETATTR => self.get_attributes(request, reply),
            Op::FUSE_SETATTR => self.set_attributes(request, reply),
            Op::FUSE_READLINK => self.read_link(request, reply),
            Op::FUSE_SYMLINK => self.symlink(request, reply),
            Op::FUSE_MKNOD => self.make_node(request, reply),
            Op::FUSE_MKDIR => self.make_directory(request, reply),
            Op::FUSE_UNLINK => self.unlink(request),
            Op::FUSE_RMDIR => self.remove_directory(request),
            Op::FUSE_RENAME => self.rename(request),
            Op::FUSE_RENAME2 => self.rename_with_flags(request),
            Op::FUSE_LINK => self.link(request, reply),
            Op::FUSE_OPEN => self.open(request, reply),
            Op::FUSE_CREATE => self.create(request, reply),
            Op::FUSE_READ => self.read(request, reply),
            Op::FUSE_WRITE => self.write(request, reply),
            Op::FUSE_RELEASE | Op::FUSE_RELEASEDIR => self.release(request),
            Op::FUSE_FSYNC | Op::FUSE_FSYNCDIR => self.sync(request),
            Op::FUSE_SYNCFS => self.store.sync_all(),
            Op::FUSE_FALLOCATE => self.allocate(request),
            Op::FUSE_LSEEK => self.seek(request, reply),
            Op::FUSE_STATFS => self.statistics(reply),
            Op::FUSE_OPENDIR => self.open_directory(request, reply),
            Op::FUSE_READDIR => self.read_directory(request, reply),
            Op::FUSE_READDIRPLUS => self.read_directory_plus(request, reply),
            Op::FUSE_GETXATTR => self.get_xattr(request, reply),
            Op::FUSE_LISTXATTR => self.list_xattrs(request, reply),
            Op::FUSE_SETXATTR => self.set_xattr(request),
            Op::FUSE_REMOVEXATTR => self.remove_xattr(request),
            // Flush: open files hold no data back, so a close needs no action. Access:
            // `default_permissions` makes the kernel check it.
            _ => Err(Errno::NOSYS),
        }
    }
}
