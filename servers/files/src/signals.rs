//! Signals that end a server.

use std::io;

use kumihimo::signal::{self, Kind, Stream};
use kumihimo::sync::Arc;

/// Catches SIGTERM and SIGINT. Their default actions are disabled while this value exists.
pub(crate) struct Signals([Stream; 2]);

impl Signals {
    pub(crate) fn new() -> io::Result<Signals> {
        Ok(Signals([signal::stream(Kind::TERMINATE)?, signal::stream(Kind::INTERRUPT)?]))
    }

    /// Calls `end` when a signal arrives. A dedicated kernel thread waits for each signal, so the
    /// wait is independent of the organisation's threads.
    ///
    /// # Errors
    /// If there is no further kernel thread.
    pub(crate) fn then(self, end: impl Fn() + Send + Sync + 'static) -> Result<(), String> {
        let end = Arc::new(end);
        for mut signal in self.0 {
            let end = Arc::clone(&end);
            std::thread::Builder::new()
                .spawn(move || signal.recv().map(|()| end()))
                .map_err(|e| format!("cannot wait for signals: {e}"))?;
        }
        Ok(())
    }
}
