//! What the certificate of a border states: its names and its key.

use std::fmt;

use kumihimo_machine::border::name::check_name;
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Fingerprint of a border's public key: the first 128 bits of its SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location(pub(crate) [u8; 16]);

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The names and the key of a certificate. Its chain was checked by TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Names for DNS and URIs, such as SPIFFE ids, from the subject's alternative names.
    names: Vec<String>,
    location: Location,
}

impl Identity {
    /// Reads a certificate.
    ///
    /// # Errors
    /// Returns the reason if there is none, or if it is malformed or has no name.
    pub fn of(certificate: Option<&CertificateDer<'_>>) -> Result<Identity, String> {
        let certificate = certificate.ok_or("the peer has shown no certificate")?;
        let parsed = EndEntityCert::try_from(certificate)
            .map_err(|e| format!("the certificate is malformed: {e}"))?;
        let names: Vec<String> =
            parsed.valid_dns_names().chain(parsed.valid_uri_names()).map(str::to_owned).collect();
        if names.is_empty() {
            return Err("the certificate has no DNS name and no URI".to_owned());
        }
        let key = parsed.subject_public_key_info();
        let mut location = [0; 16];
        location.copy_from_slice(&digest(&SHA256, key.as_ref()).as_ref()[..16]);
        Ok(Identity { names, location: Location(location) })
    }

    /// Returns the names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns whether the certificate has this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }

    /// Returns the fingerprint of the key.
    #[must_use]
    pub fn location(&self) -> Location {
        self.location
    }

    /// Returns the name of the machine: the first label of the first name for DNS that is a
    /// machine's name.
    #[must_use]
    pub fn machine(&self) -> Option<&str> {
        self.names
            .iter()
            .filter_map(|name| name.split('.').next())
            .find(|label| check_name(label).is_ok())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(", "))
    }
}
