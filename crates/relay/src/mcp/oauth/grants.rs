//! Tokens that calls use, and their renewal. One node renews the tokens of a grant at a time.

use canon::Micros;
use config::{GrantHolder, McpOAuthSettings, McpServerSettings};
use http::HeaderValue;
use ledger::Clock;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{McpGrant, Store};
use tokio_util::task::TaskTracker;

use super::exchange::{self, GrantedTokens};
use super::requests::AuthorityError;
use crate::mcp::client::McpError;

/// Tokens that end sooner are renewed before their use.
const EXPIRY_MARGIN: Micros = Micros::from_secs(30);
/// Time for which a node may renew a grant alone. It is longer than a request to an authorization server.
const REFRESH_CLAIM: Micros = Micros::from_secs(30);
/// Time to wait for another call or node that renews the same grant.
const REFRESH_WAIT: Duration = Duration::from_secs(20);
const REFRESH_POLL: Duration = Duration::from_millis(50);
/// Renewed tokens that cannot be stored are lost, because the old ones are used up.
const STORE_TRIES: u32 = 5;
const STORE_RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Path of the page on which servers are connected.
const CONSOLE_PATH: &str = "/console/mcp";

/// Returns the owner of the tokens of a server for keys of this account. A grant of a team is never one of a
/// person, even if the configuration changes.
pub fn grant_owner(holder: GrantHolder, account_id: &str) -> String {
    match holder {
        GrantHolder::Gateway => holder.word().to_owned(),
        GrantHolder::Team | GrantHolder::Person => format!("{}:{account_id}", holder.word()),
    }
}

/// Tokens of MCP servers in the store.
pub struct McpGrants {
    store: Store,
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
}

/// Token for a request, and the version of its grant.
pub(in crate::mcp) struct GrantedBearer {
    pub(in crate::mcp) header: HeaderValue,
    pub(in crate::mcp) version: i64,
}

/// Source of the token for requests of one account to one server.
#[derive(Clone)]
pub struct McpTokenSource {
    grants: Arc<McpGrants>,
    server: Arc<McpServerSettings>,
    account_id: String,
    public_url: String,
}

impl McpTokenSource {
    /// Returns the source of the tokens of a server for keys of this account; `None` if it has no `oauth`.
    pub fn new(
        grants: &Arc<McpGrants>,
        server: &Arc<McpServerSettings>,
        (account_id, public_url): (&str, &str),
    ) -> Option<Self> {
        server.oauth.as_ref().map(|_| Self {
            grants: Arc::clone(grants),
            server: Arc::clone(server),
            account_id: account_id.to_owned(),
            public_url: public_url.to_owned(),
        })
    }

    /// Returns a valid token. `refused` is the version of a token that the server did not accept.
    pub(in crate::mcp) async fn bearer(
        &self,
        refused: Option<i64>,
    ) -> Result<GrantedBearer, McpError> {
        let Some(oauth) = &self.server.oauth else {
            return Err(McpError::Unusable("it is not connected by people"));
        };
        let owner = grant_owner(oauth.per, &self.account_id);
        let (begun, mut first_version) = (Instant::now(), None);
        while begun.elapsed() < REFRESH_WAIT {
            let store = &self.grants.store;
            let grant = store.mcp_grant(&self.server.name, &owner).await.map_err(unreachable)?;
            let Some(grant) = grant else { return Err(self.not_connected(oauth).await) };
            // Tokens for one address are not sent to another one.
            if grant.is_lost || grant.resource != self.server.url {
                return Err(self.sign_in_ended());
            }
            let tokens = self.grants.open(&grant)?;
            let now = self.grants.clock.now();
            let is_valid = |margin| grant.expires.is_none_or(|end| end > now + margin);
            let is_refused = refused == Some(grant.version);
            // A token that was renewed for this request may live shorter than the margin.
            let is_renewed = *first_version.get_or_insert(grant.version) != grant.version;
            let margin = if is_renewed { Micros::ZERO } else { EXPIRY_MARGIN };
            if !is_refused && is_valid(margin) {
                return bearer(&tokens, &grant);
            }
            if tokens.refresh.is_none() {
                if !is_refused && is_valid(Micros::ZERO) {
                    return bearer(&tokens, &grant);
                }
                store.lose_mcp_grant(&grant).await.map_err(unreachable)?;
                return Err(self.sign_in_ended());
            }
            // A task of its own: the caller may leave, and the old token is used up.
            let server = Arc::clone(&self.server);
            let renewal = Arc::clone(&self.grants).renew(server, grant.clone(), tokens.clone());
            match self.grants.tasks.spawn(renewal).await.map_err(unreachable)? {
                Renewal::Stored | Renewal::Lost => {}
                Renewal::Busy => tokio::time::sleep(REFRESH_POLL).await,
                Renewal::Failed(_) if !is_refused && is_valid(Micros::ZERO) => {
                    return bearer(&tokens, &grant);
                }
                Renewal::Failed(why) => return Err(McpError::Unreachable(why)),
            }
        }
        Err(McpError::Unreachable("its token is being renewed for too long".to_owned()))
    }

    async fn not_connected(&self, oauth: &McpOAuthSettings) -> McpError {
        let is_of_team = match oauth.per {
            GrantHolder::Gateway | GrantHolder::Team => false,
            GrantHolder::Person => {
                matches!(self.grants.store.team(&self.account_id).await, Ok(Some(_)))
            }
        };
        if is_of_team {
            return McpError::Unusable(
                "each person connects it, and this key belongs to a team: use a key of your own",
            );
        }
        McpError::NotConnected { server: self.server.name.clone(), page: self.page() }
    }

    fn sign_in_ended(&self) -> McpError {
        McpError::SignInEnded { server: self.server.name.clone(), page: self.page() }
    }

    fn page(&self) -> String {
        format!("{}{CONSOLE_PATH}", self.public_url)
    }
}

fn bearer(tokens: &GrantedTokens, grant: &McpGrant) -> Result<GrantedBearer, McpError> {
    let header = HeaderValue::try_from(format!("Bearer {}", tokens.access));
    let mut header = header.map_err(|_| McpError::Unusable("its token cannot be sent"))?;
    header.set_sensitive(true);
    Ok(GrantedBearer { header, version: grant.version })
}

fn unreachable(error: impl std::fmt::Display) -> McpError {
    McpError::Unreachable(error.to_string())
}

/// End of a renewal.
enum Renewal {
    /// Another call or node renews the tokens.
    Busy,
    /// The store has new tokens, or those of another change.
    Stored,
    /// The authorization server does not renew the tokens any more.
    Lost,
    /// It may work later. The reason is for the log.
    Failed(String),
}

impl McpGrants {
    /// Creates the access to the tokens in a store.
    pub fn new(store: Store, clock: Arc<dyn Clock>, tasks: TaskTracker) -> Self {
        Self { store, clock, tasks }
    }

    /// Opens the tokens of a grant.
    pub fn open(&self, grant: &McpGrant) -> Result<GrantedTokens, McpError> {
        let closed = McpError::Unusable("its token cannot be decrypted; connect it again");
        let vault = self.store.vault().ok_or_else(|| closed.clone())?;
        let opened = vault.open(&grant.label(), &grant.sealed).map_err(|error| {
            tracing::error!("the token of the MCP server `{}`: {error}", grant.server);
            closed.clone()
        })?;
        serde_json::from_slice(&opened).map_err(|_| closed)
    }

    /// Returns the time at which a token with this life expires.
    pub fn expiry(&self, lifetime_s: Option<i64>) -> Option<Micros> {
        // A life that no time can hold is none.
        let micros = lifetime_s?.checked_mul(1_000_000)?.checked_add(self.clock.now().get())?;
        Some(Micros::new(micros))
    }

    /// Claims the renewal of tokens, renews them and stores them in place of the old ones.
    async fn renew(
        self: Arc<Self>,
        server: Arc<McpServerSettings>,
        grant: McpGrant,
        mut tokens: GrantedTokens,
    ) -> Renewal {
        let (Some(oauth), Some(old)) = (&server.oauth, tokens.refresh.clone()) else {
            return Renewal::Failed("nothing renews the token".to_owned());
        };
        match self.store.claim_mcp_refresh(&grant, REFRESH_CLAIM).await {
            Ok(true) => {}
            Ok(false) => return Renewal::Busy,
            Err(error) => return Renewal::Failed(error.to_string()),
        }
        let answer = match exchange::refresh(&oauth.fetcher, &tokens, &old).await {
            Ok(answer) => answer,
            Err(error) => return self.end_failed(&server, &grant, &tokens, error).await,
        };
        let expires = self.expiry(answer.lifetime_s);
        tokens.renew(answer);
        for attempt in 1..=STORE_TRIES {
            let secret = tokens.to_text();
            match self.store.reseal_mcp_grant(&grant, secret.as_bytes(), expires).await {
                // The owner disconnected the server, or connected it again. The new tokens have no place.
                Ok(false) => {
                    if let Err(error) = exchange::revoke(&oauth.fetcher, &tokens).await {
                        tracing::debug!("a token of `{}` was not revoked: {error:?}", server.name);
                    }
                    return Renewal::Stored;
                }
                Ok(true) => return Renewal::Stored,
                Err(why) if attempt == STORE_TRIES => {
                    tracing::error!("a token of `{}` could not be stored: {why}", server.name);
                    return Renewal::Failed(why.to_string());
                }
                Err(_) => tokio::time::sleep(STORE_RETRY_PAUSE).await,
            }
        }
        Renewal::Failed("the token could not be stored".to_owned())
    }

    async fn end_failed(
        &self,
        server: &McpServerSettings,
        grant: &McpGrant,
        tokens: &GrantedTokens,
        error: AuthorityError,
    ) -> Renewal {
        let name = &server.name;
        let is_final = match &error {
            AuthorityError::Refused(code) => {
                matches!(&**code, "invalid_grant" | "invalid_client" | "unauthorized_client")
            }
            AuthorityError::NotPublic(_)
            | AuthorityError::Unreachable(_)
            | AuthorityError::Status(_)
            | AuthorityError::Unusable(_) => false,
        };
        let ended = match is_final {
            true => self.store.lose_mcp_grant(grant).await.map(|_| ()),
            false => self.store.release_mcp_refresh(grant).await,
        };
        if let Err(error) = ended {
            tracing::warn!("the end of a renewal for `{name}` could not be stored: {error}");
        }
        if !is_final {
            tracing::warn!("the token of the MCP server `{name}` was not renewed: {error:?}");
            return Renewal::Failed(error.to_string());
        }
        tracing::info!("the sign-in at the MCP server `{name}` has ended: {error}");
        if error == AuthorityError::Refused("invalid_client".to_owned()) {
            let dropped = self.store.drop_mcp_client(name, &tokens.authority.issuer).await;
            if let Err(error) = dropped {
                tracing::warn!("a client of `{name}` could not be removed: {error}");
            }
        }
        Renewal::Lost
    }
}
