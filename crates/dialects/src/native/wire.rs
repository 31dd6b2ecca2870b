//! Enum values, token counts, paths and made-up call ids of the native format.

use canon::{EffortLevel, Losses, Modality, ServiceTier, Usage};
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use serde_json::Value;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::names::ORIGIN;
use super::proto_json;
use crate::fields::ObjectWriter;
use crate::service_tier;
use canon::ExtraFields;

/// The maximum number of stop texts of a request,
/// <https://ai.google.dev/api/generate-content#v1beta.GenerationConfig>.
pub(super) const MAX_STOP_TEXTS: usize = 5;

/// The prefix of ids that the gateway makes up for calls without one. These ids never go to a
/// provider.
const INVENTED_ID_PREFIX: &str = "call_pn_";

/// Makes up an id for a call. The same call in the same place always gets the same id.
pub(super) fn invent_id(place: impl Hash, name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    place.hash(&mut hasher);
    name.hash(&mut hasher);
    format!("{INVENTED_ID_PREFIX}{:016x}", hasher.finish())
}

/// Returns the id if the provider issued it; `None` for a made-up id.
pub(super) fn provider_id(id: &str) -> Option<&str> {
    (!id.is_empty() && !id.starts_with(INVENTED_ID_PREFIX)).then_some(id)
}

/// Returns the path of a request. Slashes and colons of the model id stay; everything else that
/// could leave the path is escaped.
pub(super) fn path(model: &str, stream: bool) -> String {
    operator_path(model, if stream { "streamGenerateContent?alt=sse" } else { "generateContent" })
}

/// Returns the path of an operator on a model.
pub(super) fn operator_path(model: &str, operator: &str) -> String {
    let model = model.strip_prefix("models/").unwrap_or(model);
    let mut path = String::from("/v1beta/models");
    for segment in model.split('/') {
        path.push('/');
        // A segment of dots would leave the path (RFC 3986, section 5.2.4). No model id
        // consists of dots.
        if segment.chars().all(|c| c == '.') {
            path.push('_');
            continue;
        }
        for byte in segment.bytes() {
            match byte {
                b'a'..=b'z'
                | b'A'..=b'Z'
                | b'0'..=b'9'
                | b'-'
                | b'.'
                | b'_'
                | b'~'
                | b':'
                | b'@' => path.push(char::from(byte)),
                _ => path.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    path.push(':');
    path.push_str(operator);
    path
}

/// A token count, also written as a string.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TokenCount(pub(super) u64);

impl<'de> Deserialize<'de> for TokenCount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct CountVisitor;
        impl Visitor<'_> for CountVisitor {
            type Value = TokenCount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count")
            }

            fn visit_u64<E>(self, count: u64) -> Result<TokenCount, E> {
                Ok(TokenCount(count))
            }

            fn visit_i64<E>(self, _below_zero: i64) -> Result<TokenCount, E> {
                Ok(TokenCount(0))
            }

            fn visit_f64<E>(self, count: f64) -> Result<TokenCount, E> {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "casts of floats saturate"
                )]
                Ok(TokenCount(count as u64))
            }

            fn visit_str<E>(self, count: &str) -> Result<TokenCount, E> {
                Ok(TokenCount(count.parse().unwrap_or(0)))
            }
        }
        from.deserialize_any(CountVisitor)
    }
}

/// Token counts of one modality.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ModalityCount {
    #[serde(default)]
    modality: Option<String>,
    #[serde(default, rename = "tokenCount", alias = "token_count")]
    count: Option<TokenCount>,
}

/// Token counts of a reply, <https://ai.google.dev/api/generate-content#UsageMetadata>.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NativeUsage {
    #[serde(default)]
    prompt_token_count: Option<TokenCount>,
    #[serde(default)]
    cached_content_token_count: Option<TokenCount>,
    #[serde(default)]
    candidates_token_count: Option<TokenCount>,
    #[serde(default)]
    thoughts_token_count: Option<TokenCount>,
    #[serde(default)]
    tool_use_prompt_token_count: Option<TokenCount>,
    #[serde(default)]
    prompt_tokens_details: Option<Vec<ModalityCount>>,
    #[serde(default)]
    tool_use_prompt_tokens_details: Option<Vec<ModalityCount>>,
    #[serde(default)]
    candidates_tokens_details: Option<Vec<ModalityCount>>,
    #[serde(default)]
    service_tier: Option<Value>,
    #[serde(default)]
    traffic_type: Option<Value>,
}

/// The usage fields that canon carries. Other fields are kept in extras.
const USAGE_FIELDS: [&str; 9] = [
    "promptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "toolUsePromptTokenCount",
    "totalTokenCount",
    "promptTokensDetails",
    "toolUsePromptTokensDetails",
    "candidatesTokensDetails",
];

impl NativeUsage {
    /// Returns the service tier, if it is reported.
    pub(super) fn tier(&self) -> Option<ServiceTier> {
        let word = self.service_tier.as_ref().or(self.traffic_type.as_ref())?.as_str()?;
        Some(service_tier::read_tier(ORIGIN, word))
    }

    /// Converts to canon's convention: output includes thinking, input includes what tools read.
    pub(super) fn read(&self) -> Usage {
        let of = |count: Option<TokenCount>| count.unwrap_or_default().0;
        let sum = |lists: &[&Option<Vec<ModalityCount>>], word: &str| {
            let all = lists.iter().flat_map(|list| list.iter().flatten());
            let own = all.filter(|detail| {
                detail.modality.as_deref().is_some_and(|m| m.eq_ignore_ascii_case(word))
            });
            own.fold(0_u64, |sum, detail| sum.saturating_add(of(detail.count)))
        };
        let input = [&self.prompt_tokens_details, &self.tool_use_prompt_tokens_details];
        let output = [&self.candidates_tokens_details];
        Usage {
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
        }
    }

    /// Returns true if any token was counted. Early chunks may report only the kind of traffic.
    pub(super) const fn has_counts(&self) -> bool {
        self.prompt_token_count.is_some() || self.candidates_token_count.is_some()
    }
}

/// Reads the usage of a reply and keeps fields that canon has no place for.
pub(super) fn read_usage(value: Value, extras: &mut ExtraFields) -> Option<Usage> {
    if let Value::Object(map) = &value {
        for (name, value) in map {
            // The gateway writes this value into every reply, so it is not kept.
            let usual = name == "trafficType" && value == "ON_DEMAND";
            if !USAGE_FIELDS.contains(&name.as_str()) && !value.is_null() && !usual {
                extras.insert(ORIGIN, &format!("usageMetadata.{name}"), value.clone());
            }
        }
    }
    let counts: NativeUsage = serde_json::from_value(value).ok()?;
    counts.has_counts().then(|| counts.read())
}

/// Writes token counts.
pub(super) fn write_usage(
    usage: &Usage,
    extras: &ExtraFields,
    losses: &mut Losses,
) -> ObjectWriter {
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
        output_image,
        searches: _,
        images: _,
        seconds: _,
    } = *usage;
    losses.add_if(
        cache_write.saturating_add(cache_write_long) > 0,
        "usage.cache_write",
        "the native format does not count cache writes",
    );
    let visible = output.saturating_sub(thinking);
    let counts = ObjectWriter::new()
        .set("promptTokenCount", input)
        .set("candidatesTokenCount", visible)
        .set("totalTokenCount", usage.total())
        .set("thoughtsTokenCount", thinking)
        .set_some("cachedContentTokenCount", (cache_read > 0).then_some(cache_read))
        .set("promptTokensDetails", details(input, input_audio, input_image, input_video))
        .set("candidatesTokensDetails", details(visible, output_audio, output_image, 0));
    let traffic = Value::from("ON_DEMAND");
    proto_json::restore(counts, extras, "usageMetadata")
        .with_fields(std::iter::once(("trafficType", &traffic)))
}

fn details(all: u64, audio: u64, image: u64, video: u64) -> Vec<ObjectWriter> {
    let text = all.saturating_sub(audio).saturating_sub(image).saturating_sub(video);
    [("TEXT", text), ("AUDIO", audio), ("IMAGE", image), ("VIDEO", video)]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(word, count)| ObjectWriter::new().set("modality", word).set("tokenCount", count))
        .collect()
}

/// Reads a service tier.
pub(super) fn read_tier(word: &str) -> ServiceTier {
    match word.to_ascii_lowercase().as_str() {
        "standard" => ServiceTier::Standard,
        "flex" => ServiceTier::Flex,
        "priority" => ServiceTier::Priority,
        _ => ServiceTier::Other(ORIGIN, word.to_owned()),
    }
}

/// Returns the service tier to write; `None` if the format has no equivalent.
pub(super) fn write_tier(tier: &ServiceTier) -> Option<&str> {
    match tier {
        ServiceTier::Standard => Some("standard"),
        ServiceTier::Flex => Some("flex"),
        ServiceTier::Priority => Some("priority"),
        ServiceTier::Other(origin, word) if *origin == ORIGIN => Some(word),
        ServiceTier::Auto | ServiceTier::Fast | ServiceTier::Other(..) => None,
    }
}

/// Reads a thinking level.
pub(super) fn read_level(word: &str) -> Option<EffortLevel> {
    match word {
        "MINIMAL" => Some(EffortLevel::Minimal),
        "LOW" => Some(EffortLevel::Low),
        "MEDIUM" => Some(EffortLevel::Medium),
        "HIGH" => Some(EffortLevel::High),
        _ => None,
    }
}

/// Reads a response modality.
pub(super) fn read_modality(word: &str) -> Option<Modality> {
    match word.to_ascii_uppercase().as_str() {
        "TEXT" => Some(Modality::Text),
        "IMAGE" => Some(Modality::Image),
        "AUDIO" => Some(Modality::Audio),
        _ => None,
    }
}

/// Returns the response modality to write.
pub(super) const fn write_modality(modality: Modality) -> &'static str {
    match modality {
        Modality::Text => "TEXT",
        Modality::Image => "IMAGE",
        Modality::Audio => "AUDIO",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_id_cannot_leave_the_path() {
        for (model, expected) in [
            ("gemini-2.5-pro", "/v1beta/models/gemini-2.5-pro:generateContent"),
            ("models/x", "/v1beta/models/x:generateContent"),
            ("acme/x:free", "/v1beta/models/acme/x:free:generateContent"),
            ("../x?y#z", "/v1beta/models/_/x%3Fy%23z:generateContent"),
            ("é %2e", "/v1beta/models/%C3%A9%20%252e:generateContent"),
        ] {
            assert_eq!(path(model, false), expected);
        }
        assert!(path("m", true).ends_with("/m:streamGenerateContent?alt=sse"));
    }

    #[test]
    fn usage_follows_the_canon_convention() {
        let counts = r#"{"promptTokenCount":46,"candidatesTokenCount":"51","thoughtsTokenCount":9,
            "toolUsePromptTokenCount":4,"cachedContentTokenCount":6,"totalTokenCount":110,
            "promptTokensDetails":[{"modality":"TEXT","tokenCount":40},{"modality":"AUDIO","tokenCount":6}]}"#;
        let usage = serde_json::from_str::<NativeUsage>(counts).unwrap().read();
        assert_eq!((usage.input, usage.output, usage.thinking), (50, 60, 9));
        assert_eq!((usage.cache_read, usage.input_audio, usage.total()), (6, 6, 110));
    }

    #[test]
    fn made_up_ids_are_stable_and_recognised() {
        let id = invent_id((1, 2), "f");
        assert_eq!(id, invent_id((1, 2), "f"));
        assert_ne!(id, invent_id((1, 3), "f"));
        assert_eq!(
            (provider_id(&id), provider_id("call_1"), provider_id("")),
            (None, Some("call_1"), None)
        );
    }
}
