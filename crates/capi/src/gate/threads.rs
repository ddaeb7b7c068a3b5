//! Kernel threads for handlers, for code that needs a deep stack or depends on the calling thread.

use std::sync::Arc;

use kumihimo::gate::{Context, Error, ErrorKind, Region};
use kumihimo::runtime::StackWatch;
use kumihimo::sync::{mpmc, mpsc};
use kumihimo::thread;

use crate::error::Failure;
use crate::gate::serve::BoundHandler;

/// Stack size: the default of kernel threads.
const STACK: usize = 8 << 20;

/// Kernel threads that run the requests of one handler. They end when this is dropped.
pub(crate) struct Threads {
    jobs: mpmc::Sender<Job>,
}

/// Request of a waiting microprocess, lent to a kernel thread.
struct Job {
    request: *const [u8],
    context: *const Context<'static>,
    answer: *mut Vec<u8>,
    done: mpsc::Sender<Result<Vec<Region>, Error>>,
}

// SAFETY: the pointers refer to shareable data or are lent exclusively, while `Threads::run` waits.
unsafe impl Send for Job {}

impl Threads {
    pub(crate) fn start(handler: Arc<BoundHandler>, count: usize) -> Result<Threads, Failure> {
        let (jobs, queue) = mpmc::channel::<Job>();
        for i in 0..count {
            let (handler, queue) = (handler.clone(), queue.clone());
            let name = format!("kumi-handler-{i}");
            let thread = std::thread::Builder::new().name(name.clone()).stack_size(STACK);
            let work = move || {
                // Without memory for it, an overflow ends in a bare SIGSEGV.
                let _watch = StackWatch::begin(&name);
                work(&handler, &queue);
            };
            thread.spawn(work).map_err(|e| {
                Failure::new(
                    libc::EAGAIN,
                    format!("cannot start a kernel thread for the gate's handlers: {e}"),
                )
            })?;
        }
        Ok(Threads { jobs })
    }

    /// Runs the handler on a kernel thread. Blocks the microprocess until the handler has ended,
    /// even if it is cancelled, because the kernel thread uses its memory.
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
        // SAFETY: `Threads::run` keeps the request and the context until it receives `done`; the
        // answer has no other user meanwhile.
        let outcome =
            handler.run(unsafe { &*request }, unsafe { &*context }, unsafe { &mut *answer });
        // The microprocess waits for the outcome, so the receiver exists.
        let _ = done.send(outcome);
    }
}
