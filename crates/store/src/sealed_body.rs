//! Sealed columns. A text that the gateway keeps is JSON, so that a sealed one is known by its first
//! word; rows from before the data keys lie open until they expire.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::data_keys::DataKey;
use crate::large_work::run_in_place;
use crate::vault::VaultError;
use crate::{Store, StoreError};

/// First word of a sealed text. Base64 follows.
const SEALED_PREFIX: &str = "sealed:";

/// Returns true if a text is sealed.
pub(crate) fn is_sealed(text: &str) -> bool {
    text.starts_with(SEALED_PREFIX)
}

/// Returns a label that names a column of a row.
pub(crate) fn column_label(table: &str, row: &[&str], column: &str) -> String {
    format!("{table}\0{}\0{column}", row.join("\0"))
}

/// Seals the columns of one row: all of them, or none if the store has no vault.
pub(crate) struct ColumnSealer(Option<Arc<DataKey>>);

impl ColumnSealer {
    /// Returns the bytes to store.
    pub(crate) fn bytes<'a>(
        &self,
        label: &str,
        body: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, StoreError> {
        match &self.0 {
            Some(key) => Ok(run_in_place(body.len(), || key.seal(label, body))?.into()),
            None => Ok(body.into()),
        }
    }

    /// Returns the text to store.
    pub(crate) fn text<'a>(&self, label: &str, text: &'a str) -> Result<Cow<'a, str>, StoreError> {
        match &self.0 {
            Some(key) => {
                let sealed = run_in_place(text.len(), || key.seal(label, text.as_bytes()))?;
                Ok(format!("{SEALED_PREFIX}{}", STANDARD.encode(sealed)).into())
            }
            None => Ok(text.into()),
        }
    }

    /// Returns the sealed bytes of a body; `None` if the store has no vault.
    pub(crate) fn sealed(
        &self,
        label: &str,
        body: impl FnOnce() -> Vec<u8>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(key) = &self.0 else { return Ok(None) };
        let body = body();
        run_in_place(body.len(), || key.seal(label, &body)).map(Some)
    }
}

impl Store {
    /// Returns the sealer of a row.
    pub(crate) async fn column_sealer(&self) -> Result<ColumnSealer, StoreError> {
        Ok(ColumnSealer(self.sealing_key().await?))
    }

    /// Opens a text of that column if it is sealed.
    pub(crate) async fn open_text(&self, label: &str, text: String) -> Result<String, StoreError> {
        let Some(inside) = text.strip_prefix(SEALED_PREFIX) else { return Ok(text) };
        let sealed = STANDARD.decode(inside).map_err(|_| VaultError::Corrupt)?;
        let open = self.open_body(label, &sealed).await?;
        Ok(String::from_utf8(open).map_err(|_| VaultError::Corrupt)?)
    }

    /// Returns the body of a row that keeps it sealed or, without a vault, open.
    pub(crate) async fn open_column(
        &self,
        label: &str,
        body: String,
        sealed: Option<Vec<u8>>,
    ) -> Result<String, StoreError> {
        let Some(sealed) = sealed else { return Ok(body) };
        let open = self.open_body(label, &sealed).await?;
        Ok(String::from_utf8(open).map_err(|_| VaultError::Corrupt)?)
    }
}
