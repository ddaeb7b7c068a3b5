//! What a client asks: commands cut out of the bytes that arrive, where they lie, without a copy.
//!
//! Not by the codec that makes the replies: its decoder knows no inline commands and none of the
//! errors that clients of Redis expect, recurses as deep as the input is nested, and begins anew
//! with each read where a command has not arrived whole. This one remembers how far it came.
//! Source: <https://redis.io/docs/reference/protocol-spec>, Redis 7.0's `networking.c` for limits
//! and errors.

use std::borrow::Cow;
use std::io::{self, Read};
use std::ops::Range;

/// Longest string that is taken: 512 MiB, Redis's default of `proto-max-bulk-len`.
pub const MAX_BULK: usize = 512 << 20;
/// Longest inline command, and longest header of a length.
const MAX_LINE: usize = 64 << 10;
/// Most arguments of a command.
const MAX_ARGUMENTS: i64 = 1 << 20;
/// Most bytes that may lie here unfinished: Redis's default of `client-query-buffer-limit`.
const MAX_BUFFER: usize = 1 << 30;

/// What an idle connection keeps.
pub const SMALL: usize = 4 << 10;
/// A buffer that single reads fill grows up to here; beyond that only for a command that is longer.
const LARGE: usize = 64 << 10;

/// The arguments of one command, its name first. They lie in the connection's buffer.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    places: &'a [Range<usize>],
}

impl<'a> Args<'a> {
    /// How many, the name included; never 0.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// From the `from`th on.
    pub fn from(self, from: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let bytes = self.bytes;
        self.places[from.min(self.places.len())..].iter().map(move |place| &bytes[place.clone()])
    }

    /// The `i`th.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn at(self, i: usize) -> &'a [u8] {
        &self.bytes[self.places[i].clone()]
    }

    /// The `i`th, if there is one.
    pub fn get(self, i: usize) -> Option<&'a [u8]> {
        self.places.get(i).map(|place| &self.bytes[place.clone()])
    }
}

/// What [`Requests::next`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A whole command: [`Requests::args`].
    Command,
    /// Nothing more before more bytes arrive.
    Unfinished,
    /// No command can follow: the connection ends with this error.
    Malformed(Cow<'static, str>),
}

/// Bytes that have arrived, and the command that is being cut out of them.
pub struct Requests {
    buffer: Vec<u8>,
    /// Where the command under way begins.
    start: usize,
    /// How far bytes have arrived.
    end: usize,
    /// How far the command under way was understood, from its start.
    at: usize,
    /// How many bytes from there on have no end of a line among them.
    searched: usize,
    /// Arguments that are still to come.
    missing: usize,
    /// The length of the argument that comes next, once it is known.
    bulk: Option<usize>,
    /// From the start of the command, or within `unquoted`.
    places: Vec<Range<usize>>,
    /// Arguments of an inline command.
    unquoted: Vec<u8>,
    inline: bool,
    /// Whether the last read filled all the room.
    filled: bool,
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
        }
    }
}

impl Requests {
    /// Reads once from `from`; what has arrived is kept. The answer is `false` at the end of the
    /// stream.
    ///
    /// # Errors
    /// As `read`; `OutOfMemory` where a command became longer than any may be.
    pub fn fill(&mut self, mut from: impl Read) -> io::Result<bool> {
        self.make_room()?;
        let n = from.read(&mut self.buffer[self.end..])?;
        self.end += n;
        self.filled = self.end == self.buffer.len();
        Ok(n != 0)
    }

    /// The buffer grows with what has arrived, never with what was announced.
    fn make_room(&mut self) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > LARGE {
                self.buffer = vec![0; LARGE];
            } else if self.filled && self.buffer.len() < LARGE {
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
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        Ok(())
    }

    /// Gives back what an idle connection does not need.
    pub fn shrink(&mut self) {
        if self.start == self.end && self.buffer.len() > SMALL {
            (self.start, self.end, self.filled) = (0, 0, false);
            self.buffer = vec![0; SMALL];
            self.places = Vec::new();
            self.unquoted = Vec::new();
        }
    }

    /// Whether [`shrink`](Requests::shrink) would give anything back.
    pub fn is_large(&self) -> bool {
        self.start == self.end && self.buffer.len() > SMALL
    }

    /// How much memory this takes.
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

    /// Goes on to the next command; the one that was found last is done with.
    pub fn done(&mut self) {
        self.start += self.at;
        self.at = 0;
        self.places.clear();
        if self.places.capacity() > 1024 {
            self.places = Vec::new();
        }
    }

    /// Whether the command that was found last is an inline one.
    pub fn is_inline(&self) -> bool {
        self.inline
    }

    /// How many bytes have arrived that belong to no command that was done.
    pub fn unfinished(&self) -> usize {
        self.end - self.start
    }

    /// Looks for a whole command. After [`Found::Command`]: [`args`](Requests::args), then
    /// [`done`](Requests::done).
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
                    // An empty line asks nothing.
                    Found::Command if self.places.is_empty() => self.done(),
                    found => return found,
                }
                continue;
            }
            match self.number("too big mbulk count string") {
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

    fn arguments(&mut self) -> Found {
        while self.missing > 0 {
            let length = match self.bulk {
                Some(length) => length,
                None => {
                    let rest = &self.buffer[self.start + self.at..self.end];
                    match rest.first() {
                        None => return Found::Unfinished,
                        Some(b'$') => {}
                        // Whatever it is, it is complained about when its line is whole, as Redis
                        // does.
                        Some(&other) => {
                            return match self.number("too big bulk count string") {
                                Ok(None) => Found::Unfinished,
                                Ok(Some(_)) => {
                                    // As all that is repeated to a client: UTF-8, whatever it sent.
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
            self.places.push(self.at..self.at + length);
            self.at += length + 2;
            self.missing -= 1;
        }
        Found::Command
    }

    /// The number in the header at `at`, whose first byte was looked at: `None` if it is not whole
    /// yet, `Some(None)` if it is none.
    #[inline]
    fn number(&mut self, too_long: &'static str) -> Result<Option<Option<i64>>, Found> {
        let rest = &self.buffer[self.start + self.at..self.end];
        // One digit, as nearly always.
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
        // The first byte may be the end of the line itself.
        let number = rest.get(1..end).and_then(integer);
        self.at += end + 2;
        self.searched = 0;
        Ok(Some(number))
    }

    /// An inline command: words, perhaps quoted, up to the end of the line.
    fn line(&mut self) -> Found {
        let rest = &self.buffer[self.start..self.end];
        let Some(end) = end_of_line(rest, &mut self.searched, b'\n') else {
            if rest.len() > MAX_LINE {
                return malformed("too big inline request");
            }
            return Found::Unfinished;
        };
        self.at = end + 1;
        self.searched = 0;
        self.inline = true;
        self.unquoted.clear();
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        if unquote(line, &mut self.unquoted, &mut self.places) {
            Found::Command
        } else {
            malformed("unbalanced quotes in request")
        }
    }
}

fn malformed(what: impl Into<Cow<'static, str>>) -> Found {
    Found::Malformed(format!("Protocol error: {}", what.into()).into())
}

/// Where `end` is. Redis looks for it as in a C string: a NUL before it hides it. What was
/// `searched` is not looked at again.
fn end_of_line(line: &[u8], searched: &mut usize, end: u8) -> Option<usize> {
    let found = line[*searched..].iter().position(|&b| b == end || b == 0);
    *searched = found.map_or(line.len(), |found| *searched + found);
    (line.get(*searched) == Some(&end)).then_some(*searched)
}

/// A decimal number in the one way in which Redis writes it: no sign but `-`, no leading zeros, no
/// spaces.
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
        // 19 digits are below 2^64.
        value = value * 10 + u64::from(digit);
    }
    if negative { 0_i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// Splits as Redis's `sdssplitargs`: spaces between words, `"..."` with escapes, `'...'` with `\'`
/// only. `false` if a quote is not closed or not followed by a space.
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
