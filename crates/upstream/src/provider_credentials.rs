//! Credentials of a provider that are fetched: state and renewal.

use canon::ApiError;

use crate::provider::Provider;

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
}
