//! The order in which the calls of a batch enter the kernel, and the merging of calls (the paper's
//! second open problem).
//!
//! Calls are ordered by the priority of their waiters, higher first. Among equal priorities the
//! content decides. Calls that can be one system call become one, cheap calls precede long ones,
//! and always plain calls come last. Otherwise the order of arrival remains. Any order is correct,
//! since calls of different microprocesses are concurrent. But of two calls that could be merged,
//! the earlier one stays before the later one.

use std::os::fd::{AsRawFd, RawFd};

use crate::call::{Call, LARGEST};
use crate::op::Op;

/// The criteria besides arrival. Both apply, except in experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Higher priorities come first.
    pub by_priority: bool,
    /// Calls are merged, and cheap ones come first.
    pub by_content: bool,
}

impl Default for Order {
    fn default() -> Order {
        Order { by_priority: true, by_content: true }
    }
}

/// The order of arrival, without merging.
pub const FIRST_COME: Order = Order { by_priority: false, by_content: false };

/// The number of bytes above which a call is long.
const LONG: usize = 16 << 10;
/// The number of bytes above which calls are not merged: copying them costs far more than the
/// entry.
pub(crate) const SMALL: usize = 16 << 10;
/// The maximum number of parts of a vectored send that may be merged with others.
pub(crate) const FEW_PARTS: usize = 16;

/// The merge key: calls with the same key may become one system call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Merge {
    Stream(RawFd),
    Datagrams(RawFd),
    Reads(RawFd),
    /// Nops request the same and change nothing: one result serves all of them.
    Nops,
}

impl Merge {
    fn of(op: &Op<'_>) -> Option<Merge> {
        match op {
            Op::Nop => Some(Merge::Nops),
            Op::Send { socket, from } => {
                (!from.is_empty() && from.len() <= SMALL).then(|| Merge::Stream(socket.as_raw_fd()))
            }
            Op::SendVectored { socket, from } => {
                let may = from.len() <= FEW_PARTS && (1..=SMALL).contains(&op.bytes());
                may.then(|| Merge::Stream(socket.as_raw_fd()))
            }
            Op::SendDatagram { socket, from, .. } => (!from.is_empty() && from.len() <= SMALL)
                .then(|| Merge::Datagrams(socket.as_raw_fd())),
            Op::ReadAt { file, into, .. } => {
                (!into.is_empty() && into.len() <= SMALL).then(|| Merge::Reads(file.as_raw_fd()))
            }
            Op::Recv { .. }
            | Op::RecvMessage { .. }
            | Op::WriteAt { .. }
            | Op::Sync { .. }
            | Op::Stat { .. } => None,
        }
    }

    fn slot(self) -> usize {
        match self {
            Merge::Stream(fd) | Merge::Datagrams(fd) | Merge::Reads(fd) => fd as usize % SLOTS,
            Merge::Nops => 0,
        }
    }
}

/// More slots than calls, so that few calls share one.
const SLOTS: usize = 2 * LARGEST;
const NONE: u8 = u8::MAX;

/// The order of one batch: the indices of its calls, and the beginnings of groups. The calls of a
/// group may become one system call.
pub(crate) struct Arrangement {
    pub(crate) indices: Vec<u8>,
    /// The first call of each call's group, by index.
    first: [u8; LARGEST],
    /// The first call of a group, by [`Merge::slot`].
    heads: [u8; SLOTS],
}

const _: () = assert!(LARGEST < NONE as usize);

impl Arrangement {
    pub(crate) fn new() -> Arrangement {
        Arrangement {
            indices: Vec::with_capacity(LARGEST),
            first: [0; LARGEST],
            heads: [NONE; SLOTS],
        }
    }

    /// Sorts `calls`. Afterwards [`group`](Arrangement::group) returns the groups.
    pub(crate) fn arrange(&mut self, calls: &[&mut Call<'_>], order: Order) {
        self.indices.clear();
        self.indices.extend(0..calls.len() as u8);
        let mut is_plain_order = true;
        let level = calls.first().map_or(0, |call| call.level);
        if order.by_content {
            self.heads.fill(NONE);
        }
        for (i, call) in calls.iter().enumerate() {
            self.first[i] = i as u8;
            if order.by_content {
                is_plain_order &= rank(&call.op) == 0 && !self.joins(i, calls);
            }
            if order.by_priority {
                is_plain_order &= call.level == level;
            }
        }
        if is_plain_order {
            return;
        }
        let first = &self.first;
        // The sort is stable: equal calls stay in the order of arrival.
        self.indices.sort_by_key(|&i| {
            let call = &calls[usize::from(i)];
            let level = if order.by_priority { call.level } else { 0 };
            let (rank, first) =
                if order.by_content { (rank(&call.op), first[usize::from(i)]) } else { (0, i) };
            (std::cmp::Reverse(level), rank, first)
        });
    }

    /// Returns whether call `i` joins the group of an earlier call of its level.
    fn joins(&mut self, i: usize, calls: &[&mut Call<'_>]) -> bool {
        let Some(union) = Merge::of(&calls[i].op) else { return false };
        let head = &mut self.heads[union.slot()];
        match calls.get(usize::from(*head)) {
            Some(call) if call.level == calls[i].level && Merge::of(&call.op) == Some(union) => {
                self.first[i] = *head;
                true
            }
            // The slot belongs to another key or level: the call stays alone, which is correct as
            // well.
            Some(_) => false,
            None => {
                *head = i as u8;
                false
            }
        }
    }

    /// Returns the number of calls in the group that begins at position `from`.
    pub(crate) fn group(&self, from: usize) -> usize {
        let first = |at: usize| self.first[usize::from(self.indices[at])];
        self.indices[from..]
            .iter()
            .zip(from..)
            .take_while(|&(_, at)| first(at) == first(from))
            .count()
    }
}

/// Returns the rank of a call: cheap, long, or always plain.
fn rank(op: &Op<'_>) -> u8 {
    if op.kind().is_always_plain() { 2 } else { u8::from(op.bytes() > LONG) }
}
