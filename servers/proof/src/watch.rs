//! Watchdog: ends a hanging test and names the step that hangs.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Time limit of a step, longer than any step takes on a loaded machine.
const BOUND: Duration = Duration::from_secs(60);

/// Watches the steps of one test.
#[derive(Debug)]
pub struct Watchdog {
    steps: Sender<String>,
}

impl Watchdog {
    /// Starts a watchdog. It ends the process and prints the name of the step if a step takes more
    /// than a minute.
    ///
    /// # Panics
    /// If no kernel thread can be created.
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
                        // Written past libtest's capture, whose contents are lost when the process
                        // ends.
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

    /// Begins the next step.
    ///
    /// # Panics
    /// If the watchdog has ended.
    pub fn step(&self, what: impl Into<String>) {
        self.steps.send(what.into()).expect("the watchdog lives as long as this");
    }
}
