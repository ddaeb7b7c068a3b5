//! A pool of microprocesses that handle the requests of a gate.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kumihimo_runtime::{cancel, remote_wake, thread};

use crate::call_chain;
use crate::error::{Error, ErrorKind};
use crate::lane::ReplyHeader;
use crate::server::request::{
    Context, Handler, Job, Outcome, from_monotonic, read_request, send_reply,
};
use crate::server::server_link::{Request, Service};
use crate::server::service::Work;
use crate::server::serving::Serving;
use crate::wire::message::RequestKind;

/// Microprocesses that handle the requests of a gate, one each at a time.
pub(crate) struct WorkerPool {
    service: Arc<Service>,
    handler: Box<Handler>,
    streams: bool,
}

impl WorkerPool {
    pub(crate) fn start(
        serving: &Serving,
        handler: Box<Handler>,
        streams: bool,
    ) -> Result<(), Error> {
        WorkerPool::grow(&Arc::new(WorkerPool {
            service: serving.service.clone(),
            handler,
            streams,
        }))
    }

    fn grow(pool: &Arc<WorkerPool>) -> Result<(), Error> {
        let its = pool.clone();
        let name = format!("gate {}", pool.service.name);
        let builder = thread::Builder::new().name(name).priority(pool.service.initial_priority());
        builder.spawn(move || its.work()).map(drop).map_err(|e| {
            Error::new(
                ErrorKind::Exhausted,
                format!("gate {:?}: no microprocess for its requests: {e}", pool.service.name),
            )
        })
    }

    fn work(self: &Arc<WorkerPool>) {
        struct LeaveOnDrop<'a>(&'a Arc<WorkerPool>, usize);
        impl Drop for LeaveOnDrop<'_> {
            fn drop(&mut self) {
                self.0.service.leave(self.1);
                // A worker that was cancelled in its handler may have been the last one.
                if std::thread::panicking() && !self.0.service.is_closed() {
                    let _ = WorkerPool::grow(self.0);
                }
            }
        }
        let worker = LeaveOnDrop(self, self.service.join());
        let (mut payload_buffer, mut answer) = (Vec::new(), Vec::new());
        loop {
            let (next, more) = self.service.receive(worker.1, true);
            let request = match next {
                Work::Handle(request) => request,
                Work::Surplus => return,
                // `close` leaves that to this worker: its thread may not block.
                Work::Closed => return thread::blocking(|| self.service.unpublish()),
            };
            if more {
                // On failure this worker goes on alone, and the next request tries again.
                let _ = WorkerPool::grow(self);
            }
            let since = self.service.begin_handler().then(remote_wake::monotonic);
            self.handle(&request, &mut payload_buffer, &mut answer);
            if let Some(since) = since {
                self.service.record_duration(remote_wake::monotonic().saturating_sub(since));
            }
            // A worker that was cancelled with its request handles no other one.
            cancel::point();
        }
    }

    /// Checks that a request is for a stream where the gate serves streams, and only there.
    fn check_kind(&self, request: &Request) -> Result<(), Error> {
        let asks = request.header.kind == RequestKind::Stream as u8;
        if asks == self.streams {
            return if asks { request.link.begin_stream(request.cell) } else { Ok(()) };
        }
        let (has, how) = if self.streams {
            ("streams", "Gate::stream")
        } else {
            ("single replies", "Gate::call")
        };
        Err(Error::new(
            ErrorKind::Invalid,
            format!("gate {:?} serves {has}: use {how}", self.service.name),
        ))
    }

    fn handle(&self, request: &Request, payload_buffer: &mut Vec<u8>, answer: &mut Vec<u8>) {
        let Request { link, cell, header, .. } = request;
        answer.clear();
        let outcome = catch_panic(|| {
            self.check_kind(request)?;
            let whole = read_request(request, payload_buffer)?;
            if header.kind == RequestKind::Send as u8 {
                // A one-way request is answered when it is taken.
                link.reply(*cell, &ReplyHeader::default(), &[])?;
            }
            let job = Job { request, context: Context { request } };
            let payload = whole.as_deref().unwrap_or(payload_buffer);
            call_chain::within(&header.chain, self.service.word, || {
                within_deadline(header.deadline, || (self.handler)(payload, &job, answer))
            })
        });
        let mut answers = header.kind != RequestKind::Send as u8;
        if self.streams && header.kind == RequestKind::Stream as u8 {
            if outcome.is_err() {
                // The caller owns the cell until it asks for the next item.
                let _ = link.await_turn(*cell);
            }
            answers = link.end_stream(*cell);
        }
        if answers {
            send_reply(request, outcome, answer);
        }
    }
}

fn within_deadline<R>(deadline: u64, f: impl FnOnce() -> R) -> R {
    if deadline == 0 { f() } else { thread::scope_until(from_monotonic(deadline), |_| f()) }
}

/// Runs a handler, and turns its panic into an error for the caller.
fn catch_panic(f: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        if payload.is::<cancel::Cancelled>() {
            return Err(Error::new(ErrorKind::Cancelled, "the handler was cancelled"));
        }
        let said = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let said = said
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "something".into());
        Err(Error::new(ErrorKind::Panicked, format!("the handler panicked: {said}")))
    })
}
