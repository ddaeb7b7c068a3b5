//! Opens the store to be served, or reports why it cannot be served.

use std::path::{Path, PathBuf};

use kumihimo::sync::Arc;
use kumihimo_ext2::Ext2;
use kumihimo_fuse::{Chore, Organisation, mountinfo};
use kumihimo_host::{Host, Restrictions};
use kumihimo_store::{Store, Time, open_disk};

use crate::options::{Backing, MountOptions};

/// An open store.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// Periodic work of the store.
    pub(crate) chore: Chore,
    /// True if only the server changes the store.
    pub(crate) ours_alone: bool,
    /// Type of the store, for messages.
    pub(crate) kind: &'static str,
    /// Restrictions of the host's mount that the clients' mount must have too.
    pub(crate) restrictions: Restrictions,
}

/// Opens the store that the options name. Runs inside the organisation, whose threads access the
/// disk.
pub(crate) fn open(options: &MountOptions, organisation: Organisation) -> Result<Opened, String> {
    let path = &options.from;
    let shown = path.display();
    let found = path.metadata().map_err(|e| format!("{shown}: {e}"))?;
    let backing =
        options.store.unwrap_or(if found.is_dir() { Backing::Host } else { Backing::Ext2 });
    match backing {
        Backing::Ext2 if found.is_dir() => Err(format!(
            "{shown}: a directory, not an ext2 image; use --store host to serve a directory"
        )),
        Backing::Host if !found.is_dir() => Err(format!(
            "{shown}: not a directory; use --store ext2 to serve an image or a block device"
        )),
        Backing::Ext2 => ext2(options, organisation),
        Backing::Host => host(options),
    }
}

fn ext2(options: &MountOptions, organisation: Organisation) -> Result<Opened, String> {
    let path = &options.from;
    let shown = path.display();
    if let Some(point) = mounted_by_the_kernel(path).map_err(|e| format!("{shown}: {e}"))? {
        return Err(format!(
            "{shown}: the kernel has it mounted at {}; unmount it first, because two drivers would corrupt it",
            point.display()
        ));
    }
    let disk = open_disk(path, !options.read_only).map_err(|e| match e.raw_os_error() {
        Some(code)
            if code == rustix::io::Errno::ROFS.raw_os_error()
                || code == rustix::io::Errno::ACCESS.raw_os_error() =>
        {
            format!("{shown}: {e}; use --read-only to serve a store that cannot be written")
        }
        Some(code) if code == rustix::io::Errno::BUSY.raw_os_error() => {
            format!("{shown}: {e}; the kernel has it mounted, or another process uses it")
        }
        _ => format!("{shown}: {e}"),
    })?;
    let settings = kumihimo_ext2::Settings {
        name: shown.to_string(),
        read_only: options.read_only,
        cache_bytes: options.cache,
        now: Time::now,
        ..Default::default()
    };
    let store = Arc::new(
        Ext2::open(organisation.disk(disk, options.delay), settings)
            .map_err(|e| format!("{shown}: {e}"))?,
    );
    // The store reports failed writes itself, and becomes read-only.
    let chore = Arc::clone(&store);
    Ok(Opened {
        store,
        chore: Arc::new(move || chore.write_back_old().unwrap_or(())),
        ours_alone: true,
        kind: "ext2",
        restrictions: Restrictions::default(),
    })
}

fn host(options: &MountOptions) -> Result<Opened, String> {
    let shown = options.from.display();
    if !options.delay.is_zero() {
        return Err(format!("{shown}: --delay applies to ext2 images only"));
    }
    // Plain system calls: the kernel's event source reports the ones that block.
    let access = kumihimo_host::Access::Plain;
    let settings = kumihimo_host::Settings {
        read_only: options.read_only,
        access,
        write_back: options.writeback,
    };
    let store = Arc::new(Host::open(&options.from, settings).map_err(|e| format!("{shown}: {e}"))?);
    let failed = |e: std::io::Error| format!("{shown}: {e}");
    let restrictions = store.restrictions().map_err(failed)?;
    // A server for one user may do what that user may.
    let for_others = options.allow_other || rustix::process::geteuid().is_root();
    if let (true, Err(kind)) = (for_others, store.checks_modes_only().map_err(failed)?) {
        return Err(format!(
            "{shown}: its file system (type {kind:#x}) has permissions beyond modes and POSIX access control lists, which a mount for other users would lift; serve a directory of a local file system"
        ));
    }
    Ok(Opened { store, chore: Arc::new(|| {}), ours_alone: false, kind: "host", restrictions })
}

/// Mount point of the loop device of an image, if the image is mounted.
fn mounted_by_the_kernel(image: &Path) -> std::io::Result<Option<PathBuf>> {
    let image = image.canonicalize()?;
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return Ok(None) };
    for device in devices {
        let device = device?;
        let backing =
            std::fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(backing.trim_end_matches('\n')) == image {
            let device = Path::new("/dev").join(device.file_name());
            if let Some(mount) =
                mountinfo::mounts()?.into_iter().find(|mount| Path::new(&mount.source) == device)
            {
                return Ok(Some(mount.point));
            }
        }
    }
    Ok(None)
}
