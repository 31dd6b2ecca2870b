//! Data keys: bodies that the gateway keeps for its callers are sealed by them, and only the data
//! keys are sealed by the vault's key.
//!
//! A re-keying therefore seals a few rows again and rewrites no body. It also begins a new data key,
//! so that a copy of an earlier one opens nothing that is stored later. A data key stays as long as
//! the database, because it does not know what it sealed.
//!
//! Without a vault, and on a shared database whose operator gave no key, bodies are stored as they
//! are.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{hmac, rand};
use parking_lot::RwLock;
use tokio::sync::Mutex;

use crate::db::{on_reader, on_writer};
use crate::large_work::run_in_place;
use crate::row::row;
use crate::vault::{SealedSecret, Vault, VaultError};
use crate::{Store, StoreError};

/// Length of a data key's id.
pub const DATA_KEY_ID_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
/// First byte of sealed bytes. Id of the data key, nonce and ciphertext follow.
const SEALED_VERSION: u8 = 1;
/// Time after which a node looks for a data key that another one began.
const CURRENT_KEY_LIFETIME: Duration = Duration::from_secs(60);

/// Id of a data key.
pub type DataKeyId = [u8; DATA_KEY_ID_BYTES];

const ADD: &str = "INSERT INTO data_keys (id, sealed, sealed_by, created) \
    VALUES ($1, $2, $3, (SELECT now FROM store_clock))";
const LIST: &str = "SELECT id, sealed, sealed_by FROM data_keys ORDER BY created DESC, id DESC";
const GET: &str = "SELECT id, sealed, sealed_by FROM data_keys WHERE id = $1";

row! {
    struct DataKeyRow {
        id: String,
        sealed: Vec<u8>,
        sealed_by: String,
    }
}

/// Returns the label that binds a sealed data key to its row.
pub(crate) fn label(id: &str) -> String {
    format!("data key {id}")
}

fn id_text(id: &DataKeyId) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A key that seals bodies. It is never printed.
pub struct DataKey {
    id: DataKeyId,
    root: hmac::Key,
    cipher: RandomizedNonceKey,
}

impl DataKey {
    fn new(id: DataKeyId, bytes: &[u8]) -> Option<Self> {
        let bytes = <[u8; KEY_BYTES]>::try_from(bytes).ok()?;
        let root = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
        let cipher = hmac::sign(&root, b"bodies");
        let cipher = RandomizedNonceKey::new(&AES_256_GCM_SIV, cipher.as_ref()).ok()?;
        Some(Self { id, root, cipher })
    }

    /// Its id.
    pub const fn id(&self) -> &DataKeyId {
        &self.id
    }

    /// Derives the 32 bytes of a key for the file that the text describes.
    pub fn derive_file_key(&self, description: &[u8]) -> hmac::Tag {
        hmac::sign(&self.root, &[b"file\0".as_slice(), description].concat())
    }

    /// Seals a body for the place that the label names.
    pub(crate) fn seal(&self, label: &str, body: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut inside = body.to_vec();
        let nonce = self
            .cipher
            .seal_in_place_append_tag(bound(label), &mut inside)
            .map_err(|_| StoreError::Sealing("the cipher failed".to_owned()))?;
        Ok([&[SEALED_VERSION], self.id.as_slice(), nonce.as_ref(), &inside].concat())
    }

    fn open(&self, label: &str, nonce: &[u8], mut inside: Vec<u8>) -> Option<Vec<u8>> {
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let length = self.cipher.open_in_place(nonce, bound(label), &mut inside).ok()?.len();
        inside.truncate(length);
        Some(inside)
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DataKey").field(&id_text(&self.id)).finish()
    }
}

fn bound(label: &str) -> Aad<Vec<u8>> {
    Aad::from(format!("portunus body 1\0{label}").into_bytes())
}

/// The vault of a store, and the data keys it has opened.
pub(crate) struct DataKeyring {
    vault: Arc<Vault>,
    opened: RwLock<HashMap<DataKeyId, Arc<DataKey>>>,
    /// The key that seals, and the time it was looked up.
    current: Mutex<Option<(Instant, Arc<DataKey>)>>,
}

impl fmt::Debug for DataKeyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DataKeyring").field(&self.vault).finish()
    }
}

impl DataKeyring {
    fn open(&self, row: DataKeyRow) -> Result<Arc<DataKey>, VaultError> {
        let DataKeyRow { id, sealed, sealed_by } = row;
        let raw = read_id(&id).ok_or(VaultError::Corrupt)?;
        if let Some(known) = self.opened.read().get(&raw) {
            return Ok(Arc::clone(known));
        }
        let bytes = self.vault.open(&label(&id), &SealedSecret { by: sealed_by, bytes: sealed })?;
        let key = Arc::new(DataKey::new(raw, &bytes).ok_or(VaultError::Corrupt)?);
        self.opened.write().insert(raw, Arc::clone(&key));
        Ok(key)
    }
}

fn read_id(text: &str) -> Option<DataKeyId> {
    let mut id = DataKeyId::default();
    if text.len() != 2 * id.len() {
        return None;
    }
    for (byte, place) in id.iter_mut().zip((0..text.len()).step_by(2)) {
        *byte = u8::from_str_radix(text.get(place..place + 2)?, 16).ok()?;
    }
    Some(id)
}

impl Store {
    /// Returns the vault of the store.
    pub fn vault(&self) -> Option<&Vault> {
        self.data_keys.as_ref().map(|ring| &*ring.vault)
    }

    /// Returns this store with a vault. From now on it seals bodies.
    #[must_use]
    pub fn with_vault(mut self, vault: Arc<Vault>) -> Self {
        let (opened, current) = (RwLock::default(), Mutex::default());
        self.data_keys = Some(Arc::new(DataKeyring { vault, opened, current }));
        self
    }

    /// Returns the data key that seals; `None` if bodies are stored as they are.
    pub async fn sealing_key(&self) -> Result<Option<Arc<DataKey>>, StoreError> {
        let Some(ring) = self.data_keys.as_ref().filter(|ring| !ring.vault.is_unset()) else {
            return Ok(None);
        };
        let mut current = ring.current.lock().await;
        let known = match &*current {
            Some((read, key)) if read.elapsed() < CURRENT_KEY_LIFETIME => {
                return Ok(Some(Arc::clone(key)));
            }
            Some((_, key)) => Some(Arc::clone(key)),
            None => None,
        };
        let key = match (self.newest_data_key(ring).await, known) {
            (Ok(Some(key)), _) => key,
            (Ok(None), _) => self.add_data_key(ring).await?,
            (Err(StoreError::Unreachable(_)), Some(known)) => known,
            (Err(e), _) => return Err(e),
        };
        *current = Some((Instant::now(), Arc::clone(&key)));
        Ok(Some(key))
    }

    /// Returns the newest data key that the vault opens. One that it does not open belongs to a
    /// vault key that was lost or that only another node has.
    async fn newest_data_key(
        &self,
        ring: &DataKeyring,
    ) -> Result<Option<Arc<DataKey>>, StoreError> {
        let rows: Vec<DataKeyRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(LIST).fetch_all(pool).await?
        });
        Ok(rows.into_iter().find_map(|row| ring.open(row).ok()))
    }

    async fn add_data_key(&self, ring: &DataKeyring) -> Result<Arc<DataKey>, StoreError> {
        let no_random = |_| StoreError::Sealing("no random bytes are available".to_owned());
        let (mut id, mut bytes) = (DataKeyId::default(), [0; KEY_BYTES]);
        rand::fill(&mut id).map_err(no_random)?;
        rand::fill(&mut bytes).map_err(no_random)?;
        let text = id_text(&id);
        let sealer = ring.vault.sealer().await?;
        let SealedSecret { by, bytes: sealed } = sealer.seal(&label(&text), &bytes)?;
        on_writer!(&self.db, pool => {
            sqlx::query(ADD).bind(&text).bind(&sealed).bind(&by).execute(pool).await?;
        });
        ring.open(DataKeyRow { id: text, sealed, sealed_by: by }).map_err(StoreError::from)
    }

    /// Begins a new data key if there are others.
    pub(crate) async fn renew_data_key(&self) -> Result<(), StoreError> {
        let Some(ring) = &self.data_keys else { return Ok(()) };
        let mut current = ring.current.lock().await;
        if self.newest_data_key(ring).await?.is_some() {
            *current = Some((Instant::now(), self.add_data_key(ring).await?));
        }
        Ok(())
    }

    /// Returns the data key with that id. The error states the missing key.
    pub async fn data_key(&self, id: &DataKeyId) -> Result<Arc<DataKey>, StoreError> {
        let ring = self.data_keys.as_ref().ok_or_else(|| {
            StoreError::Sealing("it is sealed, and this program has no vault".to_owned())
        })?;
        if let Some(known) = ring.opened.read().get(id) {
            return Ok(Arc::clone(known));
        }
        let text = id_text(id);
        let row: Option<DataKeyRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(&text).fetch_optional(pool).await?
        });
        let row = row.ok_or_else(|| {
            StoreError::Sealing(format!("its data key `{text}` is not in the database"))
        })?;
        Ok(ring.open(row)?)
    }

    /// Opens a body that was sealed for the place that the label names.
    pub(crate) async fn open_body(
        &self,
        label: &str,
        sealed: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let parts = sealed.split_first().filter(|(version, _)| **version == SEALED_VERSION);
        let parts = parts.and_then(|(_, rest)| rest.split_first_chunk::<DATA_KEY_ID_BYTES>());
        let parts = parts.and_then(|(id, rest)| Some((id, rest.split_at_checked(NONCE_LEN)?)));
        let (id, (nonce, inside)) = parts.ok_or(VaultError::Corrupt)?;
        let key = self.data_key(id).await?;
        let open = run_in_place(inside.len(), || key.open(label, nonce, inside.to_vec()));
        Ok(open.ok_or(VaultError::Corrupt)?)
    }
}
