//! The signals that end a server.

use std::io;

use kumihimo::signal::{self, Kind, Stream};
use kumihimo::sync::Arc;

/// SIGTERM and SIGINT, which do nothing by themselves while this is there.
pub(crate) struct Signals([Stream; 2]);

impl Signals {
    pub(crate) fn new() -> io::Result<Signals> {
        Ok(Signals([signal::stream(Kind::TERMINATE)?, signal::stream(Kind::INTERRUPT)?]))
    }

    /// Does that when one comes, on a kernel thread that is there for this alone: no organisation
    /// is to wait for it, or it for one.
    pub(crate) fn then(self, end: impl Fn() + Send + Sync + 'static) {
        let end = Arc::new(end);
        for mut signal in self.0 {
            let end = Arc::clone(&end);
            std::thread::spawn(move || signal.recv().map(|()| end()));
        }
    }
}
