//! The source without events: virtual processors change hands only where the program requests it.

use super::event_source::EventSource;
use super::kind::Kind;

/// The source that reports no event.
#[derive(Debug)]
pub struct Off;

impl EventSource for Off {
    fn kind(&self) -> Kind {
        Kind::Off
    }

    fn reports_blocks(&self) -> bool {
        false
    }
}
