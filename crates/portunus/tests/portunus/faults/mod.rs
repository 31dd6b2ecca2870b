//! Every fault of a provider, on every surface, streamed and whole: what the caller is told, that no
//! stream ends silently short, and what the ledger holds. The provider is `portunus simulate`.

mod caller;
mod callers;
mod h2;
mod judge;
mod lanes;
mod matrix;
mod table;
