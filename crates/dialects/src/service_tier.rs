//! Service tier of a reply, and the reply fields that other formats cannot show.
//!
//! Three formats report the tier, each with its own word. A tier without a word in the caller's
//! format is a loss, except the standard tier. `system_fingerprint` identifies a build of the
//! provider's backend; it means nothing to a caller of another format, so dropping it is not a
//! loss.
//!
//! See <https://platform.openai.com/docs/api-reference/chat/object> (`service_tier`).

use canon::{Event, ExtraFields, Losses, ServiceTier, WireFormat};
use serde_json::Value;

use crate::fields::is_reported;

/// Field name of the tier in every format that reports it.
pub(crate) const TIER_FIELD: &str = "service_tier";

/// Key under which the messages format keeps the fields of `usage` that are not counts.
pub(crate) const USAGE_EXTRA: &str = "portunus.usage";

/// Words of the tiers in a request: of the OpenAI formats, of the messages format (see
/// <https://docs.anthropic.com/en/api/service-tiers>) and of the native format. Empty without a
/// word. `auto` of the messages format uses the account's priority capacity.
static REQUEST_WORDS: [(ServiceTier, [&str; 3]); 5] = [
    (ServiceTier::Auto, ["auto", "auto", ""]),
    (ServiceTier::Standard, ["default", "standard_only", "standard"]),
    (ServiceTier::Flex, ["flex", "", "flex"]),
    (ServiceTier::Priority, ["priority", "auto", "priority"]),
    (ServiceTier::Fast, ["fast", "", ""]),
];

/// Returns the column of a format in [`REQUEST_WORDS`].
const fn word_column(format: WireFormat) -> usize {
    match format {
        WireFormat::Chat | WireFormat::Responses | WireFormat::Images => 0,
        WireFormat::Messages => 1,
        WireFormat::Native => 2,
    }
}

/// Reads the tier of a request. Only the native format takes its words in any case.
pub(crate) fn read_request_tier(format: WireFormat, word: &str) -> ServiceTier {
    let is_word = |own: &&str| match format {
        WireFormat::Native => own.eq_ignore_ascii_case(word),
        _ => *own == word,
    };
    let mut rows = REQUEST_WORDS.iter().filter(|_| !word.is_empty());
    let known = rows.find(|(_, words)| words.get(word_column(format)).is_some_and(&is_word));
    known.map_or_else(|| ServiceTier::Other(format, word.to_owned()), |(tier, _)| tier.clone())
}

/// Returns the format's word for the tier of a request. Records a loss if it has none. The fast
/// tier of the messages format is set in another field.
pub(crate) fn write_request_tier<'a>(
    tier: Option<&'a ServiceTier>,
    me: WireFormat,
    losses: &mut Losses,
) -> Option<&'a str> {
    let column = word_column(me);
    let word = match tier? {
        ServiceTier::Other(origin, word) if word_column(*origin) == column => Some(word.as_str()),
        tier => {
            let row = REQUEST_WORDS.iter().find(|(own, _)| own == tier);
            row.and_then(|(_, words)| words.get(column).copied()).filter(|word| !word.is_empty())
        }
    };
    let is_elsewhere = me == WireFormat::Messages && tier == Some(&ServiceTier::Fast);
    if word.is_none() && tier != Some(&ServiceTier::Auto) && !is_elsewhere {
        losses.add("hints.tier", &format!("the {me} format lacks this tier"));
    }
    word
}

/// Reads a format's word for the tier.
pub(crate) fn read_tier(origin: WireFormat, word: &str) -> ServiceTier {
    match word {
        "auto" => ServiceTier::Auto,
        "default" | "standard" | "on_demand" | "ON_DEMAND" => ServiceTier::Standard,
        "flex" | "ON_DEMAND_FLEX" => ServiceTier::Flex,
        "priority" | "ON_DEMAND_PRIORITY" => ServiceTier::Priority,
        "fast" => ServiceTier::Fast,
        other => ServiceTier::Other(origin, other.to_owned()),
    }
}

/// Field of the messages format that names where a call is served. In the United States it costs more, so
/// that this counts as a tier
/// (<https://platform.claude.com/docs/en/build-with-claude/data-residency>).
pub(crate) const GEO_FIELD: &str = "inference_geo";
pub(crate) const US: &str = "us";

/// Returns the tier of the messages format that speed and place make. Both together are a tier of its own,
/// because both cost more.
pub(crate) fn speed_tier(is_fast: bool, is_us: bool) -> Option<ServiceTier> {
    let other = |word: &str| ServiceTier::Other(WireFormat::Messages, word.to_owned());
    match (is_fast, is_us) {
        (true, true) => Some(other("fast_us")),
        (true, false) => Some(ServiceTier::Fast),
        (false, true) => Some(other(US)),
        (false, false) => None,
    }
}

/// Returns the tier if this stream event reports it.
pub(crate) fn event_tier(event: &Event) -> Option<ServiceTier> {
    let Event::Extra { candidate: None, origin, name, value } = event else { return None };
    field_tier(*origin, name, value)
}

/// Returns the tier that the fields of a whole reply report.
pub(crate) fn extras_tier(extras: &ExtraFields) -> Option<ServiceTier> {
    extras.all_fields().find_map(|(origin, name, value)| field_tier(origin, name, value))
}

/// Returns the tier if this reply field reports it.
fn field_tier(origin: WireFormat, name: &str, value: &Value) -> Option<ServiceTier> {
    let word = match (origin, name) {
        (WireFormat::Chat | WireFormat::Responses, TIER_FIELD) => value.as_str()?,
        (WireFormat::Messages, USAGE_EXTRA) => {
            let is_us = value.get(GEO_FIELD).and_then(Value::as_str) == Some(US);
            if let Some(tier) = speed_tier(is_fast(value), is_us) {
                return Some(tier);
            }
            value.get(TIER_FIELD)?.as_str()?
        }
        (WireFormat::Native, "usageMetadata.serviceTier" | "usageMetadata.trafficType") => {
            value.as_str()?
        }
        _ => return None,
    };
    Some(read_tier(origin, word))
}

/// Returns true if the `usage` of the messages format reports the fast tier, which has a field of
/// its own there.
pub(crate) fn is_fast(usage: &Value) -> bool {
    usage.get("speed").and_then(Value::as_str) == Some("fast")
}

/// Returns the format's word for a tier. Records a loss if it has none, except for the standard
/// tier.
pub(crate) fn write_tier(
    tier: &ServiceTier,
    me: WireFormat,
    losses: &mut Losses,
) -> Option<&'static str> {
    use ServiceTier::{Auto, Flex, Priority, Standard};
    use WireFormat::{Chat, Messages, Responses};
    let word = match (me, tier) {
        (Chat | Responses, Auto | Standard) => Some("default"),
        (Messages, Auto | Standard) => Some("standard"),
        (Chat | Responses, Flex) => Some("flex"),
        (Chat | Responses | Messages, Priority) => Some("priority"),
        _ => None,
    };
    let is_lost = word.is_none() && !matches!(tier, Auto | Standard);
    let why = "the format has no word for the service tier of the reply";
    losses.add_if(is_lost, "reply.service_tier", why);
    word
}

/// Records the reply fields of other formats as losses. Returns the word for the tier if one of
/// them reports it.
pub(crate) fn note_reply_extras(
    extras: &ExtraFields,
    me: WireFormat,
    losses: &mut Losses,
) -> Option<&'static str> {
    let mut found = None;
    for (origin, name, value) in extras.all_fields().filter(|(origin, ..)| *origin != me) {
        found = note_reply_field(origin, name, value, me, losses).or(found);
    }
    found
}

/// Handles one field for [`note_reply_extras`].
pub(crate) fn note_reply_field(
    origin: WireFormat,
    name: &str,
    value: &Value,
    me: WireFormat,
    losses: &mut Losses,
) -> Option<&'static str> {
    if let Some(tier) = field_tier(origin, name, value) {
        return write_tier(&tier, me, losses);
    }
    let mut note = |name: &str| {
        let why = "only the provider's format has this field";
        losses.add_if(is_reported(name), &format!("reply.{name}"), why);
    };
    match (origin, name, value) {
        // Chat keeps the fields of its message under one key.
        (WireFormat::Chat, "message", Value::Object(inside)) => {
            inside.keys().for_each(|name| note(name));
        }
        (_, TIER_FIELD | "system_fingerprint", _) => {}
        // They stand in every reply, and say that nothing was found.
        (WireFormat::Native, "safetyRatings", ratings) if is_harmless(ratings) => {}
        (_, name, _) => note(name),
    }
    None
}

/// Returns true if all safety ratings are negligible and blocked nothing.
fn is_harmless(ratings: &Value) -> bool {
    let is_negligible = |rating: &Value| {
        rating.get("probability").and_then(Value::as_str) == Some("NEGLIGIBLE")
            && rating.get("blocked") != Some(&Value::Bool(true))
    };
    ratings.as_array().is_some_and(|ratings| ratings.iter().all(is_negligible))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn writes_the_tier_in_the_callers_format() {
        for (from, value, me, expected, lost) in [
            (WireFormat::Chat, json!("default"), WireFormat::Messages, Some("standard"), false),
            (
                WireFormat::Responses,
                json!("priority"),
                WireFormat::Messages,
                Some("priority"),
                false,
            ),
            (WireFormat::Chat, json!("flex"), WireFormat::Messages, None, true),
            (WireFormat::Chat, json!("flex"), WireFormat::Responses, Some("flex"), false),
            (
                WireFormat::Messages,
                json!({"service_tier": "standard"}),
                WireFormat::Chat,
                Some("default"),
                false,
            ),
            (WireFormat::Messages, json!({"service_tier": "batch"}), WireFormat::Chat, None, true),
            (
                WireFormat::Messages,
                json!({"service_tier": "standard"}),
                WireFormat::Native,
                None,
                false,
            ),
            (WireFormat::Chat, json!("priority"), WireFormat::Native, None, true),
        ] {
            let name = if from == WireFormat::Messages { USAGE_EXTRA } else { TIER_FIELD };
            let mut extras = ExtraFields::new();
            extras.insert(from, name, value.clone());
            extras.insert(from, "system_fingerprint", json!("fp"));
            let mut losses = Losses::new();
            assert_eq!(
                note_reply_extras(&extras, me, &mut losses),
                expected,
                "{from} {value} for {me}"
            );
            let names: Vec<&str> = losses.iter().map(|loss| loss.path.as_str()).collect();
            let expected: &[&str] = if lost { &["reply.service_tier"] } else { &[] };
            assert_eq!(names, expected, "{from} {value} for {me}");
        }
    }
}
