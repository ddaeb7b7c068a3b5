//! Compares `Host`, which serves a host directory, with the model. This validates the model against
//! Linux's own file systems.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kumihimo_host::{Host, Settings};
use kumihimo_proof::compare::{Difference, Pair, Rules, Subject};
use kumihimo_proof::operations::{Change, Operation};
use kumihimo_proof::{clock, run};
use kumihimo_store::{Errno, Store};

/// Errors of the host's file systems that are as correct as the model's.
const ALSO: [(Errno, Errno); 3] = [
    // Rename over an ancestor directory.
    (Errno::ISDIR, Errno::NOTEMPTY),
    // Symbolic link with a target that is too long, where the name exists or the directory is
    // removed.
    (Errno::EXIST, Errno::NAMETOOLONG),
    (Errno::NOENT, Errno::NAMETOOLONG),
];

/// An empty served directory, removed when dropped.
struct Served {
    path: PathBuf,
    host: Host,
}

impl Served {
    fn new() -> Served {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("host-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir(&path).expect("a directory for the test");
        let host = Host::open(&path, Settings::default()).expect("a directory is served");
        Served { path, host }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Subject for Served {
    fn store(&self) -> &dyn Store {
        &self.host
    }

    fn remount(&mut self) -> Result<(), Difference> {
        self.host.close().map_err(|errno| format!("close: {errno}"))?;
        self.host = Host::open(&self.path, Settings::default())
            .map_err(|error| format!("opened again: {error}"))?;
        Ok(())
    }

    fn rules(&self) -> Rules {
        Rules {
            own_time: true,
            own_directory_links: true,
            no_generations: true,
            no_room_beyond: true,
            xattr_room: Some(500),
            same: &ALSO,
            ..Rules::default()
        }
    }
}

/// Removes operations that the kernel itself changes: modes of symbolic links, and xattrs of inodes
/// that are not regular files. A change of owner always clears set-user-ID bits.
fn let_through(operation: &Operation) -> Option<Operation> {
    match operation {
        Operation::SetXattr { .. } | Operation::RemoveXattr { .. } | Operation::Xattr { .. } => {
            None
        }
        Operation::Change {
            change: Change::Permissions(_) | Change::Owner { .. } | Change::Times { .. },
            ..
        } => None,
        // Some host file systems support COLLAPSE_RANGE.
        Operation::Allocate { mode: 8, .. } => None,
        // These would sync the host's whole file system each time.
        Operation::SyncAll | Operation::WriteBack => None,
        other => Some(other.clone()),
    }
}

#[test]
fn host_directory_behaves_like_the_model() {
    let name = "host_directory_behaves_like_the_model";
    if !rustix::process::geteuid().is_root() {
        kumihimo_tests::skip(name, "only root can create devices and files of other users");
        return;
    }
    run::test(name, 200, 1..80, |operations| {
        clock::reset();
        let mut pair = Pair::new(Served::new())?;
        pair.run(&operations.iter().filter_map(let_through).collect::<Vec<_>>())?;
        pair.end().map(|_| ())
    });
}
