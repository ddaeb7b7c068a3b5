//! One connection of the control socket, with request lines as input and answers as output. It
//! neither blocks nor grows without bound.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Weak;
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use serde::Serialize;

use crate::handler::ControlHandler;
use crate::protocol::{LONGEST_REQUEST, put};
use crate::socket::peer_socket::{PeerSocket, Pending};

/// Number of bytes per read.
const PART: usize = 16 << 10;
/// Amount of output after which it is sent, so that the client reads while more is produced.
const AHEAD: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Connection {
    socket: PeerSocket,
    /// The user at the other end.
    pub(crate) uid: u32,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Number of output bytes that the kernel has accepted.
    sent: usize,
    /// When the connection was accepted.
    pub(crate) begun: Instant,
    /// When the connection was accepted, made its last request, or finished reading an answer.
    pub(crate) since: Instant,
    /// The client sends no more requests.
    ended: bool,
    /// The connection is closed once its output is sent.
    pub(crate) closing: bool,
    /// The other end has gone.
    broken: bool,
    /// The client passes a descriptor, which is not received.
    passes_descriptor: bool,
    /// The session of `kumi top` that keeps the accounting of CPU time exact.
    pub(super) exact: Option<ExactSession>,
}

/// Keeps the accounting of CPU time exact until it is dropped, however the connection ends.
/// A client that is killed leaves nothing turned on.
#[derive(Debug)]
pub(super) struct ExactSession {
    pub(super) number: u64,
    pub(super) answer: Weak<dyn ControlHandler>,
}

impl Drop for ExactSession {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.upgrade() {
            answer.end_top(self.number);
        }
    }
}

/// Result of reading a request.
pub(crate) enum Incoming {
    /// No complete line yet.
    None,
    Line(Vec<u8>),
    TooLong,
    /// A descriptor.
    Descriptor,
}

impl Connection {
    pub(crate) fn new(socket: PeerSocket, now: Instant) -> Connection {
        Connection {
            uid: socket.uid(),
            socket,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            begun: now,
            since: now,
            ended: false,
            closing: false,
            broken: false,
            passes_descriptor: false,
            exact: None,
        }
    }

    pub(crate) fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Returns the events that the connection can proceed with. Input is not read while an answer
    /// is unsent.
    pub(crate) fn waits_for(&self) -> PollFlags {
        if self.unsent() > 0 {
            PollFlags::OUT
        } else if self.ended {
            PollFlags::empty()
        } else {
            PollFlags::IN
        }
    }

    /// Returns whether the connection is finished.
    pub(crate) fn is_over(&self) -> bool {
        self.broken || self.unsent() == 0 && (self.closing || self.ended && !self.has_line())
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(crate) fn has_line(&self) -> bool {
        self.input.contains(&b'\n')
    }

    pub(crate) fn receive(&mut self) {
        if self.ended || self.input.len() > LONGEST_REQUEST {
            return;
        }
        let mut part = [0; PART];
        match self.socket.receive(&mut part) {
            Ok(Pending::End) => self.ended = true,
            Ok(Pending::Plain(n)) => self.input.extend_from_slice(&part[..n]),
            Ok(Pending::Descriptor) => self.passes_descriptor = true,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.broken = true,
        }
    }

    /// Takes the next request, without its end.
    pub(crate) fn request(&mut self) -> Incoming {
        match self.input.iter().position(|byte| *byte == b'\n') {
            None if self.passes_descriptor => Incoming::Descriptor,
            Some(length) if length <= LONGEST_REQUEST => {
                let rest = self.input.split_off(length + 1);
                let mut line = std::mem::replace(&mut self.input, rest);
                line.pop();
                Incoming::Line(line)
            }
            None if self.input.len() <= LONGEST_REQUEST => Incoming::None,
            _ => Incoming::TooLong,
        }
    }

    /// Appends an item as a line to the output.
    pub(crate) fn put(&mut self, item: &impl Serialize) {
        if !self.broken {
            put(&mut self.output, item);
            if self.unsent() > AHEAD {
                self.flush();
            }
        }
    }

    /// Appends output that is not an item: ends and errors of answers, and bytes.
    pub(crate) fn append(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        if !self.broken {
            put(&mut self.output);
        }
    }

    /// Sends as much as the kernel accepts now.
    pub(crate) fn flush(&mut self) {
        while self.unsent() > 0 && !self.broken {
            match send(
                &self.socket,
                &self.output[self.sent..],
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(n) => self.sent += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    // Sent bytes are removed in large blocks, so each byte is moved at most about
                    // twice.
                    if self.sent > self.output.len() / 2 {
                        self.output.drain(..self.sent);
                        self.sent = 0;
                    }
                    return;
                }
                Err(_) => self.broken = true,
            }
        }
        self.sent = 0;
        self.output.clear();
        self.output.shrink_to(AHEAD);
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
