//! Starts microprocesses, and provides handles of them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex};
use std::thread::Result as Outcome;

use kumihimo_arch::cpu::Context;
use kumihimo_arch::tls;
use kumihimo_events::Slot;
use kumihimo_events::sched::Event;

use super::microprocess::{LEVELS, Mp, NOT_QUEUED};
use super::{Left, Queue, Scheduler, enter, first, lock};

impl Scheduler {
    /// Starts a microprocess. May be called from any thread.
    ///
    /// # Errors
    /// There is no memory for its stack.
    ///
    /// # Panics
    /// If `priority` is above 63.
    pub fn spawn<T: Send + 'static>(
        self: &Arc<Scheduler>,
        priority: u8,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Handle<T>> {
        let outcome = Arc::new(Mutex::new(None));
        let its = outcome.clone();
        let body = move || *lock(&its) = Some(catch_unwind(AssertUnwindSafe(f)));
        let masked = enter();
        let used = lock(&self.queue).free.pop();
        drop(masked);
        // Unmasked: an allocation may block.
        let mp = used.map_or_else(|| Mp::create(self.class), Ok)?;
        // SAFETY: `mp` belongs to the caller, and no thread runs on its block and stack; `first`
        // never returns.
        unsafe {
            let block = mp.fs as *mut u8;
            if used.is_some() {
                tls::get().recycle(block, mp.memory.0, mp.memory.1);
            }
            *mp.body.get() = Some(Box::new(body));
            *mp.context.get() =
                Context::prepare(tls::get().stack_top(block), first, ptr::from_ref(mp) as *mut u8);
        }
        mp.priority.store(valid(priority), Relaxed);
        let _masked = enter();
        let mut queue = lock(&self.queue);
        let id = queue.last_id + 1;
        (queue.last_id, queue.living) = (id, queue.living + 1);
        mp.id.store(id, Relaxed);
        self.push(&mut queue, mp);
        drop(queue);
        self.announce(priority);
        Ok(Handle { scheduler: self.clone(), mp, id, outcome })
    }
}

fn valid(priority: u8) -> u8 {
    assert!(usize::from(priority) < LEVELS, "priority {priority}: expected 0 to {}", LEVELS - 1);
    priority
}

/// A microprocess that was started. It continues by itself if the handle is dropped.
pub struct Handle<T> {
    scheduler: Arc<Scheduler>,
    mp: &'static Mp,
    id: u64,
    outcome: Arc<Mutex<Option<Outcome<T>>>>,
}

impl<T> Handle<T> {
    /// Waits for the end of the microprocess. Blocks the calling microprocess, or else the calling
    /// kernel thread.
    ///
    /// # Errors
    /// The payload of the panic that ended the microprocess.
    pub fn join(self) -> Outcome<T> {
        if let Some(masked) = enter() {
            masked.leave(Left::Joins(self.mp, self.id));
        } else {
            let lives = |_: &mut Queue| self.mp.id.load(Relaxed) == self.id;
            drop(self.scheduler.ended.wait_while(lock(&self.scheduler.queue), lives));
        }
        lock(&self.outcome).take().expect("it has ended")
    }

    /// Sets the priority of the microprocess (event *Changed*). Has no effect if it has ended. May
    /// be called from any thread.
    ///
    /// # Panics
    /// If `priority` is above 63.
    pub fn set_priority(&self, priority: u8) {
        let _masked = enter();
        let (scheduler, mp) = (&*self.scheduler, self.mp);
        let mut queue = lock(&scheduler.queue);
        if mp.id.load(Relaxed) != self.id {
            return;
        }
        mp.priority.store(valid(priority), Relaxed);
        let level = mp.level.get();
        if level != NOT_QUEUED {
            // Queue the whole level again: the queue cannot remove a single entry.
            let mut all = std::mem::take(&mut queue.levels[usize::from(level)]);
            scheduler.levels.fetch_and(!(1 << level), Relaxed);
            while let Some(mp) = all.pop() {
                scheduler.push(&mut queue, mp);
            }
        }
        drop(queue);
        // Pairs with the fence in `bind`: either this thread sees that the microprocess runs, or it
        // starts with the new priority.
        fence(SeqCst);
        let runs = |slot: &Slot| slot.microprocess.load(Relaxed) == self.id;
        match (0..scheduler.vps).find(|vp| scheduler.kernel.carrier(*vp).is_some_and(runs)) {
            Some(vp) => scheduler.kernel.raise(vp, Event::Changed),
            None => scheduler.announce(priority),
        }
    }
}
