//! The threads of a mount: receivers, and handlers of what was received. The same for every kind of
//! thread.

use std::io;

use kumihimo::sync::Arc;
use kumihimo::sync::atomic::{AtomicUsize, Ordering};
use kumihimo::sync::mpsc::Sender;

use crate::environment::Environment;
use crate::intake::{Buffer, Intake, Mounted};
use crate::protocol::wire::Reply;

/// More of a pool in waiting than these end: each that waits is one more to be woken for nothing.
const IN_WAITING: usize = 3;
/// Is dropped when the thread that has it ends.
pub(crate) type Alive = Sender<()>;

/// The threads of one mount, or of several.
pub(crate) struct Crew {
    pub(crate) environment: Arc<dyn Environment>,
    intakes: Vec<Arc<Intake>>,
    /// Of a pool; as many as there are, else.
    most: usize,
    /// Of a pool: in `receive`, or on the way there. Relaxed, as `living`: one too many or too few
    /// for a moment is no error.
    waiting: AtomicUsize,
    living: AtomicUsize,
}

impl Crew {
    /// A crew without threads yet; `begun` of them will receive, and there will be `most` at a
    /// time.
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

    /// Receives and handles. The last waiting thread sees to it that another one waits, before it
    /// is occupied itself.
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
                // That there is no memory for one more is no error: those that there are go on.
                let (number, alive) = (self.living.load(Ordering::Relaxed), alive.clone());
                let _ = self.begin(number, move |crew| crew.serve(number, &alive));
            }
            intake.handle(mount, request, &mut reply);
        }
    }

    /// Whether threads come and go.
    fn is_pool(&self) -> bool {
        self.most > self.intakes.len().max(IN_WAITING)
    }

    /// A thread for each request.
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
                // There is no memory for a thread: the receiver handles it.
                intake.handle(mount, &request, &mut Reply::default());
            }
        }
    }
}
