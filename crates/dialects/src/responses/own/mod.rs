//! Conventions that only the responses format has: items with their events, and the response object
//! that repeats its request.

mod client_arguments;
pub(super) mod client_tools;
pub(super) mod event_writer;
pub(super) mod item_writer;
pub(super) mod output_items;
pub(super) mod partial_response;
pub(super) mod response_object;
pub(super) mod server_secrets;
pub(super) mod tool_names;
mod whole_parts;
