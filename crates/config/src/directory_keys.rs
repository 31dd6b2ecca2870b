//! Keys and signatures of bundles for the model directory.
//!
//! The first line of a signed bundle is a comment with the public key and an Ed25519 signature
//! ([RFC 8032](https://www.rfc-editor.org/rfc/rfc8032)) over every byte after that line.

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use std::fmt;

const KEY_PREFIX: &str = "ed25519:";
const SIGNATURE_PREFIX: &str = "# portunus-directory-signature: ";
const KEY_BYTES: usize = 32;

/// Public key that bundles are verified with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryKey([u8; KEY_BYTES]);

/// Text that is not a public key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a public key; write \"ed25519:\" and 32 bytes in base64")]
pub struct DirectoryKeyError(String);

/// Reason why a signature is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleSignatureError {
    /// The first line is no signature.
    #[error("the bundle is not signed; sign it with: portunus directory sign")]
    Unsigned,
    /// The first line cannot be decoded.
    #[error("the signature of the bundle cannot be decoded")]
    Undecodable,
    /// The signer is not trusted.
    #[error(
        "the bundle is signed by {0}, which is not trusted; if you trust it, add it to `keys` of \
         [directory] in the configuration, or give it for this update with --key"
    )]
    Untrusted(DirectoryKey),
    /// The text was changed after it was signed, or the key did not sign it.
    #[error("the signature is wrong: the bundle was changed after {0} signed it")]
    Wrong(DirectoryKey),
    /// The text is not UTF-8.
    #[error("the bundle is not UTF-8 text")]
    NotText,
}

impl DirectoryKey {
    /// Parses `ed25519:…`.
    pub fn parse(text: &str) -> Result<Self, DirectoryKeyError> {
        let encoded = text.trim().strip_prefix(KEY_PREFIX);
        let bytes = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
        let bytes = bytes.and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
        bytes.map(Self).ok_or_else(|| DirectoryKeyError(text.to_owned()))
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, signature).is_ok()
    }
}

impl std::str::FromStr for DirectoryKey {
    type Err = DirectoryKeyError;

    fn from_str(text: &str) -> Result<Self, DirectoryKeyError> {
        Self::parse(text)
    }
}

impl fmt::Display for DirectoryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KEY_PREFIX}{}", STANDARD.encode(self.0))
    }
}

/// A bundle whose signature was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedBundle {
    /// The complete text, with the signature.
    pub text: String,
    /// Key that verified it.
    pub key: DirectoryKey,
}

impl SignedBundle {
    /// Verifies a signed bundle with trusted keys.
    pub fn verify(bytes: &[u8], trusted: &[DirectoryKey]) -> Result<Self, BundleSignatureError> {
        let (line, message) = split_signature(bytes).ok_or(BundleSignatureError::Unsigned)?;
        let words = std::str::from_utf8(line).ok().and_then(|line| line.trim().split_once(' '));
        let (key, signature) = words.ok_or(BundleSignatureError::Undecodable)?;
        let key = DirectoryKey::parse(key).map_err(|_| BundleSignatureError::Undecodable)?;
        let signature =
            STANDARD.decode(signature).map_err(|_| BundleSignatureError::Undecodable)?;
        if !trusted.contains(&key) {
            return Err(BundleSignatureError::Untrusted(key));
        }
        if !key.verifies(message, &signature) {
            return Err(BundleSignatureError::Wrong(key));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| BundleSignatureError::NotText)?;
        Ok(Self { text: text.to_owned(), key })
    }
}

/// Divides a signed bundle into the rest of its first line and the signed bytes.
fn split_signature(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = bytes.strip_prefix(SIGNATURE_PREFIX.as_bytes())?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    Some((rest.get(..end)?, rest.get(end + 1..)?))
}

/// Private key that signs bundles.
pub struct DirectorySigner(Ed25519KeyPair);

impl DirectorySigner {
    /// Generates a key and returns it with its PEM text (PKCS #8).
    pub fn generate() -> Option<(Self, String)> {
        let pair = Ed25519KeyPair::generate().ok()?;
        let der: Pkcs8V1Der<'_> = pair.as_der().ok()?;
        let encoded = STANDARD.encode(der.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{encoded}\n-----END PRIVATE KEY-----\n");
        Some((Self(pair), pem))
    }

    /// Reads a key from PEM text, such as that of `openssl genpkey -algorithm ed25519`.
    pub fn from_pem(pem: &[u8]) -> Option<Self> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).ok()?;
        let pair = Ed25519KeyPair::from_pkcs8(der.secret_pkcs8_der());
        let pair =
            pair.or_else(|_| Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der()));
        pair.ok().map(Self)
    }

    /// Returns the public key.
    pub fn public_key(&self) -> Option<DirectoryKey> {
        self.0.public_key().as_ref().try_into().ok().map(DirectoryKey)
    }

    /// Returns the bundle with a signature as its first line. A signature that it has is replaced.
    pub fn sign(&self, bundle: &str) -> Option<String> {
        let message = match split_signature(bundle.as_bytes()) {
            Some((_, message)) => std::str::from_utf8(message).ok()?,
            None => bundle,
        };
        let signature = STANDARD.encode(self.0.sign(message.as_bytes()));
        Some(format!("{SIGNATURE_PREFIX}{} {signature}\n{message}", self.public_key()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_accepted_for_its_bytes_and_a_trusted_key_only() {
        let (signer, pem) = DirectorySigner::generate().unwrap();
        let (other, _) = DirectorySigner::generate().unwrap();
        let (key, foreign) = (signer.public_key().unwrap(), other.public_key().unwrap());
        assert_eq!(DirectoryKey::parse(&key.to_string()), Ok(key));
        let signed = signer.sign("version = 1\n").unwrap();
        let verify =
            |text: &str, keys: &[DirectoryKey]| SignedBundle::verify(text.as_bytes(), keys);
        assert_eq!(verify(&signed, &[foreign, key]).unwrap().key, key);
        assert_eq!(verify(&signed, &[foreign]), Err(BundleSignatureError::Untrusted(key)));
        assert_eq!(verify(&signed, &[]), Err(BundleSignatureError::Untrusted(key)));
        for changed in [
            signed.replace("= 1", "= 2"),
            format!("{signed} "),
            signed.trim_end().to_owned(),
            signed.replace(&key.to_string(), &foreign.to_string()),
        ] {
            let refused = verify(&changed, &[foreign, key]);
            assert!(matches!(refused, Err(BundleSignatureError::Wrong(_))), "{refused:?}");
        }
        assert_eq!(verify("version = 1\n", &[key]), Err(BundleSignatureError::Unsigned));
        assert_eq!(verify("", &[key]), Err(BundleSignatureError::Unsigned));
        let line = format!("{SIGNATURE_PREFIX}x y\nversion = 1\n");
        assert_eq!(verify(&line, &[key]), Err(BundleSignatureError::Undecodable));
        // Signing again replaces the line.
        let again = other.sign(&signed).unwrap();
        assert_eq!(verify(&again, &[foreign]).unwrap().text.lines().count(), 2);
        let read = DirectorySigner::from_pem(pem.as_bytes()).unwrap();
        assert_eq!(read.public_key(), Some(key));
        assert_eq!(read.sign("version = 1\n").unwrap(), signed);
    }

    #[test]
    fn a_key_of_openssl_is_read_and_a_wrong_text_is_not() {
        // Example of RFC 8410, section 10.3.
        let pem = "-----BEGIN PRIVATE KEY-----\n\
                   MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
                   -----END PRIVATE KEY-----\n";
        let key = DirectorySigner::from_pem(pem.as_bytes()).unwrap().public_key().unwrap();
        assert_eq!(key.to_string(), "ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=");
        assert!(DirectorySigner::from_pem(b"nothing").is_none());
        for wrong in ["", "ed25519:", "ed25519:AAAA", "rsa:AAAA", "ed25519:***"] {
            assert!(DirectoryKey::parse(wrong).is_err(), "{wrong}");
        }
    }
}
