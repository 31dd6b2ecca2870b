//! Description of a reply, whole or as a chunk of a stream: every chunk is a reply that holds only
//! its new parts. See <https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse>.

use canon::{Logprob, TokenLogprob};
use serde_json::value::RawValue;

use super::content::NativePart;
use super::usage::NativeUsage;
use crate::json;
use crate::proto_json::ProtoInteger;
use crate::text::{BorrowedText, owned};
use crate::wire_object::wire_object;
use crate::wire_value::{AnyValue, LooseText, LooseValue, OneOrMany, PlacedValue};

wire_object! {
    /// A reply, or a chunk.
    pub(super) struct NativeReplyView<'a>("a reply", camel_case) {
        response_id "responseId": BorrowedText<'a>,
        model_version "modelVersion": BorrowedText<'a>,
        create_time "createTime": BorrowedText<'a>,
        candidates: OneOrMany<NativeCandidate<'a>>,
        prompt_feedback "promptFeedback": PlacedValue<'a, NativeFeedback<'a>>,
        usage_metadata "usageMetadata": &'a RawValue,
        error: &'a RawValue,
    }

    /// One candidate. The meter needs no part of its content, and the sources come last, so they are
    /// parsed by those who need them.
    pub(super) struct NativeCandidate<'a>("a candidate object", camel_case) {
        index: ProtoInteger<true>,
        content: &'a RawValue,
        finish_reason "finishReason": LooseText<'a>,
        grounding_metadata "groundingMetadata": &'a RawValue,
        citation_metadata "citationMetadata": &'a RawValue,
        safety_ratings "safetyRatings": &'a RawValue,
        logprobs_result "logprobsResult": LooseValue<NativeLogprobs<'a>>,
        /// The usage has the same count.
        token_count "tokenCount": AnyValue,
    }

    pub(super) struct NativeReplyContent<'a>("a content object", camel_case) {
        role: AnyValue,
        parts: OneOrMany<NativePart<'a>>,
    }

    pub(super) struct NativeFeedback<'a>("an object", camel_case) {
        block_reason "blockReason": LooseText<'a>,
    }

    pub(super) struct NativeLogprobs<'a>("an object", camel_case) {
        chosen_candidates "chosenCandidates": Vec<NativeLogprob<'a>>,
        top_candidates "topCandidates": Vec<NativeTopLogprobs<'a>>,
    }

    pub(super) struct NativeTopLogprobs<'a>("an object", camel_case) {
        candidates: Vec<NativeLogprob<'a>>,
    }

    pub(super) struct NativeLogprob<'a>("an object", camel_case) {
        token: BorrowedText<'a>,
        token_id "tokenId": ProtoInteger<true>,
        log_probability "logProbability": f64,
    }
}

/// Text of a candidate about its ending.
pub(super) const FINISH_MESSAGE: &str = "finishMessage";

impl<'a> NativeReplyView<'a> {
    /// Returns true if it has a text about the call.
    pub(super) fn reports_on_call(&self) -> bool {
        let mut candidates = self.candidates.iter().flat_map(|list| &list.0);
        self.prompt_feedback.is_some()
            || candidates.any(|candidate| candidate.rest.get(FINISH_MESSAGE).is_some())
    }

    /// Returns true if nothing in it belongs to a reply.
    pub(super) const fn is_foreign(&self) -> bool {
        self.candidates.is_none() && self.prompt_feedback.is_none() && self.usage_metadata.is_none()
    }

    /// Returns the reason why the prompt was blocked.
    pub(super) fn block_reason(&self) -> Option<&str> {
        let feedback = &self.prompt_feedback.as_ref()?.value;
        feedback.block_reason.as_ref().map(|word| &*word.0)
    }

    /// Returns the token counts. Malformed ones count as absent, because the reply is still useful.
    pub(super) fn usage(&self) -> Option<NativeUsage<'a>> {
        json::read(self.usage_metadata?.get()).ok()
    }
}

impl NativeCandidate<'_> {
    /// Returns the index. `at` is the position in the list.
    pub(super) fn index(&self, at: usize) -> u32 {
        let own = self.index.and_then(|index| index.to());
        own.unwrap_or_else(|| u32::try_from(at).unwrap_or(0))
    }
}

impl NativeLogprobs<'_> {
    pub(super) fn into_canon(self) -> Vec<Logprob> {
        let chance = |logprob: NativeLogprob<'_>| TokenLogprob {
            token: owned(logprob.token),
            id: logprob.token_id.map(|id| id.0),
            logprob: logprob.log_probability.unwrap_or_default(),
            bytes: None,
        };
        let mut top = self.top_candidates.into_iter().flatten();
        let logprob = |chosen| {
            let top = top.next().and_then(|top| top.candidates).into_iter().flatten();
            Logprob { chosen: chance(chosen), top: top.map(chance).collect() }
        };
        self.chosen_candidates.into_iter().flatten().map(logprob).collect()
    }
}
