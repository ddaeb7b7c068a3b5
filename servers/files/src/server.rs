//! Runs a mount from its start to its end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kumihimo::fuse::{Device, uring};
use kumihimo::sync::Arc;
use kumihimo_fuse::mount::{self, Options};
use kumihimo_fuse::{Mounted, Organisation, Service, Settings, Threads};
use kumihimo_host::Restrictions;
use kumihimo_store::Store;
use rustix::mount::MountFlags;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::background;
use crate::backing::{self, Opened};
use crate::clock;
use crate::options::{MountOptions, Uring};
use crate::signals::Signals;

/// Time for clients to close open files after a termination signal.
const GRACE: Duration = Duration::from_secs(5);

/// Serves until the file system is unmounted or a signal arrives.
pub(crate) fn run(options: MountOptions) -> Result<(), String> {
    background::leave_session(options.detached);
    // Before the first thread, which would keep it.
    apply_quotas().map_err(|e| format!("cannot drop CAP_SYS_RESOURCE: {e}"))?;
    // Check all points before the first mount: stat(2) of a point that is mounted but not served
    // yet would hang.
    let check = |point: &Path| mount::check_point(point).map_err(|e| e.to_string());
    let point = check(&options.mountpoint)?;
    let clock = options.clock.as_deref().map(check).transpose()?;
    if clock.as_ref() == Some(&point) {
        return Err(format!("{}: files and clock cannot share a mount point", point.display()));
    }
    let organisation = Organisation::from(options.organisation);
    organisation
        .run(move || serve(&options, organisation, &point, clock.as_deref()))
        .map_err(|e| format!("cannot start the runtime: {e}"))?
}

/// Drops CAP_SYS_RESOURCE, with which the kernel ignores the quota of a file's owner: a client
/// writes through this process. Root needs it for nothing here.
fn apply_quotas() -> rustix::io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.effective.remove(CapabilitySet::SYS_RESOURCE);
    sets.permitted.remove(CapabilitySet::SYS_RESOURCE);
    sets.inheritable.remove(CapabilitySet::SYS_RESOURCE);
    set_capabilities(None, sets)
}

fn serve(
    options: &MountOptions,
    organisation: Organisation,
    point: &Path,
    clock: Option<&Path>,
) -> Result<(), String> {
    // Catch signals before the first mount, which a signal would leave behind otherwise.
    let signals = Signals::new().map_err(|e| format!("cannot catch signals: {e}"))?;
    let opened = backing::open(options, organisation)?;
    let store = Arc::clone(&opened.store);
    let served = serve_store(options, organisation, (point, clock), opened, signals);
    let closed = store
        .close()
        .map_err(|e| format!("{}: cannot close the store: {e}", options.from.display()));
    served.and(closed)
}

fn serve_store(
    options: &MountOptions,
    organisation: Organisation,
    (point, clock_point): (&Path, Option<&Path>),
    opened: Opened,
    signals: Signals,
) -> Result<(), String> {
    let Opened { store, chore, ours_alone, kind, restrictions } = opened;
    let settings = Settings {
        timeout: options.timeout,
        writeback: options.writeback,
        readdirplus: options.readdirplus,
        keep_cache: ours_alone,
        uring: by_uring(options, organisation)?,
        direct: false,
    };
    let (first, point) =
        Point::mount(options, &options.from, point, (options.read_only, restrictions))?;
    let mut points = vec![point];
    let mut mounts = vec![Mounted {
        service: Arc::new(Service::new(Arc::clone(&store), settings)),
        device: Arc::new(first),
    }];
    let mut gate = None;
    let mut apart = None;
    if organisation.has_clock_apart() {
        let (gate, log) = (options.gate.as_deref(), options.log.as_deref());
        apart = clock::begin_apart(clock_point, gate, options.detached, log)?;
    } else {
        if let Some(at) = clock_point {
            let (device, point) =
                Point::mount(options, Path::new(clock::SOURCE), at, (true, restrictions))?;
            points.push(point);
            mounts.push(Mounted { service: Arc::new(clock::service()), device: Arc::new(device) });
        }
        if let Some(name) = &options.gate {
            gate = Some(
                kumihimo_clock::gate::serve(name, organisation.turn())
                    .map_err(|e| e.to_string())?,
            );
        }
    }
    let all: Vec<PathBuf> = points.iter().map(|point| point.0.clone()).collect();
    signals.then(move || end(&all, &*store))?;
    let (shown, at) = (options.from.display(), points[0].0.display());
    println!("mounted {shown} ({kind}) at {at}: {}, process {}", organisation, std::process::id());
    background::leave_streams(options.detached, options.log.as_deref())
        .map_err(|e| format!("cannot redirect output to the log: {e}"))?;
    let served =
        organisation.serve(options.threads, mounts, chore).map_err(|e| format!("{at}: {e}"));
    drop((gate, apart));
    served
}

/// Decides whether to receive requests through io_uring.
fn by_uring(options: &MountOptions, organisation: Organisation) -> Result<bool, String> {
    // With io_uring, the thread that waits in the kernel also handles the request. That excludes
    // user-level threads without kernel support, and organisations in which one thread receives and
    // another handles.
    let takes = matches!(organisation, Organisation::KernelThreads | Organisation::Microprocesses)
        && matches!(options.threads, Threads::Identical(_) | Threads::Pool);
    match options.uring {
        Uring::Off => Ok(false),
        // Off for microprocesses by default: each ring entry needs a microprocess that waits in the
        // kernel, which occupies a kernel thread.
        Uring::Auto => {
            Ok(takes && organisation == Organisation::KernelThreads && uring::is_enabled())
        }
        Uring::On if !takes => {
            Err("--uring requires --threads pool or a number, and kernel-threads or microprocesses"
                .to_owned())
        }
        Uring::On if !uring::is_enabled() => {
            Err(format!("the kernel does not support FUSE over io_uring; {}", uring::REMEDY))
        }
        Uring::On => Ok(true),
    }
}

/// A mount point. Unmounted when dropped, so that an error leaves no mount behind.
struct Point(PathBuf);

impl Point {
    fn mount(
        options: &MountOptions,
        source: &Path,
        point: &Path,
        (read_only, of): (bool, Restrictions),
    ) -> Result<(Device, Point), String> {
        let root = rustix::process::geteuid().is_root();
        let source = source.canonicalize().unwrap_or_else(|_| source.to_owned());
        let mut restrictions = MountFlags::empty();
        restrictions.set(MountFlags::NOEXEC, of.no_execution);
        restrictions.set(MountFlags::NOSYMFOLLOW, of.no_symlinks);
        let allow_other = options.allow_other || root;
        let how = Options { source, read_only, allow_other, restrictions };
        let device = mount::mount(point, &how).map_err(|e| e.to_string())?;
        Ok((device, Point(point.to_owned())))
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // Usually already unmounted, which is why the server ends. Errors are ignored.
        let _ = mount::unmount(&self.0, true);
    }
}

/// Handles a termination signal: detaches the mounts and gives clients time to close open files.
fn end(points: &[PathBuf], store: &dyn Store) {
    for point in points {
        let _ = mount::unmount(point, true);
    }
    // Normally the process ends on its own during this time.
    std::thread::sleep(GRACE);
    eprintln!("kumi: {}: still in use; ending anyway", points[0].display());
    let code = i32::from(store.close().is_err());
    std::process::exit(code);
}
