//! Tests of the gateway as a whole: in process, over sockets and as a program.
//!
//! One binary, because each further one links the whole gateway once more.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stderr,
    reason = "a test stops when its setup fails"
)]

mod admin;
mod admin_pages;
mod alert_kinds;
mod alerts;
mod answer_schemas;
mod answers;
mod at_rest;
mod attacks;
mod cached_contents;
mod candidates;
mod certificates;
mod chat;
mod cli;
mod client_tools;
mod config;
mod conversations;
mod description;
mod doors;
mod embeddings;
mod endings;
mod error_paths;
mod faults;
mod gateway_alerts;
mod idempotency;
mod image_replies;
mod images;
mod imports;
mod key_headers;
mod key_lists;
mod key_objects;
mod key_scopes;
mod lane_records;
mod lanes;
mod large_bodies;
mod limits;
mod losses;
mod mail_sink;
mod mcp;
mod mcp_oauth;
mod mcp_prices;
mod media_urls;
mod metrics;
mod money;
#[cfg(feature = "node-tests")]
mod nodes;
mod playground;
mod provider_caches;
mod provider_objects;
mod providers;
mod restart;
mod retention;
mod routes;
mod scim;
#[cfg(feature = "node-tests")]
mod shared_limits;
mod sign_in;
mod small_disk;
mod specification;
mod statements;
mod stop_enforcement;
mod store_outage;
mod stored_config;
mod stored_responses;
mod tasks;
mod teams;
mod telemetry;
mod thread_log;
mod token_counts;
mod transport;
mod undocumented_fields;
mod web_sockets;
mod wildcards;
