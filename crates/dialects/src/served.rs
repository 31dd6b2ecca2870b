//! Service tier of a reply, and the reply fields that other formats cannot show.
//!
//! Three formats report the tier, each with its own word. A tier without a word in the caller's
//! format is a loss, except the standard tier. `system_fingerprint` identifies a build of the
//! provider's backend; it means nothing to a caller of another format, so dropping it is not a
//! loss.
//!
//! See <https://platform.openai.com/docs/api-reference/chat/object> (`service_tier`).

use canon::{Event, Extras, Losses, Origin, Tier};
use serde_json::Value;

use crate::fields::matters;

/// Field name of the tier in every format that reports it.
pub(crate) const TIER: &str = "service_tier";

/// Key under which the messages format keeps the fields of `usage` that are not counts.
pub(crate) const USAGE: &str = "portunus.usage";

/// Returns the tier if this reply field reports it.
pub(crate) fn tier(origin: Origin, name: &str, value: &Value) -> Option<Tier> {
    let word = match (origin, name) {
        (Origin::Chat | Origin::Responses, TIER) => value.as_str()?,
        (Origin::Messages, USAGE) => value.get(TIER)?.as_str()?,
        _ => return None,
    };
    Some(read(origin, word))
}

/// Reads a format's word for the tier.
pub(crate) fn read(origin: Origin, word: &str) -> Tier {
    match word {
        "auto" => Tier::Auto,
        "default" | "standard" | "on_demand" | "ON_DEMAND" => Tier::Standard,
        "flex" | "ON_DEMAND_FLEX" => Tier::Flex,
        "priority" | "ON_DEMAND_PRIORITY" => Tier::Priority,
        "fast" => Tier::Fast,
        other => Tier::Other(origin, other.to_owned()),
    }
}

/// Returns the tier if this stream event reports it.
pub fn tier_told(event: &Event) -> Option<Tier> {
    let Event::Aside { candidate: None, origin, name, value } = event else { return None };
    match (origin, name.as_str()) {
        (Origin::Native, "usageMetadata.serviceTier" | "usageMetadata.trafficType") => {
            value.as_str().map(|word| read(Origin::Native, word))
        }
        (Origin::Messages, USAGE) if is_fast(value) => Some(Tier::Fast),
        _ => tier(*origin, name, value),
    }
}

/// Returns true if the `usage` of the messages format reports the fast tier, which has a field of
/// its own there.
pub(crate) fn is_fast(usage: &Value) -> bool {
    usage.get("speed").and_then(Value::as_str) == Some("fast")
}

/// Returns the format's word for a tier. Records a loss if it has none, except for the standard
/// tier.
pub(crate) fn word(tier: &Tier, me: Origin, losses: &mut Losses) -> Option<&'static str> {
    let word = match (me, tier) {
        (Origin::Chat | Origin::Responses, Tier::Auto | Tier::Standard) => Some("default"),
        (Origin::Chat | Origin::Responses, Tier::Flex) => Some("flex"),
        (Origin::Messages, Tier::Auto | Tier::Standard) => Some("standard"),
        (Origin::Chat | Origin::Responses | Origin::Messages, Tier::Priority) => Some("priority"),
        _ => None,
    };
    let is_default = matches!(tier, Tier::Auto | Tier::Standard);
    losses.add_if(
        word.is_none() && !is_default,
        "reply.service_tier",
        "the format has no word for the service tier of the reply",
    );
    word
}

/// Records the reply fields of other formats as losses. Returns the word for the tier if one of
/// them reports it.
pub(crate) fn note(extras: &Extras, me: Origin, losses: &mut Losses) -> Option<&'static str> {
    let mut found = None;
    for origin in Origin::ALL.into_iter().filter(|origin| *origin != me) {
        for (name, value) in extras.for_origin(origin).into_iter().flatten() {
            found = aside(origin, name, value, me, losses).or(found);
        }
    }
    found
}

/// Handles one field for [`note`].
pub(crate) fn aside(
    origin: Origin,
    name: &str,
    value: &Value,
    me: Origin,
    losses: &mut Losses,
) -> Option<&'static str> {
    if let Some(tier) = tier(origin, name, value) {
        return word(&tier, me, losses);
    }
    // Chat keeps the fields of its message under one key.
    if let (Origin::Chat, "message", Value::Object(inside)) = (origin, name, value) {
        for name in inside.keys().filter(|name| matters(name)) {
            losses.add(&format!("reply.{name}"), "only the provider's format has this field");
        }
        return None;
    }
    let lost = matters(name) && !matches!(name, TIER | "system_fingerprint");
    losses.add_if(lost, &format!("reply.{name}"), "only the provider's format has this field");
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn writes_the_tier_in_the_callers_format() {
        for (from, value, me, expected, lost) in [
            (Origin::Chat, json!("default"), Origin::Messages, Some("standard"), false),
            (Origin::Responses, json!("priority"), Origin::Messages, Some("priority"), false),
            (Origin::Chat, json!("flex"), Origin::Messages, None, true),
            (Origin::Chat, json!("flex"), Origin::Responses, Some("flex"), false),
            (
                Origin::Messages,
                json!({"service_tier": "standard"}),
                Origin::Chat,
                Some("default"),
                false,
            ),
            (Origin::Messages, json!({"service_tier": "batch"}), Origin::Chat, None, true),
            (Origin::Messages, json!({"service_tier": "standard"}), Origin::Native, None, false),
            (Origin::Chat, json!("priority"), Origin::Native, None, true),
        ] {
            let name = if from == Origin::Messages { USAGE } else { TIER };
            let mut extras = Extras::none();
            extras.put(from, name, value.clone());
            extras.put(from, "system_fingerprint", json!("fp"));
            let mut losses = Losses::new();
            assert_eq!(note(&extras, me, &mut losses), expected, "{from} {value} for {me}");
            let names: Vec<&str> = losses.iter().map(|loss| loss.what.as_str()).collect();
            let expected: &[&str] = if lost { &["reply.service_tier"] } else { &[] };
            assert_eq!(names, expected, "{from} {value} for {me}");
        }
    }
}
