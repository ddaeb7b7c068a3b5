//! The short form of an ID, as users type it.

use std::fmt;

use kumihimo_resource::id::{Id, Kind};

/// An ID as users type it: for a microprocess of this machine, without the kind.
#[derive(Clone, Copy, Debug)]
pub struct ShortId(pub Id);

impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (location, serial) = (self.0.location(), self.0.serial());
        if self.0.kind() == Kind::MICROPROCESS && location.machine() == 0 {
            return write!(f, "{}.{}.{}", location.space(), serial.slot(), serial.generation());
        }
        write!(f, "{}", self.0)
    }
}
