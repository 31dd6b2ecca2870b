//! Image generation with Gemini: the prompt is a user turn, and images come back as inline data.
//! One request generates one image.
//!
//! See <https://ai.google.dev/gemini-api/docs/image-generation>.

use canon::{
    ApiError, FinishReason, GeneratedImage, ImageReply, ImageRequest, Losses, MediaKind,
    MediaSource, PartKind, Usage,
};
use serde_json::json;

use super::aspect_ratio::{self, NATIVE_RATIOS};
use super::image_fields;
use super::provider::{ImageProviderRequest, WrittenImages, blocked, failed};
use crate::Dialect as _;
use crate::fields::ObjectWriter;
use crate::native::NativeDialect;

const NO_SUCH_FIELD: &str = "the native format has no such field";
/// Fields that this format lacks whatever their value is.
const OTHER_FIELDS: &[&str] = &[
    "moderation",
    "input_fidelity",
    "style",
    "negative_prompt",
    "guidance_scale",
    "watermark",
    "user",
    "safety_identifier",
];

pub(super) fn write(picture: &ImageRequest, model: &str) -> WrittenImages {
    let mut losses = Losses::new();
    image_fields::note(picture, &["mask", "quality"], NO_SUCH_FIELD, &mut losses);
    let other = picture.format.as_deref().is_some_and(|word| word != "png");
    losses.add_if(other, "output_format", "the model chooses the file format itself");
    image_fields::note(picture, &["output_compression"], NO_SUCH_FIELD, &mut losses);
    let is_transparent = picture.background.as_deref() == Some("transparent");
    losses.add_if(is_transparent, "background", NO_SUCH_FIELD);
    image_fields::note(picture, OTHER_FIELDS, NO_SUCH_FIELD, &mut losses);
    let why = "the native format takes an aspect ratio and a size class, not pixels";
    losses.add_if(!aspect_ratio::is_exact(&picture.size), "size", why);
    image_fields::note_unknown(picture, NO_SUCH_FIELD, &mut losses);
    let ratio = aspect_ratio::ratio_of(picture, &NATIVE_RATIOS)?.filter(|word| *word != "auto");
    // 1K is the default, and some models reject `imageSize`.
    let class = aspect_ratio::class_of(&picture.size).filter(|word| word != "1K");
    let config = ObjectWriter::new().set_some("aspectRatio", ratio).set_some("imageSize", class);
    let generation = ObjectWriter::new()
        .set("responseModalities", json!(["TEXT", "IMAGE"]))
        .set_some("imageConfig", config.into_filled())
        .set_some("seed", picture.seed);
    let mut parts = vec![json!({ "text": picture.prompt })];
    for source in &picture.inputs {
        let MediaSource::Inline { mime, data } = source else {
            return Err(ApiError::internal("an input image was not fetched before it was sent"));
        };
        parts.push(json!({ "inlineData": { "mimeType": mime, "data": data } }));
    }
    let contents = json!([{ "role": "user", "parts": parts }]);
    let body = ObjectWriter::new().set("contents", contents).set("generationConfig", generation);
    let one = ImageProviderRequest::at(format!("/v1beta/models/{model}:generateContent"), body);
    Ok((vec![one; picture.count.max(1) as usize], losses.into_vec()))
}

pub(super) fn read(body: &[u8]) -> Result<ImageReply, ApiError> {
    let reply = NativeDialect.read_reply(body)?;
    let mut made = Vec::new();
    for candidate in reply.candidates {
        let (mut picture, mut text) = (None, String::new());
        for part in candidate.parts {
            // Images inside thoughts are drafts. The last other image is the answer.
            let thought = part.extras.get(canon::WireFormat::Native, "thought").is_some();
            if let PartKind::Text { text: more, .. } | PartKind::Refusal(more) = &part.kind {
                text.push_str(more);
            } else if let PartKind::Media(media) = part.kind
                && media.kind == MediaKind::Image
                && !thought
            {
                picture = Some(media.source);
            }
        }
        let finish = candidate.finish;
        let filtered = finish.as_ref().is_some_and(|finish| {
            matches!(finish.reason, FinishReason::ContentFilter | FinishReason::PromptBlocked)
                && finish.raw.for_format(canon::WireFormat::Native) != Some("NO_IMAGE")
        });
        let excerpt: String = text.trim().chars().take(300).collect();
        made.push(match picture {
            Some(source) => GeneratedImage::Image { source, revised: None, size: None },
            None if filtered => blocked(),
            None if !excerpt.is_empty() => {
                let say = format!("the model answered with text and no image: {excerpt}");
                failed("no_image", &say)
            }
            None => failed("no_image", "the model made no picture"),
        });
    }
    let usage = reply.usage.filter(|usage| *usage != Usage::default());
    Ok(ImageReply { created: reply.created, images: made, usage, ..ImageReply::default() })
}
