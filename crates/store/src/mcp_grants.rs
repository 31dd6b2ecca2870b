//! Tokens of MCP servers that people connected, and the clients that the gateway registered for them. Both
//! are sealed by the vault.
//!
//! A grant has a version. Nodes that renew its tokens claim it first and write with the version that they
//! read, so that a token is renewed once and a later change is never overwritten.

use canon::Micros;

use crate::audited_change::in_change;
use crate::db::{clean, on_reader, on_writer};
use crate::row::row;
use crate::vault::SealedSecret;
use crate::{AuditedChange, Store, StoreError};

/// Tokens of one owner for one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpGrant {
    /// Its id.
    pub id: String,
    /// Name of the server.
    pub server: String,
    /// The gateway, or a team or person by id.
    pub owner: String,
    /// Account of the team or person.
    pub account_id: Option<String>,
    /// Address of the server when it was connected.
    pub resource: String,
    /// The tokens.
    pub sealed: SealedSecret,
    /// Expiry of the access token, if it is known.
    pub expires: Option<Micros>,
    /// True if the authorization server does not renew the tokens any more.
    pub is_lost: bool,
    /// Number of changes.
    pub version: i64,
    /// Account that connected the server.
    pub connected_by: String,
    /// Time of the connection.
    pub created: Micros,
}

impl McpGrant {
    /// Returns the label its tokens are bound to.
    pub fn label(&self) -> String {
        label(&self.id, &self.server, &self.owner)
    }
}

/// Returns the label of the tokens of a grant, which names its row, its server and its owner.
pub(crate) fn label(id: &str, server: &str, owner: &str) -> String {
    format!("mcp_grants\0{id}\0{server}\0{owner}")
}

/// Client that the gateway registered at an authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpClientRecord {
    /// Name of the MCP server.
    pub server: String,
    /// The authorization server.
    pub issuer: String,
    /// Address to which the authorization server sends browsers back.
    pub redirect: String,
    /// Id and secret.
    pub sealed: SealedSecret,
    /// Expiry of the secret.
    pub expires: Option<Micros>,
}

impl McpClientRecord {
    /// Returns the label its secret is bound to.
    pub fn label(&self) -> String {
        client_label(&self.server, &self.issuer)
    }
}

/// Returns the label of the secret of a client, which names its row and its authorization server.
pub(crate) fn client_label(server: &str, issuer: &str) -> String {
    format!("mcp_clients\0{server}\0{issuer}")
}

row! {
    struct McpGrantRow {
        id: String,
        server: String,
        owner: String,
        account_id: Option<String>,
        resource: String,
        sealed: Vec<u8>,
        sealed_by: String,
        expires: Option<Micros>,
        is_lost: i64,
        version: i64,
        connected_by: String,
        created: Micros,
    }
}

impl From<McpGrantRow> for McpGrant {
    fn from(row: McpGrantRow) -> Self {
        Self {
            id: row.id,
            server: row.server,
            owner: row.owner,
            account_id: row.account_id,
            resource: row.resource,
            sealed: SealedSecret { by: row.sealed_by, bytes: row.sealed },
            expires: row.expires,
            is_lost: row.is_lost != 0,
            version: row.version,
            connected_by: row.connected_by,
            created: row.created,
        }
    }
}

row! {
    struct McpClientRow {
        server: String,
        issuer: String,
        redirect: String,
        sealed: Vec<u8>,
        sealed_by: String,
        expires: Option<Micros>,
    }
}

impl From<McpClientRow> for McpClientRecord {
    fn from(row: McpClientRow) -> Self {
        let McpClientRow { server, issuer, redirect, sealed, sealed_by, expires } = row;
        let sealed = SealedSecret { by: sealed_by, bytes: sealed };
        Self { server, issuer, redirect, sealed, expires }
    }
}

const GET: &str = "SELECT id, server, owner, account_id, resource, sealed, sealed_by, expires, \
    is_lost, version, connected_by, created FROM mcp_grants WHERE server = $1 AND owner = $2";
const ADD: &str = "INSERT INTO mcp_grants (id, server, owner, account_id, resource, sealed, \
    sealed_by, expires, is_lost, version, connected_by, created) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 1, $9, $10)";
const DROP: &str = "DELETE FROM mcp_grants WHERE server = $1 AND owner = $2";
// Nodes agree on the clock of the database.
const CLAIM: &str = "UPDATE mcp_grants SET refreshing = (SELECT now FROM store_clock) + $3 \
    WHERE id = $1 AND version = $2 AND is_lost = 0 \
    AND (refreshing IS NULL OR refreshing <= (SELECT now FROM store_clock))";
const RELEASE: &str = "UPDATE mcp_grants SET refreshing = NULL WHERE id = $1 AND version = $2";
const RENEW: &str = "UPDATE mcp_grants SET sealed = $3, sealed_by = $4, expires = $5, \
    refreshing = NULL, version = version + 1 WHERE id = $1 AND version = $2";
const LOSE: &str = "UPDATE mcp_grants SET is_lost = 1, refreshing = NULL, version = version + 1 \
    WHERE id = $1 AND version = $2";
const GET_CLIENT: &str = "SELECT server, issuer, redirect, sealed, sealed_by, expires \
    FROM mcp_clients WHERE server = $1";
const PUT_CLIENT: &str = "INSERT INTO mcp_clients (server, issuer, redirect, sealed, sealed_by, \
    expires) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (server) DO UPDATE SET \
    issuer = excluded.issuer, redirect = excluded.redirect, sealed = excluded.sealed, \
    sealed_by = excluded.sealed_by, expires = excluded.expires";
const DROP_CLIENT: &str = "DELETE FROM mcp_clients WHERE server = $1 AND issuer = $2";

impl Store {
    /// Returns the tokens of an owner for a server.
    pub async fn mcp_grant(
        &self,
        server: &str,
        owner: &str,
    ) -> Result<Option<McpGrant>, StoreError> {
        let row: Option<McpGrantRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(server)).bind(clean(owner)).fetch_optional(pool).await?
        });
        Ok(row.map(McpGrant::from))
    }

    /// Claims the renewal of the tokens of this version for that time. Of several nodes, one gets it.
    pub async fn claim_mcp_refresh(
        &self,
        grant: &McpGrant,
        time: Micros,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            let claim = sqlx::query(CLAIM).bind(clean(&grant.id)).bind(grant.version);
            claim.bind(time.get()).execute(pool).await?.rows_affected()
        }) > 0)
    }

    /// Ends a claim without new tokens.
    pub async fn release_mcp_refresh(&self, grant: &McpGrant) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            sqlx::query(RELEASE).bind(clean(&grant.id)).bind(grant.version).execute(pool).await?;
        });
        Ok(())
    }

    /// Replaces the tokens of this version. Returns false if the grant was changed or removed meanwhile.
    pub async fn renew_mcp_grant(
        &self,
        grant: &McpGrant,
        sealed: &SealedSecret,
        expires: Option<Micros>,
    ) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(RENEW)
                .bind(clean(&grant.id))
                .bind(grant.version)
                .bind(&sealed.bytes)
                .bind(clean(&sealed.by))
                .bind(expires.map(Micros::get))
                .execute(pool)
                .await?
                .rows_affected()
        }) > 0)
    }

    /// Seals renewed tokens and stores them in place of those of this version. Returns false if the grant was
    /// changed or removed meanwhile.
    pub async fn reseal_mcp_grant(
        &self,
        grant: &McpGrant,
        secret: &[u8],
        expires: Option<Micros>,
    ) -> Result<bool, StoreError> {
        let missing = || StoreError::Sealing("this program has no vault".to_owned());
        let sealer = self.vault().ok_or_else(missing)?.sealer().await?;
        let sealed = sealer.seal(&grant.label(), secret)?;
        self.renew_mcp_grant(grant, &sealed, expires).await
    }

    /// Notes that the tokens of this version are not renewed any more.
    pub async fn lose_mcp_grant(&self, grant: &McpGrant) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            sqlx::query(LOSE).bind(clean(&grant.id)).bind(grant.version).execute(pool).await?
                .rows_affected()
        }) > 0)
    }

    /// Returns the client that was registered for a server.
    pub async fn mcp_client(&self, server: &str) -> Result<Option<McpClientRecord>, StoreError> {
        let row: Option<McpClientRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET_CLIENT).bind(clean(server)).fetch_optional(pool).await?
        });
        Ok(row.map(McpClientRecord::from))
    }

    /// Keeps the client of a server in place of an earlier one.
    pub async fn put_mcp_client(&self, client: &McpClientRecord) -> Result<(), StoreError> {
        let McpClientRecord { server, issuer, redirect, sealed, expires } = client;
        on_writer!(&self.db, pool => {
            sqlx::query(PUT_CLIENT)
                .bind(clean(server))
                .bind(clean(issuer))
                .bind(clean(redirect))
                .bind(&sealed.bytes)
                .bind(clean(&sealed.by))
                .bind(expires.map(Micros::get))
                .execute(pool)
                .await?;
        });
        Ok(())
    }

    /// Forgets the client of a server, because its authorization server does not know it any more.
    pub async fn drop_mcp_client(&self, server: &str, issuer: &str) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            sqlx::query(DROP_CLIENT).bind(clean(server)).bind(clean(issuer)).execute(pool).await?;
        });
        Ok(())
    }
}

impl AuditedChange {
    /// Adds a grant in place of an earlier one of its owner for the same server.
    pub async fn put_mcp_grant(&mut self, grant: &McpGrant) -> Result<(), StoreError> {
        let McpGrant { id, server, owner, account_id, resource, sealed, expires, .. } = grant;
        in_change!(self, tx => {
            sqlx::query(DROP).bind(clean(server)).bind(clean(owner)).execute(&mut *tx).await?;
            sqlx::query(ADD)
                .bind(clean(id))
                .bind(clean(server))
                .bind(clean(owner))
                .bind(account_id.as_deref().map(clean))
                .bind(clean(resource))
                .bind(&sealed.bytes)
                .bind(clean(&sealed.by))
                .bind(expires.map(Micros::get))
                .bind(clean(&grant.connected_by))
                .bind(grant.created.get())
                .execute(&mut *tx)
                .await
                .map_err(StoreError::naming("grant", "account"))?;
        });
        Ok(())
    }

    /// Removes the tokens of an owner for a server. Returns false if there are none.
    pub async fn drop_mcp_grant(&mut self, server: &str, owner: &str) -> Result<bool, StoreError> {
        Ok(in_change!(self, tx => {
            sqlx::query(DROP).bind(clean(server)).bind(clean(owner)).execute(&mut *tx).await?
                .rows_affected()
        }) > 0)
    }
}
