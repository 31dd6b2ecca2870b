//! Token counts of the native format, <https://ai.google.dev/api/generate-content#UsageMetadata>.

use canon::{ExtraFields, Losses, ServiceTier, Usage};

use super::names::ORIGIN;
use super::own::dotted_extras;
use crate::fields::ObjectWriter;
use crate::proto_json::ProtoCount;
use crate::service_tier;
use crate::text::BorrowedText;
use crate::wire_object::wire_object;
use crate::wire_value::{AnyValue, LooseText};

wire_object! {
    pub(super) struct NativeUsage<'a>("an object", camel_case) {
        prompt_token_count "promptTokenCount": ProtoCount,
        cached_content_token_count "cachedContentTokenCount": ProtoCount,
        candidates_token_count "candidatesTokenCount": ProtoCount,
        thoughts_token_count "thoughtsTokenCount": ProtoCount,
        tool_use_prompt_token_count "toolUsePromptTokenCount": ProtoCount,
        total_token_count "totalTokenCount": AnyValue,
        prompt_tokens_details "promptTokensDetails": Vec<NativeModalityCount<'a>>,
        tool_use_prompt_tokens_details "toolUsePromptTokensDetails": Vec<NativeModalityCount<'a>>,
        candidates_tokens_details "candidatesTokensDetails": Vec<NativeModalityCount<'a>>,
        service_tier "serviceTier" kept: LooseText<'a>,
        traffic_type "trafficType" kept: LooseText<'a>,
    }

    pub(super) struct NativeModalityCount<'a>("an object", camel_case) {
        modality: BorrowedText<'a>,
        token_count "tokenCount": ProtoCount,
    }
}

impl<'a> NativeUsage<'a> {
    /// Returns the service tier, if it is reported.
    pub(super) fn tier(&self) -> Option<ServiceTier> {
        let LooseText(word) = self.service_tier.as_ref().or(self.traffic_type.as_ref())?;
        Some(service_tier::read_tier(ORIGIN, word))
    }

    /// Converts to canon's convention: output includes thinking, input includes what tools read.
    /// Returns `None` if no token was counted (early chunks may report only the kind of traffic), or
    /// if a total is no count: the other ones are then not to be trusted either.
    pub(super) fn to_canon(&self) -> Option<Usage> {
        let totals = [self.prompt_token_count, self.candidates_token_count];
        let added = [self.thoughts_token_count, self.tool_use_prompt_token_count];
        let mut all = totals.into_iter().chain(added).flatten();
        if totals.iter().all(Option::is_none) || all.any(|count| count.0.is_none()) {
            return None;
        }
        let of = |count: Option<ProtoCount>| count.and_then(|count| count.0).unwrap_or(0);
        let sum = |lists: &[&Option<Vec<NativeModalityCount<'a>>>], word: &str| {
            let all = lists.iter().flat_map(|list| list.iter().flatten());
            let own = all.filter(|detail| {
                detail.modality.as_deref().is_some_and(|m| m.eq_ignore_ascii_case(word))
            });
            own.fold(0_u64, |sum, detail| sum.saturating_add(of(detail.token_count)))
        };
        let input = [&self.prompt_tokens_details, &self.tool_use_prompt_tokens_details];
        let output = [&self.candidates_tokens_details];
        Some(Usage {
            input: of(self.prompt_token_count).saturating_add(of(self.tool_use_prompt_token_count)),
            cache_read: of(self.cached_content_token_count),
            input_audio: sum(&input, "AUDIO"),
            input_image: sum(&input, "IMAGE"),
            input_video: sum(&input, "VIDEO"),
            output: of(self.candidates_token_count).saturating_add(of(self.thoughts_token_count)),
            thinking: of(self.thoughts_token_count),
            output_audio: sum(&output, "AUDIO"),
            output_image: sum(&output, "IMAGE"),
            ..Usage::default()
        })
    }
}

/// Writes token counts.
pub(super) fn write_usage(
    usage: &Usage,
    extras: &ExtraFields,
    losses: &mut Losses,
) -> ObjectWriter {
    let why = "the native format does not count cache writes";
    let cache_writes = usage.cache_write.saturating_add(usage.cache_write_long);
    losses.add_if(cache_writes > 0, "usage.cache_write", why);
    let visible = usage.output.saturating_sub(usage.thinking);
    let input = details(usage.input, usage.input_audio, usage.input_image, usage.input_video);
    let output = details(visible, usage.output_audio, usage.output_image, 0);
    let counts = ObjectWriter::new()
        .set("promptTokenCount", usage.input)
        .set("candidatesTokenCount", visible)
        .set("totalTokenCount", usage.total())
        .set("thoughtsTokenCount", usage.thinking)
        .set_some("cachedContentTokenCount", (usage.cache_read > 0).then_some(usage.cache_read))
        .set("promptTokensDetails", input)
        .set("candidatesTokensDetails", output);
    dotted_extras::restore(counts, extras, "usageMetadata").with_default("trafficType", "ON_DEMAND")
}

fn details(all: u64, audio: u64, image: u64, video: u64) -> Vec<ObjectWriter> {
    let text = all.saturating_sub(audio).saturating_sub(image).saturating_sub(video);
    [("TEXT", text), ("AUDIO", audio), ("IMAGE", image), ("VIDEO", video)]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(word, count)| ObjectWriter::new().set("modality", word).set("tokenCount", count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_follows_the_canon_convention() {
        let counts = r#"{"promptTokenCount":46,"candidatesTokenCount":"51","thoughtsTokenCount":9,
            "toolUsePromptTokenCount":4,"cachedContentTokenCount":6,"totalTokenCount":110,
            "promptTokensDetails":[{"modality":"TEXT","tokenCount":40},{"modality":"AUDIO","tokenCount":6}]}"#;
        let usage = serde_json::from_str::<NativeUsage<'_>>(counts).unwrap().to_canon().unwrap();
        assert_eq!((usage.input, usage.output, usage.thinking), (50, 60, 9));
        assert_eq!((usage.cache_read, usage.input_audio, usage.total()), (6, 6, 110));
    }

    #[test]
    fn totals_that_are_no_counts_are_not_believed() {
        for (counts, is_believed) in [
            (r#"{"promptTokenCount":4,"candidatesTokenCount":5}"#, true),
            (r#"{"promptTokenCount":"4"}"#, true),
            (r#"{"promptTokenCount":-4,"candidatesTokenCount":5}"#, false),
            (r#"{"promptTokenCount":4,"candidatesTokenCount":"many"}"#, false),
            (r#"{"promptTokenCount":4,"thoughtsTokenCount":-0.5}"#, false),
            (r#"{"promptTokenCount":4,"cachedContentTokenCount":-1}"#, true),
            (r#"{"trafficType":"ON_DEMAND"}"#, false),
        ] {
            let usage: NativeUsage<'_> = serde_json::from_str(counts).unwrap();
            assert_eq!(usage.to_canon().is_some(), is_believed, "{counts}");
        }
    }
}
