//! Verification of servers by the root certificates of the platform. They are read at the first
//! handshake and not at the start: a gateway whose providers speak plain HTTP, or that is only asked
//! for its health, never needs them.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};
use rustls_platform_verifier::Verifier;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Files that hold all root certificates of the machine, in the places of the usual distributions. One
/// file is read in a tenth of the time that its folder takes.
#[cfg(target_os = "linux")]
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Other platforms have stores of their own.
#[cfg(not(target_os = "linux"))]
const BUNDLES: &[&str] = &[];

/// Variables that name other certificates than those of the machine, as in OpenSSL.
const CERTIFICATE_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Message for callers and operators of a machine without certificates.
const NO_CERTIFICATES: &str = "this machine has no root certificates: install its package of them \
                               (often `ca-certificates`), or name a file in `outbound.ca` or \
                               SSL_CERT_FILE";

/// Verifies servers by additional root certificates and those of the platform.
#[derive(Debug)]
pub(crate) struct CertificateVerifier {
    provider: Arc<CryptoProvider>,
    additional: Vec<CertificateDer<'static>>,
    /// Verifier by the bundle, unless there is none.
    bundle: OnceLock<Option<Arc<WebPkiServerVerifier>>>,
    /// Verifier by everything that the platform trusts.
    platform: OnceLock<Result<Verifier, TlsError>>,
}

impl CertificateVerifier {
    /// Checks the additional certificates, which are few. Nothing else is read.
    pub(crate) fn new(
        additional: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in &additional {
            roots.add(certificate.clone())?;
        }
        Ok(Self { provider, additional, bundle: OnceLock::new(), platform: OnceLock::new() })
    }

    /// Reads the certificates. The error tells why no server can be verified.
    pub(crate) fn read_roots(&self) -> Result<(), TlsError> {
        if self.bundle().is_none() {
            self.platform()?;
        }
        Ok(())
    }

    fn bundle(&self) -> Option<&WebPkiServerVerifier> {
        let read = || {
            if CERTIFICATE_VARIABLES.iter().any(|name| std::env::var_os(name).is_some()) {
                return None;
            }
            let found = BUNDLES.iter().find_map(|file| read_bundle(Path::new(file)))?;
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(self.additional.iter().cloned());
            roots.add_parsable_certificates(found);
            let provider = Arc::clone(&self.provider);
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()
        };
        self.bundle.get_or_init(read).as_deref()
    }

    fn platform(&self) -> Result<&Verifier, TlsError> {
        let read = || {
            let (additional, provider) = (self.additional.clone(), Arc::clone(&self.provider));
            Verifier::new_with_extra_roots(additional, provider).map_err(|e| match e {
                // The only error of this kind: no certificate was found.
                TlsError::General(_) => TlsError::General(NO_CERTIFICATES.to_owned()),
                other => other,
            })
        };
        self.platform.get_or_init(read).as_ref().map_err(TlsError::clone)
    }
}

/// Returns the certificates of a file, unless it has none.
fn read_bundle(file: &Path) -> Option<Vec<CertificateDer<'static>>> {
    let text = std::fs::read(file).ok()?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect();
    (!found.is_empty()).then_some(found)
}

impl ServerCertVerifier for CertificateVerifier {
    /// Reads the certificates once, which takes some milliseconds of the first handshake.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if let Some(bundle) = self.bundle() {
            let verified = bundle.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            );
            // The folder of the machine may hold an authority that its bundle lacks.
            if !matches!(
                verified,
                Err(TlsError::InvalidCertificate(CertificateError::UnknownIssuer))
            ) {
                return verified;
            }
        }
        self.platform()?.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
