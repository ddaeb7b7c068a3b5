//! As much of MariaDB's wire protocol as a point select needs: log in without a password, a query
//! in text, a result set of one column.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

/// The user that the load logs in as.
pub const USER: &str = "bench";

/// CLIENT_LONG_PASSWORD, CLIENT_PROTOCOL_41, CLIENT_SECURE_CONNECTION, CLIENT_PLUGIN_AUTH.
const CAPABILITIES: u32 = 0x1 | 0x200 | 0x8000 | 0x8_0000;
const PLUGIN: &str = "mysql_native_password";
const MAXIMUM_PACKET: u32 = 1 << 24;
/// utf8mb3_general_ci.
const CHARACTER_SET: u8 = 33;
const COM_QUERY: u8 = 3;
/// First bytes of packets.
const OK: u8 = 0;
const ERROR: u8 = 0xFF;
const END: u8 = 0xFE;
/// An END packet is shorter; a row may begin with the same byte.
const END_AT_MOST: usize = 8;
const HEADER: usize = 4;

/// Logs in as [`USER`], without a password.
pub fn log_in(stream: &mut TcpStream) -> io::Result<()> {
    let greeting = read_packet(stream)?;
    if greeting.first() == Some(&ERROR) {
        return Err(refusal(&greeting));
    }
    let mut body = Vec::new();
    body.extend(CAPABILITIES.to_le_bytes());
    body.extend(MAXIMUM_PACKET.to_le_bytes());
    body.push(CHARACTER_SET);
    body.extend([0; 23]);
    body.extend(USER.as_bytes());
    // The end of the name, and an empty password.
    body.extend([0, 0]);
    body.extend(PLUGIN.as_bytes());
    body.push(0);
    stream.write_all(&packet(1, &body))?;
    let answer = read_packet(stream)?;
    match answer.first() {
        Some(&OK) => Ok(()),
        _ => Err(refusal(&answer)),
    }
}

/// A packet with a query.
pub fn query(text: &str) -> Vec<u8> {
    packet(0, &[&[COM_QUERY], text.as_bytes()].concat())
}

/// Returns whether `reply` is a whole result set, whose one row has the text `expected`.
pub fn is_complete(reply: &[u8], expected: &str) -> io::Result<bool> {
    let mut row: &[u8] = &[];
    let (mut rest, mut ends, mut rows) = (reply, 0, 0);
    while let Some((body, after)) = next_packet(rest) {
        match body.first() {
            Some(&ERROR) => return Err(refusal(body)),
            Some(&END) if body.len() <= END_AT_MOST => ends += 1,
            // After the END of the columns come rows.
            _ if ends == 1 => (row, rows) = (body, rows + 1),
            _ => {}
        }
        rest = after;
    }
    if ends < 2 {
        return Ok(false);
    }
    // A length in one byte precedes the text.
    match row.get(1..) {
        Some(text) if rows == 1 && text == expected.as_bytes() => Ok(true),
        _ => Err(wrong(&format!("{rows} rows, the last one of {} bytes", row.len()))),
    }
}

/// Reads the reply of a query: a result set, or the error with which the server ended it.
pub fn read_result(stream: &mut TcpStream) -> io::Result<()> {
    let mut ends = 0;
    while ends < 2 {
        let body = read_packet(stream)?;
        match body.first() {
            Some(&ERROR) => return Ok(()),
            Some(&END) if body.len() <= END_AT_MOST => ends += 1,
            _ => {}
        }
    }
    Ok(())
}

fn packet(sequence: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_le_bytes();
    [&length[..3], &[sequence], body].concat()
}

/// The body of the first packet, and what follows it; `None` if it is incomplete.
fn next_packet(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let header = bytes.get(..HEADER)?;
    let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
    let rest = &bytes[HEADER..];
    (rest.len() >= length).then(|| rest.split_at(length))
}

fn read_packet(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header)?;
    let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    if length > MAXIMUM_PACKET {
        return Err(wrong("a packet of more than 16 MiB"));
    }
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body)?;
    Ok(body)
}

/// Another reply than expected.
pub(super) fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("another reply than expected: {what}"))
}

/// The server's message in an error packet.
fn refusal(body: &[u8]) -> io::Error {
    let message = String::from_utf8_lossy(body.get(3..).unwrap_or_default());
    io::Error::new(ErrorKind::PermissionDenied, format!("the server: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result set of one column and the given rows.
    fn result_set(rows: &[&str]) -> Vec<u8> {
        let end = packet(3, &[END, 0, 0, 2, 0]);
        let mut all = [packet(1, &[1]), packet(2, b"\x03def\x01c"), end.clone()].concat();
        for row in rows {
            all.extend(packet(4, &[&[row.len() as u8], row.as_bytes()].concat()));
        }
        all.extend(end);
        all
    }

    #[test]
    fn result_set_is_complete_at_its_last_byte() {
        let all = result_set(&["text"]);
        for length in 0..all.len() {
            assert!(!is_complete(&all[..length], "text").unwrap(), "{length}");
        }
        assert!(is_complete(&all, "text").unwrap());
    }

    #[test]
    fn other_rows_and_errors_are_refused() {
        assert!(is_complete(&result_set(&["other"]), "text").is_err());
        assert!(is_complete(&result_set(&[]), "text").is_err());
        assert!(is_complete(&result_set(&["text", "text"]), "text").is_err());
        let error = is_complete(&packet(1, b"\xff\x00\x00#42000no such table"), "text");
        assert!(error.unwrap_err().to_string().contains("no such table"));
    }
}
