//! Threads of a mount: the allotment of requests to threads, independent of the kind of thread
//! (P1's dimension "allocation of threads").
//!
//! `crew.rs` contains the receivers and handlers of a mount, `per_file.rs` a thread for each open
//! file, and `uring.rs` threads that receive through io_uring. A thread takes a request from an
//! [`Intake`](crate::intake::Intake), calls the [`Service`](crate::protocol::service::Service), and
//! returns the reply to the intake.
//!
//! Depends on the environment, the intake and the protocol; the organisations depend on this
//! module.

mod crew;
mod per_file;
mod uring;

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::str::FromStr;

use kumihimo::sync::Arc;
use kumihimo::sync::mpsc::{self, Receiver};

use crate::environment::Environment;
use crate::intake::Mounted;
use crew::Crew;
use per_file::Files;

/// Number of receivers if each file has a thread.
const RECEIVERS: usize = 3;

/// Allotment of requests to threads (P1, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// A fixed number of identical threads; the paper chose three.
    Identical(NonZeroUsize),
    /// As many threads as there are active requests, plus a few that wait.
    Pool,
    /// One thread for each request. The paper rejected it because of the memory for stacks.
    PerRequest,
    /// One thread for each open file, and three identical threads for all other requests.
    PerFile,
}

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Threads, String> {
        match text {
            "pool" => Ok(Threads::Pool),
            "per-request" => Ok(Threads::PerRequest),
            "per-file" => Ok(Threads::PerFile),
            number => match number.parse::<NonZeroUsize>() {
                Ok(n) if n.get() <= 1024 => Ok(Threads::Identical(n)),
                _ => {
                    Err("expected a number of identical threads (1 to 1024), pool, per-request or per-file".to_owned())
                }
            },
        }
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threads::Identical(n) => write!(f, "{n}"),
            Threads::Pool => f.write_str("pool"),
            Threads::PerRequest => f.write_str("per-request"),
            Threads::PerFile => f.write_str("per-file"),
        }
    }
}

/// Handle that waits until the last thread has ended.
pub(crate) struct Ended(Receiver<()>);

impl Ended {
    pub(crate) fn wait(self) {
        // Nothing is ever sent: the error means that all senders are dropped.
        let _ = self.0.recv();
    }
}

/// Starts the threads that serve `mounts`.
pub(crate) fn begin(
    environment: &Arc<dyn Environment>,
    threads: Threads,
    mounts: Vec<Mounted>,
) -> io::Result<Ended> {
    let (begun, most) = match threads {
        Threads::Identical(n) => (n.get(), n.get()),
        Threads::Pool => (1, environment.most()),
        Threads::PerRequest => (1, 1),
        Threads::PerFile => (RECEIVERS, RECEIVERS),
    };
    let by_uring: Vec<&Mounted> = mounts.iter().filter(|mount| uring::greet(mount)).collect();
    let crew = Arc::new(Crew::new(environment, &mounts, begun, most)?);
    let files = Arc::new(Files::default());
    let (alive, ended) = mpsc::channel();
    for mount in &by_uring {
        uring::begin(&crew, mount, begun, &alive)?;
    }
    // With io_uring the channel carries only messages without a reply, for which one thread
    // suffices.
    for number in 0..if by_uring.is_empty() { begun } else { 1 } {
        let (files, alive) = (Arc::clone(&files), alive.clone());
        crew.begin(number, move |crew| match threads {
            Threads::Identical(_) | Threads::Pool => crew.serve(number, &alive),
            Threads::PerRequest => crew.hand_each_over(number, &alive),
            Threads::PerFile => files.serve(crew, number, &alive),
        })?;
    }
    Ok(Ended(ended))
}
