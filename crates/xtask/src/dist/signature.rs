//! Signatures that `minisign -V` checks (<https://jedisct1.github.io/minisign/>).

use std::fs;
use std::io::Cursor;
use std::path::Path;

use anyhow::{Context, Result};
use minisign::{PublicKey, SecretKey, SecretKeyBox};

/// Variable with the password of an encrypted key.
const PASSWORD_VARIABLE: &str = "PORTUNUS_SIGN_PASSWORD";

/// Secret key that signs packages.
pub(super) struct PackageSigner {
    secret: SecretKey,
    public: PublicKey,
}

impl PackageSigner {
    /// Reads the key of a file that `minisign -G` wrote.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let about = || format!("{} is not a secret key of minisign", file.display());
        let boxed = SecretKeyBox::from_string(&text).with_context(about)?;
        let secret = match std::env::var(PASSWORD_VARIABLE).ok() {
            Some(password) => boxed.into_secret_key(Some(password)).with_context(|| {
                format!("{}: {PASSWORD_VARIABLE} does not open it", file.display())
            })?,
            None => boxed.into_unencrypted_secret_key().with_context(|| {
                format!("{} has a password: set {PASSWORD_VARIABLE}", file.display())
            })?,
        };
        let public = PublicKey::from_secret_key(&secret).context("the key has no public part")?;
        Ok(Self { secret, public })
    }

    /// Returns the signature of a file. Its trusted comment is the name of the file, so that one file
    /// cannot pass for another.
    pub(super) fn sign(&self, name: &str, bytes: &[u8]) -> Result<String> {
        let comment = format!("file:{name}");
        let signed = minisign::sign(
            Some(&self.public),
            &self.secret,
            Cursor::new(bytes),
            Some(&comment),
            Some("signature of Portunus"),
        );
        Ok(signed.with_context(|| format!("signing {name}"))?.into_string())
    }

    /// Returns the public key as `minisign -P` takes it.
    pub(super) fn public_key(&self) -> String {
        self.public.to_base64()
    }
}
