//! loom models of readiness: no reader waits for data or an end that is there.
//!
//! Readers run the real loop of an attempt on the real `Source`; the collector reports to the real
//! entry. A writer, the socket and the epoll set are the kernel's half. A lost wake-up is a
//! deadlock, which loom reports.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};
use std::time::Instant;

use kumihimo_runtime::epoll_set::{close, collect, file_changed, open};
use kumihimo_runtime::readiness::{FuturePlace, Interest, Source, WakerKind};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{Outcome, attempt, poll_attempt};

/// A socket that is written to and read.
#[derive(Default)]
struct Socket {
    bytes: usize,
    is_ended: bool,
}

struct World {
    socket: Mutex<Socket>,
    source: Source,
    readers: Mutex<usize>,
}

/// Writes of so many bytes; 0 ends the stream.
type Script = &'static [usize];
/// Size of a reader's buffer, and the number of bytes with which it is content.
type Reader = (usize, usize);
const ALL: usize = usize::MAX;

impl World {
    fn write(&self, script: Script) {
        for bytes in script {
            {
                let mut socket = self.socket.lock().unwrap();
                socket.bytes += bytes;
                socket.is_ended |= *bytes == 0;
            }
            file_changed();
        }
    }

    /// What epoll reports for the socket's present state.
    fn flags(&self) -> i32 {
        let socket = self.socket.lock().unwrap();
        let data = if socket.bytes > 0 || socket.is_ended { libc::EPOLLIN } else { 0 };
        data | if socket.is_ended { libc::EPOLLRDHUP } else { 0 }
    }

    fn read_once(&self, buffer: usize) -> Outcome<usize> {
        let mut socket = self.socket.lock().unwrap();
        let n = socket.bytes.min(buffer);
        socket.bytes -= n;
        match n {
            0 if socket.is_ended => Outcome::Ended(Ok(0)),
            0 => Outcome::NotReady,
            n if n < buffer => Outcome::Drained(n),
            n => Outcome::Ended(Ok(n)),
        }
    }

    /// As `Socket::recv`: one read, which waits for the first byte.
    fn recv(&self, buffer: usize) -> io::Result<usize> {
        let wait = |seen| self.source.wait(Interest::Read, seen, None);
        attempt(&self.source, Interest::Read, true, || self.read_once(buffer), wait)
    }

    /// As `polled::poll_read`: one poll of a future.
    fn poll_recv(&self, buffer: usize, place: &FuturePlace, waker: &Waker) -> Poll<usize> {
        let read = || self.read_once(buffer);
        let wait =
            |seen| self.source.poll_wait(Interest::Read, seen, place, waker, WakerKind::BlockOn);
        poll_attempt(&self.source, Interest::Read, read, wait).map(Result::unwrap)
    }

    /// A reader that is a future, polled after each call of its waker and at no other time.
    fn read_as_future(&self, (buffer, wanted): Reader) -> usize {
        let (place, flag) = (FuturePlace::new(), std::sync::Arc::new(Flag::default()));
        let waker = Waker::from(flag.clone());
        let mut got = 0;
        while got < wanted {
            match self.poll_recv(buffer, &place, &waker) {
                Poll::Ready(0) => break,
                Poll::Ready(n) => got += n,
                Poll::Pending => flag.wait(),
            }
        }
        self.leave();
        got
    }

    /// A future that is dropped while it waits, if it has to wait.
    fn poll_and_drop(&self, buffer: usize) -> usize {
        let place = FuturePlace::new();
        let waker = Waker::from(std::sync::Arc::new(Flag::default()));
        let poll = self.poll_recv(buffer, &place, &waker);
        if poll.is_pending() {
            self.source.withdraw(Interest::Read, &place);
        }
        self.leave();
        if let Poll::Ready(n) = poll { n } else { 0 }
    }

    fn leave(&self) {
        let mut readers = self.readers.lock().unwrap();
        *readers -= 1;
        if *readers == 0 {
            close();
        }
    }

    fn read(&self, (buffer, wanted): Reader) -> usize {
        let mut got = 0;
        while got < wanted {
            match self.recv(buffer).unwrap() {
                0 => break,
                n => got += n,
            }
        }
        self.leave();
        got
    }
}

/// What a waker sets.
#[derive(Default)]
struct Flag {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Flag {
    fn wake(self: std::sync::Arc<Flag>) {
        *self.is_set.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

impl Flag {
    fn wait(&self) {
        let mut is_set = self.is_set.lock().unwrap();
        while !std::mem::take(&mut *is_set) {
            is_set = self.changed.wait(is_set).unwrap();
        }
    }
}

/// How a reader of a model reads.
type Read = fn(&World, Reader) -> usize;

fn model(preemptions: usize, script: Script, readers: &'static [Reader]) {
    let as_threads: Vec<(Read, Reader)> =
        readers.iter().map(|reader| (World::read as Read, *reader)).collect();
    model_of(preemptions, script, as_threads);
}

fn model_of(preemptions: usize, script: Script, readers: Vec<(Read, Reader)>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound(preemptions));
    builder.max_branches = 20_000;
    let (runs, begin) = (std::sync::Arc::new(AtomicUsize::new(0)), Instant::now());
    let count = runs.clone();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        open();
        let world = Arc::new(World {
            socket: Mutex::new(Socket::default()),
            source: Source::new(0),
            readers: Mutex::new(readers.len()),
        });
        let writer = {
            let world = world.clone();
            thread::spawn(move || world.write(script))
        };
        let readers: Vec<_> = readers
            .iter()
            .map(|&(read, reader)| {
                let world = world.clone();
                thread::spawn(move || read(&world, reader))
            })
            .collect();
        while collect(|| world.flags()) {}
        writer.join().unwrap();
        let got: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        let left = world.socket.lock().unwrap().bytes;
        assert_eq!(got + left, script.iter().sum::<usize>());
    });
    println!("{} executions, {:?}", runs.load(Ordering::Relaxed), begin.elapsed());
}

/// The bound on preemptions, which `KUMI_LOOM_BOUND` raises.
fn bound(usual: usize) -> usize {
    std::env::var("KUMI_LOOM_BOUND").map_or(usual, |text| text.parse().expect("a number"))
}

/// Short reads, each of which drains the socket.
#[test]
fn reader_with_large_buffer_reads_to_the_end() {
    model(3, &[1, 1, 0], &[(4, ALL)]);
}

/// Full reads, after which the socket may be empty all the same.
#[test]
fn reader_with_exact_buffer_reads_to_the_end() {
    model(3, &[2, 1, 0], &[(2, ALL)]);
}

#[test]
fn messages_without_an_end_arrive() {
    model(3, &[1, 1], &[(4, 2)]);
}

#[test]
fn two_readers_both_find_the_end() {
    model(2, &[1, 0], &[(2, ALL), (2, ALL)]);
}

/// One reader leaves with what it wanted; the other one gets the rest.
#[test]
fn rest_reaches_the_second_reader() {
    model(2, &[2, 0], &[(1, 1), (4, ALL)]);
}

#[test]
fn one_write_serves_two_readers() {
    model(2, &[2], &[(1, 1), (1, 1)]);
}

#[test]
fn future_reads_to_the_end() {
    model_of(3, &[1, 1, 0], vec![(World::read_as_future, (4, ALL))]);
}

#[test]
fn future_with_exact_buffer_reads_to_the_end() {
    model_of(3, &[2, 1, 0], vec![(World::read_as_future, (2, ALL))]);
}

#[test]
fn future_and_thread_both_find_the_end() {
    let readers: Vec<(Read, Reader)> =
        vec![(World::read_as_future, (2, ALL)), (World::read, (2, ALL))];
    model_of(2, &[1, 0], readers);
}

/// A future that is dropped while it waits takes no wake-up with it.
#[test]
fn rest_reaches_the_reader_beside_a_dropped_future() {
    let readers: Vec<(Read, Reader)> = vec![
        (|world, (buffer, _)| world.poll_and_drop(buffer), (1, 1)),
        (World::read_as_future, (4, ALL)),
    ];
    model_of(2, &[2, 0], readers);
}
