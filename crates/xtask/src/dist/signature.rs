//! Signatures that `minisign -V` checks (<https://jedisct1.github.io/minisign/>).

use std::fs;
use std::io::Cursor;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minisign::{PublicKey, SecretKey, SecretKeyBox};

/// Variable with the password of an encrypted key.
const PASSWORD_VARIABLE: &str = "PORTUNUS_SIGN_PASSWORD";

/// Bytes of a key that tell how its password was hashed; zero for a key without a password.
const KEY_DERIVATION: Range<usize> = 2..4;

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
        let key = text.lines().nth(1).with_context(about)?;
        let key = STANDARD.decode(key.trim()).with_context(about)?;
        // The C program writes no checksum into a key without a password, which
        // `into_unencrypted_secret_key` requires.
        let secret = if key.get(KEY_DERIVATION) == Some(&[0; 2]) {
            SecretKey::from_bytes(&key).with_context(about)?
        } else {
            let password = std::env::var(PASSWORD_VARIABLE).ok().with_context(|| {
                format!("{} has a password: set {PASSWORD_VARIABLE}", file.display())
            })?;
            let boxed = SecretKeyBox::from_string(&text).with_context(about)?;
            boxed.into_secret_key(Some(password)).with_context(|| {
                format!("{}: {PASSWORD_VARIABLE} does not open it", file.display())
            })?
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `minisign -G -W` of minisign 0.11, for this test only.
    const SECRET: &str = "RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAg98PUjZPI88vpeQhdAk6MIs4CmGl0Wr7Rz7KglfKpgCSMS4lxmJ50A69qCxR/X0EId502W01vK7mLAmAj7meYe3Jy5+FMkw4AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const PUBLIC: &str = "RWSD3w9SNk8jzw69qCxR/X0EId502W01vK7mLAmAj7meYe3Jy5+FMkw4";

    #[test]
    fn keys_of_the_c_program_sign() {
        let file = std::env::temp_dir().join(format!("minisign-{}.key", std::process::id()));
        fs::write(&file, format!("untrusted comment: minisign encrypted secret key\n{SECRET}\n"))
            .unwrap();
        let signer = PackageSigner::read(&file).unwrap();
        assert_eq!(signer.public_key(), PUBLIC);
        let signature =
            minisign::SignatureBox::from_string(&signer.sign("a", b"b").unwrap()).unwrap();
        let public = PublicKey::from_base64(PUBLIC).unwrap();
        minisign::verify(&public, &signature, Cursor::new(b"b"), true, false, false).unwrap();
        fs::write(&file, "untrusted comment: a text\nnot a key\n").unwrap();
        let error = PackageSigner::read(&file).err().unwrap();
        assert!(error.to_string().ends_with("is not a secret key of minisign"), "{error:#}");
        fs::remove_file(&file).unwrap();
    }
}
