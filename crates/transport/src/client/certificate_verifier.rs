//! Verification of servers by the root certificates of the platform. They are read at the first
//! handshake and not at the start: a gateway whose providers speak plain HTTP, or that is only asked
//! for its health, never needs them. A machine without root certificates is served by Mozilla's list,
//! which is part of the program (`webpki-roots`).

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

/// Message for callers and operators if SSL_CERT_FILE or SSL_CERT_DIR lead to no certificates. The
/// variables may mean a smaller set of authorities on purpose, so the built-in list is not used.
const NO_CERTIFICATES: &str = "SSL_CERT_FILE or SSL_CERT_DIR is set, and no root certificates are \
                               there: install the package of them (often `ca-certificates`), unset \
                               the variable, or name a file in `outbound.ca`";

/// Message for operators of a machine without certificates.
const BUILT_IN_ROOTS: &str = "this machine has no root certificates (its package is often called \
                              `ca-certificates`): https uses Mozilla's list of this version of the \
                              program, besides `outbound.ca`";

/// Verifies servers by additional root certificates and those of the platform.
#[derive(Debug)]
pub(crate) struct CertificateVerifier {
    provider: Arc<CryptoProvider>,
    additional: Vec<CertificateDer<'static>>,
    /// Verifier by the bundle, unless there is none.
    bundle: OnceLock<Option<Arc<WebPkiServerVerifier>>>,
    /// Verifier by everything that the platform trusts, or by the built-in list.
    platform: OnceLock<Result<PlatformRoots, TlsError>>,
}

/// Verifier for what no bundle decides.
#[derive(Debug)]
struct PlatformRoots {
    verifier: Arc<dyn ServerCertVerifier>,
    /// True if the platform has no root certificates.
    is_built_in: bool,
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

    /// Returns the additional certificates.
    pub(crate) fn additional_certificates(&self) -> &[CertificateDer<'static>] {
        &self.additional
    }

    /// Reads the certificates. The error tells why no server can be verified.
    pub(crate) fn read_roots(&self) -> Result<(), TlsError> {
        if self.bundle().is_none() {
            self.platform()?;
        }
        Ok(())
    }

    /// Returns a notice for the operator if the built-in list is used. Reads certificates only on a
    /// machine without a bundle.
    pub(crate) fn built_in_notice(&self) -> Option<&'static str> {
        if is_set_by_environment() || BUNDLES.iter().any(|file| Path::new(file).is_file()) {
            return None;
        }
        self.platform().is_ok_and(|roots| roots.is_built_in).then_some(BUILT_IN_ROOTS)
    }

    fn bundle(&self) -> Option<&WebPkiServerVerifier> {
        let read = || {
            if is_set_by_environment() {
                return None;
            }
            let found = BUNDLES.iter().find_map(|file| read_bundle(Path::new(file)))?;
            let mut roots = self.additional_roots();
            roots.add_parsable_certificates(found);
            self.verifier_of(roots).ok()
        };
        self.bundle.get_or_init(read).as_deref()
    }

    fn platform(&self) -> Result<&PlatformRoots, TlsError> {
        self.platform.get_or_init(|| self.read_platform()).as_ref().map_err(TlsError::clone)
    }

    fn read_platform(&self) -> Result<PlatformRoots, TlsError> {
        // Without additional certificates, a platform that has none is an error.
        match Verifier::new(Arc::clone(&self.provider)) {
            Ok(own) if self.additional.is_empty() => {
                Ok(PlatformRoots { verifier: Arc::new(own), is_built_in: false })
            }
            // The only error of this kind: no certificate was found.
            Err(TlsError::General(_)) if !is_set_by_environment() => {
                let mut roots = self.additional_roots();
                roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
                Ok(PlatformRoots { verifier: self.verifier_of(roots)?, is_built_in: true })
            }
            Err(TlsError::General(_)) if self.additional.is_empty() => {
                Err(TlsError::General(NO_CERTIFICATES.to_owned()))
            }
            Ok(_) | Err(TlsError::General(_)) => {
                let (additional, provider) = (self.additional.clone(), Arc::clone(&self.provider));
                let verifier = Verifier::new_with_extra_roots(additional, provider)?;
                Ok(PlatformRoots { verifier: Arc::new(verifier), is_built_in: false })
            }
            Err(other) => Err(other),
        }
    }

    fn additional_roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.additional.iter().cloned());
        roots
    }

    fn verifier_of(&self, roots: RootCertStore) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
        let provider = Arc::clone(&self.provider);
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|e| TlsError::General(format!("the root certificates cannot be used: {e}")))
    }
}

/// Returns true if the environment names other certificates than those of the machine.
fn is_set_by_environment() -> bool {
    CERTIFICATE_VARIABLES.iter().any(|name| std::env::var_os(name).is_some())
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
        self.platform()?.verifier.verify_server_cert(
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
