//! Fields of an image request that a family of models does not have.

use canon::{ImageRequest, Losses};

use super::names::ORIGIN;

/// Fields that only the GPT family has.
pub(super) const GPT_FIELDS: &[&str] = &[
    "mask",
    "quality",
    "output_compression",
    "background",
    "moderation",
    "input_fidelity",
    "style",
    "user",
    "safety_identifier",
];

/// Returns true if a field has a value other than its default.
fn is_set(picture: &ImageRequest, field: &str) -> bool {
    let is_chosen = |word: &Option<String>| word.as_deref().is_some_and(|word| word != "auto");
    match field {
        "image" => !picture.inputs.is_empty(),
        "mask" => picture.mask.is_some(),
        "aspect_ratio" => picture.aspect_ratio.is_some(),
        "quality" => is_chosen(&picture.quality),
        "output_format" => picture.format.is_some(),
        "output_compression" => picture.compression.is_some(),
        "background" => is_chosen(&picture.background),
        "moderation" => picture.moderation.as_deref() == Some("low"),
        "input_fidelity" => picture.fidelity.is_some(),
        "style" => picture.style.is_some(),
        "negative_prompt" => picture.negative_prompt.is_some(),
        "seed" => picture.seed.is_some(),
        "guidance_scale" => picture.guidance.is_some(),
        "watermark" => picture.watermark.is_some(),
        "user" => picture.user.is_some(),
        "safety_identifier" => picture.safety_identifier.is_some(),
        _ => false,
    }
}

/// Notes the fields that a family lacks, if they are set.
pub(super) fn note(picture: &ImageRequest, fields: &[&str], why: &str, losses: &mut Losses) {
    for field in fields {
        losses.add_if(is_set(picture, field), field, why);
    }
}

/// Notes the fields that no described API has.
pub(super) fn note_unknown(picture: &ImageRequest, why: &str, losses: &mut Losses) {
    for name in picture.extras.for_format(ORIGIN).into_iter().flat_map(serde_json::Map::keys) {
        losses.add(name, why);
    }
}
