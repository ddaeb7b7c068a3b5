//! Hands what a view shows to all pages that have it.
//!
//! A view that somebody looks at has one watcher, a microprocess that looks once in an interval.
//! The watcher ends with the last page. Streams of events wait for the views that they have.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kumihimo::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use kumihimo::thread;
use kumihimo_machine::client::Machine;

use super::look::Looker;
use super::view::View;

/// Largest number of different views at once. Each costs the address space a look in each interval.
pub const MOST_VIEWS: usize = 32;

/// A look is followed by a pause of so many times its duration: what answers it in an address space
/// with very many microprocesses then takes less than 2 % of a core, with room for the list of all
/// address spaces.
const PAUSES: u32 = 60;
/// Longest of these pauses. A look at a process that is stopped takes half a second.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// All views that pages look at.
pub struct Hub {
    machine: Machine,
    every: Duration,
    state: Mutex<State>,
    /// Signalled when a view has something new, has lost a page, and at the end.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    views: BTreeMap<String, Watched>,
    has_ended: bool,
}

/// A view with its last result.
#[derive(Default)]
struct Watched {
    pages: usize,
    /// Number of results so far.
    number: u64,
    /// The last one, a line of JSON.
    last: Option<Arc<str>>,
}

/// The part that a stream of events has in its views. They lose a page when this value is dropped.
pub struct Subscription {
    hub: Arc<Hub>,
    /// Keys, and the numbers of the results that were taken.
    taken: Vec<(String, u64)>,
}

/// What a stream gets.
pub enum Update {
    /// Positions of views in the subscription, with their results.
    New(Vec<(usize, Arc<str>)>),
    /// Nothing within the time.
    Nothing,
    /// The server ends.
    End,
}

impl Hub {
    /// Starts without views.
    pub fn new(machine: Machine, every: Duration) -> Arc<Hub> {
        Arc::new(Hub { machine, every, state: Mutex::default(), changed: Condvar::new() })
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Subscribes to views.
    ///
    /// # Errors
    /// A line, if too many views are open, or a microprocess cannot be started.
    pub fn subscribe(self: &Arc<Hub>, views: Vec<View>) -> Result<Subscription, String> {
        let mut subscription = Subscription { hub: Arc::clone(self), taken: Vec::new() };
        for view in views {
            let key = view.key();
            let mut state = self.state();
            let is_new = !state.views.contains_key(&key);
            if is_new && state.views.len() >= MOST_VIEWS {
                return Err(format!(
                    "{MOST_VIEWS} different views are open, which is the most: close some pages"
                ));
            }
            state.views.entry(key.clone()).or_default().pages += 1;
            subscription.taken.push((key.clone(), 0));
            drop(state);
            if is_new {
                let watcher = Watcher { hub: Arc::clone(self), key, has_left: false };
                thread::Builder::new()
                    .name("watcher".to_owned())
                    .spawn(move || watcher.watch(view))
                    .map_err(|e| format!("no microprocess can be started: {e}"))?;
            }
        }
        Ok(subscription)
    }

    /// Ends all streams and watchers.
    pub fn end(&self) {
        self.state().has_ended = true;
        self.changed.notify_all();
    }

    /// Number of views with a watcher.
    #[cfg(test)]
    fn views(&self) -> usize {
        self.state().views.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a signal, or until a time.
    fn wait<'a>(&self, state: MutexGuard<'a, State>, until: Instant) -> MutexGuard<'a, State> {
        let left = until.saturating_duration_since(Instant::now());
        self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Subscription {
    /// Waits for results that were not taken yet. Blocks the microprocess for `time` at most.
    pub fn next(&mut self, time: Duration) -> Update {
        let until = Instant::now() + time;
        let hub = Arc::clone(&self.hub);
        let mut state = hub.state();
        loop {
            if state.has_ended {
                return Update::End;
            }
            let mut new = Vec::new();
            for (at, (key, taken)) in self.taken.iter_mut().enumerate() {
                let Some(watched) = state.views.get(key) else { continue };
                if let (Some(last), true) = (&watched.last, watched.number != *taken) {
                    new.push((at, Arc::clone(last)));
                    *taken = watched.number;
                }
            }
            if !new.is_empty() {
                return Update::New(new);
            }
            if Instant::now() >= until {
                return Update::Nothing;
            }
            state = hub.wait(state, until);
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        for (key, _) in &self.taken {
            if let Some(watched) = state.views.get_mut(key) {
                watched.pages = watched.pages.saturating_sub(1);
            }
        }
        drop(state);
        self.hub.changed.notify_all();
    }
}

/// The microprocess of a view. When this value is dropped, the view is removed, also by a panic and
/// if the microprocess could not be started.
struct Watcher {
    hub: Arc<Hub>,
    key: String,
    /// Whether the view is removed already, and may be that of another watcher by now.
    has_left: bool,
}

impl Watcher {
    /// Looks until no page has the view.
    fn watch(mut self, view: View) {
        let hub = Arc::clone(&self.hub);
        let mut looker = Looker::new(&hub.machine, view);
        loop {
            // Requests to address spaces block the kernel thread.
            let begun = Instant::now();
            let found = thread::blocking(|| looker.look());
            let pause = begun.elapsed().saturating_mul(PAUSES).min(LONGEST_PAUSE);
            let next = Instant::now() + hub.every.max(pause);
            let mut state = hub.state();
            if let Some(watched) = state.views.get_mut(&self.key) {
                watched.last = Some(found.into());
                watched.number += 1;
            }
            hub.changed.notify_all();
            loop {
                let pages = state.views.get(&self.key).map_or(0, |watched| watched.pages);
                if pages == 0 || state.has_ended {
                    // Removed before the lock is released: a page that comes now begins anew.
                    state.views.remove(&self.key);
                    self.has_left = true;
                    return;
                }
                if Instant::now() >= next {
                    break;
                }
                state = hub.wait(state, next);
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if !self.has_left {
            self.hub.state().views.remove(&self.key);
            self.hub.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
