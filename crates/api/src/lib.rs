//! The HTTP API: its route table, its handlers, stored answers and image tasks.
//!
//! Start reading in `routes.rs`, which lists every address, then in `serve.rs`, which shows how a
//! request gets to its handler.

mod admin;
mod catalog;
mod chat;
mod count;
mod embeddings;
mod files;
mod handler;
mod health;
mod images;
mod key;
mod memory;
mod messages;
mod models;
mod native;
mod object;
mod openapi;
mod query;
mod request;
mod responses;
mod routes;
mod serve;
mod state;
mod task_routes;
mod tasks;
mod threads;
mod watched;

pub use handler::{ApiHandler, MetricsHandler};
pub use key::export as write_entry;
pub use memory::Memory;
pub use openapi::document as description;
pub use routes::addresses;
pub use serve::{Api, administer, nothing_here, serve_as};
pub use state::ApiState;
pub use tasks::Tasks;
