//! Tokens of agents that signed in: renewed with a refresh token, or given back.
//!
//! An access token is a key. A refresh replaces the secret of this key and the refresh token itself,
//! so that receipts, caps and revocation belong to one key for the whole sign-in.
//!
//! The answer to a refresh may be lost, and several processes of one agent may refresh at the same
//! moment. So a token that is used again within [`REPLAY_GRACE`] gets the same answer. The new tokens
//! are derived from the old one with the gateway's secret for that purpose, and nothing readable is
//! stored.
//!
//! A refresh token that is used again after that, or after its successor was used, may have been copied, and
//! nobody can tell whether the owner or the thief was first. So the key is revoked, and both sign in again
//! (RFC 9700, section 4.14.2).
//!
//! Claude Code is an exception within one network, where it is only refused. Its windows keep the token in
//! memory and read their store after a refusal (2.1.325): one that did nothing while another one refreshed
//! sends the old token later, and revoking would sign out everybody with two windows.

use access::keys::{KeyToken, NewKeyToken, hash_token, random_letters};
use aws_lc_rs::hmac;
use canon::Micros;
use store::{AuditedChange, KeyRecord, RefreshToken};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::agent_codes::no_randomness;
use crate::error::AdminError;
use crate::random;

/// Surface of the program whose windows share one sign-in.
const CLAUDE_CODE: &str = "claude_code";
/// Life of an access token. A person who was removed is out after this time at the latest, and at
/// once where the removal revokes the key.
pub const ACCESS_LIFE: Micros = Micros::from_secs(3_600);
/// Life of a refresh token. A sign-in that is not used for this time ends.
pub const REFRESH_LIFE: Micros = Micros::from_days(30);
/// Time in which a used refresh token gets the same answer again.
const REPLAY_GRACE: Micros = Micros::from_secs(60);
/// Begin of a refresh token, for people and secret scanners.
const REFRESH_PREFIX: &str = "rt-pt-";
const REFRESH_LETTERS: usize = 43;

/// Tokens for an agent. They are shown once.
pub struct TokenGrant {
    /// The key.
    pub access_token: String,
    /// Renews the key once.
    pub refresh_token: String,
    /// Time until the key expires.
    pub expires_in: Micros,
    /// Address, or else the name, of the person who signed in.
    pub email: Option<String>,
}

impl std::fmt::Debug for TokenGrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenGrant").field("expires_in", &self.expires_in).finish_non_exhaustive()
    }
}

/// Returns a new refresh token.
pub(crate) fn new_refresh_text() -> Result<String, aws_lc_rs::error::Unspecified> {
    Ok(format!("{REFRESH_PREFIX}{}", random_letters(REFRESH_LETTERS)?))
}

impl AccountAdmin {
    /// Renews the tokens of an agent. `None` if the token is unknown, expired or was used before, or
    /// if the person may not use the key any more; the agent then signs in again.
    pub async fn refresh_sign_in(
        &self,
        text: &str,
        network: &str,
    ) -> Result<Option<TokenGrant>, AdminError> {
        let hash = random::digest(text);
        // A token that nobody issued does not wait for other changes.
        if self.store.refresh_token(&hash).await?.is_none() {
            return Ok(None);
        }
        let mut change = self.store.begin_change().await?;
        let Some(token) = self.store.refresh_token(&hash).await? else { return Ok(None) };
        let Some(key) = self.store.key(&token.key_id).await? else { return Ok(None) };
        if key.revoked.is_some() {
            return Ok(None);
        }
        let now = self.now();
        let person = match &key.created_by {
            Some(id) => self.store.account(id).await?,
            None => None,
        };
        let Some(person) = person else { return Ok(None) };
        let actor = Actor::Person(person);
        let owner = self.store.owner(&key.account_id).await?;
        let may_use = match &owner {
            Some(owner) => self.may_create_keys(&actor, owner).await?,
            None => false,
        };
        let next = Successor::of(self.keys.pepper(), text, &key)?;
        let answer = self.store.refresh_token(&random::digest(&next.refresh)).await?;
        let is_answer_unused = answer.is_some_and(|answer| answer.used.is_none());
        let why = match token.used {
            _ if !may_use => "the person may not use it any more",
            _ if now >= token.expires => "its refresh token has expired",
            Some(used) if now - used < REPLAY_GRACE && is_answer_unused => {
                drop(change);
                let expires_in = key.expires.map_or(Micros::ZERO, |end| end - now);
                return Ok(Some(next.into_grant(expires_in.max(Micros::ZERO))));
            }
            Some(_) if token.used_from.as_deref() == Some(network) => {
                if key.surface.as_deref() == Some(CLAUDE_CODE) {
                    return Ok(None);
                }
                "its refresh token was used twice, from one network"
            }
            Some(_) => "its refresh token was used twice, from two networks",
            None => {
                self.store_successor(change, (&token, network), key, &next).await?;
                return Ok(Some(next.into_grant(ACCESS_LIFE)));
            }
        };
        change.revoke_key(&key.id, now).await?;
        change.drop_refresh_tokens_of(&key.id).await?;
        self.commit(change, &actor, &[["key.revoke", &key.id, why]]).await?;
        self.reload_key(&key.id).await?;
        Ok(None)
    }

    /// Replaces the secret of a key and its refresh token. The old secret works until the time that
    /// was promised for it.
    async fn store_successor(
        &self,
        mut change: AuditedChange,
        (token, network): (&RefreshToken, &str),
        key: KeyRecord,
        next: &Successor,
    ) -> Result<(), AdminError> {
        let now = self.now();
        let promised = key.expires.unwrap_or(now);
        change.use_refresh_token(&token.hash, now, network).await?;
        add_refresh(&mut change, &next.refresh, &key, now).await?;
        let renewed = KeyRecord { expires: Some(now + ACCESS_LIFE), changed: now, ..key };
        change.update_key(&renewed).await?;
        let hash = hash_token(self.keys.pepper(), &next.access);
        change.rotate_key(&renewed.id, &hash, promised, now).await?;
        self.commit_sign_in_step(change).await?;
        self.reload_key(&renewed.id).await?;
        Ok(())
    }

    /// Ends the sign-in of an access or refresh token. Other texts, ordinary keys among them, change
    /// nothing (RFC 7009, section 2.2).
    pub async fn revoke_sign_in(&self, text: &str) -> Result<(), AdminError> {
        let Some(key_id) = self.signed_in_key(text).await? else { return Ok(()) };
        let mut change = self.store.begin_change().await?;
        let Some(key) = self.store.key(&key_id).await? else { return Ok(()) };
        let person = match &key.created_by {
            Some(id) => self.store.account(id).await?,
            None => None,
        };
        let Some(person) = person else { return Ok(()) };
        if change.revoke_key(&key.id, self.now()).await? {
            change.drop_refresh_tokens_of(&key.id).await?;
            let note = ["key.revoke", &key.id, "the agent signed out"];
            self.commit(change, &Actor::Person(person), &[note]).await?;
            self.reload_key(&key.id).await?;
        }
        Ok(())
    }

    /// Returns the id of the key that a token belongs to, if it was made by signing in.
    async fn signed_in_key(&self, text: &str) -> Result<Option<String>, AdminError> {
        if let Some(token) = self.store.refresh_token(&random::digest(text)).await? {
            return Ok(Some(token.key_id));
        }
        let Some(token) = KeyToken::parse(text) else { return Ok(None) };
        let key = self.store.key(token.id()).await?.filter(|key| key.surface.is_some());
        let matches = |key: &KeyRecord| {
            let hashes = [Some(&key.hash), key.old_hash.as_ref()];
            hashes.into_iter().flatten().any(|hash| token.matches(self.keys.pepper(), hash))
        };
        Ok(key.filter(matches).map(|key| key.id))
    }
}

/// Adds a refresh token of a key to a change.
pub(crate) async fn add_refresh(
    change: &mut AuditedChange,
    text: &str,
    key: &KeyRecord,
    now: Micros,
) -> Result<(), AdminError> {
    let token = RefreshToken {
        hash: random::digest(text),
        key_id: key.id.clone(),
        issued: now,
        expires: now + REFRESH_LIFE,
        used: None,
        used_from: None,
    };
    Ok(change.add_refresh_token(&token).await?)
}

/// The tokens that replace those of a refresh token.
struct Successor {
    access: String,
    refresh: String,
}

impl Successor {
    /// Derives the successor of a refresh token.
    fn of(pepper: &hmac::Key, text: &str, key: &KeyRecord) -> Result<Self, AdminError> {
        let derive = |purpose: &str, block: u32| {
            hmac::sign(pepper, format!("{purpose} after {block} {text}").as_bytes())
        };
        let letters = |purpose: &str| {
            let mut block = 0;
            access::keys::letters_from(REFRESH_LETTERS, |bytes: &mut [u8]| {
                // A tag has 32 bytes, and the buffer is two of them long.
                for half in bytes.chunks_mut(32) {
                    block += 1;
                    let tag = derive(purpose, block);
                    for (byte, own) in half.iter_mut().zip(tag.as_ref()) {
                        *byte = *own;
                    }
                }
                Ok(())
            })
        };
        let secret = letters("access token").map_err(no_randomness)?;
        let access = NewKeyToken::with_secret(key.id.clone(), key.scope, &secret).text;
        let refresh =
            format!("{REFRESH_PREFIX}{}", letters("refresh token").map_err(no_randomness)?);
        Ok(Self { access, refresh })
    }

    fn into_grant(self, expires_in: Micros) -> TokenGrant {
        let Self { access, refresh } = self;
        TokenGrant { access_token: access, refresh_token: refresh, expires_in, email: None }
    }
}
