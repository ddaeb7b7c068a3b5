//! The clock beside the files: in a separate process (`kumi serve clock`) or in the file server.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kumihimo::sync::Arc;
use kumihimo_clock::{Clock, gate};
use kumihimo_fuse::mount::{self, Options};
use kumihimo_fuse::{Apart, Mounted, Organisation, Service, Settings, Threads, apart};

use crate::background;
use crate::signals::Signals;

/// Source name of the clock's mount in the mount table.
pub(crate) const SOURCE: &str = "clock";

/// Options of `kumi serve clock`.
#[derive(Args, Clone, Debug)]
pub struct ClockOptions {
    /// Serve at a gate of this name. [default: clock, unless --mount is given]
    #[arg(long, value_name = "NAME")]
    gate: Option<String>,
    /// Mount it here: now, monotonic, uptime
    #[arg(long, value_name = "MOUNTPOINT")]
    mount: Option<PathBuf>,
    /// Log file of the background server to which this process belongs
    #[arg(long, value_name = "FILE", hide = true)]
    log: Option<PathBuf>,
    /// Run as a part of a background server
    #[arg(long, hide = true)]
    detached: bool,
}

/// The service of the clock's mount. Every read is a request.
pub(crate) fn service() -> Service {
    // Attributes never change, so the kernel may cache them forever. Contents must not be cached.
    let settings = Settings {
        direct: true,
        keep_cache: false,
        timeout: Duration::from_secs(3600),
        ..Default::default()
    };
    Service::new(Arc::new(Clock::new()), settings)
}

/// Starts a clock server in a separate process, if a mount or a gate of the clock is requested.
pub(crate) fn begin_apart(
    point: Option<&Path>,
    gate: Option<&str>,
    is_detached: bool,
    log: Option<&Path>,
) -> Result<Option<Apart>, String> {
    let mut arguments: Vec<&OsStr> = vec!["serve".as_ref(), "clock".as_ref()];
    if let Some(point) = point {
        arguments.extend(["--mount".as_ref(), point.as_os_str()]);
    }
    if let Some(gate) = gate {
        arguments.extend::<[&OsStr; 2]>(["--gate".as_ref(), gate.as_ref()]);
    }
    if arguments.len() == 2 {
        return Ok(None);
    }
    if is_detached {
        arguments.push("--detached".as_ref());
    }
    if let Some(log) = log {
        arguments.extend(["--log".as_ref(), log.as_os_str()]);
    }
    apart(&arguments).map(Some).map_err(|e| format!("cannot start the clock process: {e}"))
}

/// Serves until a signal or an unmount. Sequential, because no request can block.
pub(crate) fn run(options: ClockOptions) -> Result<(), String> {
    let signals = Signals::new().map_err(|e| format!("signals: {e}"))?;
    let name = options.gate.or_else(|| options.mount.is_none().then(|| gate::NAME.to_owned()));
    let at_gate = name
        .as_deref()
        .map(|name| gate::serve(name, None))
        .transpose()
        .map_err(|e| e.to_string())?;
    let Some(point) = options.mount else {
        let (told, tells) = std::sync::mpsc::channel();
        signals.then(move || told.send(()).unwrap_or(()))?;
        println!("serving the clock at a gate, process {}", std::process::id());
        background::leave_streams(options.detached, options.log.as_deref())
            .map_err(|e| format!("cannot redirect output to the log: {e}"))?;
        let _ = tells.recv();
        return Ok(());
    };
    let point = mount::check_point(&point).map_err(|e| e.to_string())?;
    let how = Options {
        source: SOURCE.into(),
        read_only: true,
        allow_other: rustix::process::geteuid().is_root(),
        restrictions: rustix::mount::MountFlags::empty(),
    };
    let device = mount::mount(&point, &how).map_err(|e| e.to_string())?;
    let at = point.clone();
    if let Err(why) = signals.then(move || mount::unmount(&at, true).unwrap_or(())) {
        let _ = mount::unmount(&point, true);
        return Err(why);
    }
    println!("mounted the clock at {}, process {}", point.display(), std::process::id());
    background::leave_streams(options.detached, options.log.as_deref())
        .map_err(|e| format!("cannot redirect output to the log: {e}"))?;
    let mounts = vec![Mounted { service: Arc::new(service()), device: Arc::new(device) }];
    let ended = Organisation::Sequential.serve(Threads::Pool, mounts, Arc::new(|| {}));
    drop(at_gate);
    ended.map_err(|e| e.to_string())
}
