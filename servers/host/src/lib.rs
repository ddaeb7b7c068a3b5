//! A directory of this machine as a [`Store`](kumihimo_store::Store), and never anything outside of
//! it.
//!
//! **Containment.** A name is one component, resolved relative to the descriptor of its directory
//! by openat2(2), which follows no link and crosses no mount; or it is the last component of a call
//! that follows none by its nature (mkdirat, unlinkat, renameat2). Symbolic links are handed out as
//! links. What lies beneath a mount inside the directory is `EXDEV`: the numbers of inodes, the
//! statistics and a sync are of one file system, and a server whose own mount point lies in what it
//! serves would wait for itself. A directory that someone on the machine moves out of the tree
//! while a client has it stays usable to that client, as an open directory does; its `..` is
//! `ESTALE`, so nothing leads from it to what lies around it.
//!
//! **Nodes** are inodes, by device, number and birth: hard links are one node. A node has its
//! inode's number, unless that is taken (an inode that has gone, and whose number is used again
//! while somebody still refers to it).
//!
//! **Descriptors.** A node holds an `O_PATH` descriptor. No more than half of what the process may
//! have (`RLIMIT_NOFILE`, whose soft limit is raised to the hard one) go to nodes: those that were
//! not used for long lose theirs, and get it back through their directory and name when needed. An
//! inode without a name keeps its own. One whose name was changed on the machine meanwhile, not
//! through the store, is `ESTALE` until it is looked up again. Where nothing is left to give back,
//! `EMFILE` and `ENFILE` reach the client. Handles of files (open_by_handle_at(2)) would do without
//! names, but need privileges, and many file systems have none.
//!
//! **Owners.** As root, what is made belongs to the caller. Without privileges it belongs to the
//! server's user, and a change of owner fails as it does for that user.
#![forbid(unsafe_code)]

mod change;
mod host;
mod inode;
mod make;
mod nodes;
mod opened;
mod resolve;

pub use host::{Access, Host, Settings};
