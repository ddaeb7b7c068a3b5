//! Errors as records: kind u8, length of the text u16, text.

use crate::error::{Error, ErrorKind};
use crate::wire::packet::LONGEST;

/// The text of a refusal is cut after this.
pub(crate) const LONGEST_TEXT: usize = LONGEST - 10;

/// Appends an error to a record: kind, length, text.
pub(crate) fn encode_error(record: &mut Vec<u8>, error: &Error) {
    let text = error.to_string();
    let end =
        (0..=text.len().min(LONGEST_TEXT)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let text = &text[..end];
    record.push(error.kind().number());
    record.extend_from_slice(&(text.len() as u16).to_le_bytes());
    record.extend_from_slice(text.as_bytes());
}

/// Decodes an error. An unknown kind, of a later version, becomes `Io`. `None`: malformed.
pub(crate) fn decode_error(record: &[u8]) -> Option<Error> {
    let (kind, length, text) = match record {
        [kind, low, high, text @ ..] => (*kind, u16::from_le_bytes([*low, *high]), text),
        _ => return None,
    };
    if text.len() != usize::from(length) {
        return None;
    }
    let kind = ErrorKind::of_number(kind).unwrap_or(ErrorKind::Io);
    // It may be shown on a terminal, and its origin is unknown.
    let clean: String = str::from_utf8(text).ok()?.chars().filter(|c| !c.is_control()).collect();
    Some(Error::new(kind, clean))
}
