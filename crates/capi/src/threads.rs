//! Handlers on kernel threads: for code that needs a deep stack, or has a mind of its own about
//! which thread it is on.

use std::sync::Arc;

use kumihimo::gate::{Context, Error, ErrorKind, Region};
use kumihimo::sync::{mpmc, mpsc};
use kumihimo::thread;

use crate::error::Failure;
use crate::serve::BoundHandler;

/// As a kernel thread's by default.
const STACK: usize = 8 << 20;

/// Kernel threads that run one handler's requests. They end when this is dropped.
pub(crate) struct Threads {
    jobs: mpmc::Sender<Job>,
}

/// A request that a microprocess has, waiting, and lends to a kernel thread.
struct Job {
    request: *const [u8],
    context: *const Context<'static>,
    answer: *mut Vec<u8>,
    done: mpsc::Sender<Result<Vec<Region>, Error>>,
}

// SAFETY: the pointers are of things that can be shared, or are lent exclusively, for as long as
// `Threads::run` waits.
unsafe impl Send for Job {}

impl Threads {
    pub(crate) fn start(handler: Arc<BoundHandler>, count: usize) -> Result<Threads, Failure> {
        let (jobs, queue) = mpmc::channel::<Job>();
        for i in 0..count {
            let (handler, queue) = (handler.clone(), queue.clone());
            let thread =
                std::thread::Builder::new().name(format!("kumi-handler-{i}")).stack_size(STACK);
            thread.spawn(move || work(&handler, &queue)).map_err(|e| {
                Failure::new(
                    libc::EAGAIN,
                    format!("no kernel thread for the handlers of the gate: {e}"),
                )
            })?;
        }
        Ok(Threads { jobs })
    }

    /// Has a request handled. Blocks the microprocess until that has ended, cancelled or not: the
    /// kernel thread has its memory.
    pub(crate) fn run(
        &self,
        request: &[u8],
        context: &Context<'_>,
        answer: &mut Vec<u8>,
    ) -> Result<Vec<Region>, Error> {
        let (done, outcome) = mpsc::channel();
        let job = Job { request, context: std::ptr::from_ref(context).cast(), answer, done };
        thread::without_cancellation(|| {
            let gone = || {
                Error::new(ErrorKind::Gone, "the kernel threads of the gate's handlers have ended")
            };
            self.jobs.send(job).map_err(|_| gone())?;
            outcome.recv().map_err(|_| gone())?
        })
    }
}

fn work(handler: &BoundHandler, queue: &mpmc::Receiver<Job>) {
    while let Ok(Job { request, context, answer, done }) = queue.recv() {
        // SAFETY: `Threads::run` waits for `done`, and has them until then; the answer nobody else
        // uses meanwhile.
        let outcome =
            handler.run(unsafe { &*request }, unsafe { &*context }, unsafe { &mut *answer });
        // The microprocess waits for it.
        let _ = done.send(outcome);
    }
}
