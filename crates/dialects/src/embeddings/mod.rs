//! Embeddings: `POST /v1/embeddings`, and `:embedContent` and `:batchEmbedContents` of the native
//! format.
//!
//! Embeddings have their own request (`EmbeddingRequest`) and reply (`EmbeddingReply`) instead of those in
//! canon. `EmbeddingFormat` corresponds to the `Dialect` trait: same steps, same method names.

mod chat;
mod endpoint;
mod native;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use endpoint::{EmbeddingEndpoint, EmbeddingFormat};
pub use reply::EmbeddingReply;
pub use request::{EmbeddingFacts, EmbeddingInput, EmbeddingRequest, VectorEncoding};
