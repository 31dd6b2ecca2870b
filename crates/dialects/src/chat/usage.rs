//! Token counts of the chat format.
//!
//! See <https://platform.openai.com/docs/api-reference/chat/object> (`usage`).

use canon::Usage;

use crate::fields::ObjectWriter;
use crate::wire_object::wire_object;
use crate::wire_value::LooseValue;

wire_object! {
    /// Token counts.
    pub(super) struct ChatUsage<'a>("an object") {
        prompt_tokens: u64,
        completion_tokens: u64,
        prompt_tokens_details: ChatPromptDetails<'a>,
        completion_tokens_details: ChatCompletionDetails<'a>,
    }

    pub(super) struct ChatPromptDetails<'a>("an object") {
        cached_tokens: u64,
        cache_write_tokens: u64,
        audio_tokens: u64,
        image_tokens: u64,
        video_tokens: u64,
    }

    pub(super) struct ChatCompletionDetails<'a>("an object") {
        reasoning_tokens: u64,
        audio_tokens: u64,
    }
}

impl ChatUsage<'_> {
    /// Returns the token counts of a reply, if it reports them.
    pub(super) fn count(reported: Option<&LooseValue<Self>>) -> Option<Usage> {
        Some(reported?.0.as_ref()?.to_canon())
    }

    /// Converts to canon usage. Both count cached tokens as part of the input.
    fn to_canon(&self) -> Usage {
        let (none, nothing) = (ChatPromptDetails::default(), ChatCompletionDetails::default());
        let prompt = self.prompt_tokens_details.as_ref().unwrap_or(&none);
        let output = self.completion_tokens_details.as_ref().unwrap_or(&nothing);
        Usage {
            input: self.prompt_tokens.unwrap_or_default(),
            cache_read: prompt.cached_tokens.unwrap_or_default(),
            cache_write: prompt.cache_write_tokens.unwrap_or_default(),
            input_audio: prompt.audio_tokens.unwrap_or_default(),
            input_image: prompt.image_tokens.unwrap_or_default(),
            input_video: prompt.video_tokens.unwrap_or_default(),
            output: self.completion_tokens.unwrap_or_default(),
            thinking: output.reasoning_tokens.unwrap_or_default(),
            output_audio: output.audio_tokens.unwrap_or_default(),
            ..Usage::default()
        }
    }
}

/// Writes token counts. This format has no fields for searches and output images.
pub(super) fn write_usage(usage: &Usage) -> ObjectWriter {
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
    } = *usage;
    let present = |count: u64| (count > 0).then_some(count);
    let prompt = ObjectWriter::new()
        .set("cached_tokens", cache_read)
        .set_some("cache_write_tokens", present(cache_write.saturating_add(cache_write_long)))
        .set("audio_tokens", input_audio)
        .set_some("image_tokens", present(input_image))
        .set_some("video_tokens", present(input_video));
    let completion = ObjectWriter::new()
        .set("reasoning_tokens", thinking)
        .set("audio_tokens", output_audio)
        .set("accepted_prediction_tokens", 0)
        .set("rejected_prediction_tokens", 0);
    ObjectWriter::new()
        .set("prompt_tokens", input)
        .set("completion_tokens", output)
        .set("total_tokens", usage.total())
        .set("prompt_tokens_details", prompt)
        .set("completion_tokens_details", completion)
}
