//! An embeddings request, independent of the format.

use bytes::Bytes;
use canon::{ExtraFields, RequestNeeds};
use std::ops::Range;

use crate::CallerLabels;
use crate::json::{self, BodyEdit, BodySegments};

/// An embeddings request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EmbeddingRequest {
    /// Requested model.
    pub model: String,
    /// Inputs, one vector each.
    pub inputs: Vec<EmbeddingInput>,
    /// Requested vector length.
    pub dimensions: Option<u64>,
    /// Task type in the native format's words. In a batch, the first one.
    pub task: Option<String>,
    /// Title of the document. In a batch, the first one.
    pub title: Option<String>,
    /// Requested encoding of the vectors.
    pub encoding: VectorEncoding,
    /// End user id.
    pub user: Option<String>,
    /// Fields only the caller's format has.
    pub extras: ExtraFields,
}

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbeddingInput {
    /// A text.
    Text(String),
    /// A text as token ids of the model.
    Tokens(Vec<u64>),
}

/// Encoding of vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VectorEncoding {
    /// JSON numbers.
    #[default]
    Float,
    /// Base64 of little-endian 32-bit floats, the default of the official SDKs.
    Base64,
}

/// Facts about a request that routing and billing need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EmbeddingFacts {
    /// Requested model.
    pub model: String,
    /// Bytes of the inputs without JSON syntax, to estimate usage the provider does not report.
    pub input_bytes: u64,
    /// Byte ranges of the model name.
    pub model_ranges: Vec<Range<usize>>,
    /// Lengths of vectors that it asks for.
    pub needs: RequestNeeds,
    /// End user that it names.
    pub labels: CallerLabels,
}

impl EmbeddingFacts {
    /// Returns the caller's body with another model, written as `name`.
    pub(super) fn with_model(&self, body: &Bytes, model: &str, name: &str) -> BodySegments {
        let edit = |range: &Range<usize>| BodyEdit {
            range: range.clone(),
            replacement: json::to_json_string(name),
        };
        let ranges = self.model_ranges.iter().filter(|_| self.model != model);
        BodySegments::with_edits(body, ranges.map(edit).collect())
    }
}
