//! Single-use tokens: links in mails, invitations, steps of a sign-in. Only a hash of the token is
//! stored.

use crate::audited_change::in_change;
use crate::db::{clean, on_reader, on_writer, unknown_word};
use crate::row::row;
use crate::{AuditedChange, Store, StoreError};
use canon::Micros;

/// The purpose of a link. A link is valid for this purpose only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkPurpose {
    /// Creates an account for the address it was sent to.
    SignUp,
    /// Creates an account for an invited person.
    Invite,
    /// Sets a new password.
    Reset,
    /// Verifies an email address.
    Email,
    /// Continues a sign-in with a second factor after the password was verified.
    Second,
    /// Is signed by a passkey.
    Challenge,
    /// Returns from an identity provider.
    Return,
    /// Proves that a signed-in user has authenticated again.
    Proof,
    /// Gets the key of an agent that signs in, after a person approved it.
    Device,
    /// Names the sign-in of an agent to the person who approves it.
    UserCode,
    /// Gets the key of an agent whose sign-in a person approved in the browser.
    Authorization,
}

impl LinkPurpose {
    const ALL: [Self; 11] = [
        Self::SignUp,
        Self::Invite,
        Self::Reset,
        Self::Email,
        Self::Second,
        Self::Challenge,
        Self::Return,
        Self::Proof,
        Self::Device,
        Self::UserCode,
        Self::Authorization,
    ];

    /// The word in records.
    pub const fn word(self) -> &'static str {
        match self {
            Self::SignUp => "signup",
            Self::Invite => "invite",
            Self::Reset => "reset",
            Self::Email => "email",
            Self::Second => "second",
            Self::Challenge => "challenge",
            Self::Return => "return",
            Self::Proof => "proof",
            Self::Device => "device",
            Self::UserCode => "user_code",
            Self::Authorization => "authorization",
        }
    }
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Hash of the token.
    pub hash: Vec<u8>,
    /// The purpose.
    pub purpose: LinkPurpose,
    /// The account, if there is one.
    pub account_id: Option<String>,
    /// Data of its creator, available when it is used.
    pub data: String,
    /// Time of creation.
    pub created: Micros,
    /// Time of expiry. The store has no clock, so the caller compares.
    pub expires: Micros,
}

row! {
    struct LinkRow {
        hash: Vec<u8>,
        purpose: String,
        account_id: Option<String>,
        data: String,
        created: Micros,
        expires: Micros,
    }
}

impl TryFrom<LinkRow> for Link {
    type Error = sqlx::Error;

    fn try_from(row: LinkRow) -> Result<Self, sqlx::Error> {
        let LinkRow { hash, purpose, account_id, data, created, expires } = row;
        let known = LinkPurpose::ALL.into_iter().find(|known| known.word() == purpose);
        let purpose = known.ok_or_else(|| unknown_word(&purpose))?;
        Ok(Self { hash, purpose, account_id, data, created, expires })
    }
}

const ADD: &str = "INSERT INTO links (hash, purpose, account_id, data, created, expires) \
    VALUES ($1, $2, $3, $4, $5, $6)";
const GET: &str =
    "SELECT hash, purpose, account_id, data, created, expires FROM links WHERE hash = $1";
const TAKE: &str = "DELETE FROM links WHERE hash = $1 AND purpose = $2 \
    RETURNING hash, purpose, account_id, data, created, expires";
const ALL_FOR: &str = "SELECT hash, purpose, account_id, data, created, expires FROM links \
    WHERE purpose = $1 ORDER BY created, hash";
const DROP_OF: &str = "DELETE FROM links WHERE account_id = $1 AND purpose = $2";
// The constant purpose lets both databases use the index of challenges.
const TRIM_CHALLENGES: &str = "DELETE FROM links WHERE purpose = 'challenge' AND data = $1 \
    AND account_id IS NULL AND hash NOT IN (SELECT hash FROM links WHERE purpose = 'challenge' \
    AND data = $1 AND account_id IS NULL ORDER BY created DESC, hash LIMIT $2)";
const SWEEP: &str = "DELETE FROM links WHERE expires <= $1";

impl Store {
    /// Returns the link with that hash, expired or not, without using it.
    pub async fn link(&self, hash: &[u8]) -> Result<Option<Link>, StoreError> {
        let row: Option<LinkRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(hash).fetch_optional(pool).await?
        });
        Ok(row.map(Link::try_from).transpose()?)
    }

    /// Returns every link with that purpose, the oldest first.
    pub async fn links_for(&self, purpose: LinkPurpose) -> Result<Vec<Link>, StoreError> {
        let rows: Vec<LinkRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(ALL_FOR).bind(purpose.word()).fetch_all(pool).await?
        });
        Ok(rows.into_iter().map(Link::try_from).collect::<Result<_, _>>()?)
    }

    /// Keeps the latest challenges with that data that belong to no account, and deletes the others.
    pub async fn trim_challenges(&self, data: &str, keep: u32) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            let trim = sqlx::query(TRIM_CHALLENGES).bind(clean(data)).bind(i64::from(keep));
            trim.execute(pool).await?.rows_affected()
        }))
    }

    /// Deletes the links that expired before `now`.
    pub async fn sweep_links(&self, now: Micros) -> Result<u64, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(SWEEP).bind(now.get()).execute(pool).await?.rows_affected()
        }))
    }
}

impl AuditedChange {
    /// Adds a link.
    pub async fn add_link(&mut self, link: &Link) -> Result<(), StoreError> {
        let Link { hash, purpose, account_id, data, created, expires } = link;
        in_change!(self, tx => {
            sqlx::query(ADD)
                .bind(hash)
                .bind(purpose.word())
                .bind(account_id.as_deref().map(clean))
                .bind(clean(data))
                .bind(created.get())
                .bind(expires.get())
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("link", "account"))?;
        });
        Ok(())
    }

    /// Uses a link, expired or not. Of several concurrent attempts, one gets it.
    pub async fn take_link(
        &mut self,
        hash: &[u8],
        purpose: LinkPurpose,
    ) -> Result<Option<Link>, StoreError> {
        let row: Option<LinkRow> = in_change!(self, tx => {
            sqlx::query_as(TAKE).bind(hash).bind(purpose.word()).fetch_optional(&mut *tx).await?
        });
        Ok(row.map(Link::try_from).transpose()?)
    }

    /// Deletes the links of an account with that purpose.
    pub async fn drop_links_of(
        &mut self,
        account_id: &str,
        purpose: LinkPurpose,
    ) -> Result<u64, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(DROP_OF)
                .bind(clean(account_id))
                .bind(purpose.word())
                .execute(&mut *tx)
                .await?
                .rows_affected()
        }))
    }
}
