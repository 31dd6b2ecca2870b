//! Response to a client.

use crate::client::body::ClientBody;
use crate::header_block::HeaderBlock;

/// A response: status, headers and an unread body.
#[derive(Debug)]
pub struct ClientResponse {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderBlock,
    /// Body.
    pub body: ClientBody,
}
