//! How a gate is served, and how it is called.

use std::path::PathBuf;
use std::time::Duration;

/// Stands for every user; no user has this number.
pub(crate) const EVERY_USER: u32 = u32::MAX;

/// Where the two sides of a call run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Placement {
    /// By what is found: a side that is awake on another core is waited for with a short spin, one
    /// that sleeps gets the caller's core.
    #[default]
    Adaptive = 0,
    /// The server's microprocess runs on the caller's core, which the caller leaves to it; neither
    /// side spins.
    Handoff = 1,
    /// A wake-up at once, wherever the kernel's scheduler chooses; neither side spins. As between
    /// processes without a common board.
    Scheduled = 2,
    /// Both sides spin, for a millisecond at most. For two cores that have nothing else to do.
    Spin = 3,
}

impl Placement {
    pub(crate) fn from_number(n: u8) -> Option<Placement> {
        [Placement::Adaptive, Placement::Handoff, Placement::Scheduled, Placement::Spin]
            .get(usize::from(n))
            .copied()
    }
}

/// How a gate is served or called. Start from [`Options::new`], change what differs.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) in_flight: u32,
    pub(crate) inline: u32,
    pub(crate) most: usize,
    pub(crate) handlers: usize,
    pub(crate) allowed: Vec<u32>,
    pub(crate) placement: Placement,
    pub(crate) priority: Option<u8>,
    pub(crate) inherit: bool,
    pub(crate) patience: Duration,
    pub(crate) directory: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// The defaults: 1,024 calls under way a client, 4,096 bytes inline, 64 MiB at most, 10,000
    /// handlers at once, the own user only, adaptive.
    #[must_use]
    pub fn new() -> Options {
        Options {
            in_flight: 1024,
            inline: 4096,
            most: 64 << 20,
            handlers: 10_000,
            allowed: Vec::new(),
            placement: Placement::Adaptive,
            priority: None,
            inherit: true,
            patience: Duration::from_secs(5),
            directory: None,
        }
    }

    /// Server: calls of one client that are under way at once; a client's further callers wait. 2
    /// to 32,768, rounded up to a power of two.
    #[must_use]
    pub fn in_flight(mut self, calls: u32) -> Options {
        self.in_flight = calls;
        self
    }

    /// Server: bytes of a request or reply that lie in the lane itself, 64 to 65,536, rounded up;
    /// what is larger goes through a region of its own.
    #[must_use]
    pub fn inline(mut self, bytes: u32) -> Options {
        self.inline = bytes;
        self
    }

    /// The largest request or reply that is sent or taken, in bytes.
    #[must_use]
    pub fn largest(mut self, bytes: usize) -> Options {
        self.most = bytes;
        self
    }

    /// Server: requests that are handled at once, each by a microprocess; further ones wait in
    /// their lanes.
    #[must_use]
    pub fn handlers(mut self, most: usize) -> Options {
        self.handlers = most;
        self
    }

    /// Server: lets user `uid` call too, beside the own user and root.
    #[must_use]
    pub fn allow(mut self, uid: u32) -> Options {
        self.allowed.push(uid);
        self
    }

    /// Server: lets every user call.
    #[must_use]
    pub fn allow_everybody(mut self) -> Options {
        self.allowed.push(EVERY_USER);
        self
    }

    /// Client: where the sides of a call run.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Options {
        self.placement = placement;
        self
    }

    /// Client: the priority of its calls, 0 to 63, in place of the caller's own.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Options {
        self.priority = Some(priority);
        self
    }

    /// Server: whether handlers run at the priority of the caller (the default), or at that of the
    /// microprocess that began to serve.
    #[must_use]
    pub fn inherit(mut self, inherit: bool) -> Options {
        self.inherit = inherit;
        self
    }

    /// Client: the run-time directory of the server, where that is another user's. It has to let
    /// the caller in: [`allow`](Options::allow).
    #[must_use]
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Options {
        self.directory = Some(path.into());
        self
    }

    /// Client: how long to wait for the server's answer while connecting. 5 s.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Options {
        self.patience = patience;
        self
    }
}
