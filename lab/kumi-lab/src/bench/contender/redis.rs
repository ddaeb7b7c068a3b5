//! A real Redis server without persistence.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::Trouble;
use super::program::Program;

/// Number of attempts: another process may take a port before the server does.
const TRIES: usize = 10;

/// A server that is ended when dropped. Its directory is removed.
pub struct Redis {
    program: Program,
    directory: PathBuf,
    /// Port on 127.0.0.1.
    pub port: u16,
}

impl Redis {
    /// Starts a server on `cores`, and returns when it accepts connections.
    pub fn start(cores: &[usize]) -> Result<Redis, Trouble> {
        let mut why = String::new();
        for _ in 0..TRIES {
            let mut server = Redis::begin(cores)?;
            match server.until_ready() {
                Ok(()) => return Ok(server),
                Err(e) => why = format!("redis-server: {e}"),
            }
        }
        Err(why.into())
    }

    /// Uses a port that was free a moment ago, because the server cannot choose one itself.
    fn begin(cores: &[usize]) -> Result<Redis, Trouble> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("kumi-redis-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let directory = std::env::temp_dir().join(name);
        let free = TcpListener::bind("127.0.0.1:0")
            .and_then(|one| one.local_addr())
            .map_err(|e| e.to_string())?;
        let port = free.port();
        let mut command = Command::new("redis-server");
        command.args([
            "--bind",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        command.arg("--dir").arg(&directory);
        std::fs::create_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        match Program::start(cores, command) {
            Ok(program) => Ok(Redis { program, directory, port }),
            Err(why) => {
                let _ = std::fs::remove_dir(&directory);
                Err(not_installed(why.into(), "redis-server", "redis-server"))
            }
        }
    }

    fn until_ready(&mut self) -> Result<(), String> {
        while !self.program.hear()?.contains("Ready to accept") {}
        Ok(())
    }

    /// Process ID.
    pub fn id(&self) -> u32 {
        self.program.id()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.program.terminate();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The same trouble, as a refusal if the program is not installed.
pub fn not_installed(trouble: Trouble, program: &str, package: &str) -> Trouble {
    match trouble {
        Trouble::Failed(why) if why.contains("No such file") => {
            Trouble::Refused(format!("{program} is not installed (apt-get install {package})"))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{output_on, own_cores};
    use super::*;

    #[test]
    fn missing_program_is_reported_with_its_package() {
        let why = output_on(&own_cores(), &mut Command::new("/no/such/program")).unwrap_err();
        let Trouble::Refused(why) = not_installed(why, "redis-server", "redis-server") else {
            panic!("refused")
        };
        assert!(why.contains("apt-get"));
    }
}
