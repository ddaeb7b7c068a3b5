//! THE handler: a request in, a store's operation, a reply out. The same for every organisation.

use std::fmt;
use std::time::Duration;

use fuse_abi::linux::{FUSE_ROOT_ID, fuse_in_header, fuse_opcode as Op};
use kumihimo::sync::Arc;
use kumihimo::sync::atomic::{AtomicBool, AtomicU32};
use kumihimo_store::{Caller, Errno, Node, Result, Store};

use crate::protocol::interrupts::Interrupts;
use crate::protocol::wire::{Arguments, Message, Reply};

/// How a store is shown.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long the kernel may believe attributes and names without asking.
    pub timeout: Duration,
    /// The kernel keeps what was written and sends it later, in larger pieces.
    pub writeback: bool,
    /// Listing a directory brings the attributes of what is in it.
    pub readdirplus: bool,
    /// Nobody but this server changes the store: what the kernel has of a file's contents stays
    /// right from one open to the next.
    pub keep_cache: bool,
    /// Requests come through io_uring, if the kernel is of the same mind.
    pub uring: bool,
    /// Every read asks the server, whatever the kernel has: for files that have no contents but an
    /// answer.
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

/// What is to be done after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Send the reply.
    Send,
    /// It has none.
    None,
}

/// A request in hand: what the handlers of one operation need.
pub(crate) struct Request<'a> {
    pub(crate) header: fuse_in_header,
    pub(crate) node: Node,
    pub(crate) arguments: Arguments<'a>,
}

impl Request<'_> {
    pub(crate) fn caller(&self) -> Caller {
        Caller { uid: self.header.uid, gid: self.header.gid, pid: self.header.pid }
    }
}

/// A store as one mount shows it.
pub struct Service {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: Settings,
    pub(crate) interrupts: Interrupts,
    /// What was agreed on with the kernel at the begin: the largest write, and whether requests
    /// come through io_uring.
    pub(crate) max_write: AtomicU32,
    pub(crate) by_uring: AtomicBool,
    /// An open with O_DIRECT gets past the kernel's cache.
    pub(crate) passes_direct: AtomicBool,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Service {
    /// Shows `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, settings: Settings) -> Service {
        Service {
            store,
            settings,
            interrupts: Interrupts::default(),
            max_write: AtomicU32::new(0),
            by_uring: AtomicBool::new(false),
            passes_direct: AtomicBool::new(false),
        }
    }

    /// The store behind it.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The inode that a node id of the kernel's means: 1 is the root, which stores number as they
    /// like.
    pub(crate) fn node(&self, id: u64) -> Node {
        if id == FUSE_ROOT_ID { self.store.root() } else { Node(id) }
    }

    /// Handles a request. Blocks the caller, microprocess or kernel thread, as the store does.
    pub fn handle(&self, message: Message<'_>, reply: &mut Reply) -> Answer {
        let Some((header, arguments)) = message.split() else {
            // Nothing to answer to: it has no number.
            eprintln!("fuse: a message of {} bytes is no request; ignored", message.length());
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
                // There is nobody to tell of an error.
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

    /// The table of operations. What is not in it the kernel does itself once it was told so, or
    /// does without: `ENOSYS`.
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
            // Flush: an open file holds nothing back, so there is nothing to do at a close. Access:
            // `default_permissions`.
            _ => Err(Errno::NOSYS),
        }
    }
}
