//! Token counts in one convention.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Money;

/// Uses of tools that a provider runs and bills by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolUses {
    /// Searches in stored files.
    pub file_searches: u64,
    /// Runs of code, or containers for them.
    pub code_runs: u64,
    /// Tokens of the images that a tool made. They are not part of the output.
    pub image_tokens: u64,
}

impl ToolUses {
    /// Returns true if no tool was used.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the larger value of each count.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        Self {
            file_searches: self.file_searches.max(other.file_searches),
            code_runs: self.code_runs.max(other.code_runs),
            image_tokens: self.image_tokens.max(other.image_tokens),
        }
    }

    /// Returns the sum of each count.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            file_searches: self.file_searches.saturating_add(other.file_searches),
            code_runs: self.code_runs.saturating_add(other.code_runs),
            image_tokens: self.image_tokens.saturating_add(other.image_tokens),
        }
    }
}

/// Amount of search results that a model reads before it answers. Perplexity's fee for a call depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchContext {
    /// Few results.
    Low,
    /// Some results.
    Medium,
    /// Many results, or an amount that is not told.
    #[default]
    High,
}

impl SearchContext {
    /// Returns the amount with that word of the provider.
    pub fn by_word(word: &str) -> Self {
        match word {
            "low" => Self::Low,
            "medium" => Self::Medium,
            _ => Self::High,
        }
    }

    /// Returns that word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Tokens and other units that a call consumed.
///
/// One convention for all formats: `input` is the whole prompt, cached parts included. `output` is
/// everything the model produced, thinking included. The other token counts are parts of these two,
/// so that the total is always `input + output`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// The whole prompt, cached parts included.
    pub input: u64,
    /// Part of `input` read from the provider's prompt cache.
    pub cache_read: u64,
    /// Part of `input` written to the cache for the short term (five minutes where tiers exist).
    pub cache_write: u64,
    /// Part of `input` written to the cache for the long term (one hour where tiers exist).
    pub cache_write_long: u64,
    /// Part of `input` that was audio.
    pub input_audio: u64,
    /// Part of `input` that was images.
    pub input_image: u64,
    /// Part of `input` that was video. Billed as text.
    pub input_video: u64,
    /// Everything the model produced, thinking included.
    pub output: u64,
    /// Part of `output` that was thinking.
    pub thinking: u64,
    /// Part of `output` that was audio.
    pub output_audio: u64,
    /// Part of `output` that was images.
    pub output_image: u64,
    /// Web searches that the provider ran.
    pub searches: u64,
    /// Generated images.
    pub images: u64,
    /// Duration in seconds, rounded up, where time is billed.
    pub seconds: u64,
    /// Tokens kept in a provider's cache, times hours. Only the creation of cached content has some.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_storage: u64,
    /// Uses of other tools of the provider. Most calls have none.
    #[serde(skip_serializing_if = "ToolUses::is_none")]
    pub tools: ToolUses,
    /// Amount of search results. It is not recorded: the charge shows the fee.
    #[serde(skip_serializing)]
    pub search_context: SearchContext,
    /// The provider's own price of the call, if it tells one. It is compared and never charged:
    /// discounts of the operator's account are not those of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bill: Option<Money>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Usage {
    /// Returns input plus output.
    pub const fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Returns everything the model produced. Some providers, such as xAI, count thinking beside the
    /// output: then the total has both, or thinking is the larger one. What a total has beyond its parts is
    /// output too, such as the thinking that Google's chat endpoint does not name.
    pub fn whole_output(input: u64, output: u64, thinking: u64, total: Option<u64>) -> u64 {
        let with_thinking = output.saturating_add(thinking);
        let is_beside = total == Some(input.saturating_add(with_thinking)) || thinking > output;
        let parts = if is_beside { with_thinking } else { output };
        parts.max(total.unwrap_or(0).saturating_sub(input))
    }

    /// Returns these counts with the uses of tools that a provider tells by name, as xAI does:
    /// <https://docs.x.ai/developers/tools/overview>.
    #[must_use]
    pub fn with_told_tools(self, told: Option<&Value>) -> Self {
        let count = |name: &str| told.and_then(|told| told.get(name)?.as_u64()).unwrap_or(0);
        let sum = |first: &str, second: &str| count(first).saturating_add(count(second));
        let tools = ToolUses {
            file_searches: sum("file_search_calls", "document_search_calls"),
            code_runs: count("code_interpreter_calls"),
            image_tokens: 0,
        };
        Self { searches: sum("web_search_calls", "x_search_calls"), tools, ..self }
    }

    /// Reads a provider's own price: dollars as a number, or as an object with their sum, or in ticks,
    /// of which 10¹⁰ are a dollar (<https://docs.x.ai/developers/cost-tracking>).
    #[expect(clippy::cast_possible_truncation, reason = "a float that is too large saturates")]
    pub fn told_bill(dollars: Option<&Value>, ticks: Option<&Value>) -> Option<Money> {
        if let Some(ticks) = ticks.and_then(Value::as_u64) {
            return Some(Money::from_picos(i128::from(ticks) * 100));
        }
        let sum = dollars?.get("total_cost").or(dollars)?.as_f64()?;
        (sum >= 0.0).then(|| Money::from_nanos((sum * 1e9).round() as i64))
    }

    /// Returns these counts with no part larger than its whole: the whole is raised to the sum of its
    /// parts.
    #[must_use]
    pub fn with_whole_sums(self) -> Self {
        let (input, output) = self.whole_sums();
        Self { input, output, ..self }
    }

    /// Returns prompt and output of the counts with whole sums.
    #[inline]
    pub fn whole_sums(&self) -> (u64, u64) {
        let cached = self.cache_read.saturating_add(self.cache_write);
        let cached = cached.saturating_add(self.cache_write_long);
        let media = self.input_audio.saturating_add(self.input_image);
        let media = media.saturating_add(self.input_video);
        let made = self.output_audio.saturating_add(self.output_image);
        (self.input.max(cached).max(media), self.output.max(self.thinking).max(made))
    }

    /// Returns the sum of each count.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            cache_write_long: self.cache_write_long.saturating_add(other.cache_write_long),
            input_audio: self.input_audio.saturating_add(other.input_audio),
            input_image: self.input_image.saturating_add(other.input_image),
            input_video: self.input_video.saturating_add(other.input_video),
            output: self.output.saturating_add(other.output),
            thinking: self.thinking.saturating_add(other.thinking),
            output_audio: self.output_audio.saturating_add(other.output_audio),
            output_image: self.output_image.saturating_add(other.output_image),
            searches: self.searches.saturating_add(other.searches),
            images: self.images.saturating_add(other.images),
            seconds: self.seconds.saturating_add(other.seconds),
            cache_storage: self.cache_storage.saturating_add(other.cache_storage),
            tools: self.tools.plus(other.tools),
            search_context: other.search_context,
            bill: match (self.bill, other.bill) {
                (Some(first), Some(second)) => first.checked_add(second),
                (first, None) => first,
                (None, second) => second,
            },
        }
    }

    /// Returns the larger value of each count. Streams report cumulative counts, sometimes one
    /// count at a time.
    #[must_use]
    pub fn merged(self, later: Self) -> Self {
        Self {
            input: self.input.max(later.input),
            cache_read: self.cache_read.max(later.cache_read),
            cache_write: self.cache_write.max(later.cache_write),
            cache_write_long: self.cache_write_long.max(later.cache_write_long),
            input_audio: self.input_audio.max(later.input_audio),
            input_image: self.input_image.max(later.input_image),
            input_video: self.input_video.max(later.input_video),
            output: self.output.max(later.output),
            thinking: self.thinking.max(later.thinking),
            output_audio: self.output_audio.max(later.output_audio),
            output_image: self.output_image.max(later.output_image),
            searches: self.searches.max(later.searches),
            images: self.images.max(later.images),
            seconds: self.seconds.max(later.seconds),
            cache_storage: self.cache_storage.max(later.cache_storage),
            tools: self.tools.merged(later.tools),
            search_context: later.search_context,
            bill: later.bill.or(self.bill),
        }
    }
}
