//! RSA keys and certificates in PEM.

use aws_lc_rs::digest;
use aws_lc_rs::signature::RsaKeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Reads the first private key of a PEM text; `None` if it is not an RSA key.
pub(crate) fn read_rsa_key(pem: &str) -> Option<RsaKeyPair> {
    match PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()? {
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).ok(),
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()).ok(),
        _ => None,
    }
}

/// Returns the SHA-256 thumbprint of the first certificate of a PEM text, as `x5t#S256` of RFC 7515.
pub(crate) fn certificate_thumbprint(pem: &str) -> Option<String> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let hash = digest::digest(&digest::SHA256, &certificate);
    Some(URL_SAFE_NO_PAD.encode(hash.as_ref()))
}
