//! Busy processes. They end with the process that started them, however it ends.

use std::io;
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use crate::Failure;

/// Computes until the parent process ends.
#[derive(clap::Args)]
pub struct Burn {
    /// Process ID of the parent; detects an end before the death signal was set
    parent: i32,
}

impl Burn {
    /// Computes in a loop. Returns only if an error occurs.
    pub fn run(&self) -> Result<std::process::ExitCode, Failure> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(self.parent) {
            return Err("the parent has ended".into());
        }
        loop {
            std::hint::spin_loop();
        }
    }
}

/// Running busy processes.
pub struct Load(Vec<Child>);

impl Load {
    /// Starts `n` processes. The kernel sends the death signal when the parent *thread* ends
    /// (PR_SET_PDEATHSIG(2const)), so this must be called by the main thread.
    pub fn start(n: usize) -> io::Result<Load> {
        let mut load = Load(Vec::with_capacity(n));
        for _ in 0..n {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("burn").arg(getpid().as_raw_nonzero().to_string());
            load.0.push(command.stdin(Stdio::null()).spawn()?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Cannot fail: the child has not been reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
