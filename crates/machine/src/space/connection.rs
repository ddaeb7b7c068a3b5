//! One connection of the control socket: lines in, answers out, and neither waits nor grows without
//! bound.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::Serialize;

use crate::descriptors::Kept;
use crate::protocol::{LONGEST_REQUEST, put};

/// Read at once.
const PART: usize = 16 << 10;
/// What is ready is sent on when it is so much: its reader takes it while more is made.
const AHEAD: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Connection {
    socket: Kept,
    /// Whose it is.
    pub(crate) uid: u32,
    input: Vec<u8>,
    output: Vec<u8>,
    /// So much of the output is with the kernel.
    sent: usize,
    /// When it was let in.
    pub(crate) begun: Instant,
    /// When it was let in, asked for something, or had taken all of an answer.
    pub(crate) since: Instant,
    /// It sends nothing more.
    ended: bool,
    /// It is closed when it has taken what is there for it.
    pub(crate) closing: bool,
    /// Its other end is gone.
    broken: bool,
}

/// What has come.
pub(crate) enum Incoming {
    /// Not a whole line yet.
    None,
    Line(Vec<u8>),
    TooLong,
}

impl Connection {
    pub(crate) fn new(socket: Kept, uid: u32, now: Instant) -> Connection {
        Connection {
            socket,
            uid,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            begun: now,
            since: now,
            ended: false,
            closing: false,
            broken: false,
        }
    }

    pub(crate) fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// What can be done next depends on that. While it has not taken an answer nothing more is
    /// read.
    pub(crate) fn waits_for(&self) -> PollFlags {
        if self.unsent() > 0 {
            PollFlags::OUT
        } else if self.ended {
            PollFlags::empty()
        } else {
            PollFlags::IN
        }
    }

    /// Nothing more can come of it.
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
        match recv(&self.socket, &mut part[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => self.ended = true,
            Ok((_, n)) => self.input.extend_from_slice(&part[..n]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.broken = true,
        }
    }

    /// The next request, without its end.
    pub(crate) fn request(&mut self) -> Incoming {
        match self.input.iter().position(|byte| *byte == b'\n') {
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

    /// Appends a line to the output.
    pub(crate) fn put(&mut self, item: &impl Serialize) {
        if !self.broken {
            put(&mut self.output, item);
            if self.unsent() > AHEAD {
                self.flush();
            }
        }
    }

    /// What a line does not say: ends and errors of answers, bytes.
    pub(crate) fn append(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        if !self.broken {
            put(&mut self.output);
        }
    }

    /// Sends what the kernel takes now.
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
                    // What is sent goes in large parts, so that each byte is moved once or twice.
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
