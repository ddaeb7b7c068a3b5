//! The pool's state under its lock: the ready list of VPs, and the counts of kernel threads.

use std::collections::BinaryHeap;
use std::thread::JoinHandle;

use crate::handoff::slot::NO_PRIORITY;

/// A virtual processor that waits for a kernel thread.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ready {
    pub(crate) priority: i32,
    /// Among equal priorities, the earlier entry comes first.
    age: std::cmp::Reverse<u64>,
    pub(crate) token: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// All kernel threads of the pool.
    pub(crate) threads: usize,
    /// Those that wait in the pool, or are starting.
    pub(crate) waiting: usize,
    pub(crate) dismissed: bool,
    pub(crate) ready: BinaryHeap<Ready>,
    age: u64,
    /// Slots of kernel threads that lend their VP because they are about to block.
    pub(crate) lent: Vec<u32>,
    /// Slots whose VPs are taken away although their kernel threads run: see [`crate::watchdog`].
    pub(crate) overruled: Vec<u32>,
    /// Waiting threads that are inside a call of the user scheduler on which the watchdog has given
    /// up.
    pub(crate) stuck: usize,
    pub(crate) free_slots: Vec<u32>,
    /// Slots of the kernel threads that the starter is to start.
    pub(crate) requested: Vec<u32>,
    /// Returns the handles of the kernel threads that it has started.
    pub(crate) starter: Option<JoinHandle<Vec<JoinHandle<()>>>>,
    /// Handles of the kernel threads that others have started.
    pub(crate) handles: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Returns a pool that keeps its ready list without allocating.
    pub(crate) fn new(slots: u32, vps: u32) -> Pool {
        // Slots are taken from the end: low indices first, so that few pages are in use.
        let free_slots = (1..=slots).rev().collect();
        let ready = BinaryHeap::with_capacity(vps as usize);
        let requested = Vec::with_capacity(vps as usize + 1);
        Pool { free_slots, ready, requested, ..Pool::default() }
    }

    pub(crate) fn next_lent(&mut self) -> Option<u32> {
        (!self.lent.is_empty()).then(|| self.lent.remove(0))
    }

    /// Returns the number of waiting threads that can carry a VP.
    pub(crate) fn available(&self) -> usize {
        self.waiting - self.stuck
    }

    pub(crate) fn push(&mut self, token: u64, priority: Option<u8>) {
        self.age += 1;
        let age = std::cmp::Reverse(self.age);
        self.ready.push(Ready { priority: priority.map_or(NO_PRIORITY, i32::from), age, token });
    }
}
