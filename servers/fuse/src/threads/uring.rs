//! Requests through io_uring: each thread owns an entry in the queue of a core, with memory for a
//! request and its reply.

use std::io;

use kumihimo::fuse::uring::{self, Entry};
use kumihimo::sync::Arc;
use kumihimo::sync::atomic::{AtomicUsize, Ordering};

use super::crew::{Alive, Crew};
use crate::intake::{Buffer, Mounted, received, send};
use crate::protocol::negotiate::MAX_WRITE;
use crate::protocol::service::Answer;
use crate::protocol::wire::{Message, Reply};

/// Handles the first request of a mount (`FUSE_INIT`), which always arrives through the channel.
/// Returns whether the mount has negotiated io_uring for the other requests.
pub(crate) fn greet(Mounted { service, device }: &Mounted) -> bool {
    if !service.settings.uring {
        return false;
    }
    let (mut buffer, mut reply) = (Buffer::default(), Reply::default());
    let Some(length) = received(|| device.receive(buffer.room())) else { return false };
    if service.handle(Message::whole(buffer.first(length)), &mut reply) == Answer::Send {
        send(device, &reply);
    }
    service.by_uring.load(Ordering::Relaxed)
}

/// Threads of one queue.
struct Queue {
    number: u16,
    mount: Mounted,
    /// As in `Crew`, for this queue.
    waiting: AtomicUsize,
    living: AtomicUsize,
    most: usize,
}

/// Starts `threads` threads, and at least one for each queue: the kernel sends no request until
/// every queue has an entry.
pub(crate) fn begin(
    crew: &Arc<Crew>,
    mount: &Mounted,
    threads: usize,
    alive: &Alive,
) -> io::Result<()> {
    let queues = usize::from(uring::queues());
    let each = threads.div_ceil(queues);
    for number in 0..uring::queues() {
        let (waiting, living) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let most = crew.most().div_ceil(queues).max(each);
        let queue = Arc::new(Queue { number, mount: mount.clone(), waiting, living, most });
        for _ in 0..each {
            queue.begin(crew, alive)?;
        }
    }
    Ok(())
}

impl Queue {
    fn begin(self: &Arc<Queue>, crew: &Arc<Crew>, alive: &Alive) -> io::Result<()> {
        let entry = Entry::new(Arc::clone(&self.mount.device), self.number, MAX_WRITE as usize)?;
        let number = self.living.fetch_add(1, Ordering::Relaxed);
        let (queue, of, alive) = (Arc::clone(self), Arc::clone(crew), alive.clone());
        let body = move || {
            queue.serve(&of, entry, &alive);
            queue.living.fetch_sub(1, Ordering::Relaxed);
        };
        let name = format!("uring {}.{number}", self.number);
        crew.environment.spawn(&name, Box::new(body)).inspect_err(|_| {
            self.living.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Receives and handles requests. As in `Crew`, the last waiting thread starts another thread.
    fn serve(self: &Arc<Queue>, crew: &Arc<Crew>, mut entry: Entry, alive: &Alive) {
        let mut reply = Reply::default();
        loop {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let request = entry.receive();
            let others = self.waiting.fetch_sub(1, Ordering::Relaxed) - 1;
            let request = match request {
                Ok(request) => request,
                Err(e) => return report(&e),
            };
            if others == 0 && self.living.load(Ordering::Relaxed) < self.most {
                // If no further thread can be started, the existing threads continue.
                let _ = self.begin(crew, alive);
            }
            // Every request that arrives through io_uring has a reply.
            self.mount.service.handle(Message::parts(&request), &mut reply);
            if let Err(e) = entry.answer(reply.message()) {
                eprintln!("fuse: sending a reply failed: {e}");
                return;
            }
        }
    }
}

/// Reports an error, except the errors of an unmount.
fn report(e: &io::Error) {
    use rustix::io::Errno;
    match Errno::from_io_error(e) {
        Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV | Errno::CANCELED) => {}
        _ => eprintln!(
            "fuse: receiving requests through io_uring failed: {e}; the queue is no longer served"
        ),
    }
}
