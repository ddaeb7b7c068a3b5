//! Checks the certificate of a border that was connected to.
//!
//! rustls compares the names for DNS only, with the address that was dialled. Here the chain, the
//! dates and the revocation lists are checked by the same library, and then any name of the
//! certificate may be the wanted one.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage, OwnedCertRevocationList,
    RevocationOptionsBuilder,
};

use super::identity::Identity;

/// Checks of a server's certificate.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    provider: Arc<CryptoProvider>,
    authorities: Arc<RootCertStore>,
    revoked: Vec<CertRevocationList<'static>>,
    name: Option<String>,
}

impl ServerVerifier {
    pub(super) fn new(
        provider: Arc<CryptoProvider>,
        authorities: Arc<RootCertStore>,
        revoked: &[CertificateRevocationListDer<'_>],
        name: Option<String>,
    ) -> Result<ServerVerifier, String> {
        let list = |der: &CertificateRevocationListDer<'_>| {
            OwnedCertRevocationList::from_der(der)
                .map(CertRevocationList::from)
                .map_err(|e| format!("the revocation list is malformed: {e}"))
        };
        let revoked = revoked.iter().map(list).collect::<Result<_, _>>()?;
        Ok(ServerVerifier { provider, authorities, revoked, name })
    }

    /// Checks the chain, and that the certificate has the wanted name.
    pub(super) fn check(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), String> {
        let parsed = EndEntityCert::try_from(certificate)
            .map_err(|e| format!("the certificate is malformed: {e}"))?;
        let lists: Vec<&CertRevocationList<'_>> = self.revoked.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            // As for clients, a list that has expired still revokes what it names.
            options.with_expiration_policy(ExpirationPolicy::Ignore).build()
        });
        parsed
            .verify_for_usage(
                self.provider.signature_verification_algorithms.all,
                &self.authorities.roots,
                intermediates,
                now,
                KeyUsage::server_auth(),
                revocation,
                None,
            )
            .map_err(|e| match e {
                webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
                    "the certificate is not of an authority of this site".to_owned()
                }
                webpki::Error::CertExpired { .. } => "the certificate has expired".to_owned(),
                webpki::Error::CertNotValidYet { .. } => {
                    "the certificate is not valid yet: compare the clocks".to_owned()
                }
                webpki::Error::CertRevoked => "the certificate is revoked".to_owned(),
                e => format!("the certificate is refused: {e}"),
            })?;
        let identity = Identity::of(Some(certificate))?;
        match &self.name {
            Some(name) if !identity.has(name) => {
                Err(format!("the certificate is that of {identity} and not of {name}"))
            }
            _ => Ok(()),
        }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _address: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(certificate, intermediates, now)
            .map(|()| ServerCertVerified::assertion())
            .map_err(Error::General)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // TLS 1.2 is not offered.
        Err(Error::InvalidCertificate(CertificateError::BadSignature))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
