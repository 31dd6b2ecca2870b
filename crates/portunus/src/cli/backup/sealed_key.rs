//! The vault's key in a backup, sealed by a passphrase.
//!
//! The key of the seal is derived with Argon2id (RFC 9106, its second recommended choice: 64 MiB, three
//! passes), and the cipher is that of the vault, AES-256-GCM-SIV (RFC 8452). The passphrase comes from a
//! file, a variable or the terminal, and never from the command line, which other users can see.

use anyhow::{Context as _, anyhow};
use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

/// Variable with the passphrase.
const VARIABLE: &str = "PORTUNUS_BACKUP_PASSPHRASE";
/// Shortest passphrase that seals a key.
const MIN_PASSPHRASE_CHARS: usize = 12;
const MEMORY_KIB: u32 = 64 * 1024;
const PASSES: u32 = 3;
/// Largest cost that a file may ask for.
const MAX_MEMORY_KIB: u32 = 1024 * 1024;
const MAX_PASSES: u32 = 100;
const SALT_BYTES: usize = 16;
const LABEL: &[u8] = b"portunus backup vault key 1";

/// A passphrase. It is never printed.
pub(super) struct Passphrase(String);

impl Passphrase {
    /// Reads the passphrase from this file, or the variable, or the terminal.
    pub(super) fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(file) = file {
            let text = std::fs::read_to_string(file).with_context(|| {
                format!("the passphrase file {} cannot be read", file.display())
            })?;
            return Self::new(text.trim_end_matches(['\r', '\n']));
        }
        if let Ok(text) = std::env::var(VARIABLE) {
            return Self::new(&text);
        }
        anyhow::ensure!(
            io::stdin().is_terminal(),
            "the vault's key needs a passphrase: give it with --passphrase-file or in {VARIABLE}"
        );
        Self::new(&ask()?)
    }

    fn new(text: &str) -> anyhow::Result<Self> {
        anyhow::ensure!(!text.is_empty(), "the passphrase is empty");
        Ok(Self(text.to_owned()))
    }

    /// Refuses a passphrase that is easy to guess.
    pub(super) fn require_long(&self) -> anyhow::Result<()> {
        let is_long = self.0.chars().count() >= MIN_PASSPHRASE_CHARS;
        anyhow::ensure!(is_long, "the passphrase needs {MIN_PASSPHRASE_CHARS} characters or more");
        Ok(())
    }

    fn derive(&self, salt: &[u8], memory: u32, passes: u32) -> anyhow::Result<RandomizedNonceKey> {
        let params = Params::new(memory, passes, 1, None).map_err(|e| anyhow!("{e}"))?;
        let mut key = [0; 32];
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(self.0.as_bytes(), salt, &mut key)
            .map_err(|e| anyhow!("{e}"))?;
        RandomizedNonceKey::new(&AES_256_GCM_SIV, &key).map_err(|_| anyhow!("the cipher failed"))
    }
}

/// Asks for the passphrase without showing it.
fn ask() -> anyhow::Result<String> {
    let input = io::stdin();
    write!(io::stderr(), "Passphrase of the vault's key: ")?;
    let shown = tcgetattr(&input)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&input, OptionalActions::Flush, &hidden)?;
    let mut line = String::new();
    let read = input.lock().read_line(&mut line);
    tcsetattr(&input, OptionalActions::Flush, &shown)?;
    writeln!(io::stderr())?;
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// The section of a backup with the vault's key.
#[derive(Serialize, Deserialize)]
pub(super) struct SealedKey {
    kdf: String,
    memory_kib: u32,
    passes: u32,
    salt: String,
    /// The nonce, followed by the ciphertext.
    sealed: String,
}

impl SealedKey {
    /// Seals a text.
    pub(super) fn seal(text: &str, passphrase: &Passphrase) -> anyhow::Result<Self> {
        let mut salt = [0; SALT_BYTES];
        rand::fill(&mut salt).map_err(|_| anyhow!("no random bytes can be drawn"))?;
        let cipher = passphrase.derive(&salt, MEMORY_KIB, PASSES)?;
        let mut inside = text.as_bytes().to_vec();
        let nonce = cipher
            .seal_in_place_append_tag(Aad::from(LABEL), &mut inside)
            .map_err(|_| anyhow!("the cipher failed"))?;
        let mut sealed = nonce.as_ref().to_vec();
        sealed.append(&mut inside);
        Ok(Self {
            kdf: "argon2id".to_owned(),
            memory_kib: MEMORY_KIB,
            passes: PASSES,
            salt: STANDARD.encode(salt),
            sealed: STANDARD.encode(sealed),
        })
    }

    /// Opens it.
    pub(super) fn open(&self, passphrase: &Passphrase) -> anyhow::Result<String> {
        let Self { kdf, memory_kib, passes, salt, sealed } = self;
        let is_known = kdf == "argon2id" && *memory_kib <= MAX_MEMORY_KIB && *passes <= MAX_PASSES;
        anyhow::ensure!(
            is_known,
            "the vault's key is sealed in a way that this version does not know"
        );
        let cipher = passphrase.derive(&STANDARD.decode(salt)?, *memory_kib, *passes)?;
        let sealed = STANDARD.decode(sealed)?;
        let opened = sealed.split_at_checked(NONCE_LEN).and_then(|(nonce, inside)| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut inside = inside.to_vec();
            let text = cipher.open_in_place(nonce, Aad::from(LABEL), &mut inside).ok()?;
            String::from_utf8(text.to_vec()).ok()
        });
        opened.context("the vault's key does not open: the passphrase is wrong")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_with_its_passphrase_only() {
        let right = Passphrase::new("a long enough phrase").unwrap();
        right.require_long().unwrap();
        Passphrase::new("short").unwrap().require_long().unwrap_err();
        let sealed = SealedKey::seal("name:secret\n", &right).unwrap();
        let text = serde_json::to_string(&sealed).unwrap();
        assert!(!text.contains("secret"));
        let read: SealedKey = serde_json::from_str(&text).unwrap();
        assert_eq!(read.open(&right).unwrap(), "name:secret\n");
        let wrong = Passphrase::new("another long phrase").unwrap();
        let error = read.open(&wrong).unwrap_err().to_string();
        assert!(error.contains("the passphrase is wrong"), "{error}");
        let costly = SealedKey { memory_kib: u32::MAX, ..read };
        costly.open(&right).unwrap_err();
    }
}
