//! TLS: the certificate and key from files, and the names for which the certificate is valid.
//!
//! `rustls` speaks the protocol, with `ring`, which needs a C compiler and no cmake.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::{ServerConfig, crypto};

/// Settings of TLS for all connections.
pub struct Tls {
    /// The settings of `rustls`.
    pub config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
}

impl Tls {
    /// Reads a certificate chain and its key, both in PEM.
    ///
    /// # Errors
    /// A line about the file that cannot be read, has no certificate or key in it, or is a key that
    /// other users may read; or that the key does not belong to the certificate.
    pub fn load(certificate: &Path, key: &Path) -> Result<Tls, String> {
        let about = |path: &Path, e: pem::Error, what: &str| match e {
            pem::Error::NoItemsFound => format!("{}: it has no {what} in PEM", path.display()),
            pem::Error::Io(e) => format!("{}: {e}", path.display()),
            e => format!("{}: {e:?}", path.display()),
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| about(certificate, e, "certificate"))?;
        let Some(own) = chain.first().cloned() else {
            return Err(about(certificate, pem::Error::NoItemsFound, "certificate"));
        };
        let mode = fs::metadata(key).map_err(|e| format!("{}: {e}", key.display()))?.mode();
        if mode & 0o007 != 0 {
            return Err(format!(
                "{}: other users may use this private key: chmod o= it",
                key.display()
            ));
        }
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| about(key, e, "private key"))?;
        let provider = Arc::new(crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|e| format!("{}: {e}", certificate.display()))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls { config: Arc::new(config), certificate: own })
    }

    /// Whether the certificate is valid for a host.
    pub fn is_for(&self, host: &str) -> bool {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match (ServerName::try_from(host), ParsedCertificate::try_from(&self.certificate)) {
            (Ok(name), Ok(certificate)) => verify_server_name(&certificate, &name).is_ok(),
            _ => false,
        }
    }
}
