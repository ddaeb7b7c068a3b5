//! Busy processes, which end with the process that started them, however that ends.

use std::io;
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

use crate::Failure;

/// Computes until its parent ends.
#[derive(clap::Args)]
pub struct Burn {
    /// The parent, which may have ended before this process could ask for the death signal
    parent: i32,
}

impl Burn {
    /// Does not return, except with an error.
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
    /// Starts `n` of them. The kernel ends a child when the *thread* ends that started it: to be
    /// called by the main thread.
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
            // It cannot fail: the process is a child that was not waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
