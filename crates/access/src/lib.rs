//! Access control: API keys and their authentication, rate limits, concurrency limits, idempotency
//! keys.

pub mod authentication;
pub mod idempotency;
pub mod keys;
pub mod limits;
