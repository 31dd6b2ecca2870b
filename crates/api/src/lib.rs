//! The HTTP API: its route table, its handlers, stored answers and image tasks.
//!
//! Start reading in `routes.rs`, which lists every route, then in `serve.rs`, which shows how a
//! request gets to its handler.

mod admin;
mod agent_routes;
mod alert_messages;
mod cached_contents;
mod catalog;
mod chat;
mod codex_catalog;
mod connection_answers;
mod conversations;
mod embeddings;
mod files;
mod handler;
mod head_facts;
mod health;
mod images;
mod json_object;
mod key_info;
mod keyed;
mod listen;
mod mcp;
mod messages;
mod metrics;
mod models;
mod native;
mod oauth;
mod observe;
mod openapi;
mod query;
mod request;
mod responses;
mod routes;
mod scim;
mod scope;
mod serve;
mod sessions;
mod spend_standing;
mod standing_cache;
mod state;
mod stored_answers;
mod task_routes;
mod tasks;
mod threads;
mod token_count;

pub use handler::MetricsHandler;
pub use key_info::export_json;
pub use listen::listen;
pub use openapi::document as openapi_document;
pub use routes::route_summaries;
pub use serve::{ApiService, PageService, path_not_found, serve_with_key, wants_page};
pub use standing_cache::StandingCache;
pub use state::ApiState;
pub use stored_answers::StoredAnswers;
pub use tasks::ImageTasks;
