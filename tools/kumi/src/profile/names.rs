//! Names for the addresses of another process, from its files.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use kumihimo_backtrace::symbols::Call;
use kumihimo_backtrace::{Loaded, Symbols};
use kumihimo_machine::profile::ProfileModule;

/// Resolves the addresses of a process, also after its end.
pub(super) struct Names {
    /// The program's file, which may have been replaced or removed since it was started.
    program: Option<File>,
    /// Where the paths of the process lead, if it has another root folder.
    root: PathBuf,
    symbols: Symbols,
}

impl Names {
    /// Prepares for a process, while it lives.
    pub(super) fn of(pid: u32) -> Names {
        let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/mnt")).ok();
        let process = pid.to_string();
        let is_same = namespace(&process).is_none_or(|its| Some(its) == namespace("self"));
        Names {
            program: File::open(format!("/proc/{pid}/exe")).ok(),
            root: if is_same { PathBuf::new() } else { format!("/proc/{pid}/root").into() },
            symbols: Symbols::new(Vec::new()),
        }
    }

    /// Takes the files that the process has loaded.
    pub(super) fn load(&mut self, modules: &[ProfileModule]) {
        let place = |module: &ProfileModule| {
            if let (true, Some(program)) = (module.is_program, &self.program) {
                return PathBuf::from(format!("/proc/self/fd/{}", program.as_raw_fd()));
            }
            let mut path = self.root.clone().into_os_string();
            path.push(&module.path);
            let path = PathBuf::from(path);
            // The path is that of another program: it may be that of a device or of a pipe.
            if fs::metadata(&path).is_ok_and(|file| file.is_file()) { path } else { PathBuf::new() }
        };
        let loaded = |module: &ProfileModule| Loaded {
            path: place(module),
            bias: module.bias,
            addresses: module.start..module.end,
        };
        self.symbols = Symbols::new(modules.iter().map(loaded).collect());
    }

    /// See [`Symbols::calls`].
    pub(super) fn calls(&mut self, frames: &[u64], waits: bool) -> Vec<Call> {
        self.symbols.calls(frames, waits)
    }
}
