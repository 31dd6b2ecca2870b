//! Tokens with which identity providers sign in to manage people. A provider has at most two at a time, so that one
//! replaces the other without a gap.

use canon::Micros;
use config::IdentityProvider;
use http::StatusCode;
use store::{AccountRole, AuditedChange, KeyGrants, ScimToken};

use super::problem::ScimProblem;
use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::random;

/// Begin of the text of a token, by which people and secret scanners recognise it.
const PREFIX: &str = "scim-pt-";
const ID_CHARS: usize = 12;
/// Tokens of one provider at a time.
const MAX_TOKENS: usize = 2;
/// Age at which the time of the last use is written again.
const USE_STEP: Micros = Micros::from_secs(60);

/// An identity provider that has signed in with a token.
#[derive(Clone, Debug)]
pub struct ScimClient {
    /// The provider.
    pub provider: IdentityProvider,
    /// Id of its token.
    pub token_id: String,
}

impl ScimClient {
    /// Name of the provider in the configuration.
    pub fn identity(&self) -> &str {
        &self.provider.name
    }

    pub(super) fn actor(&self) -> Actor {
        Actor::Provisioner { audit_name: format!("scim {} {}", self.provider.name, self.token_id) }
    }
}

/// A token together with its text, which is shown once.
#[derive(Debug)]
pub struct IssuedScimToken {
    /// The token as it is stored.
    pub token: ScimToken,
    /// Text of the token.
    pub secret: String,
}

impl AccountAdmin {
    /// Creates a token for an identity provider. For owners, because the provider can lock administrators.
    pub async fn create_scim_token(
        &self,
        actor: &Actor,
        provider: &IdentityProvider,
        expires: Option<Micros>,
    ) -> Result<IssuedScimToken, AdminError> {
        require_may_issue(actor, expires)?;
        let now = self.now();
        if expires.is_some_and(|end| end <= now) {
            return Err(AdminError::invalid("expires_in", "must be in the future"));
        }
        let mut change = self.store.begin_change().await?;
        let known = self.store.scim_tokens().await?;
        let is_valid = |token: &&ScimToken| token.expires.is_none_or(|end| end > now);
        let own = |token: &&ScimToken| token.identity == provider.name;
        if known.iter().filter(own).filter(is_valid).count() >= MAX_TOKENS {
            let message = format!(
                "`{}` has {MAX_TOKENS} tokens already; revoke the one that is no longer used",
                provider.name
            );
            return Err(AdminError::invalid("identity", message));
        }
        let new_text = || {
            random::random_token()
                .map_err(|_| AdminError::Internal("no random numbers are available".to_owned()))
        };
        let id: String = new_text()?.chars().take(ID_CHARS).collect();
        let secret = format!("{PREFIX}{id}-{}", new_text()?);
        let token = ScimToken {
            id,
            identity: provider.name.clone(),
            hash: random::digest(&secret),
            created_by: actor.audit_name().to_owned(),
            created: now,
            expires,
            last_used: None,
        };
        change.drop_expired_scim_tokens(now).await?;
        change.add_scim_token(&token).await?;
        self.commit(change, actor, &[["scim.create_token", &token.id, &token.identity]]).await?;
        Ok(IssuedScimToken { token, secret })
    }

    /// Returns all tokens, for administrators.
    pub async fn scim_tokens(&self, actor: &Actor) -> Result<Vec<ScimToken>, AdminError> {
        actor.require_admin()?;
        Ok(self.store.scim_tokens().await?)
    }

    /// Revokes a token. It stops working on all nodes at once.
    pub async fn revoke_scim_token(&self, actor: &Actor, id: &str) -> Result<(), AdminError> {
        actor.require_admin()?;
        let mut change = self.store.begin_change().await?;
        let token = self.store.scim_token(id).await?.ok_or(AdminError::NotFound("token"))?;
        if !change.drop_scim_token(id).await? {
            return Err(AdminError::NotFound("token"));
        }
        let note = ["scim.revoke_token", &token.id, &token.identity];
        Ok(self.commit(change, actor, &[note]).await?)
    }

    /// Begins a change by a provider. A token that was revoked while its request was on the way changes nothing,
    /// because the revocation is a change too, and changes run one after the other.
    pub(super) async fn begin_scim_change(
        &self,
        client: &ScimClient,
    ) -> Result<AuditedChange, ScimProblem> {
        let change = self.store.begin_change().await?;
        let token = self.store.scim_token(&client.token_id).await?;
        if token.is_some_and(|token| token.expires.is_none_or(|end| end > self.now())) {
            return Ok(change);
        }
        let why = "this SCIM token was revoked or has expired";
        Err(ScimProblem::with_status(StatusCode::UNAUTHORIZED, why))
    }

    /// Returns the provider that signs in with this token; `None` if the token is wrong, revoked or expired, or if
    /// its provider is not configured any more.
    pub async fn scim_client(
        &self,
        text: &str,
        providers: &[IdentityProvider],
    ) -> Result<Option<ScimClient>, AdminError> {
        let id = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        let Some(id) = id.map(|(id, _)| id).filter(|id| id.len() == ID_CHARS) else {
            return Ok(None);
        };
        let Some(token) = self.store.scim_token(id).await? else { return Ok(None) };
        let now = self.now();
        let sent = random::digest(text);
        let is_same = aws_lc_rs::constant_time::verify_slices_are_equal(&sent, &token.hash).is_ok();
        if !is_same || token.expires.is_some_and(|end| end <= now) {
            return Ok(None);
        }
        let provider = providers.iter().find(|provider| provider.name == token.identity);
        let Some(provider) = provider.cloned() else {
            tracing::warn!(
                identity = token.identity,
                "a SCIM token of `{}` is refused: there is no such identity provider",
                token.identity
            );
            return Ok(None);
        };
        if token.last_used.is_none_or(|last| last + USE_STEP <= now) {
            self.store.note_scim_use(&token.id, now).await?;
        }
        Ok(Some(ScimClient { provider, token_id: token.id }))
    }
}

/// Refuses a token for an actor that may not hand out the right to lock administrators.
fn require_may_issue(actor: &Actor, expires: Option<Micros>) -> Result<(), AdminError> {
    actor.require_admin()?;
    match actor.account() {
        Some(account) if account.role != AccountRole::Owner => {
            return Err(AdminError::forbidden("only an owner may create SCIM tokens"));
        }
        Some(_) | None => {}
    }
    let Some(key) = actor.key() else { return Ok(()) };
    if key.grants != KeyGrants::All {
        return Err(AdminError::forbidden(
            "a key for a part of administration cannot create SCIM tokens",
        ));
    }
    if key.expires.is_some_and(|end| expires.is_none_or(|expires| expires > end)) {
        return Err(AdminError::forbidden(
            "an admin key cannot create a SCIM token that outlives it; set `expires_in`, or use \
             `portunus scim token create`",
        ));
    }
    Ok(())
}
