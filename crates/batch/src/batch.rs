//! Batch: executes calls together and gives each its outcome.

use std::ops::Range;
use std::os::fd::AsRawFd;

use crate::backend::Backend;
use crate::backend::plain;
use crate::call::{Call, LARGEST};
use crate::counters::Counters;
use crate::op::{Address, Op, Outcome};
use crate::order::{Arrangement, Order};
use crate::request::{Request, RequestKind};

/// The maximum number of bytes of merged calls: the size of a datagram.
const TOGETHER: usize = 64 << 10;
/// The maximum number of parts of merged calls in a batch.
const PARTS: usize = 4 * LARGEST;
/// The number of segments that the kernel accepts in one send (`UDP_MAX_SEGMENTS` of Linux before
/// 6.2).
const SEGMENTS: usize = 64;

/// Runs batches, one after the other. Reuses its memory: a batch allocates nothing.
pub struct Batch {
    backend: Box<dyn Backend>,
    /// The order of the calls. Compared with the order of arrival in measurements.
    pub order: Order,
    arrangement: Arrangement,
    parts: Vec<libc::iovec>,
    messages: Vec<libc::msghdr>,
    /// Control messages, one UDP_SEGMENT each.
    controls: Vec<[u64; 3]>,
    outcomes: Vec<Outcome>,
    /// The calls that each request belongs to, as positions in the arrangement.
    owners: Vec<Range<u8>>,
}

// SAFETY: the raw pointers in `parts`, `messages` and `controls` belong to the previous batch and
// are not dereferenced any more.
unsafe impl Send for Batch {}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("backend", &self.backend.name())
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

impl Batch {
    /// Creates a batch that enters the kernel through `backend`.
    pub fn new(backend: Box<dyn Backend>) -> Batch {
        Batch {
            backend,
            order: Order::default(),
            arrangement: Arrangement::new(),
            parts: Vec::with_capacity(PARTS),
            messages: Vec::with_capacity(LARGEST),
            controls: Vec::with_capacity(LARGEST),
            outcomes: Vec::with_capacity(LARGEST),
            owners: Vec::with_capacity(LARGEST),
        }
    }

    /// Returns the name of the back end.
    pub fn backend(&self) -> &'static str {
        self.backend.name()
    }

    /// Executes `calls` and sets the outcome of each. Blocks the kernel thread for the duration of
    /// the system calls. None of them waits, except those that are always plain.
    ///
    /// # Panics
    /// If there are more than [`LARGEST`] calls.
    pub fn run(&mut self, calls: &mut [&mut Call<'_>], counters: &Counters) {
        assert!(
            calls.len() <= LARGEST,
            "{} calls in a batch: expected at most {LARGEST}",
            calls.len()
        );
        counters.batch(calls.len());
        self.arrangement.arrange(calls, self.order);
        let mut entered = 0;
        let mut from = 0;
        while from < calls.len() {
            from = self.run_some(calls, from, &mut entered, counters);
        }
        counters.entries(entered);
        for call in calls {
            if call.outcome.is_none() {
                counters.again();
                counters.entries(1);
                call.outcome = Some(alone(&mut call.op));
            }
        }
    }

    /// Executes the calls from position `from` up to the next boundary between batchable calls and
    /// calls that are always plain. Returns the position of that boundary.
    fn run_some(
        &mut self,
        calls: &mut [&mut Call<'_>],
        from: usize,
        entered: &mut u64,
        counters: &Counters,
    ) -> usize {
        let plain = |at: usize, calls: &[&mut Call<'_>], this: &Batch| {
            calls[usize::from(this.arrangement.indices[at])].op.kind().is_always_plain()
        };
        if plain(from, calls, self) {
            let call = &mut calls[usize::from(self.arrangement.indices[from])];
            *entered += 1;
            call.outcome = Request::of(&mut call.op).map(|request| plain::make(&request));
            return from + 1;
        }
        self.parts.clear();
        self.messages.clear();
        self.controls.clear();
        self.owners.clear();
        let mut requests = Requests::new();
        let mut at = from;
        while at < calls.len() && !plain(at, calls, self) {
            at = self.request(calls, at, &mut requests);
        }
        let requests = requests.as_slice();
        self.outcomes.clear();
        self.outcomes.resize(requests.len(), Outcome::error(libc::EIO));
        *entered += self.backend.enter(requests, &mut self.outcomes);
        counters.merged((at - from) - requests.len());
        for (owners, &outcome) in self.owners.iter().zip(&self.outcomes) {
            let owners =
                &self.arrangement.indices[usize::from(owners.start)..usize::from(owners.end)];
            match owners {
                &[one] => calls[usize::from(one)].outcome = Some(outcome),
                several => share(calls, several, outcome),
            }
        }
        at
    }

    /// Adds the request that begins with the call at position `at`. Returns the position where the
    /// next one begins.
    fn request<'a>(
        &mut self,
        calls: &mut [&mut Call<'a>],
        at: usize,
        requests: &mut Requests<'a>,
    ) -> usize {
        let together = self.arrangement.group(at);
        let head = usize::from(self.arrangement.indices[at]);
        let what = match &calls[head].op {
            Op::Nop => Some((RequestKind::Nop, together)),
            Op::Send { .. } | Op::SendVectored { .. } => self.stream(calls, at, together),
            Op::SendDatagram { .. } => self.datagrams(calls, at, together),
            Op::ReadAt { .. } => self.reads(calls, at, together),
            _ => None,
        };
        let (request, n) = match what {
            // SAFETY: the parts, messages and controls neither change nor move before the batch has
            // entered the kernel; the calls borrow the buffers.
            Some((what, n)) => (unsafe { Request::new(what) }, n),
            None => match Request::of(&mut calls[head].op) {
                Some(request) => (request, 1),
                None => unreachable!("`what` handles the calls that `Request::of` rejects"),
            },
        };
        requests.push(request);
        self.owners.push(at as u8..(at + n) as u8);
        at + n
    }

    fn call<'c, 'a>(&self, calls: &'c [&mut Call<'a>], at: usize) -> &'c Op<'a> {
        &calls[usize::from(self.arrangement.indices[at])].op
    }

    /// Merges small sends to one connection.
    fn stream(
        &mut self,
        calls: &[&mut Call<'_>],
        at: usize,
        together: usize,
    ) -> Option<(RequestKind, usize)> {
        let fd = match self.call(calls, at) {
            Op::Send { .. } if together == 1 => return None,
            Op::SendVectored { socket, from } if together == 1 => {
                // `IoSlice` has the layout of `iovec`.
                let message = self.message(from.as_ptr().cast(), from.len());
                return Some((RequestKind::SendMessage { fd: socket.as_raw_fd(), message }, 1));
            }
            Op::Send { socket, .. } | Op::SendVectored { socket, .. } => socket.as_raw_fd(),
            _ => return None,
        };
        let first = self.parts.len();
        let (mut n, mut bytes) = (0, 0);
        while n < together {
            let (more, op) = (self.parts.len(), self.call(calls, at + n));
            bytes += op.bytes();
            if n > 0 && (bytes > TOGETHER || more + crate::order::FEW_PARTS > PARTS) {
                break;
            }
            match op {
                Op::Send { from, .. } => self.parts.push(part(from)),
                Op::SendVectored { from, .. } => {
                    self.parts.extend(from.iter().map(|from| part(from)))
                }
                _ => break,
            }
            n += 1;
        }
        let message =
            self.message(self.parts.as_ptr().wrapping_add(first), self.parts.len() - first);
        Some((RequestKind::SendMessage { fd, message }, n))
    }

    /// Merges reads of one file, from `at` on, that are adjacent.
    fn reads(
        &mut self,
        calls: &[&mut Call<'_>],
        at: usize,
        together: usize,
    ) -> Option<(RequestKind, usize)> {
        if together > 1 {
            // Sorting is allowed here, since the order among reads does not matter: they change
            // nothing.
            let offset = |&i: &u8| match &calls[usize::from(i)].op {
                Op::ReadAt { at, .. } => *at,
                _ => u64::MAX,
            };
            self.arrangement.indices[at..at + together].sort_by_key(offset);
        }
        let Op::ReadAt { file, at: begin, .. } = self.call(calls, at) else { return None };
        let (fd, begin) = (file.as_raw_fd(), *begin);
        let first = self.parts.len();
        let (mut n, mut bytes) = (0, 0u64);
        while n < together {
            let Op::ReadAt { into, at: here, .. } = self.call(calls, at + n) else { break };
            let adjoins =
                begin.checked_add(bytes) == Some(*here) && bytes as usize + into.len() <= TOGETHER;
            if n > 0 && (!adjoins || self.parts.len() == PARTS) {
                break;
            }
            self.parts.push(part(into));
            bytes += into.len() as u64;
            n += 1;
        }
        let into = self.parts.as_ptr().wrapping_add(first);
        Some((RequestKind::ReadAt { fd, into, parts: n, at: begin }, n))
    }

    /// Merges datagrams of one length to one peer; the last one may be shorter. The kernel splits
    /// the single send (udp(7), `UDP_SEGMENT`).
    fn datagrams(
        &mut self,
        calls: &[&mut Call<'_>],
        at: usize,
        together: usize,
    ) -> Option<(RequestKind, usize)> {
        let Op::SendDatagram { socket, to, from } = self.call(calls, at) else { return None };
        let (fd, to, length) = (socket.as_raw_fd(), *to, from.len());
        let first = self.parts.len();
        let (mut n, mut bytes) = (0, 0);
        while n < together {
            let Op::SendDatagram { to: other, from, .. } = self.call(calls, at + n) else { break };
            let fits = from.len() <= length && to.map(Address::bytes) == other.map(Address::bytes);
            if n > 0
                && (!fits
                    || n == SEGMENTS
                    || bytes + from.len() > TOGETHER - 512
                    || self.parts.len() == PARTS)
            {
                break;
            }
            self.parts.push(part(from));
            bytes += from.len();
            n += 1;
            if from.len() < length {
                break;
            }
        }
        let message = self.message(self.parts.as_ptr().wrapping_add(first), n);
        let last = self.messages.len() - 1;
        let header = &mut self.messages[last];
        if let Some(to) = to {
            header.msg_name = (&raw const to.raw).cast_mut().cast();
            header.msg_namelen = to.length;
        }
        if n > 1 {
            self.controls.push(segments_of(length as u16));
            let last = self.controls.len() - 1;
            header.msg_control = self.controls.as_mut_ptr().wrapping_add(last).cast();
            header.msg_controllen = size_of::<[u64; 3]>() as _;
        }
        Some((RequestKind::SendMessage { fd, message }, n))
    }

    fn message(&mut self, parts: *const libc::iovec, n: usize) -> *const libc::msghdr {
        // SAFETY: all zeros is a valid msghdr: null pointers with lengths of 0.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.cast_mut();
        message.msg_iovlen = n as _; // musl: an int and its padding
        debug_assert!(self.messages.len() < self.messages.capacity(), "messages must not move");
        self.messages.push(message);
        self.messages.as_ptr().wrapping_add(self.messages.len() - 1)
    }
}

/// Executes a single call at once. Its outcome is the reference for the outcomes in a batch.
pub fn alone(op: &mut Op<'_>) -> Outcome {
    if let Some(request) = Request::of(op) {
        return plain::make(&request);
    }
    // SAFETY: all zeros is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    let one;
    let what = match op {
        Op::SendVectored { socket, from } => {
            message.msg_iov = from.as_ptr().cast_mut().cast();
            message.msg_iovlen = from.len() as _;
            RequestKind::SendMessage { fd: socket.as_raw_fd(), message: &raw const message }
        }
        Op::SendDatagram { socket, to, from } => {
            one = part(from);
            message.msg_iov = (&raw const one).cast_mut();
            message.msg_iovlen = 1;
            if let Some(to) = to {
                message.msg_name = (&raw const to.raw).cast_mut().cast();
                message.msg_namelen = to.length;
            }
            RequestKind::SendMessage { fd: socket.as_raw_fd(), message: &raw const message }
        }
        Op::ReadAt { file, into, at } => {
            one = part(into);
            RequestKind::ReadAt { fd: file.as_raw_fd(), into: &raw const one, parts: 1, at: *at }
        }
        _ => unreachable!("`Request::of` handles all others"),
    };
    // SAFETY: the message and the part live to the end of this function; `op` borrows the buffers.
    plain::make(&unsafe { Request::new(what) })
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Returns a control message that requests segments of `length` bytes.
fn segments_of(length: u16) -> [u64; 3] {
    const _: () = assert!(size_of::<libc::cmsghdr>() == 16);
    // SAFETY: all zeros is a valid cmsghdr, which has padding in some C libraries.
    let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
    (header.cmsg_len, header.cmsg_level, header.cmsg_type) =
        (16 + 2, libc::SOL_UDP, libc::UDP_SEGMENT);
    let mut control = [0u64; 3];
    // SAFETY: 16 and 2 bytes of the 24, aligned.
    unsafe {
        (&raw mut control).cast::<libc::cmsghdr>().write(header);
        (&raw mut control[2]).cast::<u16>().write(length);
    }
    control
}

/// Distributes the outcome of one system call over the calls that were merged into it. A call
/// without an outcome is made again, alone: its outcome depends on the state in which the others
/// have left the object.
fn share(calls: &mut [&mut Call<'_>], owners: &[u8], outcome: Outcome) {
    let Ok(moved) = outcome.result() else {
        if !matches!(calls[usize::from(owners[0])].op, Op::SendDatagram { .. }) {
            // The first call alone would have had the same outcome.
            calls[usize::from(owners[0])].outcome = Some(outcome);
        }
        return;
    };
    let mut left = moved;
    for (i, &owner) in owners.iter().enumerate() {
        let call = &mut calls[usize::from(owner)];
        let wanted = call.op.bytes();
        if left < wanted {
            // The call was executed in part, or is the first one and moved nothing (the end of the
            // file): that is its outcome. For a later call, nothing moved does not determine an
            // outcome.
            if left > 0 || i == 0 {
                call.outcome = Some(Outcome::of_raw(left as i32));
            }
            return;
        }
        call.outcome = Some(Outcome::of_raw(wanted as i32));
        left -= wanted;
    }
}

/// The requests of one kernel entry, without an allocation.
struct Requests<'a> {
    made: [std::mem::MaybeUninit<Request<'a>>; LARGEST],
    n: usize,
}

impl<'a> Requests<'a> {
    fn new() -> Requests<'a> {
        Requests { made: [const { std::mem::MaybeUninit::uninit() }; LARGEST], n: 0 }
    }

    fn push(&mut self, request: Request<'a>) {
        self.made[self.n].write(request);
        self.n += 1;
    }

    fn as_slice(&self) -> &[Request<'a>] {
        // SAFETY: the first `n` elements are initialised.
        unsafe { std::slice::from_raw_parts(self.made.as_ptr().cast(), self.n) }
    }
}
