//! One-time links: a random token in the URL, its digest in the store.

use canon::Micros;
use serde::{Deserialize, Serialize};
use store::{AuditedChange, Link, LinkPurpose};

use crate::account_admin::AccountAdmin;
use crate::error::AdminError;
use crate::mcp_servers::PendingMcpSignIn;
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
    /// Sign-in at an MCP server in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp: Option<Box<PendingMcpSignIn>>,
    /// Digest of the network that asked for a challenge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
}

impl LinkData {
    /// The data as it is stored with a link.
    pub fn to_text(&self) -> String {
        // Serialising a few strings cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
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
        data: note.to_text(),
        created: now,
        expires: now + life,
    }
}

impl AccountAdmin {
    /// Returns a new link, which is not stored yet, and its token.
    pub(crate) fn prepare_link(
        &self,
        purpose: LinkPurpose,
        account_id: Option<&str>,
        data: &LinkData,
        lifetime: Micros,
    ) -> Result<(Link, String), AdminError> {
        let token = random::random_token()
            .map_err(|_| AdminError::Internal("no random numbers are available".to_owned()))?;
        let hash = random::digest(&token);
        Ok((new_link(hash, purpose, account_id, data, (self.now(), lifetime)), token))
    }

    /// Stores a link that somebody asked for by mail, and returns its path. Expired links are
    /// deleted.
    pub(crate) async fn store_mailed_link(
        &self,
        (link, token): (Link, String),
    ) -> Result<String, AdminError> {
        self.sweep_links().await;
        self.store.add_link(&link).await?;
        Ok(link_path(&token))
    }

    /// Deletes expired links. A failure is only logged.
    pub(crate) async fn sweep_links(&self) {
        if let Err(error) = self.store.sweep_links(self.now()).await {
            tracing::warn!("cannot delete expired links: {error}");
        }
    }

    /// Uses a link up as part of a change. Only one of several concurrent requests succeeds.
    pub(crate) async fn consume_link(
        &self,
        change: &mut AuditedChange,
        link: &Link,
    ) -> Result<(), AdminError> {
        let taken = change.take_link(&link.hash, link.purpose).await?;
        let valid = taken.is_some_and(|link| self.now() < link.expires);
        if valid { Ok(()) } else { Err(AdminError::NotFound("link")) }
    }
}

/// Path of the page that opens a link.
pub(crate) fn link_path(token: &str) -> String {
    format!("/link/{token}")
}
