//! The browser's protocol over two pipes: JSON messages, each followed by a zero byte.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Time after which a browser that does not answer is considered hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Events that are kept; all others are dropped at once.
const KEPT: [&str; 6] = [
    "Log.entryAdded",
    "Network.requestWillBeSent",
    "Page.javascriptDialogOpening",
    "Page.loadEventFired",
    "Runtime.consoleAPICalled",
    "Runtime.exceptionThrown",
];

/// An event of a page.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) method: String,
    pub(crate) parameters: Value,
}

#[derive(Debug, Default)]
struct Received {
    replies: HashMap<u64, Result<Value, String>>,
    /// Events by session, in the order of their arrival.
    events: HashMap<String, Vec<Event>>,
    ended: bool,
}

/// The connection to the browser.
#[derive(Debug)]
pub(crate) struct Pipe {
    to: Mutex<Option<ChildStdin>>,
    received: Mutex<Received>,
    changed: Condvar,
    next: AtomicU64,
}

impl Pipe {
    /// Starts a thread that receives messages until the browser closes its end.
    pub(crate) fn new(to: ChildStdin, from: ChildStdout) -> Arc<Pipe> {
        let pipe = Arc::new(Pipe {
            to: Mutex::new(Some(to)),
            received: Mutex::default(),
            changed: Condvar::new(),
            next: AtomicU64::new(1),
        });
        let receiver = pipe.clone();
        std::thread::spawn(move || receiver.receive(from));
        pipe
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, from: impl Read) {
        let mut from = BufReader::new(from);
        let mut message = Vec::new();
        while from.read_until(0, &mut message).is_ok_and(|n| n > 0) {
            message.pop();
            if let Ok(value) = serde_json::from_slice(&message) {
                self.sort_in(value);
            }
            message.clear();
        }
        self.received().ended = true;
        self.changed.notify_all();
    }

    fn sort_in(&self, mut message: Value) {
        let mut received = self.received();
        if let Some(id) = message["id"].as_u64() {
            let reply = match message.get("error") {
                Some(error) => Err(error.to_string()),
                None => Ok(message["result"].take()),
            };
            received.replies.insert(id, reply);
        } else if let (Some(session), Some(method)) =
            (message["sessionId"].as_str(), message["method"].as_str())
            && KEPT.contains(&method)
        {
            let (session, method) = (session.to_owned(), method.to_owned());
            let event = Event { method, parameters: message["params"].take() };
            received.events.entry(session).or_default().push(event);
        }
        drop(received);
        self.changed.notify_all();
    }

    /// Makes a request and returns the reply. `session` names a page.
    pub(crate) fn call(
        &self,
        session: Option<&str>,
        method: &str,
        parameters: Value,
    ) -> Result<Value, String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut request = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = session {
            request["sessionId"] = session.into();
        }
        let mut bytes = request.to_string().into_bytes();
        bytes.push(0);
        match &mut *self.to.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(to) => to.write_all(&bytes).map_err(|e| e.to_string())?,
            None => return Err("the browser was closed".into()),
        }
        self.wait(|received| received.replies.remove(&id))?
    }

    /// Waits until `look` finds something.
    pub(crate) fn wait_event<T>(
        &self,
        session: &str,
        look: impl Fn(&[Event]) -> Option<T>,
    ) -> Result<T, String> {
        self.wait(|received| look(received.events.get(session).map_or(&[], Vec::as_slice)))
    }

    /// Returns the events of a page so far.
    pub(crate) fn events(&self, session: &str) -> Vec<Event> {
        self.received().events.get(session).cloned().unwrap_or_default()
    }

    /// Forgets the events of a page so far.
    pub(crate) fn forget(&self, session: &str) {
        self.received().events.remove(session);
    }

    fn wait<T>(&self, mut look: impl FnMut(&mut Received) -> Option<T>) -> Result<T, String> {
        let until = Instant::now() + PATIENCE;
        let mut received = self.received();
        loop {
            if let Some(found) = look(&mut received) {
                return Ok(found);
            }
            if received.ended {
                return Err("the browser has ended".into());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("no answer within {} s", PATIENCE.as_secs()));
            }
            received =
                self.changed.wait_timeout(received, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Closes this end, and waits until the browser has closed its own.
    pub(crate) fn wait_for_end(&self, until: Instant) {
        self.to.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut received = self.received();
        while !received.ended && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            received =
                self.changed.wait_timeout(received, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
