//! The threads of a mount: how requests are divided among them, whichever kind of thread an
//! organisation has (P1's dimension "allocation of threads").
//!
//! `crew.rs` holds the receivers and handlers of a mount, `per_file.rs` a thread for each open
//! file, `uring.rs` threads that receive through io_uring. A request goes from an
//! [`Intake`](crate::intake::Intake) to a thread here, to the
//! [`Service`](crate::protocol::service::Service), and its reply back to the intake.
//!
//! Uses the environment for threads, the intake and the protocol; organisations stand above.

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

/// Number of receivers with one thread for each file.
const RECEIVERS: usize = 3;

/// Allotment of requests to threads (P1, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// A fixed number of identical threads; the paper chose three.
    Identical(NonZeroUsize),
    /// As many threads as there are active requests, and a few that wait.
    Pool,
    /// A thread for each request. The paper rejected it for lack of memory for the stacks.
    PerRequest,
    /// A thread for each open file, and three identical ones for all other requests.
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
                    Err("a number of identical threads (1 to 1024), pool, per-request or per-file is wanted".to_owned())
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

/// Waits until the last thread has ended.
pub(crate) struct Ended(Receiver<()>);

impl Ended {
    pub(crate) fn wait(self) {
        // Nobody sends: an error says that all senders are gone.
        let _ = self.0.recv();
    }
}

/// Starts to serve mounts by common threads.
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
    // With io_uring, what is left for the channel are messages that nobody waits for: one thread
    // receives them.
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
