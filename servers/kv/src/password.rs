//! The password of the server.

use std::fmt;

/// A password. It is not shown in messages.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Box<[u8]>);

impl Password {
    /// Creates a password; `None` if `text` is empty.
    pub fn new(text: impl Into<Vec<u8>>) -> Option<Password> {
        let text = text.into().into_boxed_slice();
        (!text.is_empty()).then_some(Password(text))
    }

    /// Returns whether `given` is the password. The time depends on the length of `given` only.
    pub fn is(&self, given: &[u8]) -> bool {
        let mut different = usize::from(self.0.len() != given.len());
        for (i, byte) in given.iter().enumerate() {
            different |= usize::from(self.0[i % self.0.len()] ^ byte);
        }
        std::hint::black_box(different) == 0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}
