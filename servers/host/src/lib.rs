//! Serves a directory of the host as a [`Store`](kumihimo_store::Store), and nothing outside of it.
//!
//! **Containment.** A name is a single component. openat2(2) resolves it relative to the descriptor
//! of its directory, follows no link and crosses no mount. Calls that never follow the last
//! component (mkdirat, unlinkat, renameat2) get the name directly. Symbolic links are returned as
//! links. Anything below a mount point inside the directory is `EXDEV`. There are two reasons:
//! inode numbers, statistics and syncs cover one file system, and a server whose mount point is
//! inside the served directory would wait for itself. A directory that another process moves out of
//! the tree remains usable to a client that has it open. Its `..` is `ESTALE`, so no path leads
//! from it to its surroundings.
//!
//! **Nodes** are inodes, identified by device, number and birth time. Hard links share one node. A
//! node has the number of its inode, unless that number is taken. It is taken if the number of a
//! deleted inode is reused while the deleted inode still has references.
//!
//! **Descriptors.** A node holds an `O_PATH` descriptor. At most half of the process's descriptors
//! (`RLIMIT_NOFILE`, whose soft limit is raised to the hard one) are used for nodes. The
//! descriptors of the least recently used nodes are closed, and opened again through directory and
//! name on demand. An inode without a name keeps its descriptor. An inode whose name was changed on
//! the host, and not through the store, is `ESTALE` until it is looked up again. If no descriptor
//! can be closed, `EMFILE` and `ENFILE` reach the client. File handles (open_by_handle_at(2)) would
//! not depend on names, but they require privileges, and many file systems do not support them.
//!
//! **Permissions** are checked by the client's kernel, from modes and access control lists. A
//! default list is applied to new inodes as the host does ([`Host::checks_modes_only`] reports file
//! systems with other permissions, and [`Host::restrictions`] those of the mount).
//!
//! **Owners.** If the server runs as root, new files belong to the caller. Otherwise they belong to
//! the server's user, and a change of owner fails as it does for that user.
#![forbid(unsafe_code)]

mod change;
mod denials;
mod host;
mod inode;
mod make;
mod nodes;
mod opened;
mod resolve;

pub use denials::Restrictions;
pub use host::{Access, Host, Settings};
