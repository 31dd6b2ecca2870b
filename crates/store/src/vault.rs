//! The vault: secrets that must be had again are sealed before they are stored, by keys that lie
//! outside the database. A dump of it alone opens nothing.
//!
//! AES-256-GCM-SIV, a nonce of its own for every seal. What is sealed is bound to a label that names
//! its row, so that a row moved elsewhere does not open. The first key seals; the others only open.

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use parking_lot::RwLock;
use tokio::sync::{Mutex, RwLock as Gate, RwLockReadGuard};

use crate::StoreError;

/// How long a key is, in bytes.
const KEY: usize = 32;
/// The longest name of a key.
const LONGEST: usize = 32;
const REMEDY: &str = "set `vault` of `[server]`, the same on every node";

/// Why something is not sealed or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// Nothing can be sealed; the text says what to do.
    #[error("secrets cannot be sealed: {0}")]
    Shut(String),
    /// None of our keys is the one it was sealed by.
    #[error(
        "it was sealed by the key `{0}`, which this gateway does not have; give it in `vault` of \
         `[server]`"
    )]
    NoKey(String),
    /// It was sealed for another place, or changed since.
    #[error("it does not open: it was changed, or belongs elsewhere")]
    Spoilt,
    /// The database did not do its part.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A secret as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The key it was sealed by.
    pub by: String,
    /// The nonce, and behind it what only the key can read.
    pub bytes: Vec<u8>,
}

#[derive(Clone)]
struct VaultKey {
    id: String,
    bytes: [u8; KEY],
    cipher: Arc<RandomizedNonceKey>,
}

impl VaultKey {
    fn new(id: Option<&str>, bytes: [u8; KEY]) -> Option<Self> {
        let cipher = Arc::new(RandomizedNonceKey::new(&AES_256_GCM_SIV, &bytes).ok()?);
        let id = id.map_or_else(|| fingerprint(&bytes), str::to_owned);
        Some(Self { id, bytes, cipher })
    }

    fn draw() -> Option<Self> {
        let mut bytes = [0_u8; KEY];
        rand::fill(&mut bytes).ok()?;
        Self::new(None, bytes)
    }

    fn line(&self) -> String {
        format!("{}:{}\n", self.id, STANDARD.encode(self.bytes))
    }

    fn bound(&self, label: &str) -> Aad<Vec<u8>> {
        Aad::from(format!("portunus vault 1\0{}\0{label}", self.id).into_bytes())
    }

    fn seal(&self, label: &str, secret: &[u8]) -> Option<Sealed> {
        let mut inside = secret.to_vec();
        let nonce = self.cipher.seal_in_place_append_tag(self.bound(label), &mut inside).ok()?;
        let mut bytes = nonce.as_ref().to_vec();
        bytes.append(&mut inside);
        Some(Sealed { by: self.id.clone(), bytes })
    }

    fn open(&self, label: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        let (nonce, inside) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut inside = inside.to_vec();
        let open = self.cipher.open_in_place(nonce, self.bound(label), &mut inside).ok()?;
        Some(open.to_vec())
    }
}

/// A name for a key that has none: the same wherever the key is, and nothing of the key itself.
fn fingerprint(bytes: &[u8]) -> String {
    let mut text = b"portunus vault key".to_vec();
    text.extend_from_slice(bytes);
    let hash = digest::digest(&digest::SHA256, &text);
    hash.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// Keys as an operator gives them. Never printed.
#[derive(Clone)]
pub struct VaultKeys(Vec<VaultKey>);

impl VaultKeys {
    /// Reads keys from a text: each 32 bytes as base64, with `name:` before it or without, one to a
    /// line. `Err` says which one is wrong, and repeats nothing of it.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut keys: Vec<VaultKey> = Vec::new();
        let words = text.split(|c: char| c.is_whitespace() || c == ',');
        for (place, word) in words.filter(|word| !word.is_empty()).enumerate() {
            let nth = place + 1;
            let (id, word) = match word.split_once(':') {
                Some((id, word)) => (Some(id), word),
                None => (None, word),
            };
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if id.is_some_and(|id| id.is_empty() || id.len() > LONGEST || !id.chars().all(plain)) {
                return Err(format!(
                    "key {nth}: its name must have 1 to {LONGEST} letters, digits, `-` or `_`"
                ));
            }
            let bytes = STANDARD.decode(word).or_else(|_| STANDARD_NO_PAD.decode(word));
            let bytes = bytes.ok().and_then(|bytes| <[u8; KEY]>::try_from(bytes).ok());
            let key = bytes.and_then(|bytes| VaultKey::new(id, bytes)).ok_or_else(|| {
                format!(
                    "key {nth}: must be {KEY} random bytes as base64; make one with \
                     `openssl rand -base64 {KEY}`"
                )
            })?;
            if keys.iter().any(|known| known.id == key.id) {
                return Err(format!("key {nth}: there is one of its name already"));
            }
            keys.push(key);
        }
        if keys.is_empty() {
            return Err("holds no key".to_owned());
        }
        Ok(Self(keys))
    }
}

impl fmt::Debug for VaultKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

/// Where the key that seals comes from.
#[derive(Clone, PartialEq, Eq)]
enum Home {
    /// The operator gives it.
    Given,
    /// A file of our own, made at first need.
    File,
    /// Nowhere, and why.
    Nowhere(String),
}

struct Ring {
    home: Home,
    /// The one that seals first, where there is one.
    keys: Vec<VaultKey>,
}

/// Seals secrets and opens them.
pub struct Vault {
    file: PathBuf,
    /// Whether other machines use the same database.
    shared: bool,
    ring: RwLock<Ring>,
    /// Held by whoever seals until what was sealed is stored, so that a key is retired only when
    /// nothing is on its way under it.
    gate: Gate<()>,
    /// One re-keying at a time.
    pub(crate) turn: Mutex<()>,
}

/// Names the keys, and nothing of them.
impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Vault").field(&self.keys()).finish()
    }
}

/// Seals with one key. To be kept until what was sealed is stored.
pub struct Sealer<'a> {
    key: VaultKey,
    _held: RwLockReadGuard<'a, ()>,
}

impl Sealer<'_> {
    /// Seals a secret for the row that label names.
    pub fn seal(&self, label: &str, secret: &[u8]) -> Result<Sealed, VaultError> {
        let sealed = self.key.seal(label, secret);
        sealed.ok_or_else(|| VaultError::Shut("the cipher failed".to_owned()))
    }

    /// The name of its key.
    pub fn by(&self) -> &str {
        &self.key.id
    }
}

impl Vault {
    /// A vault with the operator's keys, or else with one of its own in that file. A database that
    /// other machines use too wants the operator's: each would make a key of its own.
    pub fn new(file: PathBuf, given: Option<VaultKeys>, shared: bool) -> Self {
        let ring = RwLock::new(ring(&file, given, shared));
        Self { file, shared, ring, gate: Gate::default(), turn: Mutex::default() }
    }

    /// Puts other keys of the operator's in force.
    pub fn give(&self, given: Option<VaultKeys>) {
        *self.ring.write() = ring(&self.file, given, self.shared);
    }

    /// Why nothing can be sealed, if that is so.
    pub fn shut(&self) -> Option<String> {
        match &self.ring.read().home {
            Home::Given | Home::File => None,
            Home::Nowhere(why) => Some(why.clone()),
        }
    }

    /// The name of the key that seals, where there is one, and those of all keys.
    pub fn keys(&self) -> (Option<String>, Vec<String>) {
        let ring = self.ring.read();
        let ids: Vec<String> = ring.keys.iter().map(|key| key.id.clone()).collect();
        let current = match ring.home {
            Home::Given | Home::File => ids.first().cloned(),
            Home::Nowhere(_) => None,
        };
        (current, ids)
    }

    /// What seals from now on.
    pub async fn sealer(&self) -> Result<Sealer<'_>, VaultError> {
        let held = self.gate.read().await;
        Ok(Sealer { key: self.current()?, _held: held })
    }

    fn current(&self) -> Result<VaultKey, VaultError> {
        let mut ring = self.ring.write();
        if let Home::Nowhere(why) = &ring.home {
            return Err(VaultError::Shut(why.clone()));
        }
        if ring.keys.is_empty() {
            let key = draw()?;
            create(&self.file, &key.line()).map_err(|why| VaultError::Shut(why.clone()))?;
            // Another process may have been quicker.
            ring.keys = read(&self.file).map_err(VaultError::Shut)?;
        }
        let first = ring.keys.first().cloned();
        first.ok_or_else(|| VaultError::Shut(format!("{} is empty", self.file.display())))
    }

    /// Opens what was sealed for the row that label names.
    pub fn open(&self, label: &str, sealed: &Sealed) -> Result<Vec<u8>, VaultError> {
        let key = self.ring.read().keys.iter().find(|key| key.id == sealed.by).cloned();
        let key = key.ok_or_else(|| VaultError::NoKey(sealed.by.clone()))?;
        key.open(label, &sealed.bytes).ok_or(VaultError::Spoilt)
    }

    /// A new key in first place, if the keys are our own. From here on nothing is sealed by another.
    pub(crate) async fn turn_over(&self) -> Result<(), VaultError> {
        // Makes the first key, should there be none; and tells why nothing is sealed.
        self.current()?;
        let mut keys = match self.ring.read().home {
            Home::File => self.ring.read().keys.clone(),
            Home::Given | Home::Nowhere(_) => return Ok(()),
        };
        keys.insert(0, draw()?);
        self.keep(keys).await
    }

    /// Forgets the keys of our own that are needed no more.
    pub(crate) async fn retire(&self, needed: impl Fn(&str) -> bool) -> Result<(), VaultError> {
        let keys = match self.ring.read().home {
            Home::File => self.ring.read().keys.clone(),
            Home::Given | Home::Nowhere(_) => return Ok(()),
        };
        let left = keys.into_iter().enumerate();
        let left = left.filter(|(place, key)| *place == 0 || needed(&key.id)).map(|(_, key)| key);
        self.keep(left.collect()).await
    }

    async fn keep(&self, keys: Vec<VaultKey>) -> Result<(), VaultError> {
        // The file first: what is sealed by a key that only memory knew would be lost.
        let text: String = keys.iter().map(VaultKey::line).collect();
        replace(&self.file, &text).map_err(VaultError::Shut)?;
        let _nobody = self.gate.write().await;
        self.ring.write().keys = keys;
        Ok(())
    }
}

fn draw() -> Result<VaultKey, VaultError> {
    VaultKey::draw().ok_or_else(|| VaultError::Shut("there is no randomness".to_owned()))
}

fn ring(file: &Path, given: Option<VaultKeys>, shared: bool) -> Ring {
    let own = read(file);
    match given {
        // What our own keys sealed before the operator gave others still opens.
        Some(VaultKeys(mut keys)) => {
            let own = own.unwrap_or_default();
            let new = |key: &VaultKey| keys.iter().all(|known| known.id != key.id);
            let own: Vec<VaultKey> = own.into_iter().filter(new).collect();
            keys.extend(own);
            Ring { home: Home::Given, keys }
        }
        None if shared => {
            let why = format!("several machines may use this database; {REMEDY}");
            Ring { home: Home::Nowhere(why), keys: own.unwrap_or_default() }
        }
        None => match own {
            Ok(keys) => Ring { home: Home::File, keys },
            Err(why) => Ring { home: Home::Nowhere(why), keys: Vec::new() },
        },
    }
}

/// The keys in our own file; none where there is no file.
fn read(file: &Path) -> Result<Vec<VaultKey>, String> {
    match std::fs::read_to_string(file) {
        Ok(text) => match VaultKeys::read(&text) {
            Ok(VaultKeys(keys)) => Ok(keys),
            Err(why) => Err(format!("{}: {why}", file.display())),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(format!("{} cannot be read: {e}", file.display())),
    }
}

fn create(file: &Path, text: &str) -> Result<(), String> {
    match write_new(file, text) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(format!("{} cannot be written: {e}", file.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Puts a text in the place of the file's, so that there is always a whole one.
fn replace(file: &Path, text: &str) -> Result<(), String> {
    let beside = file.with_extension("key.new");
    let written = std::fs::remove_file(&beside)
        .or_else(|e| if e.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
        .and_then(|()| write_new(&beside, text))
        .and_then(|()| std::fs::rename(&beside, file))
        .and_then(|()| match file.parent() {
            Some(folder) => std::fs::File::open(folder)?.sync_all(),
            None => Ok(()),
        });
    written.map_err(|e| format!("{} cannot be written: {e}", file.display()))
}

/// A new file that its owner alone may read.
fn write_new(file: &Path, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut made = options.open(file)?;
    made.write_all(text.as_bytes())?;
    made.sync_all()
}
