//! One-time links: a random token in the URL, its digest in the store.

use canon::Micros;
use serde::{Deserialize, Serialize};
use store::{Link, LinkPurpose};

use crate::account_admin::AccountAdmin;
use crate::error::AdminError;
use crate::random;

/// Lifetime of a link by its purpose.
pub const LINK_LIFETIMES: LinkLifetimes = LinkLifetimes {
    reset: Micros::from_secs(30 * 60),
    sign_up: Micros::from_days(1),
    invite: Micros::from_days(7),
    email: Micros::from_days(1),
    sign_in_step: Micros::from_secs(10 * 60),
};

/// Lifetimes of one-time links.
pub struct LinkLifetimes {
    /// Choosing a new password.
    pub reset: Micros,
    /// Confirming a sign-up.
    pub sign_up: Micros,
    /// Accepting an invitation.
    pub invite: Micros,
    /// Confirming an e-mail address.
    pub email: Micros,
    /// One step of a sign-in.
    pub sign_in_step: Micros,
}

/// Data stored with a link for the page it opens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkData {
    /// E-mail address the link was sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Role of the account to be created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Team id and team role of the account to be created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<(String, String)>,
    /// Account that created the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maker: Option<String>,
    /// Path to open after the last step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// OpenID Connect provider of a sign-in in progress. `nonce` must come back in the ID token,
    /// and `verifier` is the PKCE code verifier (RFC 7636).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Nonce that must come back in the ID token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// PKCE code verifier (RFC 7636).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verifier: Option<String>,
}

/// Returns the data stored with a link.
pub fn link_data(link: &Link) -> LinkData {
    serde_json::from_str(&link.data).unwrap_or_default()
}

/// Returns a new link with the given creation time and lifetime.
pub fn new_link(
    hash: Vec<u8>,
    purpose: LinkPurpose,
    account_id: Option<&str>,
    note: &LinkData,
    (now, life): (Micros, Micros),
) -> Link {
    Link {
        hash,
        purpose,
        account_id: account_id.map(str::to_owned),
        // Serialising a few strings cannot fail.
        data: serde_json::to_string(note).unwrap_or_default(),
        created: now,
        expires: now + life,
    }
}

impl AccountAdmin {
    /// Creates a link and returns its token.
    pub(crate) async fn create_link(
        &self,
        purpose: LinkPurpose,
        account_id: Option<&str>,
        data: &LinkData,
        lifetime: Micros,
    ) -> Result<String, AdminError> {
        let token = random::random_token()
            .map_err(|_| AdminError::Internal("no random numbers are available".to_owned()))?;
        let now = self.now();
        if let Err(error) = self.store.sweep_links(now).await {
            tracing::warn!("cannot delete expired links: {error}");
        }
        let hash = random::digest(&token);
        let link = new_link(hash, purpose, account_id, data, (now, lifetime));
        self.store.add_link(&link).await?;
        Ok(token)
    }

    /// Uses a link up. Only one of several concurrent requests succeeds.
    pub(crate) async fn consume_link(&self, link: &Link) -> Result<(), AdminError> {
        let taken = self.store.take_link(&link.hash, link.purpose).await?;
        let valid = taken.is_some_and(|link| self.now() < link.expires);
        if valid { Ok(()) } else { Err(AdminError::NotFound("link")) }
    }

    /// Restores a link whose action failed.
    pub(crate) async fn restore_link(&self, link: &Link) -> Result<(), AdminError> {
        Ok(self.store.add_link(link).await?)
    }
}

/// Path of the page that opens a link.
pub(crate) fn link_path(token: &str) -> String {
    format!("/link/{token}")
}
