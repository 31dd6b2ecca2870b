//! The vault: secrets that are needed in plain text are sealed before they are stored, by keys
//! outside the database. A dump of the database alone reveals none of them.
//!
//! The cipher is AES-256-GCM-SIV (RFC 8452) with a random nonce for every secret. A sealed secret
//! is bound to a label that names its row, so that it does not open in another row. The first key
//! seals; the others only open.

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use parking_lot::RwLock;
use tokio::sync::{Mutex, RwLock as SealGate, RwLockReadGuard};

use crate::StoreError;

const KEY_BYTES: usize = 32;
const MAX_KEY_NAME_BYTES: usize = 32;
const SHARED_REMEDY: &str = "set `vault` of `[server]`, the same on every node";

/// Reason a secret was not sealed or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// The vault cannot seal; the text names the remedy.
    #[error("secrets cannot be sealed: {0}")]
    Unavailable(String),
    /// The vault does not have the key it was sealed by.
    #[error(
        "it was sealed by the key `{0}`, which this gateway does not have; give it in `vault` of \
         `[server]`"
    )]
    UnknownKey(String),
    /// The sealed bytes or the label do not match.
    #[error("it cannot be opened: it was changed, or belongs to another row")]
    Corrupt,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<VaultError> for StoreError {
    fn from(error: VaultError) -> Self {
        match error {
            VaultError::Store(error) => error,
            VaultError::Unavailable(_) | VaultError::UnknownKey(_) | VaultError::Corrupt => {
                Self::Sealing(error.to_string())
            }
        }
    }
}

/// Reason a text is not a list of vault keys. The text itself is never repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaultKeyError {
    /// The name of a key is not valid.
    #[error(
        "key {0}: its name must have 1 to {max} letters, digits, `-` or `_`",
        max = MAX_KEY_NAME_BYTES
    )]
    Name(usize),
    /// The key is not 32 bytes in base64.
    #[error(
        "key {0}: must be {bytes} random bytes as base64; make one with \
         `openssl rand -base64 {bytes}`",
        bytes = KEY_BYTES
    )]
    Bytes(usize),
    /// Two keys have the same name.
    #[error("key {0}: there is one of its name already")]
    Duplicate(usize),
    /// There is no key.
    #[error("holds no key")]
    Empty,
}

/// A secret as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSecret {
    /// Name of the key it was sealed by.
    pub by: String,
    /// The nonce, followed by the ciphertext.
    pub bytes: Vec<u8>,
}

#[derive(Clone)]
struct VaultKey {
    id: String,
    bytes: [u8; KEY_BYTES],
    cipher: Arc<RandomizedNonceKey>,
}

impl VaultKey {
    fn new(id: Option<&str>, bytes: [u8; KEY_BYTES]) -> Option<Self> {
        let cipher = Arc::new(RandomizedNonceKey::new(&AES_256_GCM_SIV, &bytes).ok()?);
        let id = id.map_or_else(|| fingerprint(&bytes), str::to_owned);
        Some(Self { id, bytes, cipher })
    }

    fn draw() -> Option<Self> {
        let mut bytes = [0_u8; KEY_BYTES];
        rand::fill(&mut bytes).ok()?;
        Self::new(None, bytes)
    }

    fn line(&self) -> String {
        format!("{}:{}\n", self.id, STANDARD.encode(self.bytes))
    }

    fn bound(&self, label: &str) -> Aad<Vec<u8>> {
        Aad::from(format!("portunus vault 1\0{}\0{label}", self.id).into_bytes())
    }

    fn seal(&self, label: &str, secret: &[u8]) -> Option<SealedSecret> {
        let mut inside = secret.to_vec();
        let nonce = self.cipher.seal_in_place_append_tag(self.bound(label), &mut inside).ok()?;
        let mut bytes = nonce.as_ref().to_vec();
        bytes.append(&mut inside);
        Some(SealedSecret { by: self.id.clone(), bytes })
    }

    fn open(&self, label: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        let (nonce, inside) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut inside = inside.to_vec();
        let open = self.cipher.open_in_place(nonce, self.bound(label), &mut inside).ok()?;
        Some(open.to_vec())
    }
}

/// Returns a name for a key without one. It is the same on every node and does not reveal the key.
fn fingerprint(bytes: &[u8]) -> String {
    let mut text = b"portunus vault key".to_vec();
    text.extend_from_slice(bytes);
    let hash = digest::digest(&digest::SHA256, &text);
    hash.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// Keys given by an operator. They are never printed.
#[derive(Clone)]
pub struct VaultKeys(Vec<VaultKey>);

impl VaultKeys {
    /// Reads keys from a text: each 32 bytes in base64, optionally after `name:`, one per line. The
    /// error names the wrong key by its position and does not repeat it.
    pub fn read(text: &str) -> Result<Self, VaultKeyError> {
        let mut keys: Vec<VaultKey> = Vec::new();
        let words = text.split(|c: char| c.is_whitespace() || c == ',');
        for (place, word) in words.filter(|word| !word.is_empty()).enumerate() {
            let nth = place + 1;
            let (id, word) = match word.split_once(':') {
                Some((id, word)) => (Some(id), word),
                None => (None, word),
            };
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if id.is_some_and(|id| {
                id.is_empty() || id.len() > MAX_KEY_NAME_BYTES || !id.chars().all(plain)
            }) {
                return Err(VaultKeyError::Name(nth));
            }
            let bytes = STANDARD.decode(word).or_else(|_| STANDARD_NO_PAD.decode(word));
            let bytes = bytes.ok().and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
            let key = bytes.and_then(|bytes| VaultKey::new(id, bytes));
            let key = key.ok_or(VaultKeyError::Bytes(nth))?;
            if keys.iter().any(|known| known.id == key.id) {
                return Err(VaultKeyError::Duplicate(nth));
            }
            keys.push(key);
        }
        if keys.is_empty() {
            return Err(VaultKeyError::Empty);
        }
        Ok(Self(keys))
    }

    /// Returns the keys as [`Self::read`] takes them. The text is a secret.
    pub fn secret_text(&self) -> String {
        self.0.iter().map(VaultKey::line).collect()
    }
}

impl fmt::Debug for VaultKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

/// The origin of the sealing key.
#[derive(Clone, PartialEq, Eq)]
enum KeySource {
    /// The operator.
    Given,
    /// A file of this gateway, created when it is first needed.
    File,
    /// There is none, for this reason.
    Unavailable(String),
}

struct KeyRing {
    source: KeySource,
    /// The first one seals.
    keys: Vec<VaultKey>,
}

/// Seals and opens secrets.
pub struct Vault {
    file: PathBuf,
    /// True if other machines use the same database.
    shared: bool,
    ring: RwLock<KeyRing>,
    /// Held for reading from sealing until the secret is stored, so that a key is retired only when
    /// no secret is in flight.
    gate: SealGate<()>,
    /// Held during a re-keying.
    pub(crate) turn: Mutex<()>,
}

/// Prints only the names of the keys.
impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Vault").field(&self.keys()).finish()
    }
}

/// Seals with one key. To be held until the sealed secrets are stored.
pub struct SecretSealer<'a> {
    key: VaultKey,
    _held: RwLockReadGuard<'a, ()>,
}

impl SecretSealer<'_> {
    /// Seals a secret for the row that the label names.
    pub fn seal(&self, label: &str, secret: &[u8]) -> Result<SealedSecret, VaultError> {
        let sealed = self.key.seal(label, secret);
        sealed.ok_or_else(|| VaultError::Unavailable("the cipher failed".to_owned()))
    }

    /// Name of its key.
    pub fn by(&self) -> &str {
        &self.key.id
    }
}

impl Vault {
    /// Creates a vault with the operator's keys, or with a key of its own in that file. A shared
    /// database needs the operator's keys, because each machine would create a different one.
    pub fn new(file: PathBuf, given: Option<VaultKeys>, shared: bool) -> Self {
        let ring = RwLock::new(ring(&file, given, shared));
        Self { file, shared, ring, gate: SealGate::default(), turn: Mutex::default() }
    }

    /// Replaces the operator's keys.
    pub fn set_operator_keys(&self, given: Option<VaultKeys>) {
        *self.ring.write() = ring(&self.file, given, self.shared);
    }

    /// Returns the reason why the vault cannot seal, if it cannot.
    pub fn unavailable_reason(&self) -> Option<String> {
        match &self.ring.read().source {
            KeySource::Given | KeySource::File => None,
            KeySource::Unavailable(why) => Some(why.clone()),
        }
    }

    /// Returns true if other machines use the same database and the operator gave no keys. Bodies
    /// are then stored as they are.
    pub fn is_unset(&self) -> bool {
        self.shared && self.unavailable_reason().is_some()
    }

    /// Returns the name of the sealing key, if there is one, and the names of all keys.
    pub fn keys(&self) -> (Option<String>, Vec<String>) {
        let ring = self.ring.read();
        let ids: Vec<String> = ring.keys.iter().map(|key| key.id.clone()).collect();
        let current = match ring.source {
            KeySource::Given | KeySource::File => ids.first().cloned(),
            KeySource::Unavailable(_) => None,
        };
        (current, ids)
    }

    /// Returns a sealer with the current key.
    pub async fn sealer(&self) -> Result<SecretSealer<'_>, VaultError> {
        let held = self.gate.read().await;
        Ok(SecretSealer { key: self.current()?, _held: held })
    }

    fn current(&self) -> Result<VaultKey, VaultError> {
        let mut ring = self.ring.write();
        if let KeySource::Unavailable(why) = &ring.source {
            return Err(VaultError::Unavailable(why.clone()));
        }
        if ring.keys.is_empty() {
            let key = draw()?;
            create(&self.file, &key.line())?;
            // Another process may have created the file first.
            ring.keys = read(&self.file)?;
        }
        let first = ring.keys.first().cloned();
        first.ok_or_else(|| VaultError::Unavailable(format!("{} is empty", self.file.display())))
    }

    /// Opens a secret that was sealed for the row that the label names.
    pub fn open(&self, label: &str, sealed: &SealedSecret) -> Result<Vec<u8>, VaultError> {
        let key = self.ring.read().keys.iter().find(|key| key.id == sealed.by).cloned();
        let key = key.ok_or_else(|| VaultError::UnknownKey(sealed.by.clone()))?;
        key.open(label, &sealed.bytes).ok_or(VaultError::Corrupt)
    }

    /// Adds a new first key if this gateway manages the keys. From then on only that one seals.
    pub(crate) async fn add_first_key(&self) -> Result<(), VaultError> {
        // Creates the first key if there is none, and fails if the vault cannot seal.
        self.current()?;
        let mut keys = match self.ring.read().source {
            KeySource::File => self.ring.read().keys.clone(),
            KeySource::Given | KeySource::Unavailable(_) => return Ok(()),
        };
        keys.insert(0, draw()?);
        self.keep(keys).await
    }

    /// Deletes managed keys that are not needed any more.
    pub(crate) async fn retire(&self, needed: impl Fn(&str) -> bool) -> Result<(), VaultError> {
        let keys = match self.ring.read().source {
            KeySource::File => self.ring.read().keys.clone(),
            KeySource::Given | KeySource::Unavailable(_) => return Ok(()),
        };
        let left = keys.into_iter().enumerate();
        let left = left.filter(|(place, key)| *place == 0 || needed(&key.id)).map(|(_, key)| key);
        self.keep(left.collect()).await
    }

    async fn keep(&self, keys: Vec<VaultKey>) -> Result<(), VaultError> {
        // The file is written first: a secret sealed by a key that exists only in memory would be
        // lost.
        let text: String = keys.iter().map(VaultKey::line).collect();
        replace(&self.file, &text)?;
        let _no_sealers = self.gate.write().await;
        self.ring.write().keys = keys;
        Ok(())
    }
}

fn draw() -> Result<VaultKey, VaultError> {
    VaultKey::draw()
        .ok_or_else(|| VaultError::Unavailable("no random bytes are available".to_owned()))
}

fn ring(file: &Path, given: Option<VaultKeys>, shared: bool) -> KeyRing {
    let own = read(file);
    match given {
        // Secrets sealed by managed keys before the operator gave others still open.
        Some(VaultKeys(mut keys)) => {
            let own = own.unwrap_or_default();
            let new = |key: &VaultKey| keys.iter().all(|known| known.id != key.id);
            let own: Vec<VaultKey> = own.into_iter().filter(new).collect();
            keys.extend(own);
            KeyRing { source: KeySource::Given, keys }
        }
        None if shared => {
            let why = format!("several machines may use this database; {SHARED_REMEDY}");
            KeyRing { source: KeySource::Unavailable(why), keys: own.unwrap_or_default() }
        }
        None => match own {
            Ok(keys) => KeyRing { source: KeySource::File, keys },
            Err(VaultError::Unavailable(why)) => {
                KeyRing { source: KeySource::Unavailable(why), keys: Vec::new() }
            }
            Err(other) => {
                KeyRing { source: KeySource::Unavailable(other.to_string()), keys: Vec::new() }
            }
        },
    }
}

/// Returns the managed keys; none if there is no file.
fn read(file: &Path) -> Result<Vec<VaultKey>, VaultError> {
    let shut = |why: String| VaultError::Unavailable(format!("{}{why}", file.display()));
    match std::fs::read_to_string(file) {
        Ok(text) => match VaultKeys::read(&text) {
            Ok(VaultKeys(keys)) => Ok(keys),
            Err(e) => Err(shut(format!(": {e}"))),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(shut(format!(" cannot be read: {e}"))),
    }
}

fn unwritable(file: &Path, error: &std::io::Error) -> VaultError {
    VaultError::Unavailable(format!("{} cannot be written: {error}", file.display()))
}

fn create(file: &Path, text: &str) -> Result<(), VaultError> {
    match write_new(file, text) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(unwritable(file, &e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Replaces the text of the file atomically, by renaming a new file over it.
fn replace(file: &Path, text: &str) -> Result<(), VaultError> {
    let beside = file.with_extension("key.new");
    let written = std::fs::remove_file(&beside)
        .or_else(|e| if e.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
        .and_then(|()| write_new(&beside, text))
        .and_then(|()| std::fs::rename(&beside, file))
        .and_then(|()| match file.parent() {
            Some(folder) => std::fs::File::open(folder)?.sync_all(),
            None => Ok(()),
        });
    written.map_err(|e| unwritable(file, &e))
}

/// Creates a file that only its owner may read.
fn write_new(file: &Path, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut made = options.open(file)?;
    made.write_all(text.as_bytes())?;
    made.sync_all()
}
