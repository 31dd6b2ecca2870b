//! Tools of MCP servers that a request names, for lanes that cannot ask servers themselves.
//!
//! The gateway lists the tools, offers them to the model as functions, calls those that it chooses and asks
//! it again with the results. Every turn is a call of its own, with its own reservation and receipt. A call
//! of the caller's own tools ends the answer.

mod approvals;
mod bench;
pub mod client;
mod event_body;
mod messages;
mod messages_history;
mod named_servers;
mod native;
pub mod oauth;
mod own_tools;
mod paid_call;
mod responses;
mod responses_history;
mod responses_request;
mod tool_outcome;
mod turn_format;
pub(super) mod turns;

pub use client::{McpClient, McpEndpoint, McpError, McpTool};
pub use named_servers::offered_endpoint;
pub use paid_call::PaidToolCall;
