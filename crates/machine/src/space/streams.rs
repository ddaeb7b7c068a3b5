//! Answers that take long: a trace, or a profile. Each has a kernel thread of its own, to which its
//! connection moves.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kumihimo_arch::signal_mask;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::connection::Connection;
use super::shared::Shared;
use crate::handler::{ControlHandler, ProfileClient, Refused};
use crate::profile::{ProfileItem, ProfileQuery};
use crate::protocol::{Bytes, MOST_BYTES, Request, put_end, put_error};

/// Amount of unsent output above which the writer waits.
const AHEAD: usize = 4 * MOST_BYTES;

/// An answer that takes long.
#[derive(Clone, Debug)]
pub(super) enum Stream {
    Trace,
    Profile(ProfileQuery),
}

impl Stream {
    /// Returns the answer that a request demands, if it takes long.
    pub(super) fn of(request: &Request) -> Option<Stream> {
        match request {
            Request::Trace => Some(Stream::Trace),
            Request::Profile { query } => Some(Stream::Profile(query.clone())),
            _ => None,
        }
    }

    /// Returns the answer's name in the error for a client that comes second.
    fn verb(&self) -> &'static str {
        match self {
            Stream::Trace => "reading the trace",
            Stream::Profile(_) => "profiling this address space",
        }
    }

    fn thread_name(&self) -> &'static str {
        match self {
            Stream::Trace => "kumi-trace",
            Stream::Profile(_) => "kumi-profile",
        }
    }
}

/// The threads of answers that take long.
#[derive(Default)]
pub(super) struct Streams {
    threads: Vec<JoinHandle<()>>,
    /// Numbers of traces and of profiles being written; threads about to end are not counted.
    traces: Arc<AtomicUsize>,
    profiles: Arc<AtomicUsize>,
}

impl Streams {
    fn count_of(&self, stream: &Stream) -> &Arc<AtomicUsize> {
        match stream {
            Stream::Trace => &self.traces,
            Stream::Profile(_) => &self.profiles,
        }
    }

    /// Checks that no client has such an answer in progress.
    ///
    /// # Errors
    /// Returns [`Refused::Busy`].
    pub(super) fn check(&self, stream: &Stream) -> Result<(), Refused> {
        if self.count_of(stream).load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let text = format!("another client is {}; try again later", stream.verb());
        Err(Refused::Busy(text))
    }

    /// Begins an answer. If no thread can be created, the connection is closed, which the client
    /// reports.
    pub(super) fn begin(
        &mut self,
        stream: Stream,
        connection: Connection,
        answer: Weak<dyn ControlHandler>,
        shared: Arc<Shared>,
        patience: Duration,
    ) {
        self.threads.retain(|thread| !thread.is_finished());
        let count = self.count_of(&stream).clone();
        let builder = std::thread::Builder::new().name(stream.thread_name().into());
        let mut out = StreamWriter { connection, shared, patience, count: 0 };
        let in_progress = count.clone();
        let write = move || {
            let written = catch_unwind(AssertUnwindSafe(|| out.write_answer(&stream, &answer)));
            let refused = match written {
                Ok(Ok(())) => None,
                Ok(Err(refused)) => Some(refused),
                Err(_) => Some(Refused::Failed("the handler of the address space panicked".into())),
            };
            let items = out.count;
            out.connection.append(|output| match &refused {
                None => put_end(output, items),
                Some(refused) => put_error(output, refused),
            });
            // Decremented before the end is sent, because a client that receives the end may make
            // the next request at once. A client that does not read the end keeps others waiting,
            // and occupies only one thread.
            count.fetch_sub(1, Ordering::Relaxed);
            out.connection.flush();
            if out.connection.unsent() > 0 {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = out.take(0);
                count.fetch_sub(1, Ordering::Relaxed);
            }
        };
        // The thread inherits the mask, which blocks all signals.
        in_progress.fetch_add(1, Ordering::Relaxed);
        match signal_mask::spawn_blocked(builder, write) {
            Ok(thread) => self.threads.push(thread),
            Err(_) => drop(in_progress.fetch_sub(1, Ordering::Relaxed)),
        }
    }

    /// Waits for the threads to end.
    pub(super) fn join(self) {
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// Sends an answer to the requesting client, and blocks while too much is unsent.
struct StreamWriter {
    connection: Connection,
    shared: Arc<Shared>,
    patience: Duration,
    count: u64,
}

impl StreamWriter {
    fn write_answer(
        &mut self,
        stream: &Stream,
        answer: &Weak<dyn ControlHandler>,
    ) -> Result<(), Refused> {
        let Some(answer) = answer.upgrade() else {
            return Err(Refused::Failed("the address space is ending".into()));
        };
        match stream {
            Stream::Trace => answer.trace(self).map_err(|e| match e.kind() {
                io::ErrorKind::Unsupported => Refused::Unsupported(e.to_string()),
                _ => Refused::Failed(format!("the trace: {e}")),
            }),
            Stream::Profile(query) => answer.profile(query, self),
        }
    }

    /// Waits until at most `rest` bytes are unsent.
    fn take(&mut self, rest: usize) -> io::Result<()> {
        loop {
            self.connection.flush();
            if self.connection.is_broken() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if self.connection.unsent() <= rest {
                return Ok(());
            }
            let mut fds = [
                PollFd::from_borrowed_fd(self.connection.as_fd(), PollFlags::OUT),
                PollFd::new(&self.shared.stop, PollFlags::IN),
            ];
            match poll(&mut fds, Timespec::try_from(self.patience).ok().as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) if !fds[1].revents().is_empty() => {
                    return Err(io::Error::other("the address space is ending"));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl ProfileClient for StreamWriter {
    fn send(&mut self, item: ProfileItem) -> io::Result<()> {
        self.connection.put(&item);
        self.count += 1;
        self.take(AHEAD)
    }

    fn wait(&mut self, time: Duration) -> bool {
        self.connection.flush();
        let end = Instant::now() + time;
        loop {
            if self.connection.is_broken() {
                return false;
            }
            let left = end.saturating_duration_since(Instant::now());
            let mut fds = [
                PollFd::from_borrowed_fd(self.connection.as_fd(), PollFlags::IN),
                PollFd::new(&self.shared.stop, PollFlags::IN),
            ];
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) if left.is_zero() => return true,
                Ok(0) | Err(Errno::INTR) => {}
                // The client has closed its side, or sends something, which is a request to end.
                // Or the address space ends.
                Ok(_) | Err(_) => return false,
            }
        }
    }
}

impl Write for StreamWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(MOST_BYTES)];
        if !part.is_empty() {
            self.connection.put(&Bytes { bytes: part.len() });
            self.connection.append(|output| output.extend_from_slice(part));
            self.count += 1;
            self.take(AHEAD)?;
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
