//! The clock beside the files: as a process of its own (`kumi serve clock`), or in the server's.

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

/// What is mounted, where the clock is.
pub(crate) const SOURCE: &str = "clock";

/// `kumi serve clock`.
#[derive(Args, Clone, Debug)]
pub struct ClockOptions {
    /// Serve at a gate of this name. [default: clock, unless --mount is given]
    #[arg(long, value_name = "NAME")]
    gate: Option<String>,
    /// Mount it here: now, monotonic, uptime
    #[arg(long, value_name = "MOUNTPOINT")]
    mount: Option<PathBuf>,
    /// Where a server in the background, of which this is a part, has what there is to say
    #[arg(long, value_name = "FILE", hide = true)]
    log: Option<PathBuf>,
    /// Whether it is a part of such a server
    #[arg(long, hide = true)]
    detached: bool,
}

/// The clock as a mount shows it: each read is a request.
pub(crate) fn service() -> Service {
    // What its files are is for ever; what is in them never.
    let settings = Settings {
        direct: true,
        keep_cache: false,
        timeout: Duration::from_secs(3600),
        ..Default::default()
    };
    Service::new(Arc::new(Clock::new()), settings)
}

/// A clock server in a process of its own, if anything of the clock is wanted.
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
    apart(&arguments).map(Some).map_err(|e| format!("the clock as a process of its own: {e}"))
}

/// Serves until it is told to end, or unmounted. Sequential: there is nothing in it that could
/// wait.
pub(crate) fn run(options: ClockOptions) -> Result<(), String> {
    let signals = Signals::new().map_err(|e| format!("signals: {e}"))?;
    let name = options.gate.or_else(|| options.mount.is_none().then(|| gate::NAME.to_owned()));
    let at_gate = name
        .as_deref()
        .map(|name| gate::serve(name, None))
        .transpose()
        .map_err(|e| e.to_string())?;
    let Some(point) = options.mount else {
        println!("serving the clock at a gate, process {}", std::process::id());
        background::leave_streams(options.detached, options.log.as_deref())
            .map_err(|e| format!("the log: {e}"))?;
        let (told, tells) = std::sync::mpsc::channel();
        signals.then(move || told.send(()).unwrap_or(()));
        let _ = tells.recv();
        return Ok(());
    };
    let point = mount::check_point(&point).map_err(|e| e.to_string())?;
    let how = Options {
        source: SOURCE.into(),
        read_only: true,
        allow_other: rustix::process::geteuid().is_root(),
    };
    let device = mount::mount(&point, &how).map_err(|e| e.to_string())?;
    println!("mounted the clock at {}, process {}", point.display(), std::process::id());
    background::leave_streams(options.detached, options.log.as_deref())
        .map_err(|e| format!("the log: {e}"))?;
    signals.then(move || mount::unmount(&point, true).unwrap_or(()));
    let mounts = vec![Mounted { service: Arc::new(service()), device: Arc::new(device) }];
    let ended = Organisation::Sequential.serve(Threads::Pool, mounts, Arc::new(|| {}));
    drop(at_gate);
    ended.map_err(|e| e.to_string())
}
