//! MCP servers of the operator that people connect with OAuth: their state, sign-in and sign-out.
//!
//! The tokens belong to the gateway, a team or a person, as `per` of the server says. Only those who may act
//! for that owner connect or disconnect it, and a person's tokens are for keys of that person alone.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use canon::{Micros, Price};
use config::{GrantHolder, McpOAuthSettings, McpServerSettings};
use relay::mcp::oauth::{
    self, AuthorityError, AuthorizationServer, GrantedTokens, OAuthClient, grant_owner,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use store::{AccountRole, McpClientRecord, McpGrant, VaultError};

use crate::Admin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::random;
use crate::rights::{TeamAction, may_in_team};

/// Path that authorization servers send browsers back to.
const CALLBACK_PATH: &str = "/console/mcp/callback";

/// State of a server for one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpConnection {
    /// The operator configured its credential, or it needs none.
    NotNeeded,
    /// It can be used.
    Connected,
    /// Nobody has connected it.
    NotConnected,
    /// It was connected, and the sign-in has ended.
    SignInEnded,
}

/// Server as the console shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServerView {
    /// Name.
    pub name: String,
    /// Holder of its tokens; `None` without `oauth`.
    pub holder: Option<GrantHolder>,
    /// State for the owner that was asked for.
    pub connection: McpConnection,
    /// Time of the connection.
    pub connected_at: Option<Micros>,
    /// True if the actor may connect and disconnect it.
    pub may_connect: bool,
    /// Price of one call.
    pub price: Price,
}

/// Sign-in that waits for the browser to return. It holds no token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingMcpSignIn {
    server: String,
    /// Address of the server at the start.
    url: String,
    /// Account or team that the person acts for.
    owner_id: String,
    client_id: String,
    verifier: String,
    authority: AuthorizationServer,
}

impl PendingMcpSignIn {
    /// Account or team that the person acts for.
    pub fn owner_id(&self) -> &str {
        &self.owner_id
    }

    /// Returns true if the browser comes from the authorization server that it was sent to (RFC 9207).
    pub fn accepts_issuer(&self, issuer: &str) -> bool {
        let AuthorizationServer { issuer: own, names_issuer, .. } = &self.authority;
        (issuer.is_empty() && !names_issuer) || issuer == own
    }
}

/// Start of a sign-in.
pub struct McpSignInStart {
    /// Page of the authorization server.
    pub url: String,
    /// Random word that comes back with the browser.
    pub state: String,
    /// Data that the return needs.
    pub pending: PendingMcpSignIn,
}

impl Admin {
    /// Lists the servers that keys of an account or team may use, with their state for it.
    pub async fn mcp_servers(
        &self,
        actor: &Actor,
        owner_id: &str,
    ) -> Result<Vec<McpServerView>, AdminError> {
        let keys = self.store.keys_of(owner_id).await?;
        let config = self.engine.config();
        let mut views = Vec::new();
        for server in config.mcp.servers.values() {
            let is_admitted = server.admits(owner_id, "")
                || keys.iter().any(|key| server.admits(owner_id, &key.id));
            if !is_admitted && !actor.is_admin() {
                continue;
            }
            let may_connect = self.require_may_connect(actor, server, owner_id).await.is_ok();
            let grant = match &server.oauth {
                Some(oauth) => {
                    let owner = token_owner(oauth, actor, owner_id)?;
                    self.store.mcp_grant(&server.name, &owner).await?
                }
                None => None,
            };
            let connection = match (&server.oauth, &grant) {
                (None, _) => McpConnection::NotNeeded,
                (Some(_), None) => McpConnection::NotConnected,
                (Some(_), Some(grant)) if grant.is_lost || grant.resource != server.url => {
                    McpConnection::SignInEnded
                }
                (Some(_), Some(_)) => McpConnection::Connected,
            };
            views.push(McpServerView {
                name: server.name.clone(),
                holder: server.oauth.as_ref().map(|oauth| oauth.per),
                connection,
                connected_at: grant.map(|grant| grant.created),
                may_connect,
                price: server.price,
            });
        }
        Ok(views)
    }

    /// Finds the authorization server of a server and begins a sign-in there.
    pub async fn begin_mcp_sign_in(
        &self,
        actor: &Actor,
        owner_id: &str,
        name: &str,
    ) -> Result<McpSignInStart, AdminError> {
        let server = self.mcp_server(name)?;
        let oauth = self.require_may_connect(actor, &server, owner_id).await?;
        if let Some(why) = self.vault.unavailable_reason() {
            return Err(AdminError::invalid("", format!("the token could not be stored: {why}")));
        }
        let refused = |error: AuthorityError| {
            tracing::warn!("the MCP server `{name}` cannot be connected: {error:?}");
            AdminError::invalid("", format!("`{name}` cannot be connected: {error}"))
        };
        let authority = oauth::discover(&server, oauth).await.map_err(refused)?;
        let client = match self.mcp_client(&server, oauth, &authority).await? {
            Some(client) => client,
            None => {
                let registered =
                    oauth::register(&oauth.fetcher, &authority, &self.mcp_redirect()).await;
                let (client, expires) = registered.map_err(refused)?;
                self.keep_mcp_client(&server, &authority, &client, expires).await?;
                client
            }
        };
        let words = [random::random_token(), random::random_token()];
        let [Ok(state), Ok(verifier)] = words else {
            return Err(AdminError::Internal("no random numbers are available".to_owned()));
        };
        // RFC 7636, section 4.2.
        let challenge = URL_SAFE_NO_PAD.encode(random::digest(&verifier));
        let redirect = self.mcp_redirect();
        let url = client.sign_in_url(&authority, &redirect, (&state, &challenge));
        let pending = PendingMcpSignIn {
            server: server.name.clone(),
            url: server.url.clone(),
            owner_id: owner_id.to_owned(),
            client_id: client.id,
            verifier,
            authority,
        };
        Ok(McpSignInStart { url, state, pending })
    }

    /// Exchanges the code of a sign-in for tokens and stores them. Returns the name of the server.
    pub async fn finish_mcp_sign_in(
        &self,
        actor: &Actor,
        pending: PendingMcpSignIn,
        code: &str,
    ) -> Result<String, AdminError> {
        let PendingMcpSignIn { server: name, url, owner_id, client_id, verifier, authority } =
            pending;
        let server = self.mcp_server(&name)?;
        let oauth = self.require_may_connect(actor, &server, &owner_id).await?;
        let client = self.mcp_client(&server, oauth, &authority).await?;
        let client = client.filter(|client| client.id == client_id && url == server.url);
        let client = client.ok_or_else(|| {
            AdminError::Conflict(format!("the settings of `{name}` have changed; begin again"))
        })?;
        let redirect = self.mcp_redirect();
        let answer =
            oauth::exchange_code(&oauth.fetcher, &authority, &client, (code, &verifier, &redirect));
        let answer = match answer.await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!("the MCP server `{name}` cannot be connected: {error:?}");
                if error == AuthorityError::Refused("invalid_client".to_owned()) {
                    self.store.drop_mcp_client(&name, &authority.issuer).await?;
                }
                let message = format!("`{name}` cannot be connected: {error}");
                return Err(AdminError::invalid("", message));
            }
        };
        let expires = self.engine.mcp_grants.expiry(answer.lifetime_s);
        let tokens = GrantedTokens::new(answer, client, authority);
        let owner = token_owner(oauth, actor, &owner_id)?;
        let mut grant = McpGrant {
            id: uuid::Uuid::now_v7().to_string(),
            server: name.clone(),
            account_id: match oauth.per {
                GrantHolder::Gateway => None,
                GrantHolder::Team => Some(owner_id),
                GrantHolder::Person => Some(actor.require_person()?.id.clone()),
            },
            owner,
            resource: server.url.clone(),
            sealed: store::SealedSecret { by: String::new(), bytes: Vec::new() },
            expires,
            is_lost: false,
            version: 1,
            connected_by: actor.audit_name().to_owned(),
            created: self.accounts.now(),
        };
        let sealer = self.vault.sealer().await.map_err(closed)?;
        let sealed = sealer.seal(&grant.label(), tokens.to_text().as_bytes());
        grant.sealed = sealed.map_err(closed)?;
        let mut change = self.store.begin_change().await?;
        change.put_mcp_grant(&grant).await?;
        let note = ["mcp.connect", name.as_str(), grant.owner.as_str()];
        self.accounts.commit(change, actor, &[note]).await?;
        drop(sealer);
        Ok(name)
    }

    /// Forgets the tokens of a server, and revokes them at its authorization server in the background.
    pub async fn disconnect_mcp_server(
        &self,
        actor: &Actor,
        owner_id: &str,
        name: &str,
    ) -> Result<(), AdminError> {
        let server = self.mcp_server(name)?;
        let oauth = self.require_may_connect(actor, &server, owner_id).await?;
        let owner = token_owner(oauth, actor, owner_id)?;
        let Some(grant) = self.store.mcp_grant(name, &owner).await? else { return Ok(()) };
        let mut change = self.store.begin_change().await?;
        change.drop_mcp_grant(name, &owner).await?;
        self.accounts.commit(change, actor, &[["mcp.disconnect", name, &owner]]).await?;
        if let Ok(tokens) = self.engine.mcp_grants.open(&grant) {
            let (fetcher, name) = (oauth.fetcher.clone(), name.to_owned());
            self.engine.tasks.spawn(async move {
                if let Err(error) = oauth::revoke(&fetcher, &tokens).await {
                    tracing::warn!("a token of the MCP server `{name}` was not revoked: {error:?}");
                }
            });
        }
        Ok(())
    }

    fn mcp_server(&self, name: &str) -> Result<Arc<McpServerSettings>, AdminError> {
        let config = self.engine.config();
        config.mcp.servers.get(name).cloned().ok_or(AdminError::NotFound("MCP server"))
    }

    fn mcp_redirect(&self) -> String {
        format!("{}{CALLBACK_PATH}", self.engine.config().public_url)
    }

    /// Returns the terms of a server, or refuses an actor that may not connect it for this account or team.
    async fn require_may_connect<'s>(
        &self,
        actor: &Actor,
        server: &'s McpServerSettings,
        owner_id: &str,
    ) -> Result<&'s McpOAuthSettings, AdminError> {
        let oauth = server.oauth.as_ref().ok_or(AdminError::NotFound("MCP server"))?;
        let person = actor.require_person()?;
        let refused = |why: &str| Err(AdminError::forbidden(why));
        match oauth.per {
            GrantHolder::Gateway => {
                actor.require_admin()?;
                return Ok(oauth);
            }
            GrantHolder::Person | GrantHolder::Team if person.role == AccountRole::Viewer => {
                return refused("viewers connect no servers");
            }
            GrantHolder::Person => {}
            GrantHolder::Team if person.id == owner_id => {}
            GrantHolder::Team => {
                let team = self.store.team(owner_id).await?;
                let team = team.ok_or(AdminError::NotFound("team"))?;
                let memberships = self.store.memberships_of(&person.id).await?;
                let role = memberships.iter().find(|own| own.team.id == team.id);
                let role = role.map(|membership| membership.role);
                if !may_in_team(person, &team, role, TeamAction::ManageMembers) {
                    return refused("managers of the team connect its servers");
                }
            }
        }
        let account_id = match oauth.per {
            GrantHolder::Person => &person.id,
            GrantHolder::Gateway | GrantHolder::Team => owner_id,
        };
        let keys = match server.lists_keys() {
            true => self.store.keys_of(account_id).await?,
            false => Vec::new(),
        };
        let is_admitted = server.admits(account_id, "")
            || keys.iter().any(|key| server.admits(account_id, &key.id));
        if is_admitted { Ok(oauth) } else { Err(AdminError::NotFound("MCP server")) }
    }

    /// Returns the client that the operator gave, or one that was registered for the same authorization
    /// server and is still valid.
    async fn mcp_client(
        &self,
        server: &McpServerSettings,
        oauth: &McpOAuthSettings,
        authority: &AuthorizationServer,
    ) -> Result<Option<OAuthClient>, AdminError> {
        if let Some(id) = &oauth.client_id {
            let secret = oauth.client_secret.as_deref();
            return Ok(Some(OAuthClient::configured(id, secret, authority)));
        }
        let now = self.accounts.now();
        let found = self.store.mcp_client(&server.name).await?.filter(|found| {
            found.issuer == authority.issuer
                && found.redirect == self.mcp_redirect()
                && found.expires.is_none_or(|expires| now < expires)
        });
        let Some(found) = found else { return Ok(None) };
        // A client that cannot be opened is registered again.
        let opened = self.vault.open(&found.label(), &found.sealed).ok();
        Ok(opened.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    async fn keep_mcp_client(
        &self,
        server: &McpServerSettings,
        authority: &AuthorizationServer,
        client: &OAuthClient,
        expires_s: Option<i64>,
    ) -> Result<(), AdminError> {
        let mut record = McpClientRecord {
            server: server.name.clone(),
            issuer: authority.issuer.clone(),
            redirect: self.mcp_redirect(),
            sealed: store::SealedSecret { by: String::new(), bytes: Vec::new() },
            expires: expires_s.and_then(|at| at.checked_mul(1_000_000)).map(Micros::new),
        };
        let text = serde_json::to_vec(client);
        let text = text.map_err(|error| AdminError::Internal(error.to_string()))?;
        let sealer = self.vault.sealer().await.map_err(closed)?;
        record.sealed = sealer.seal(&record.label(), &text).map_err(closed)?;
        Ok(self.store.put_mcp_client(&record).await?)
    }
}

/// Returns the owner of the tokens. Those of a person belong to the actor, whoever the actor acts for.
fn token_owner(
    oauth: &McpOAuthSettings,
    actor: &Actor,
    owner_id: &str,
) -> Result<String, AdminError> {
    Ok(match oauth.per {
        GrantHolder::Person => grant_owner(oauth.per, &actor.require_person()?.id),
        GrantHolder::Gateway | GrantHolder::Team => grant_owner(oauth.per, owner_id),
    })
}

fn closed(error: VaultError) -> AdminError {
    match error {
        VaultError::Store(error) => AdminError::Store(error),
        VaultError::Unavailable(_) | VaultError::UnknownKey(_) | VaultError::Corrupt => {
            AdminError::invalid("", error.to_string())
        }
    }
}
