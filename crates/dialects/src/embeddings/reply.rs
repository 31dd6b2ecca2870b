//! An embeddings reply, independent of the format.

use canon::{ApiError, ErrorKind, ExtraFields, Loss, Losses, Usage, WireFormat};

use super::request::EmbeddingRequest;
use crate::ReplyMeter;

/// An embeddings reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EmbeddingReply {
    /// Vectors in the order of the inputs.
    pub vectors: Vec<Vec<f32>>,
    /// Usage, if reported.
    pub usage: Option<Usage>,
    /// Fields only the provider's format has.
    pub extras: ExtraFields,
}

impl EmbeddingReply {
    /// Adds the reply to the next inputs of the same request.
    pub fn append(&mut self, later: Self) {
        let Self { vectors, usage, extras } = later;
        let first = self.vectors.is_empty();
        self.vectors.extend(vectors);
        // A sum with a missing part would bill too little.
        self.usage = match (self.usage, usage) {
            _ if first => usage,
            (Some(own), Some(more)) => {
                Some(Usage { input: own.input.saturating_add(more.input), ..own })
            }
            (None, _) | (_, None) => None,
        };
        for origin in WireFormat::ALL {
            for (name, value) in extras.for_format(origin).into_iter().flatten() {
                self.extras.insert(origin, name, value.clone());
            }
        }
    }

    /// Returns the fields of other formats than `me`, which are lost.
    pub(super) fn losses(&self, me: WireFormat) -> Vec<Loss> {
        let mut losses = Losses::new();
        for name in self.extras.foreign_to(me) {
            losses.add(&format!("reply.{name}"), "only the provider's format has this field");
        }
        losses.into_vec()
    }

    /// Returns an error if the number of vectors differs from the number of inputs.
    pub fn check_count(&self, embed: &EmbeddingRequest) -> Result<(), ApiError> {
        let (expected, received) = (embed.inputs.len(), self.vectors.len());
        if expected == received {
            return Ok(());
        }
        Err(unreadable(&format!("expected {expected} vectors and received {received}")))
    }
}

/// Error for a body that is not a reply.
pub(super) fn unreadable(why: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the provider's answer could not be read")
        .with_log_note(format!("no embeddings: {why}"))
}

/// Rejects a vector with a number that does not fit into 32 bits.
pub(super) fn finite(vector: Vec<f32>) -> Result<Vec<f32>, ApiError> {
    if vector.iter().all(|number| number.is_finite()) {
        Ok(vector)
    } else {
        Err(unreadable("a number is too large"))
    }
}

/// Writes a vector as JSON, with the short decimals of 32-bit floats.
pub(super) fn numbers(vector: &[f32]) -> String {
    serde_json::to_string(vector).unwrap_or_else(|_| "[]".to_owned())
}

/// Returns the error in a reply with a success status. `read` is the result of reading the same
/// body as a conversation.
pub(super) fn error_of(read: Result<ReplyMeter, ApiError>) -> ApiError {
    read.err().unwrap_or_else(|| unreadable("an error beside an answer"))
}
