//! Random secrets, and comparisons that take the same time whatever is given.
//!
//! The comparisons are those of `ring`, which is below `rustls`: of authentication codes, under a
//! key of this process, so that neither contents nor length of a secret decide about the time.

use std::fmt::Write as _;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes of a secret.
const BYTES: usize = 32;

/// Returns a new secret as text.
///
/// # Errors
/// If the kernel has no random numbers.
pub fn random() -> Result<String, String> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "the kernel has no random numbers")?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all");
        text
    })
}

/// The key of this process.
pub struct Key(hmac::Key);

/// A secret that is known by its authentication code alone.
pub struct Sealed(hmac::Tag);

impl Key {
    /// Creates a key.
    ///
    /// # Errors
    /// If the kernel has no random numbers.
    pub fn new() -> Result<Key, String> {
        hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map(Key)
            .map_err(|_| "the kernel has no random numbers".to_owned())
    }

    /// Seals a secret.
    pub fn seal(&self, secret: &[u8]) -> Sealed {
        Sealed(hmac::sign(&self.0, secret))
    }

    /// Whether `given` is the sealed secret.
    pub fn is(&self, sealed: &Sealed, given: &[u8]) -> bool {
        hmac::verify(&self.0, given, sealed.0.as_ref()).is_ok()
    }

    /// Derives a text from a secret, which does not disclose the secret.
    pub fn derived(&self, purpose: &str, secret: &str) -> String {
        hex(hmac::sign(&self.0, format!("{purpose}:{secret}").as_bytes()).as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_secret_is_recognised() {
        let key = Key::new().expect("random numbers");
        let secret = random().expect("random numbers");
        assert_eq!(secret.len(), 2 * BYTES);
        let sealed = key.seal(secret.as_bytes());
        assert!(key.is(&sealed, secret.as_bytes()));
        for other in [random().expect("random numbers"), String::new(), secret[1..].to_owned()] {
            assert!(!key.is(&sealed, other.as_bytes()), "{other}");
        }
        assert_ne!(key.derived("a", &secret), key.derived("b", &secret));
    }
}
