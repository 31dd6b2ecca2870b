//! Peculiarities of the messages format.

pub(super) mod client_tools;
pub(super) mod gateway_blocks;
pub(super) mod plain_reply;
pub(super) mod schema;
pub(super) mod server_tools;
pub(super) mod thinking;
pub(super) mod tool_names;
