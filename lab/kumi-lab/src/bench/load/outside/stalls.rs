//! Ends the stalls of `read` and `flock`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::mpsc::Sender;
use std::time::Duration;

use kumihimo_bench_stall::Place;
use rustix::fs::{FlockOperation, flock};

use super::read_word;

/// `read`: replies to each request after the duration that it contains.
pub fn answer(place: &Place, i: usize, ready: Sender<()>) -> io::Result<()> {
    let (mut ask, mut answer) = (both_ends(place.ask(i))?, both_ends(place.answer(i))?);
    drop(ready);
    loop {
        let us = read_word(&mut ask)?;
        std::thread::sleep(Duration::from_micros(us.into()));
        answer.write_all(&[1])?;
    }
}

/// `flock`: holds one of two locks, and acquires the other one before it releases the first.
pub fn hold(place: &Place, i: usize, ready: Sender<()>) -> io::Result<()> {
    let mut ask = both_ends(place.ask(i))?;
    let [a, b] = place.locks(i);
    let locks = [File::open(a)?, File::open(b)?];
    let mut held = 1;
    flock(&locks[held], FlockOperation::LockExclusive)?;
    drop(ready);
    loop {
        let us = read_word(&mut ask)?;
        std::thread::sleep(Duration::from_micros(us.into()));
        flock(&locks[1 - held], FlockOperation::LockExclusive)?;
        flock(&locks[held], FlockOperation::Unlock)?;
        held = 1 - held;
    }
}

/// Opens a FIFO for reading and writing, so that the open does not wait for the other side.
fn both_ends(path: std::path::PathBuf) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}
