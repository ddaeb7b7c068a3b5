//! loom models of readiness: no reader waits for data or an end that is there.
//!
//! Readers run the real loop of an attempt on the real `Source`; the collector reports to the real
//! entry. A writer, the socket and the epoll set are the kernel's half. A lost wake-up is a
//! deadlock, which loom reports.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use kumihimo_runtime::epoll_set::{close, collect, file_changed, open};
use kumihimo_runtime::readiness::{Interest, Source};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{Outcome, attempt};

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

    /// As `Socket::recv`: one read, which waits for the first byte.
    fn recv(&self, buffer: usize) -> io::Result<usize> {
        let once = || {
            let mut socket = self.socket.lock().unwrap();
            let n = socket.bytes.min(buffer);
            socket.bytes -= n;
            match n {
                0 if socket.is_ended => Outcome::Ended(Ok(0)),
                0 => Outcome::NotReady,
                n if n < buffer => Outcome::Drained(n),
                n => Outcome::Ended(Ok(n)),
            }
        };
        let wait = |seen| self.source.wait(Interest::Read, seen, None);
        attempt(&self.source, Interest::Read, true, once, wait)
    }

    fn read(&self, (buffer, wanted): Reader) -> usize {
        let mut got = 0;
        while got < wanted {
            match self.recv(buffer).unwrap() {
                0 => break,
                n => got += n,
            }
        }
        let mut readers = self.readers.lock().unwrap();
        *readers -= 1;
        if *readers == 0 {
            close();
        }
        got
    }
}

fn model(preemptions: usize, script: Script, readers: &'static [Reader]) {
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
            .map(|reader| {
                let world = world.clone();
                thread::spawn(move || world.read(*reader))
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
