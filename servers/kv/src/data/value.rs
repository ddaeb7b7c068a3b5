//! Types of values.

use std::collections::VecDeque;

use kumihimo::sync::Arc;

/// Size from which on a text is [`Value::Large`].
pub const LARGE: usize = 64 << 10;

/// A value.
pub enum Value {
    /// Bytes; a number is its decimal digits.
    Text(Vec<u8>),
    /// As `Text`, with so many bytes that they are copied without the lock of the shard. A reader
    /// keeps the bytes that it has found.
    Large(Arc<Vec<u8>>),
    /// A list. Empty only while a command changes it.
    List(Box<List>),
}

impl Value {
    /// A text.
    pub fn text(text: Vec<u8>) -> Value {
        if text.len() < LARGE { Value::Text(text) } else { Value::Large(Arc::new(text)) }
    }

    /// Name of the type, as in the reply to `TYPE`.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) | Value::Large(_) => "string",
            Value::List(_) => "list",
        }
    }

    /// Bytes of heap memory in use by the value.
    pub fn footprint(&self) -> usize {
        match self {
            Value::Text(text) => chunk(text.capacity()),
            // Beside two counters.
            Value::Large(text) => chunk(text.capacity()) + chunk(size_of::<Vec<u8>>() + 16),
            Value::List(list) => {
                chunk(size_of::<List>())
                    + chunk(list.items.capacity() * size_of::<Box<[u8]>>())
                    + list.bytes
            }
        }
    }
}

/// A list with its size in bytes.
#[derive(Default)]
pub struct List {
    items: VecDeque<Box<[u8]>>,
    /// Bytes of heap memory in use by the items.
    bytes: usize,
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end to which `LPUSH` adds.
    Left,
    /// The end to which `RPUSH` adds.
    Right,
}

impl List {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether the list has no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes by which the table of items grows with `more` items.
    pub fn growth(&self, more: usize) -> usize {
        let (need, capacity) = (self.items.len() + more, self.items.capacity());
        if need <= capacity { 0 } else { need.max(2 * capacity) * size_of::<Box<[u8]>>() }
    }

    /// Most bytes of a reply with the first `count` items at `end`.
    pub fn bytes_at(&self, end: End, count: usize) -> usize {
        let items = self.items.iter().map(|item| item.len() + 32);
        32 + match end {
            End::Left => items.take(count).sum::<usize>(),
            End::Right => items.rev().take(count).sum(),
        }
    }

    /// Adds an item at `end`.
    pub fn push(&mut self, end: End, item: &[u8]) {
        self.bytes += chunk(item.len());
        match end {
            End::Left => self.items.push_front(item.into()),
            End::Right => self.items.push_back(item.into()),
        }
    }

    /// Removes and returns the item at `end`.
    pub fn pop(&mut self, end: End) -> Option<Box<[u8]>> {
        let item = match end {
            End::Left => self.items.pop_front(),
            End::Right => self.items.pop_back(),
        }?;
        self.bytes -= chunk(item.len());
        if self.items.capacity() > 64 && self.items.len() < self.items.capacity() / 4 {
            self.items.shrink_to(self.items.len() * 2);
        }
        Some(item)
    }

    /// Drops up to `count` items at the right end.
    pub fn drop_last(&mut self, count: usize) {
        let kept = self.items.len().saturating_sub(count);
        self.bytes -= self.items.range(kept..).map(|item| chunk(item.len())).sum::<usize>();
        self.items.truncate(kept);
    }

    /// The items at positions `from..to`.
    pub fn range(&self, from: usize, to: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        self.items.range(from..to).map(|item| &**item)
    }
}

/// Heap memory of an allocation of `length` bytes in glibc: a chunk has a header of 8 bytes, its
/// size is a multiple of 16, and its minimum is 32.
pub fn chunk(length: usize) -> usize {
    if length == 0 { 0 } else { ((length + 8).next_multiple_of(16)).max(32) }
}
