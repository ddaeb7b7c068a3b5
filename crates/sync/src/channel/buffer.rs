//! Message queue of a channel: a linked list of fixed-size blocks. Growing never moves messages,
//! and memory is freed as the queue empties.
//!
//! Callers hold a spin lock, so no method except `push_front` allocates, frees or drops a message.
//! Before a push the caller supplies a block with `bring`; `pop` returns an emptied block for the
//! caller to free after unlocking.

use std::collections::VecDeque;
use std::ptr;

pub(crate) struct Block<T> {
    items: VecDeque<T>,
    next: Option<Box<Block<T>>>,
}

impl<T> Block<T> {
    /// Capacity of a block: about one kilobyte of messages, at least 4 and at most 128 of them.
    const LENGTH: usize = {
        let n = 1024 / if size_of::<T>() == 0 { 1 } else { size_of::<T>() };
        if n < 4 {
            4
        } else if n > 128 {
            128
        } else {
            n
        }
    };

    pub(crate) fn new() -> Box<Block<T>> {
        Box::new(Block { items: VecDeque::with_capacity(Self::LENGTH), next: None })
    }
}

impl<T> Drop for Block<T> {
    fn drop(&mut self) {
        // Iterative: the recursion of the default drop would overflow the stack on a long list.
        let mut next = self.next.take();
        while let Some(mut block) = next {
            next = block.next.take();
        }
    }
}

pub(crate) struct Buffer<T> {
    head: Option<Box<Block<T>>>,
    /// The last block of the list; null if there is none.
    tail: *mut Block<T>,
    spare: Option<Box<Block<T>>>,
    len: usize,
}

// SAFETY: the buffer owns its blocks; `tail` points into them.
unsafe impl<T: Send> Send for Buffer<T> {}

impl<T> Buffer<T> {
    pub(crate) const fn new() -> Buffer<T> {
        Buffer { head: None, tail: ptr::null_mut(), spare: None, len: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the caller must call `bring` before the next push.
    #[inline]
    pub(crate) fn wants_block(&self) -> bool {
        // SAFETY: `tail` is null or points to the last block, which we own.
        self.spare.is_none()
            && unsafe { self.tail.as_ref() }.is_none_or(|t| t.items.len() == t.items.capacity())
    }

    /// Stores `block` as the spare for the next push. Returns it if a spare is already stored.
    pub(crate) fn bring(&mut self, block: Box<Block<T>>) -> Option<Box<Block<T>>> {
        if self.spare.is_some() {
            return Some(block);
        }
        self.spare = Some(block);
        None
    }

    /// Appends `value`. The caller has checked that `wants_block` returns false.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        // SAFETY: `tail` is null or points to the last block, which we own exclusively.
        match unsafe { self.tail.as_mut() } {
            Some(tail) if tail.items.len() < tail.items.capacity() => tail.items.push_back(value),
            _ => self.push_block(value),
        }
        self.len += 1;
    }

    fn push_block(&mut self, value: T) {
        let mut block = self.spare.take().expect("a block was brought");
        block.items.push_back(value);
        let at: *mut Block<T> = &mut *block;
        // SAFETY: as in `push`.
        match unsafe { self.tail.as_mut() } {
            Some(tail) => tail.next = Some(block),
            None => self.head = Some(block),
        }
        self.tail = at;
    }

    /// Puts a message back at the front after its delivery failed. May allocate; this path is rare.
    pub(crate) fn push_front(&mut self, value: T) {
        if self.wants_block() {
            self.spare = Some(Block::new());
        }
        match &mut self.head {
            Some(head) => {
                head.items.push_front(value);
                self.len += 1;
            }
            None => self.push(value),
        }
    }

    /// Removes the first message. Also returns an emptied block to free, if a spare is already
    /// stored.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(T, Option<Box<Block<T>>>)> {
        if self.len == 0 {
            return None;
        }
        self.len -= 1;
        let head = self.head.as_mut().expect("not empty");
        let value = head.items.pop_front().expect("only the last block may be empty");
        let mut freed = None;
        if head.items.is_empty() && head.next.is_some() {
            let mut block = self.head.take().expect("just looked at");
            self.head = block.next.take();
            freed = self.bring(block);
        }
        Some((value, freed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out_over_blocks() {
        let mut buffer = Buffer::new();
        let (mut next, mut seen) = (0u64, 0u64);
        for round in 0..50 {
            for _ in 0..round * 7 {
                if buffer.wants_block() {
                    assert!(buffer.bring(Block::new()).is_none());
                }
                buffer.push(next);
                next += 1;
            }
            for _ in 0..round * 6 {
                assert_eq!(buffer.pop().unwrap().0, seen);
                seen += 1;
            }
        }
        buffer.push_front(seen - 1);
        assert_eq!(buffer.len() as u64, next - seen + 1);
        seen -= 1;
        while let Some((value, _)) = buffer.pop() {
            assert_eq!(value, seen);
            seen += 1;
        }
        assert_eq!(seen, next);
        buffer.push_front(1);
        assert_eq!(buffer.pop().unwrap().0, 1);
    }
}
