//! Who may call: API keys and their carriers, rate limits, concurrency, idempotency keys.

pub mod authentication;
pub mod idempotency;
pub mod keys;
pub mod limits;
