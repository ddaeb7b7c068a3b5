//! Splits the bytes that arrive from a client into commands, in place and without copying.
//!
//! The codec that encodes replies is not used here. Its decoder supports no inline commands and
//! none of the errors that clients of Redis expect. It recurses as deep as the input is nested, and
//! restarts at the beginning of an incomplete command after each read. This parser continues where
//! it stopped. Sources: <https://redis.io/docs/reference/protocol-spec>, and Redis 7.0's
//! `networking.c` for limits and errors.

use std::borrow::Cow;
use std::io::{self, Read};
use std::ops::Range;

use crate::budget::{EXCEEDED, SMALL_REQUEST, Share};

/// Longest accepted string: 512 MiB, Redis's default of `proto-max-bulk-len`.
pub const MAX_BULK: usize = 512 << 20;
/// Longest inline command, and longest header of an array or a string.
const MAX_LINE: usize = 64 << 10;
/// Largest number of arguments of a command.
const MAX_ARGUMENTS: i64 = 1 << 20;
/// Redis's limits on requests of a client that has yet to authenticate.
const UNAUTHENTICATED_ARGUMENTS: i64 = 10;
const UNAUTHENTICATED_BULK: i64 = 16 << 10;
/// Most bytes of an incomplete command: Redis's default of `client-query-buffer-limit`.
const MAX_BUFFER: usize = 1 << 30;

/// Buffer size of an idle connection.
pub const SMALL: usize = 4 << 10;
/// The buffer grows up to this size when single reads fill it. It grows further only for a longer
/// command.
const LARGE: usize = 64 << 10;

/// The arguments of one command, the name included. They refer to the connection's buffer.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    places: &'a [Range<usize>],
}

impl<'a> Args<'a> {
    /// Most bytes by which a command with these arguments increases the data, apart from the growth
    /// of tables.
    #[inline]
    pub fn growth(&self) -> usize {
        self.bytes.len() + self.places.len() * 64
    }

    /// Number of arguments, the name included. Never 0.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// The arguments from position `from` on.
    pub fn from(self, from: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let bytes = self.bytes;
        self.places[from.min(self.places.len())..].iter().map(move |place| &bytes[place.clone()])
    }

    /// The argument at position `i`.
    ///
    /// # Panics
    /// If there are not so many arguments.
    pub fn at(self, i: usize) -> &'a [u8] {
        &self.bytes[self.places[i].clone()]
    }

    /// The argument at position `i`, if it exists.
    pub fn get(self, i: usize) -> Option<&'a [u8]> {
        self.places.get(i).map(|place| &self.bytes[place.clone()])
    }
}

/// Result of [`Requests::next`].
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A complete command, available from [`Requests::args`].
    Command,
    /// No complete command. More bytes are needed.
    Unfinished,
    /// A protocol error. The connection ends with this error as its last reply.
    Malformed(Cow<'static, str>),
}

/// Received bytes, and the parser's state in the current command.
pub struct Requests {
    buffer: Vec<u8>,
    /// Position of the current command in the buffer.
    start: usize,
    /// End of the received bytes.
    end: usize,
    /// Parsed length of the current command, from `start`.
    at: usize,
    /// Number of bytes from there on that are known to contain no end of a line.
    searched: usize,
    /// Number of arguments of the current command that are not parsed yet.
    missing: usize,
    /// Length of the next argument, once its header is parsed.
    bulk: Option<usize>,
    /// Positions of the arguments, relative to the start of the command or to `unquoted`.
    places: Vec<Range<usize>>,
    /// Contents of the arguments of an inline command.
    unquoted: Vec<u8>,
    inline: bool,
    /// True if the last read filled the buffer.
    filled: bool,
    /// True if the client has yet to authenticate. Short limits apply.
    pub unauthenticated: bool,
    share: Share,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests {
            buffer: vec![0; SMALL],
            start: 0,
            end: 0,
            at: 0,
            searched: 0,
            missing: 0,
            bulk: None,
            places: Vec::new(),
            unquoted: Vec::new(),
            inline: false,
            filled: false,
            unauthenticated: false,
            share: Share::default(),
        }
    }
}

impl Requests {
    /// Requests that are limited by the memory of a connection.
    pub fn limited(share: Share) -> Requests {
        Requests { share, ..Requests::default() }
    }

    /// Counts the memory in use and `more` bytes. Returns whether they fit.
    fn count(&mut self, more: usize) -> bool {
        let bytes = self.footprint().saturating_add(more);
        self.share.resize(bytes.saturating_sub(SMALL_REQUEST))
    }

    /// Reads once from `from` and appends to the buffer. Returns `false` at the end of the stream.
    ///
    /// # Errors
    /// As `read`; `OutOfMemory` if a command exceeds the length limit.
    pub fn fill(&mut self, mut from: impl Read) -> io::Result<bool> {
        self.make_room()?;
        let n = from.read(&mut self.buffer[self.end..])?;
        self.end += n;
        self.filled = self.end == self.buffer.len();
        Ok(n != 0)
    }

    /// Makes room for a read. The buffer grows with the bytes received, never with an announced
    /// length.
    fn make_room(&mut self) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > LARGE {
                self.buffer = vec![0; LARGE];
                self.count(0);
            } else if self.filled && self.buffer.len() < LARGE && self.count(self.buffer.len() * 3)
            {
                self.buffer.resize(self.buffer.len() * 4, 0);
            }
            return Ok(());
        }
        if self.start > 0 && self.buffer.len() - self.end < self.buffer.len() / 4 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() - self.end < self.buffer.len() / 4 {
            if self.buffer.len() >= MAX_BUFFER {
                return Err(io::Error::new(
                    io::ErrorKind::OutOfMemory,
                    "a command of more than 1 GiB",
                ));
            }
            // Doubling keeps the number of copies low. Near the limit, smaller steps use what is
            // left.
            let length = self.buffer.len();
            let Some(more) = [length, length / 4, length / 16].into_iter().find(|&n| self.count(n))
            else {
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, EXCEEDED));
            };
            self.buffer.reserve_exact(more);
            self.buffer.resize(length + more, 0);
        }
        Ok(())
    }

    /// Frees memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        if self.start == self.end && self.buffer.len() > SMALL {
            (self.start, self.end, self.filled) = (0, 0, false);
            self.buffer = vec![0; SMALL];
            self.places = Vec::new();
            self.unquoted = Vec::new();
            self.count(0);
        }
    }

    /// Returns whether [`shrink`](Requests::shrink) would free memory.
    pub fn is_large(&self) -> bool {
        self.start == self.end && self.buffer.len() > SMALL
    }

    /// Bytes of memory in use.
    pub fn footprint(&self) -> usize {
        self.buffer.len()
            + self.places.capacity() * size_of::<Range<usize>>()
            + self.unquoted.capacity()
    }

    /// The arguments of the command that was found last.
    pub fn args(&self) -> Args<'_> {
        let bytes = if self.inline {
            &self.unquoted[..]
        } else {
            &self.buffer[self.start..self.start + self.at]
        };
        Args { bytes, places: &self.places }
    }

    /// Discards the command that was found last.
    pub fn done(&mut self) {
        self.start += self.at;
        self.at = 0;
        self.places.clear();
        if self.places.capacity() > 1024 {
            self.places = Vec::new();
            self.count(0);
        }
    }

    /// Returns whether the command that was found last is an inline command.
    pub fn is_inline(&self) -> bool {
        self.inline
    }

    /// Returns whether a line end follows each argument of the command that was found last. A
    /// client's requests are not checked for that, as in Redis.
    pub fn has_line_ends(&self) -> bool {
        let command = &self.buffer[self.start..self.start + self.at];
        self.places.iter().all(|place| command.get(place.end..place.end + 2) == Some(b"\r\n"))
    }

    /// The received bytes after the last discarded command.
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Number of received bytes after the last discarded command.
    pub fn unfinished(&self) -> usize {
        self.end - self.start
    }

    /// Parses the next command. After [`Found::Command`], the caller uses [`args`](Requests::args)
    /// and then calls [`done`](Requests::done).
    pub fn next(&mut self) -> Found {
        loop {
            if self.missing > 0 {
                return self.arguments();
            }
            let Some(&first) = self.buffer[self.start..self.end].first() else {
                return Found::Unfinished;
            };
            if first != b'*' {
                match self.line() {
                    // Redis ignores empty lines, too.
                    Found::Command if self.places.is_empty() => self.done(),
                    found => return found,
                }
                continue;
            }
            match self.number("too big mbulk count string") {
                Ok(Some(Some(count)))
                    if self.unauthenticated && count > UNAUTHENTICATED_ARGUMENTS =>
                {
                    return malformed("unauthenticated multibulk length");
                }
                Ok(Some(Some(count))) if count <= MAX_ARGUMENTS => {
                    self.inline = false;
                    if count > 0 {
                        self.missing = count as usize;
                    } else {
                        self.done();
                    }
                }
                Ok(Some(_)) => return malformed("invalid multibulk length"),
                Ok(None) => return Found::Unfinished,
                Err(found) => return found,
            }
        }
    }

    /// Makes room for more arguments. Returns whether it fits.
    #[cold]
    fn more_places(&mut self) -> bool {
        let more = self.places.len().max(8);
        let fits = self.count(more * size_of::<Range<usize>>());
        if fits {
            self.places.reserve_exact(more);
        }
        fits
    }

    fn arguments(&mut self) -> Found {
        while self.missing > 0 {
            let length = match self.bulk {
                Some(length) => length,
                None => {
                    let rest = &self.buffer[self.start + self.at..self.end];
                    match rest.first() {
                        None => return Found::Unfinished,
                        Some(b'$') => {}
                        // Redis reports this error only after the whole line has arrived.
                        Some(&other) => {
                            return match self.number("too big bulk count string") {
                                Ok(None) => Found::Unfinished,
                                Ok(Some(_)) => {
                                    // Text that is repeated to a client is valid UTF-8, whatever
                                    // bytes the client sent.
                                    malformed(format!(
                                        "expected '$', got '{}'",
                                        String::from_utf8_lossy(&[other])
                                    ))
                                }
                                Err(found) => found,
                            };
                        }
                    }
                    match self.number("too big bulk count string") {
                        Ok(Some(Some(length)))
                            if self.unauthenticated && length > UNAUTHENTICATED_BULK =>
                        {
                            return malformed("unauthenticated bulk length");
                        }
                        Ok(Some(Some(length))) if (0..=MAX_BULK as i64).contains(&length) => {
                            length as usize
                        }
                        Ok(Some(_)) => return malformed("invalid bulk length"),
                        Ok(None) => return Found::Unfinished,
                        Err(found) => return found,
                    }
                }
            };
            if self.end - self.start - self.at < length + 2 {
                self.bulk = Some(length);
                return Found::Unfinished;
            }
            self.bulk = None;
            if self.places.len() == self.places.capacity() && !self.more_places() {
                return malformed(EXCEEDED);
            }
            self.places.push(self.at..self.at + length);
            self.at += length + 2;
            self.missing -= 1;
        }
        Found::Command
    }

    /// Parses the number in the header at `at`, whose first byte is already checked. Returns `None`
    /// if the line is incomplete, `Some(None)` if it contains no number.
    #[inline]
    fn number(&mut self, too_long: &'static str) -> Result<Option<Option<i64>>, Found> {
        let rest = &self.buffer[self.start + self.at..self.end];
        // Fast path: one digit, which is the usual case.
        if let [b'*' | b'$', digit @ b'0'..=b'9', b'\r', _, ..] = rest {
            self.at += 4;
            self.searched = 0;
            return Ok(Some(Some(i64::from(digit - b'0'))));
        }
        let Some(end) = end_of_line(rest, &mut self.searched, b'\r') else {
            return if rest.len() > MAX_LINE { Err(malformed(too_long)) } else { Ok(None) };
        };
        if rest.len() < end + 2 {
            return Ok(None);
        }
        // The first byte may itself be the end of the line.
        let number = rest.get(1..end).and_then(integer);
        self.at += end + 2;
        self.searched = 0;
        Ok(Some(number))
    }

    /// Parses an inline command: words, some of them quoted, up to the end of the line.
    fn line(&mut self) -> Found {
        let rest = &self.buffer[self.start..self.end];
        let Some(end) = end_of_line(rest, &mut self.searched, b'\n') else {
            if rest.len() > MAX_LINE {
                return malformed("too big inline request");
            }
            return Found::Unfinished;
        };
        // At most one byte and half a place for each byte of the line.
        if end > SMALL && !self.count(end * (1 + size_of::<Range<usize>>())) {
            return malformed(EXCEEDED);
        }
        let rest = &self.buffer[self.start..self.end];
        self.at = end + 1;
        self.searched = 0;
        self.inline = true;
        self.unquoted.clear();
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        if unquote(line, &mut self.unquoted, &mut self.places) {
            if end > SMALL {
                self.count(0);
            }
            Found::Command
        } else {
            malformed("unbalanced quotes in request")
        }
    }
}

fn malformed(what: impl Into<Cow<'static, str>>) -> Found {
    Found::Malformed(format!("Protocol error: {}", what.into()).into())
}

/// Position of `end`. Redis searches with C string functions, so a NUL byte before `end` hides it.
/// The first `searched` bytes are skipped.
fn end_of_line(line: &[u8], searched: &mut usize, end: u8) -> Option<usize> {
    let found = line[*searched..].iter().position(|&b| b == end || b == 0);
    *searched = found.map_or(line.len(), |found| *searched + found);
    (line.get(*searched) == Some(&end)).then_some(*searched)
}

/// Parses a decimal number in Redis's canonical form: no sign but `-`, no leading zeros, no spaces.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value = 0_u64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // 19 digits fit into 64 bits.
        value = value * 10 + u64::from(digit);
    }
    if negative { 0_i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// Splits a line like Redis's `sdssplitargs`: spaces between words, `"..."` with escapes, `'...'`
/// with `\'` only. Returns `false` if a quote is not closed or not followed by a space.
fn unquote(line: &[u8], into: &mut Vec<u8>, places: &mut Vec<Range<usize>>) -> bool {
    let space =
        |b: Option<&u8>| b.is_none_or(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c));
    let mut i = 0;
    loop {
        while i < line.len() && space(line.get(i)) {
            i += 1;
        }
        if i == line.len() {
            return true;
        }
        let start = into.len();
        while !space(line.get(i)) {
            let quote = line[i];
            i += 1;
            if quote != b'"' && quote != b'\'' {
                into.push(quote);
                continue;
            }
            loop {
                match (quote, &line[i..]) {
                    (_, []) => return false,
                    (_, [b, ..]) if *b == quote => {
                        i += 1;
                        if !space(line.get(i)) {
                            return false;
                        }
                        break;
                    }
                    (b'"', [b'\\', b'x', high, low, ..])
                        if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
                    {
                        let digit = |b: u8| char::from(b).to_digit(16).unwrap_or(0) as u8;
                        into.push(digit(*high) << 4 | digit(*low));
                        i += 4;
                    }
                    (b'"', [b'\\', b, ..]) => {
                        into.push(match b {
                            b'n' => b'\n',
                            b'r' => b'\r',
                            b't' => b'\t',
                            b'b' => 0x08,
                            b'a' => 0x07,
                            other => *other,
                        });
                        i += 2;
                    }
                    (b'\'', [b'\\', b'\'', ..]) => {
                        into.push(b'\'');
                        i += 2;
                    }
                    (_, [b, ..]) => {
                        into.push(*b);
                        i += 1;
                    }
                }
            }
        }
        places.push(start..into.len());
    }
}

#[cfg(test)]
mod tests;
