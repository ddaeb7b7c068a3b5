//! TLS between borders: version 1.3 only, and both sides show a certificate of the site.
//!
//! - `identity`: what a certificate states.
//! - `verify`: checks the certificate of a server, whose name may be a URI.

pub mod identity;
mod verify;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{self, CryptoProvider};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use identity::Identity;
use verify::ServerVerifier;

/// Protocol of the connections, for ALPN.
const ALPN: &[u8] = b"h2";

/// Files with certificates, all in PEM.
#[derive(Clone, Debug)]
pub struct Files {
    /// Certificates of the authorities of the site.
    pub authorities: PathBuf,
    /// Certificate of this border, followed by intermediate ones.
    pub certificate: PathBuf,
    /// Private key of that certificate.
    pub key: PathBuf,
    /// Revocation lists of all authorities, if they issue any.
    pub revoked: Option<PathBuf>,
}

/// What the files contain.
#[derive(Debug)]
pub struct Tls {
    provider: Arc<CryptoProvider>,
    authorities: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
    own: Identity,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// A line about the file that cannot be read, has nothing of its kind in it, or is a key that
    /// other users may read; or that the parts do not belong together.
    pub fn load(files: &Files) -> Result<Tls, String> {
        let provider = Arc::new(crypto::ring::default_provider());
        let mut authorities = RootCertStore::empty();
        for authority in certificates(&files.authorities)? {
            authorities
                .add(authority)
                .map_err(|e| format!("{}: {e}", files.authorities.display()))?;
        }
        let chain = certificates(&files.certificate)?;
        let path = files.key.display();
        let mode = fs::metadata(&files.key).map_err(|e| format!("{path}: {e}"))?.mode();
        if mode & 0o077 != 0 {
            return Err(format!("{path}: other users may use this private key: chmod go= it"));
        }
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|e| about(&files.key, e, "private key"))?;
        let revoked = match &files.revoked {
            Some(path) => CertificateRevocationListDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|e| about(path, e, "revocation list"))
                .and_then(|lists| match lists.is_empty() {
                    true => Err(about(path, pem::Error::NoItemsFound, "revocation list")),
                    false => Ok(lists),
                })?,
            None => Vec::new(),
        };
        let own = Identity::of(chain.first())
            .map_err(|e| format!("{}: {e}", files.certificate.display()))?;
        let tls = Tls { provider, authorities: Arc::new(authorities), chain, key, revoked, own };
        // A certificate that peers would refuse is an error here, where its owner sees it.
        let verifier = tls.verifier(None)?;
        verifier
            .check(&tls.chain[0], &tls.chain[1..], rustls::pki_types::UnixTime::now())
            .map_err(|e| format!("{}: {e}", files.certificate.display()))?;
        tls.server().map_err(|e| format!("{}: {e}", files.certificate.display()))?;
        Ok(tls)
    }

    /// Returns what the own certificate states.
    #[must_use]
    pub fn own(&self) -> &Identity {
        &self.own
    }

    /// Returns the settings for connections that others open.
    ///
    /// # Errors
    /// Returns the reason if the key does not belong to the certificate.
    pub fn server(&self) -> Result<Arc<ServerConfig>, String> {
        let verifier = WebPkiClientVerifier::builder_with_provider(
            Arc::clone(&self.authorities),
            Arc::clone(&self.provider),
        )
        .with_crls(self.revoked.clone())
        .build()
        .map_err(|e| e.to_string())?;
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|e| e.to_string())?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|e| e.to_string())?;
        // A resumed session would not check the certificate again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Arc::new(config))
    }

    /// Returns the settings for a connection to a border whose certificate has this name.
    ///
    /// # Errors
    /// Returns the reason if the key does not belong to the certificate.
    pub fn client(&self, name: Option<String>) -> Result<Arc<ClientConfig>, String> {
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|e| e.to_string())?
            // `ServerVerifier` checks the chain as rustls does, and names in its own way.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(self.verifier(name)?))
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|e| e.to_string())?;
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Arc::new(config))
    }

    fn verifier(&self, name: Option<String>) -> Result<ServerVerifier, String> {
        ServerVerifier::new(
            Arc::clone(&self.provider),
            Arc::clone(&self.authorities),
            &self.revoked,
            name,
        )
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| about(path, e, "certificate"))?;
    if all.is_empty() {
        return Err(about(path, pem::Error::NoItemsFound, "certificate"));
    }
    Ok(all)
}

fn about(path: &Path, e: pem::Error, what: &str) -> String {
    match e {
        pem::Error::NoItemsFound => format!("{}: it has no {what} in PEM", path.display()),
        pem::Error::Io(e) => format!("{}: {e}", path.display()),
        e => format!("{}: {e:?}", path.display()),
    }
}
