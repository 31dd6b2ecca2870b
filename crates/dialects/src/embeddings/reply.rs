//! An embeddings reply, independent of the format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::{ApiError, ExtraFields, Loss, Losses, Usage, WireFormat};
use std::fmt::Display;

use super::request::EmbeddingRequest;
use crate::ReplyMeter;
use crate::json;
use crate::upstream_error::unreadable_reply;

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
        for (origin, name, value) in extras.all_fields() {
            self.extras.insert(origin, name, value.clone());
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
        Err(unreadable(format!("expected {expected} vectors and received {received}")))
    }
}

/// A parsed reply whose vectors are still JSON.
#[derive(Debug)]
pub struct ParsedVectors<'a> {
    pub(super) vectors: Vec<&'a str>,
    /// Tokens of the input, if reported.
    pub(super) input: Option<u64>,
    pub(super) extras: ExtraFields,
}

impl ParsedVectors<'_> {
    pub(super) fn usage(&self) -> Option<Usage> {
        self.input.map(|input| Usage { input, ..Usage::default() })
    }

    pub(super) fn read(self) -> Result<EmbeddingReply, ApiError> {
        let vectors = self.vectors.iter().map(|json| read_vector(json));
        let vectors = vectors.collect::<Result<_, _>>()?;
        Ok(EmbeddingReply { vectors, usage: self.usage(), extras: self.extras })
    }
}

/// Reads one vector: a list of numbers, or base64 of them.
fn read_vector(json: &str) -> Result<Vec<f32>, ApiError> {
    let vector: Vec<f32> = if json.starts_with('"') {
        let bytes = STANDARD.decode(json.trim_matches('"'));
        let bytes = bytes.map_err(unreadable)?;
        let (fours, []) = bytes.as_chunks::<4>() else {
            return Err(unreadable("a vector ends in the middle of a number"));
        };
        fours.iter().map(|four| f32::from_le_bytes(*four)).collect()
    } else {
        json::read(json).map_err(unreadable)?
    };
    if vector.iter().all(|number| number.is_finite()) {
        Ok(vector)
    } else {
        Err(unreadable("a number is too large"))
    }
}

/// Error for a body that is not a reply.
pub(super) fn unreadable(why: impl Display) -> ApiError {
    unreadable_reply("embeddings", &why.to_string())
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
