//! Token counts of the chat format.
//!
//! See <https://platform.openai.com/docs/api-reference/chat/object> (`usage`).

use canon::{SearchContext, Usage};
use serde_json::Value;

use crate::fields::ObjectWriter;
use crate::openai_values::TokenDetails;
use crate::reply_shape::{DefaultValue, NoteLabel, NotedReply, ObjectShape};
use crate::wire_object::wire_object;
use crate::wire_value::{LooseText, LooseValue};

wire_object! {
    /// Token counts.
    pub(super) struct ChatUsage<'a>("an object") {
        prompt_tokens: u64,
        completion_tokens: u64,
        total_tokens: u64,
        prompt_tokens_details: TokenDetails<'a>,
        completion_tokens_details: TokenDetails<'a>,
        /// Cached tokens as Moonshot tells them.
        cached_tokens: u64,
        /// Cached tokens as DeepSeek tells them.
        prompt_cache_hit_tokens: u64,
        /// Searches as Perplexity tells them.
        num_search_queries: u64,
        /// Tokens of sources, beside the prompt, as Perplexity tells them.
        citation_tokens: u64,
        /// Thinking beside the answer, as Perplexity tells it:
        /// <https://docs.perplexity.ai/getting-started/pricing>.
        reasoning_tokens: u64,
        /// Amount of search results as Perplexity tells it.
        search_context_size: LooseText<'a>,
        /// The price as OpenRouter and Perplexity tell it.
        cost: Value,
        /// The price as xAI tells it.
        cost_in_usd_ticks: Value,
    }
}

impl ChatUsage<'_> {
    /// Returns the token counts of a reply, if it reports them.
    pub(super) fn count(reported: Option<&LooseValue<Self>>) -> Option<Usage> {
        Some(reported?.0.as_ref()?.to_canon())
    }

    /// Converts to canon usage.
    fn to_canon(&self) -> Usage {
        let none = TokenDetails::default();
        let prompt = self.prompt_tokens_details.as_ref().unwrap_or(&none);
        let output = self.completion_tokens_details.as_ref().unwrap_or(&none);
        let counts = UsageCounts {
            prompt: self.prompt_tokens,
            completion: self.completion_tokens,
            total: self.total_tokens,
            cached: [prompt.cached_tokens, self.cached_tokens, self.prompt_cache_hit_tokens],
            cache_write: prompt.cache_write_tokens,
            input_audio: prompt.audio_tokens,
            input_image: prompt.image_tokens,
            input_video: prompt.video_tokens,
            thinking: output.reasoning_tokens,
            output_audio: output.audio_tokens,
            output_image: output.image_tokens,
            searches: self.num_search_queries,
            citations: self.citation_tokens,
            beside: self.reasoning_tokens,
        };
        Usage {
            search_context: self
                .search_context_size
                .as_ref()
                .map_or_else(SearchContext::default, |size| SearchContext::by_word(&size.0)),
            bill: Usage::told_bill(self.cost.as_ref(), self.cost_in_usd_ticks.as_ref()),
            ..counts.to_canon()
        }
    }
}

/// The counts of a usage, as the providers tell them.
#[derive(Clone, Copy, Default)]
struct UsageCounts {
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    /// Cached tokens under their three names.
    cached: [Option<u64>; 3],
    cache_write: Option<u64>,
    input_audio: Option<u64>,
    input_image: Option<u64>,
    input_video: Option<u64>,
    thinking: Option<u64>,
    output_audio: Option<u64>,
    output_image: Option<u64>,
    searches: Option<u64>,
    citations: Option<u64>,
    /// Thinking beside the answer.
    beside: Option<u64>,
}

impl UsageCounts {
    /// Converts to canon usage. Both count cached tokens as part of the input.
    fn to_canon(self) -> Usage {
        let (input, answer) = (self.prompt.unwrap_or(0), self.completion.unwrap_or(0));
        let thinking = self.thinking.unwrap_or(0);
        // Others tell as much in the details, as a part of the answer.
        let beside = self.beside.filter(|_| self.searches.is_some());
        let (thinking, answer) = match beside {
            Some(beside) => (beside, answer.saturating_add(beside)),
            None => (thinking, Usage::whole_output(input, answer, thinking, self.total)),
        };
        Usage {
            input: input.saturating_add(self.citations.unwrap_or(0)),
            cache_read: self.cached.into_iter().flatten().max().unwrap_or_default(),
            cache_write: self.cache_write.unwrap_or_default(),
            input_audio: self.input_audio.unwrap_or_default(),
            input_image: self.input_image.unwrap_or_default(),
            input_video: self.input_video.unwrap_or_default(),
            output: answer,
            thinking,
            output_audio: self.output_audio.unwrap_or_default(),
            output_image: self.output_image.unwrap_or_default(),
            searches: self.searches.unwrap_or_default(),
            ..Usage::default()
        }
    }
}

/// The label of the whole usage, and the number of labels.
pub(super) const USAGE: NoteLabel = 15;
pub(super) const LABELS: NoteLabel = 16;
/// Labels of values that are read, of objects with counts, and of counts.
const READ: NoteLabel = 14;
const DETAILS: NoteLabel = 13;
const COUNTS: usize = 13;

/// The documented fields of the counts.
pub(super) static USAGE_SHAPE: ObjectShape = ObjectShape::with_objects(
    &[
        ("prompt_tokens", DefaultValue::Noted(0)),
        ("completion_tokens", DefaultValue::Noted(1)),
        ("total_tokens", DefaultValue::Noted(2)),
        (
            "prompt_tokens_details",
            DefaultValue::NotedJson(DETAILS, "{\"cached_tokens\":0,\"audio_tokens\":0}"),
        ),
        ("completion_tokens_details", DefaultValue::NotedJson(DETAILS, NO_DETAILS)),
        ("cached_tokens", DefaultValue::Noted(3)),
        ("prompt_cache_hit_tokens", DefaultValue::Noted(4)),
        ("num_search_queries", DefaultValue::Noted(READ)),
        ("citation_tokens", DefaultValue::Noted(READ)),
        ("reasoning_tokens", DefaultValue::Noted(READ)),
        ("search_context_size", DefaultValue::Noted(READ)),
        ("cost", DefaultValue::Noted(READ)),
        ("cost_in_usd_ticks", DefaultValue::Noted(READ)),
    ],
    &[
        ("prompt_tokens_details", &PROMPT_DETAILS),
        ("completion_tokens_details", &COMPLETION_DETAILS),
    ],
);

const NO_DETAILS: &str = "{\"reasoning_tokens\":0,\"audio_tokens\":0,\
    \"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}";

static PROMPT_DETAILS: ObjectShape = ObjectShape::flat(&[
    ("cached_tokens", DefaultValue::Noted(5)),
    ("cache_write_tokens", DefaultValue::Noted(6)),
    ("audio_tokens", DefaultValue::Noted(7)),
    ("image_tokens", DefaultValue::Noted(8)),
    ("video_tokens", DefaultValue::Noted(9)),
    ("reasoning_tokens", DefaultValue::Noted(READ)),
]);

static COMPLETION_DETAILS: ObjectShape = ObjectShape::flat(&[
    ("reasoning_tokens", DefaultValue::Noted(10)),
    ("audio_tokens", DefaultValue::Noted(11)),
    ("image_tokens", DefaultValue::Noted(12)),
    ("cached_tokens", DefaultValue::Noted(READ)),
    ("cache_write_tokens", DefaultValue::Noted(READ)),
    ("video_tokens", DefaultValue::Noted(READ)),
]);

/// Returns the noted usage, if there is any; `None` if it has to be read.
pub(super) fn noted_usage(noted: &NotedReply<'_>) -> Option<Option<Usage>> {
    let Some(counts) = labelled_counts(noted)? else { return Some(None) };
    let [prompt, completion, total, cached_tokens, hits, rest @ ..] = counts;
    let [cached, cache_write, input_audio, input_image, input_video, rest @ ..] = rest;
    let [thinking, output_audio, output_image] = rest;
    let counts = UsageCounts {
        prompt,
        completion,
        total,
        cached: [cached, cached_tokens, hits],
        cache_write,
        input_audio,
        input_image,
        input_video,
        thinking,
        output_audio,
        output_image,
        ..UsageCounts::default()
    };
    Some(Some(counts.to_canon()))
}

/// Returns the noted counts by their labels, if there are any; `None` if the usage has to be read.
fn labelled_counts(noted: &NotedReply<'_>) -> Option<Option<[Option<u64>; COUNTS]>> {
    let mut counts = [None; COUNTS];
    let is_told = fill_counts(noted, &mut counts)?;
    Some(is_told.then_some(counts))
}

/// Fills in the noted counts by their labels. Returns true if there are any; `None` if the usage has to be read.
///
/// Never inlined: the compiler keeps an array whose address it knows in registers, and made 37 KB of code that copies
/// all counts for each one.
#[inline(never)]
fn fill_counts(noted: &NotedReply<'_>, counts: &mut [Option<u64>; COUNTS]) -> Option<bool> {
    let mut is_told = false;
    for (label, value) in noted.all() {
        match label {
            USAGE | DETAILS if !value.starts_with('{') => return None,
            USAGE => is_told = true,
            READ => return None,
            _ => {
                if let Some(count) = counts.get_mut(usize::from(label)) {
                    *count = Some(plain_count(value)?);
                }
            }
        }
    }
    Some(is_told)
}

/// Returns a count of a few digits; `None` for any other value.
pub(super) fn plain_count(json: &str) -> Option<u64> {
    if !(1..=MAX_COUNT_DIGITS).contains(&json.len()) {
        return None;
    }
    json.bytes().try_fold(0, |sum: u64, byte| {
        byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0'))
    })
}

/// Longest number of tokens that is read without a parser.
const MAX_COUNT_DIGITS: usize = 18;

/// Writes token counts into an object. This format has no fields for searches and output images.
pub(super) fn write_usage(object: ObjectWriter, usage: &Usage) -> ObjectWriter {
    let Usage {
        input,
        cache_read,
        cache_write,
        cache_write_long,
        input_audio,
        input_image,
        input_video,
        output,
        thinking,
        output_audio,
        output_image: _,
        searches: _,
        images: _,
        seconds: _,
        cache_storage: _,
        tools: _,
        search_context: _,
        bill: _,
    } = *usage;
    let present = |count: u64| (count > 0).then_some(count);
    let prompt = |object: ObjectWriter| {
        object
            .set("cached_tokens", cache_read)
            .set_some("cache_write_tokens", present(cache_write.saturating_add(cache_write_long)))
            .set("audio_tokens", input_audio)
            .set_some("image_tokens", present(input_image))
            .set_some("video_tokens", present(input_video))
    };
    let completion = |object: ObjectWriter| {
        object
            .set("reasoning_tokens", thinking)
            .set("audio_tokens", output_audio)
            .set("accepted_prediction_tokens", 0)
            .set("rejected_prediction_tokens", 0)
    };
    object
        .set("prompt_tokens", input)
        .set("completion_tokens", output)
        .set("total_tokens", usage.total())
        .nest("prompt_tokens_details", prompt)
        .nest("completion_tokens_details", completion)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(usage: &str) -> Usage {
        let usage: LooseValue<ChatUsage<'_>> = crate::json::read(usage).unwrap();
        ChatUsage::count(Some(&usage)).unwrap_or_default()
    }

    #[test]
    fn thinking_beside_the_answer_is_output() {
        let details = r#""completion_tokens_details":{"reasoning_tokens":94}"#;
        for (told, output) in [
            (r#""completion_tokens":9,"total_tokens":135,"#, 103),
            (r#""completion_tokens":300,"total_tokens":426,"#, 394),
            (r#""completion_tokens":300,"total_tokens":332,"#, 300),
            // A total beyond its parts: the rest is output.
            (r#""completion_tokens":300,"total_tokens":900,"#, 868),
            (r#""completion_tokens":300,"#, 300),
            (r#""completion_tokens":9,"#, 103),
        ] {
            let read = read(&format!(r#"{{"prompt_tokens":32,{told}{details}}}"#));
            assert_eq!((read.input, read.output, read.thinking), (32, output, 94), "{told}");
        }
    }

    #[test]
    fn counts_have_the_names_of_their_providers() {
        for (told, want) in [
            (r#""cached_tokens":7"#, Usage { cache_read: 7, ..Usage::default() }),
            (r#""prompt_cache_hit_tokens":7"#, Usage { cache_read: 7, ..Usage::default() }),
            (r#""num_search_queries":3"#, Usage { searches: 3, ..Usage::default() }),
        ] {
            let want = Usage { input: 9, output: 2, ..want };
            let told = format!(r#"{{"prompt_tokens":9,"completion_tokens":2,{told}}}"#);
            assert_eq!(read(&told), want, "{told}");
        }
        assert_eq!(read("[1,2]"), Usage::default());
        let research = read(
            r#"{"prompt_tokens":33,"completion_tokens":7163,"total_tokens":7196,
                "citation_tokens":23131,"num_search_queries":18,"reasoning_tokens":1997}"#,
        );
        assert_eq!((research.input, research.output, research.thinking), (23_164, 9_160, 1_997));
    }
}
