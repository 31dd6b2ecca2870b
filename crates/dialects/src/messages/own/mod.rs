//! Peculiarities of the messages format.

pub(super) mod gateway_blocks;
pub(super) mod schema;
pub(super) mod server_blocks;
pub(super) mod thinking;
pub(super) mod tool_names;
pub(super) mod tool_runs;
