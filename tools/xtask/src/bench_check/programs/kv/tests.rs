use std::io::{self, Cursor};

use super::*;

/// A stream that returns fixed bytes, whatever is written to it.
struct Scripted(Cursor<Vec<u8>>);

impl Read for Scripted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Scripted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn answered(answer: &str) -> Result<(), String> {
    exchange(&mut [Scripted(Cursor::new(answer.into()))], GET, FOUND, 2)
}

#[test]
fn every_reply_is_compared() {
    assert_eq!(answered(&FOUND.repeat(2)), Ok(()));
    let why = answered("$5\r\nvalue\r\n$5\r\nwrong\r\n").unwrap_err();
    assert!(why.contains("wrong") && why.contains("kv"), "{why}");
}

#[test]
fn closed_connection_is_an_error() {
    let why = answered(FOUND).unwrap_err();
    assert!(why.contains("connection"), "{why}");
}
