//! Certificates, keys and authorities of callers in PEM files, read into what a TLS listener uses.

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName,
};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ParsedCertificate, ResolvesServerCert,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::certificate::{CertificateValidity, ListenerCertificate};
use crate::error::FieldError;
use crate::revocation_lists::current_lists;

/// Largest file. Chains have a few KiB, and lists of revoked certificates up to some hundred.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Most certificates of a chain.
const MAX_CHAIN_LENGTH: usize = 20;

/// Certificates that the listener asks callers for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallerCertificates {
    /// Authorities that issue them.
    pub ca: PathBuf,
    /// List of revoked ones.
    pub crl: Option<PathBuf>,
    /// True if a caller without one is refused.
    pub is_required: bool,
}

/// Reason why a certificate cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The chain is not PEM, or empty.
    #[error("the certificate cannot be read: {0}")]
    Chain(String),
    /// The key is not PEM.
    #[error("the private key cannot be read: {0}")]
    Key(String),
    /// The key belongs to another certificate.
    #[error("certificate and key do not match: {0}")]
    Mismatch(String),
    /// The certificate is not for that name.
    #[error("the certificate is not for {0}")]
    Name(String),
}

/// Serves one certificate for every name, or none at all.
#[derive(Debug)]
struct OneCertificate(Option<Arc<CertifiedKey>>);

impl ResolvesServerCert for OneCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Returns the settings of a listener: TLS 1.2 and 1.3 without early data, `h2` before `http/1.1`. Without
/// a certificate every handshake fails. Sessions of callers with certificates are not resumed, because a
/// resumption does not look at the certificate: it may have expired or been revoked since.
pub(crate) fn server_config(
    certificate: Option<Arc<CertifiedKey>>,
    callers: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, FieldError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| FieldError::new("server.tls", e))?;
    let is_resumable = callers.is_none();
    let builder = match callers {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(OneCertificate(certificate)));
    if !is_resumable {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Reads a file, unless it is too large for its purpose. Others than regular files are refused: to open a
/// named pipe waits for its writer.
pub(crate) fn read(field: &str, path: &Path) -> Result<Vec<u8>, FieldError> {
    let unreadable = |e: std::io::Error| {
        FieldError::new(field, format_args!("{} cannot be read: {e}", path.display()))
    };
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(FieldError::new(field, format_args!("{} is no regular file", path.display())));
    }
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(FieldError::new(
            field,
            format_args!("{} is larger than {} MiB", path.display(), MAX_FILE_BYTES >> 20),
        ));
    }
    Ok(bytes)
}

/// Reads the certificate of the listener and its key.
pub(crate) fn certificate_files(
    cert: &Path,
    key: &Path,
) -> Result<(Arc<CertifiedKey>, ListenerCertificate), FieldError> {
    let chain = read("server.tls.cert", cert)?;
    let key_bytes = read("server.tls.key", key)?;
    let (certified, validity) = from_pem(&chain, &key_bytes).map_err(|why| match why {
        CertificateError::Chain(why) => FieldError::new(
            "server.tls.cert",
            format_args!("{} cannot be read: {why}", cert.display()),
        ),
        CertificateError::Key(why) => FieldError::new(
            "server.tls.key",
            format_args!("{} cannot be read: {why}", key.display()),
        ),
        other @ (CertificateError::Mismatch(_) | CertificateError::Name(_)) => {
            FieldError::new("server.tls", other)
        }
    })?;
    let origin = format!("in {}", cert.display());
    Ok((certified, ListenerCertificate { origin, validity }))
}

/// Reads a chain and its key, and checks that the first certificate is for all of these names.
pub fn certified_key(
    chain: &str,
    key: &str,
    names: &[String],
) -> Result<(Arc<CertifiedKey>, CertificateValidity), CertificateError> {
    let (certified, validity) = from_pem(chain.as_bytes(), key.as_bytes())?;
    let unreadable = |e: rustls::Error| CertificateError::Chain(e.to_string());
    let first = certified.end_entity_cert().map_err(unreadable)?;
    let first = ParsedCertificate::try_from(first).map_err(unreadable)?;
    for name in names {
        let wrong = || CertificateError::Name(name.clone());
        let server_name = ServerName::try_from(name.as_str()).map_err(|_| wrong())?;
        rustls::client::verify_server_name(&first, &server_name).map_err(|_| wrong())?;
    }
    let validity = validity.ok_or_else(|| {
        CertificateError::Chain("the time of its validity is not known".to_owned())
    })?;
    Ok((certified, validity))
}

fn from_pem(
    chain: &[u8],
    key: &[u8],
) -> Result<(Arc<CertifiedKey>, Option<CertificateValidity>), CertificateError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|e| CertificateError::Chain(e.to_string()))?;
    if chain.is_empty() {
        return Err(CertificateError::Chain("it holds no certificate in PEM".to_owned()));
    }
    if chain.len() > MAX_CHAIN_LENGTH {
        let why = format!("it holds {} certificates, more than {MAX_CHAIN_LENGTH}", chain.len());
        return Err(CertificateError::Chain(why));
    }
    let key =
        PrivateKeyDer::from_pem_slice(key).map_err(|e| CertificateError::Key(e.to_string()))?;
    let validity = chain.first().and_then(|first| CertificateValidity::of(first));
    let certified = CertifiedKey::from_der(chain, key, &provider());
    let certified = certified.map_err(|e| CertificateError::Mismatch(e.to_string()))?;
    Ok((Arc::new(certified), validity))
}

/// Returns the settings of a listener with one self-signed certificate, for the protocol of a challenge.
pub(crate) fn challenge_config(
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
    protocol: &[u8],
) -> Result<ServerConfig, CertificateError> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
    let key = provider().key_provider.load_private_key(key);
    let key = key.map_err(|e| CertificateError::Key(e.to_string()))?;
    // Not compared with the key: the comparison refuses the critical extension that is the answer.
    let certified = CertifiedKey::new(vec![certificate], key);
    let config = server_config(Some(Arc::new(certified)), None);
    let mut config = config.map_err(|e| CertificateError::Chain(e.to_string()))?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}

/// Reads the authorities of callers and the list of revoked certificates.
pub(crate) fn caller_verifier(
    callers: &CallerCertificates,
) -> Result<Arc<dyn ClientCertVerifier>, FieldError> {
    const CA: &str = "server.tls.client_ca";
    const CRL: &str = "server.tls.client_crl";
    let CallerCertificates { ca, crl, is_required } = callers;
    let wrong = |field: &str, path: &Path, why: &dyn std::fmt::Display| {
        FieldError::new(field, format_args!("{} cannot be used: {why}", path.display()))
    };
    let mut roots = RootCertStore::empty();
    for found in CertificateDer::pem_slice_iter(&read(CA, ca)?) {
        let found = found.map_err(|e| wrong(CA, ca, &e))?;
        roots.add(found).map_err(|e| wrong(CA, ca, &e))?;
    }
    if roots.is_empty() {
        return Err(wrong(CA, ca, &"it holds no certificate in PEM"));
    }
    let roots = Arc::new(roots);
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let mut builder =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
    if let Some(path) = crl {
        let lists: Vec<CertificateRevocationListDer<'static>> =
            CertificateRevocationListDer::pem_slice_iter(&read(CRL, path)?)
                .collect::<Result<_, _>>()
                .map_err(|e| wrong(CRL, path, &e))?;
        if lists.is_empty() {
            return Err(wrong(CRL, path, &"it holds no list of revoked certificates in PEM"));
        }
        let lists = current_lists(&lists, &roots, &algorithms);
        let lists = lists.map_err(|why| wrong(CRL, path, &why))?;
        // An authority without a list in the file revokes nothing.
        builder = builder.with_crls(lists).allow_unknown_revocation_status();
    }
    if !is_required {
        builder = builder.allow_unauthenticated();
    }
    let (field, path) = crl.as_ref().map_or((CA, ca), |crl| (CRL, crl));
    builder.build().map_err(|e| wrong(field, path, &e))
}
