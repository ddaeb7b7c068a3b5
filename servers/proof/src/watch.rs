//! A watchdog: what hangs is named, and ended.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// More than anything bounded takes on a loaded machine.
const BOUND: Duration = Duration::from_secs(60);

/// Watches one test's steps.
#[derive(Debug)]
pub struct Watchdog {
    steps: Sender<String>,
}

impl Watchdog {
    /// Ends the process, with the name of the step, if a step takes more than a minute.
    ///
    /// # Panics
    /// If there is no kernel thread to be had.
    #[must_use]
    pub fn new(test: &'static str) -> Watchdog {
        let (steps, received) = channel::<String>();
        let watch = move || {
            let mut step = "before its first step".to_owned();
            loop {
                match received.recv_timeout(BOUND) {
                    Ok(next) => step = next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        let line = format!(
                            "\n{test}: KUMI_SEED={}: hangs, {step}\n",
                            kumihimo_tests::seed()
                        );
                        // Past libtest's capture: nothing of this process is printed any more.
                        let _ = std::io::stderr().write_all(line.as_bytes());
                        std::process::abort();
                    }
                }
            }
        };
        std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(watch)
            .expect("a kernel thread");
        Watchdog { steps }
    }

    /// The next step has begun.
    ///
    /// # Panics
    /// If the watchdog is gone.
    pub fn step(&self, what: impl Into<String>) {
        self.steps.send(what.into()).expect("the watchdog lives as long as this");
    }
}
