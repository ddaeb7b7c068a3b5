//! One thread for each open file: reads and writes of a file are handled in order, and do not delay
//! requests for other files.

use std::collections::HashMap;

use fuse_abi::linux::{fuse_in_header, fuse_opcode as Op};
use kumihimo::sync::mpsc::{self, Sender};
use kumihimo::sync::{Arc, Mutex, PoisonError};

use super::crew::{Alive, Crew};
use crate::intake::{Buffer, Intake};
use crate::protocol::wire::{Message, Reply};

/// Identifies an open file: its mount, its inode, and its number in the store. A store that does
/// not number open files has one thread per open inode.
type Key = (usize, u64, u64);

/// Request for the thread of a file.
struct Work {
    intake: Arc<Intake>,
    mount: usize,
    request: Box<[u8]>,
}

/// Files that have a thread.
#[derive(Default)]
pub(crate) struct Files {
    threads: Mutex<HashMap<Key, Sender<Work>>>,
}

impl Files {
    /// Receives requests. Passes requests for an open file to its thread, and handles all others.
    pub(crate) fn serve(&self, crew: &Arc<Crew>, number: usize, alive: &Alive) {
        let (mut buffer, mut reply) = (Buffer::default(), Reply::default());
        let intake = crew.intake(number);
        while let Some((mount, request)) = intake.receive(&mut buffer) {
            let left = match file_of(mount, request) {
                Some((key, last)) => {
                    let work = Work { intake: Arc::clone(intake), mount, request: request.into() };
                    self.give(crew, key, last, work, alive)
                }
                None => Err(()),
            };
            if left.is_err() {
                intake.handle(mount, request, &mut reply);
            }
        }
    }

    /// Passes a request to the thread of its file. If `last` is set, the request closes the file
    /// and the thread ends after it. Fails if no thread can be started.
    fn give(
        &self,
        crew: &Arc<Crew>,
        key: Key,
        last: bool,
        work: Work,
        alive: &Alive,
    ) -> Result<(), ()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = match threads.remove(&key) {
            Some(thread) => thread,
            None => begin(crew, key, alive)?,
        };
        thread.send(work).map_err(|_| ())?;
        if !last {
            threads.insert(key, thread);
        }
        Ok(())
    }
}

/// Starts the thread of a file, which ends when its sender is dropped.
fn begin(crew: &Arc<Crew>, key: Key, alive: &Alive) -> Result<Sender<Work>, ()> {
    let (sender, receiver) = mpsc::channel::<Work>();
    let alive = alive.clone();
    let body = move || {
        let mut reply = Reply::default();
        for work in receiver {
            work.intake.handle(work.mount, &work.request, &mut reply);
        }
        drop(alive);
    };
    crew.environment.spawn(&format!("file {}", key.1), Box::new(body)).map_err(|_| ())?;
    Ok(sender)
}

/// Returns the open file of a request, and whether the request closes it. The first argument of
/// these requests is the number of the open file.
fn file_of(mount: usize, request: &[u8]) -> Option<(Key, bool)> {
    let (header, mut arguments): (fuse_in_header, _) = Message::whole(request).split()?;
    match Op::try_from(header.opcode).ok()? {
        op @ (Op::FUSE_READ
        | Op::FUSE_WRITE
        | Op::FUSE_FSYNC
        | Op::FUSE_FALLOCATE
        | Op::FUSE_LSEEK
        | Op::FUSE_RELEASE) => {
            let file = arguments.take::<u64>().ok()?;
            Some(((mount, header.nodeid, file), op == Op::FUSE_RELEASE))
        }
        _ => None,
    }
}
