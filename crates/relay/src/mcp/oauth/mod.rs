//! OAuth for MCP servers of the operator, by the authorization rules of the protocol
//! (<https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization>).
//!
//! A person connects a server in the console. The tokens are sealed by the vault, and the gateway renews
//! them when a call needs them. Every address that a server or its authorization server names passes the
//! guard of `[media]`.

mod authority;
mod exchange;
mod grants;
mod requests;

pub use authority::{AuthorizationServer, discover};
pub use exchange::{GrantedTokens, OAuthClient, TokenAnswer, exchange_code, register, revoke};
pub use grants::{McpGrants, McpTokenSource, grant_owner};
pub use requests::AuthorityError;
