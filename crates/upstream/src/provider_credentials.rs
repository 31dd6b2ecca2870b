//! Credentials of a provider: state and renewal of those that are fetched, and texts without any of them.

use canon::ApiError;

use crate::credential::Credential;
use crate::provider::Provider;
use crate::secret_filter::{self, FindKnown};
use crate::sent_secrets::SentSecrets;

impl Provider {
    /// Returns true if the credential at this index is fetched from a service.
    pub fn has_fetched_credential(&self, index: usize) -> bool {
        self.credential(index).is_fetched()
    }

    /// Fetches the credential at this index, unless there is a valid one.
    pub async fn prepare_credential(&self, index: usize) -> Result<(), ApiError> {
        self.credential(index).prepare(self.client()).await
    }

    /// Starts to fetch the credentials that are missing, expired or due for renewal.
    pub fn keep_credentials_fresh(&self) {
        for index in 0..self.credential_count() {
            self.credential(index).keep_fresh(self.client());
        }
    }

    /// Returns the reason why the credential at this index cannot be fetched, for the operator.
    pub fn credential_trouble(&self, index: usize) -> Option<String> {
        self.credential(index).trouble()
    }

    /// Takes over the secrets that another provider with the same base URL fetched for the same
    /// credentials.
    pub fn adopt_credentials(&self, earlier: &Self) {
        for index in 0..self.credential_count() {
            if let Some(known) = self.index_in(earlier, index) {
                self.credential(index).adopt(earlier.credential(known));
            }
        }
    }

    /// Returns a text of the provider without any piece of its credentials or of the secrets that were sent,
    /// but for pieces that the request contains.
    pub fn hide_secrets(
        &self,
        text: Vec<u8>,
        sent: &SentSecrets,
        find_known: &FindKnown<'_>,
    ) -> Vec<u8> {
        let all = (0..self.credential_count()).map(|index| self.credential(index));
        let secrets: Vec<Vec<u8>> = all.flat_map(Credential::secrets).chain(sent.texts()).collect();
        secret_filter::hide_secrets(text, &secrets, find_known)
    }

    /// Returns a text as [`Self::hide_secrets`] does; `None` if nothing is to be hidden.
    pub fn hide_in_text(
        &self,
        text: &str,
        sent: &SentSecrets,
        find_known: &FindKnown<'_>,
    ) -> Option<String> {
        let shown = self.hide_secrets(text.as_bytes().to_vec(), sent, find_known);
        Some(String::from_utf8_lossy(&shown).into_owned()).filter(|shown| shown != text)
    }

    /// Returns an error with the texts of [`Self::hide_secrets`].
    pub fn hide_in_error(
        &self,
        error: ApiError,
        sent: &SentSecrets,
        find_known: &FindKnown<'_>,
    ) -> ApiError {
        let hidden = |text: &str| self.hide_in_text(text, sent, find_known);
        let message = hidden(error.message());
        let (param, code) = (error.param().and_then(hidden), error.code().and_then(hidden));
        let note = error.log_note().and_then(hidden);
        let error = message.into_iter().fold(error, ApiError::with_message);
        let error = param.into_iter().fold(error, ApiError::with_param);
        let error = code.into_iter().fold(error, ApiError::with_code);
        note.into_iter().fold(error, ApiError::with_log_note)
    }
}
