//! The way of a mount from its begin to its end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kumihimo::fuse::{Device, uring};
use kumihimo::sync::Arc;
use kumihimo_fuse::mount::{self, Options};
use kumihimo_fuse::{Mounted, Organisation, Service, Settings, Threads};
use kumihimo_store::Store;

use crate::background;
use crate::backing::{self, Opened};
use crate::clock;
use crate::options::{MountOptions, Uring};
use crate::signals::Signals;

/// The time to close open files after the server is told to end.
const GRACE: Duration = Duration::from_secs(5);

/// Serves until it is unmounted, or told to end by a signal.
pub(crate) fn run(options: MountOptions) -> Result<(), String> {
    background::leave_session(options.detached);
    // All of them before the first is mounted: to look at one that is mounted and not served yet
    // would wait for ever.
    let check = |point: &Path| mount::check_point(point).map_err(|e| e.to_string());
    let point = check(&options.mountpoint)?;
    let clock = options.clock.as_deref().map(check).transpose()?;
    if clock.as_ref() == Some(&point) {
        return Err(format!(
            "{}: files and clock are to be mounted at the same place",
            point.display()
        ));
    }
    let organisation = Organisation::from(options.organisation);
    organisation
        .run(move || serve(&options, organisation, &point, clock.as_deref()))
        .map_err(|e| format!("no runtime: {e}"))?
}

fn serve(
    options: &MountOptions,
    organisation: Organisation,
    point: &Path,
    clock: Option<&Path>,
) -> Result<(), String> {
    // Before anything is mounted that a signal would leave behind.
    let signals = Signals::new().map_err(|e| format!("signals: {e}"))?;
    let opened = backing::open(options, organisation)?;
    let store = Arc::clone(&opened.store);
    let served = serve_store(options, organisation, (point, clock), opened, signals);
    let closed = store.close().map_err(|e| format!("{}: closing it: {e}", options.from.display()));
    served.and(closed)
}

fn serve_store(
    options: &MountOptions,
    organisation: Organisation,
    (point, clock_point): (&Path, Option<&Path>),
    opened: Opened,
    signals: Signals,
) -> Result<(), String> {
    let Opened { store, chore, ours_alone, kind } = opened;
    let settings = Settings {
        timeout: options.timeout,
        writeback: options.writeback,
        readdirplus: options.readdirplus,
        keep_cache: ours_alone,
        uring: by_uring(options, organisation)?,
        direct: false,
    };
    let (first, point) = Point::mount(options, &options.from, point, options.read_only)?;
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
            let (device, point) = Point::mount(options, Path::new(clock::SOURCE), at, true)?;
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
    let (shown, at) = (options.from.display(), points[0].0.display());
    println!("mounted {shown} ({kind}) at {at}: {}, process {}", organisation, std::process::id());
    background::leave_streams(options.detached, options.log.as_deref())
        .map_err(|e| format!("the log: {e}"))?;
    let all: Vec<PathBuf> = points.iter().map(|point| point.0.clone()).collect();
    signals.then(move || end(&all, &*store));
    let served =
        organisation.serve(options.threads, mounts, chore).map_err(|e| format!("{at}: {e}"));
    drop((gate, apart));
    served
}

/// Whether to ask the kernel for requests through io_uring.
fn by_uring(options: &MountOptions, organisation: Organisation) -> Result<bool, String> {
    // A thread waits in the kernel for what it handles then itself: not for threads of which the
    // kernel knows nothing, nor where one receives and another handles.
    let takes = matches!(organisation, Organisation::KernelThreads | Organisation::Microprocesses)
        && matches!(options.threads, Threads::Identical(_) | Threads::Pool);
    match options.uring {
        Uring::Off => Ok(false),
        // A microprocess that waits in the kernel for each entry is a kernel thread for each entry.
        Uring::Auto => Ok(takes && organisation == Organisation::KernelThreads && uring::is_enabled()),
        Uring::On if !takes => {
            Err("--uring is for a pool or a number of identical threads, of kernel-threads or microprocesses"
                .to_owned())
        }
        Uring::On if !uring::is_enabled() => {
            Err(format!("the kernel takes no requests through io_uring; {}", uring::REMEDY))
        }
        Uring::On => Ok(true),
    }
}

/// Where something is mounted. It is taken away when this is dropped, so that an error leaves
/// nothing behind.
struct Point(PathBuf);

impl Point {
    fn mount(
        options: &MountOptions,
        source: &Path,
        point: &Path,
        read_only: bool,
    ) -> Result<(Device, Point), String> {
        let root = rustix::process::geteuid().is_root();
        let source = source.canonicalize().unwrap_or_else(|_| source.to_owned());
        let how = Options { source, read_only, allow_other: options.allow_other || root };
        let device = mount::mount(point, &how).map_err(|e| e.to_string())?;
        Ok((device, Point(point.to_owned())))
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // Most of the time it has been taken away, and that is why the server ends.
        let _ = mount::unmount(&self.0, true);
    }
}

/// What a signal does: the mounts vanish at once, and open files there have some time to be closed.
fn end(points: &[PathBuf], store: &dyn Store) {
    for point in points {
        let _ = mount::unmount(point, true);
    }
    // Before that, the process ends by itself.
    std::thread::sleep(GRACE);
    eprintln!("kumi: {}: still in use; ended all the same", points[0].display());
    let code = i32::from(store.close().is_err());
    std::process::exit(code);
}
