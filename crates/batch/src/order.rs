//! In which order the calls of a batch enter the kernel, and which of them become one (the paper's
//! second open problem).
//!
//! By the priority of the waiters: higher first. By content, among equals: what can be one system
//! call becomes one, cheap ones go before long ones, and those that are always plain go last. Else
//! as they came. Any order is right, since calls of different microprocesses are concurrent; but of
//! two calls that could be one, the earlier stays before the later.

use std::os::fd::{AsRawFd, RawFd};

use crate::call::{Call, LARGEST};
use crate::op::Op;

/// What decides besides arrival. Both, unless an experiment says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Higher levels first.
    pub by_priority: bool,
    /// Merge, and cheap before long.
    pub by_content: bool,
}

impl Default for Order {
    fn default() -> Order {
        Order { by_priority: true, by_content: true }
    }
}

/// Nothing decides: in the order of arrival, each by itself.
pub const FIRST_COME: Order = Order { by_priority: false, by_content: false };

/// Beyond this many bytes a call is long.
const LONG: usize = 16 << 10;
/// Calls of more bytes are not merged: copying them costs far more than the entry.
pub(crate) const SMALL: usize = 16 << 10;
/// Parts of a vectored send that may be merged with others.
pub(crate) const FEW_PARTS: usize = 16;

/// Calls that may become one system call have the same one of these.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Merge {
    Stream(RawFd),
    Datagrams(RawFd),
    Reads(RawFd),
    /// They ask the same and change nothing: one answer is everybody's.
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

/// More than calls, so that few share one.
const SLOTS: usize = 2 * LARGEST;
const NONE: u8 = u8::MAX;

/// The order of one batch: indices of its calls, and where groups begin. Those of one group may
/// become one system call.
pub(crate) struct Arrangement {
    pub(crate) indices: Vec<u8>,
    /// The first of each call's group, by index.
    first: [u8; LARGEST],
    /// The last call of a group, by [`Merge::slot`].
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

    /// Puts `calls` in order. Afterwards [`group`](Arrangement::group) tells which belong together.
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
        // Stable: what is equal stays in the order of arrival.
        self.indices.sort_by_key(|&i| {
            let call = &calls[usize::from(i)];
            let level = if order.by_priority { call.level } else { 0 };
            let (rank, first) =
                if order.by_content { (rank(&call.op), first[usize::from(i)]) } else { (0, i) };
            (std::cmp::Reverse(level), rank, first)
        });
    }

    /// Whether call `i` joins the group of an earlier one of its level.
    fn joins(&mut self, i: usize, calls: &[&mut Call<'_>]) -> bool {
        let Some(union) = Merge::of(&calls[i].op) else { return false };
        let head = &mut self.heads[union.slot()];
        match calls.get(usize::from(*head)) {
            Some(call) if call.level == calls[i].level && Merge::of(&call.op) == Some(union) => {
                self.first[i] = *head;
                true
            }
            // Another one's slot, or another level's: these stay alone, which is right too.
            Some(_) => false,
            None => {
                *head = i as u8;
                false
            }
        }
    }

    /// How many from `from` on, in order, belong together.
    pub(crate) fn group(&self, from: usize) -> usize {
        let first = |at: usize| self.first[usize::from(self.indices[at])];
        self.indices[from..]
            .iter()
            .zip(from..)
            .take_while(|&(_, at)| first(at) == first(from))
            .count()
    }
}

/// Cheap, long, or made by itself.
fn rank(op: &Op<'_>) -> u8 {
    if op.kind().is_always_plain() { 2 } else { u8::from(op.bytes() > LONG) }
}
