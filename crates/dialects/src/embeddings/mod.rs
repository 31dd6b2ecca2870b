//! Embeddings: `POST /v1/embeddings`, and `:embedContent` and `:batchEmbedContents` of the native
//! format.
//!
//! Embeddings have their own request (`Embed`) and reply (`Embedded`) instead of those in
//! canon. `Form` corresponds to the `Dialect` trait: same steps, same method names.

mod chat;
mod endpoint;
mod native;
mod raw_json;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use endpoint::Form;
pub use reply::Embedded;
pub use request::{Embed, Glimpse, Input, VectorEncoding};
