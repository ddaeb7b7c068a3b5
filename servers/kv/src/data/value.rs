//! What a key can hold.

use std::collections::VecDeque;

/// A value.
pub enum Value {
    /// Bytes; a number is its decimal digits.
    Text(Vec<u8>),
    /// Never empty, except while a command is at it.
    List(Box<List>),
}

impl Value {
    /// As `TYPE` calls it.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "string",
            Value::List(_) => "list",
        }
    }

    /// What it takes on the heap.
    pub fn footprint(&self) -> usize {
        match self {
            Value::Text(text) => chunk(text.capacity()),
            Value::List(list) => {
                chunk(size_of::<List>())
                    + chunk(list.items.capacity() * size_of::<Box<[u8]>>())
                    + list.bytes
            }
        }
    }
}

/// A list that knows its size.
#[derive(Default)]
pub struct List {
    items: VecDeque<Box<[u8]>>,
    /// What the items take on the heap.
    bytes: usize,
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where `LPUSH` puts.
    Left,
    /// Where `RPUSH` puts.
    Right,
}

impl List {
    /// How many items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Puts an item at `end`.
    pub fn push(&mut self, end: End, item: &[u8]) {
        self.bytes += chunk(item.len());
        match end {
            End::Left => self.items.push_front(item.into()),
            End::Right => self.items.push_back(item.into()),
        }
    }

    /// Takes the item at `end`.
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

    /// The items from `from` to before `to`.
    pub fn range(&self, from: usize, to: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        self.items.range(from..to).map(|item| &**item)
    }
}

/// What `length` bytes take on glibc's heap: a chunk has a header of 8 bytes, is a multiple of 16,
/// and 32 at least.
pub fn chunk(length: usize) -> usize {
    if length == 0 { 0 } else { ((length + 8).next_multiple_of(16)).max(32) }
}
