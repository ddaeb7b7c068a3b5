//! Threads of a mount, which receive and handle requests. Common to all kinds of thread.

use std::io;

use kumihimo::sync::Arc;
use kumihimo::sync::atomic::{AtomicUsize, Ordering};
use kumihimo::sync::mpsc::Sender;

use crate::environment::Environment;
use crate::intake::{Buffer, Intake, Mounted};
use crate::protocol::wire::Reply;

/// Maximum number of waiting threads of a pool. Further threads end, because each may be woken
/// needlessly.
const IN_WAITING: usize = 3;
/// Sender that is dropped when its thread ends.
pub(crate) type Alive = Sender<()>;

/// Threads of one or more mounts.
pub(crate) struct Crew {
    pub(crate) environment: Arc<dyn Environment>,
    intakes: Vec<Arc<Intake>>,
    /// Maximum number of threads of a pool; for other allotments, their number.
    most: usize,
    /// Threads of a pool that are inside `receive` or about to enter it. Relaxed, like `living`: a
    /// count that is temporarily off by one is harmless.
    waiting: AtomicUsize,
    living: AtomicUsize,
}

impl Crew {
    /// Creates a crew without threads. `begun` threads will receive, and at most `most` threads
    /// will exist at a time.
    pub(super) fn new(
        environment: &Arc<dyn Environment>,
        mounts: &[Mounted],
        begun: usize,
        most: usize,
    ) -> io::Result<Crew> {
        Ok(Crew {
            intakes: environment.intakes(mounts, begun)?,
            environment: Arc::clone(environment),
            most,
            waiting: AtomicUsize::new(0),
            living: AtomicUsize::new(0),
        })
    }

    pub(super) fn begin(
        self: &Arc<Crew>,
        number: usize,
        body: impl FnOnce(&Arc<Crew>) + Send + 'static,
    ) -> io::Result<()> {
        self.living.fetch_add(1, Ordering::Relaxed);
        let crew = Arc::clone(self);
        let body = move || {
            body(&crew);
            crew.living.fetch_sub(1, Ordering::Relaxed);
        };
        self.environment.spawn(&format!("fuse {number}"), Box::new(body)).inspect_err(|_| {
            self.living.fetch_sub(1, Ordering::Relaxed);
        })
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    pub(crate) fn intake(&self, number: usize) -> &Arc<Intake> {
        &self.intakes[number % self.intakes.len()]
    }

    /// Receives and handles requests. The last waiting thread of a pool starts another thread
    /// before it handles its request.
    pub(super) fn serve(self: &Arc<Crew>, number: usize, alive: &Alive) {
        let (mut buffer, mut reply) = (Buffer::default(), Reply::default());
        let intake = self.intake(number);
        loop {
            let others = self.waiting.fetch_add(1, Ordering::Relaxed);
            let leaves = others >= IN_WAITING
                && self.living.load(Ordering::Relaxed) > IN_WAITING
                && self.is_pool();
            let request = if leaves { None } else { intake.receive(&mut buffer) };
            let others = self.waiting.fetch_sub(1, Ordering::Relaxed) - 1;
            let Some((mount, request)) = request else { return };
            if others == 0 && self.living.load(Ordering::Relaxed) < self.most {
                // If no further thread can be started, the existing threads continue.
                let (number, alive) = (self.living.load(Ordering::Relaxed), alive.clone());
                let _ = self.begin(number, move |crew| crew.serve(number, &alive));
            }
            intake.handle(mount, request, &mut reply);
        }
    }

    /// Returns whether threads start and end with the load.
    fn is_pool(&self) -> bool {
        self.most > self.intakes.len().max(IN_WAITING)
    }

    /// Receives requests and starts a thread for each.
    pub(super) fn hand_each_over(&self, number: usize, alive: &Alive) {
        let mut buffer = Buffer::default();
        let intake = self.intake(number);
        while let Some((mount, request)) = intake.receive(&mut buffer) {
            let request: Arc<[u8]> = request.into();
            let handle = {
                let (intake, request, alive) =
                    (Arc::clone(intake), Arc::clone(&request), alive.clone());
                move || {
                    intake.handle(mount, &request, &mut Reply::default());
                    drop(alive);
                }
            };
            if self.environment.spawn("request", Box::new(handle)).is_err() {
                // If no thread can be started, the receiver handles the request itself.
                intake.handle(mount, &request, &mut Reply::default());
            }
        }
    }
}
