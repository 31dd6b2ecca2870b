//! Fields of an image request that are carried as they are, and those that a family of models does
//! not have.

use canon::{ImageRequest, ImageSize, Losses};
use serde_json::Value;

use super::names::{NO_SUCH_FIELD, ORIGIN};
use crate::fields::ObjectWriter;

/// Returns the value of a field, if it is set.
type FieldValue = fn(&ImageRequest) -> Option<Value>;

/// The fields, in the order of the GPT family.
const FIELDS: [(&str, FieldValue); 18] = [
    ("n", |picture| (picture.count > 1).then(|| picture.count.into())),
    ("size", |picture| (picture.size != ImageSize::Auto).then(|| picture.size.to_string().into())),
    ("aspect_ratio", |picture| text(&picture.aspect_ratio)),
    ("quality", |picture| text(&picture.quality)),
    ("output_format", |picture| text(&picture.format)),
    ("output_compression", |picture| picture.compression.map(Value::from)),
    ("background", |picture| text(&picture.background)),
    ("moderation", |picture| text(&picture.moderation)),
    ("input_fidelity", |picture| text(&picture.fidelity)),
    ("style", |picture| text(&picture.style)),
    ("negative_prompt", |picture| text(&picture.negative_prompt)),
    ("seed", |picture| picture.seed.map(Value::from)),
    ("guidance_scale", |picture| picture.guidance.map(Value::from)),
    ("watermark", |picture| picture.watermark.map(Value::from)),
    ("stream", |picture| picture.stream.then_some(Value::Bool(true))),
    ("partial_images", |picture| picture.partial_images.map(Value::from)),
    ("user", |picture| text(&picture.user)),
    ("safety_identifier", |picture| text(&picture.safety_identifier)),
];

fn text(word: &Option<String>) -> Option<Value> {
    word.as_deref().map(Value::from)
}

fn value_of(picture: &ImageRequest, field: &str) -> Option<Value> {
    FIELDS.iter().find(|(name, _)| *name == field).and_then(|(_, value)| value(picture))
}

/// Writes some of the fields.
pub(super) fn write(
    object: ObjectWriter,
    picture: &ImageRequest,
    names: &[&'static str],
) -> ObjectWriter {
    names.iter().fold(object, |object, name| object.set_some(name, value_of(picture, name)))
}

/// Writes all fields.
pub(super) fn write_all(object: ObjectWriter, picture: &ImageRequest) -> ObjectWriter {
    FIELDS.iter().fold(object, |object, (name, value)| object.set_some(name, value(picture)))
}

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
    match field {
        "image" => !picture.inputs.is_empty(),
        "mask" => picture.mask.is_some(),
        "quality" | "background" | "moderation" => {
            value_of(picture, field).is_some_and(|word| word != "auto")
        }
        _ => value_of(picture, field).is_some(),
    }
}

/// Notes the fields that a family lacks, if they are set.
pub(super) fn note(picture: &ImageRequest, fields: &[&str], why: &str, losses: &mut Losses) {
    for field in fields {
        losses.add_if(is_set(picture, field), field, why);
    }
}

/// Returns the losses of a family that lacks those fields and the fields of the GPT family.
pub(super) fn losses_of(picture: &ImageRequest, lacks: &[&str]) -> Losses {
    let mut losses = Losses::new();
    for fields in [GPT_FIELDS, lacks] {
        note(picture, fields, NO_SUCH_FIELD, &mut losses);
    }
    losses
}

/// Notes the fields that no described API has.
pub(super) fn note_unknown(picture: &ImageRequest, why: &str, losses: &mut Losses) {
    for name in picture.extras.for_format(ORIGIN).into_iter().flat_map(serde_json::Map::keys) {
        losses.add(name, why);
    }
}
