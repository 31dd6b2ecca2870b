//! Every fault of a provider, on every surface, streamed and whole: the answer to the caller, that
//! no stream ends silently short, and the ledger. The provider is `portunus simulate`.

mod disconnects;
mod expectations;
mod failover;
mod fault_table;
pub(crate) mod formats;
mod h2;
mod matrix;
