//! The view of `generationConfig` that the rules need,
//! <https://ai.google.dev/api/generate-content#v1beta.GenerationConfig>.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

use super::part_view::ObjectOnly;

/// A whole number, also written as a string. With `F`, a float without a fraction is accepted too.
#[derive(Clone, Copy, Debug)]
pub(super) struct LenientInteger<const F: bool>(pub(super) i64);

impl<'de, const F: bool> Deserialize<'de> for LenientInteger<F> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct IntegerVisitor<const F: bool>;
        impl<const F: bool> Visitor<'_> for IntegerVisitor<F> {
            type Value = LenientInteger<F>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_i64<E>(self, number: i64) -> Result<LenientInteger<F>, E> {
                Ok(LenientInteger(number))
            }

            fn visit_u64<E>(self, number: u64) -> Result<LenientInteger<F>, E> {
                Ok(LenientInteger(i64::try_from(number).unwrap_or(i64::MAX)))
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<LenientInteger<F>, E> {
                if F && number.fract() == 0.0 && number.abs() < 9.0e15 {
                    #[expect(clippy::cast_possible_truncation, reason = "checked just above")]
                    return Ok(LenientInteger(number as i64));
                }
                Err(E::invalid_type(serde::de::Unexpected::Float(number), &self))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<LenientInteger<F>, E> {
                let wrong = || E::invalid_type(serde::de::Unexpected::Str(text), &self);
                text.parse().map(LenientInteger).map_err(|_| wrong())
            }
        }
        from.deserialize_any(IntegerVisitor::<F>)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GenerationConfigView<'a> {
    #[serde(default)]
    pub(super) temperature: Option<f64>,
    #[serde(default, alias = "top_p")]
    pub(super) top_p: Option<f64>,
    // One official client writes `topK` as 3.0.
    #[serde(default, alias = "top_k")]
    pub(super) top_k: Option<LenientInteger<true>>,
    #[serde(default, alias = "max_output_tokens")]
    pub(super) max_output_tokens: Option<LenientInteger<false>>,
    #[serde(default, alias = "candidate_count")]
    pub(super) candidate_count: Option<LenientInteger<false>>,
    #[serde(borrow, default, alias = "stop_sequences")]
    pub(super) stop_sequences: Option<Vec<Cow<'a, str>>>,
    #[serde(default, rename = "seed")]
    _seed: Option<LenientInteger<false>>,
    #[serde(default, alias = "presence_penalty")]
    pub(super) presence_penalty: Option<f64>,
    #[serde(default, alias = "frequency_penalty")]
    pub(super) frequency_penalty: Option<f64>,
    #[serde(borrow, default, alias = "response_mime_type")]
    pub(super) response_mime_type: Option<Cow<'a, str>>,
    #[serde(default, alias = "response_schema")]
    pub(super) response_schema: Option<ObjectOnly<IgnoredAny>>,
    #[serde(borrow, default, alias = "response_modalities")]
    pub(super) response_modalities: Option<Vec<Cow<'a, str>>>,
    #[serde(default, alias = "response_logprobs")]
    pub(super) response_logprobs: Option<bool>,
    #[serde(default)]
    pub(super) logprobs: Option<LenientInteger<false>>,
    #[serde(borrow, default, alias = "thinking_config")]
    pub(super) thinking_config: Option<ObjectOnly<ThinkingConfigView<'a>>>,
    #[serde(borrow, default, alias = "image_config")]
    pub(super) image_config: Option<ObjectOnly<ImageConfigView<'a>>>,
    #[serde(borrow, default, alias = "media_resolution")]
    pub(super) media_resolution: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ThinkingConfigView<'a> {
    #[serde(default, alias = "thinking_budget")]
    pub(super) thinking_budget: Option<LenientInteger<false>>,
    #[serde(borrow, default, alias = "thinking_level")]
    pub(super) thinking_level: Option<Cow<'a, str>>,
    #[serde(default, alias = "include_thoughts", rename = "includeThoughts")]
    _include_thoughts: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImageConfigView<'a> {
    #[serde(borrow, default, alias = "aspect_ratio")]
    pub(super) aspect_ratio: Option<Cow<'a, str>>,
    #[serde(borrow, default, alias = "image_size")]
    pub(super) image_size: Option<Cow<'a, str>>,
}

/// The position of the output limit.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LimitView<'a> {
    #[serde(borrow, default, alias = "max_output_tokens")]
    pub(super) max_output_tokens: Option<&'a RawValue>,
}
