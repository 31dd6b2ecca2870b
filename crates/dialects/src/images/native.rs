//! Image generation with Gemini: the prompt is a user turn, and images come back as inline data.
//! One request generates one image.
//!
//! See <https://ai.google.dev/gemini-api/docs/image-generation>.

use canon::{
    ApiError, FinishReason, GeneratedImage, ImageReply, ImageRequest, Losses, Lossy, MediaKind,
    MediaSource, PartKind, Usage,
};
use serde_json::{Value, json};

use super::aspect_ratio::{self, NATIVE_RATIOS};
use super::names::ORIGIN;
use super::provider::ImageProviderRequest;
use crate::Dialect as _;
use crate::checks::invalid_field;
use crate::fields::ObjectWriter;
use crate::native::NativeDialect;

const NO_SUCH_FIELD: &str = "the native format has no such field";

pub(super) fn write(
    picture: &ImageRequest,
    model: &str,
) -> Result<Lossy<Vec<ImageProviderRequest>>, ApiError> {
    let ImageRequest {
        model: _,
        prompt,
        inputs,
        mask,
        edit: _,
        count,
        size: extent,
        aspect_ratio: _,
        quality,
        format,
        compression,
        background,
        moderation,
        fidelity,
        style,
        negative_prompt: negative,
        seed,
        guidance,
        watermark,
        delivery: _,
        stream: _,
        partial_images: _,
        user,
        safety_identifier,
        extras,
    } = picture;
    let mut losses = Losses::new();
    let auto = |word: &Option<String>| word.as_deref().is_some_and(|word| word != "auto");
    losses.add_if(mask.is_some(), "mask", NO_SUCH_FIELD);
    losses.add_if(auto(quality), "quality", NO_SUCH_FIELD);
    let other = format.as_deref().is_some_and(|word| word != "png");
    losses.add_if(other, "output_format", "the model chooses the file format itself");
    losses.add_if(compression.is_some(), "output_compression", NO_SUCH_FIELD);
    let transparent = background.as_deref() == Some("transparent");
    losses.add_if(transparent, "background", NO_SUCH_FIELD);
    losses.add_if(moderation.as_deref() == Some("low"), "moderation", NO_SUCH_FIELD);
    losses.add_if(fidelity.is_some(), "input_fidelity", NO_SUCH_FIELD);
    losses.add_if(style.is_some(), "style", NO_SUCH_FIELD);
    losses.add_if(negative.is_some(), "negative_prompt", NO_SUCH_FIELD);
    losses.add_if(guidance.is_some(), "guidance_scale", NO_SUCH_FIELD);
    losses.add_if(watermark.is_some(), "watermark", NO_SUCH_FIELD);
    losses.add_if(user.is_some(), "user", NO_SUCH_FIELD);
    losses.add_if(safety_identifier.is_some(), "safety_identifier", NO_SUCH_FIELD);
    losses.add_if(
        !aspect_ratio::is_exact(extent),
        "size",
        "the native format takes an aspect ratio and a size class, not pixels",
    );
    for name in extras.for_format(ORIGIN).into_iter().flat_map(serde_json::Map::keys) {
        losses.add(name, NO_SUCH_FIELD);
    }
    let ratio = aspect_ratio::ratio_of(picture, &NATIVE_RATIOS).map_err(|()| {
        let known = NATIVE_RATIOS.join(", ");
        invalid_field(
            "size",
            &format!("has an aspect ratio this model does not support; supported: {known}"),
        )
    })?;
    let ratio = ratio.filter(|word| *word != "auto");
    // 1K is the default, and some models reject `imageSize`.
    let class = aspect_ratio::class_of(extent).filter(|word| word != "1K");
    let config =
        ObjectWriter::new().set_some("aspectRatio", ratio).set_some("imageSize", class).into_map();
    let generation = ObjectWriter::new()
        .set("responseModalities", json!(["TEXT", "IMAGE"]))
        .set_some("imageConfig", (!config.is_empty()).then_some(config))
        .set_some("seed", *seed);
    let mut parts = vec![json!({ "text": prompt })];
    for source in inputs {
        let MediaSource::Inline { mime, data } = source else {
            return Err(ApiError::internal("an input image was not fetched before it was sent"));
        };
        parts.push(json!({ "inlineData": { "mimeType": mime, "data": data } }));
    }
    let contents = json!([{ "role": "user", "parts": parts }]);
    let body: Value =
        ObjectWriter::new().set("contents", contents).set("generationConfig", generation).into();
    let one = ImageProviderRequest::at(format!("/v1beta/models/{model}:generateContent"), &body);
    let all = (0..(*count).max(1)).map(|_| one.clone()).collect();
    Ok((all, losses.into_vec()))
}

pub(super) fn read(body: &[u8]) -> Result<ImageReply, ApiError> {
    let reply = NativeDialect.read_reply(body)?;
    let mut made = Vec::new();
    for candidate in reply.candidates {
        let (mut picture, mut text) = (None, String::new());
        for part in candidate.parts {
            // Images inside thoughts are drafts. The last other image is the answer.
            let thought = part.extras.get(canon::WireFormat::Native, "thought").is_some();
            match part.kind {
                PartKind::Media(media) if media.kind == MediaKind::Image && !thought => {
                    picture = Some(media.source);
                }
                PartKind::Text { text: more, .. } | PartKind::Refusal(more) => text.push_str(&more),
                PartKind::Media(_)
                | PartKind::Thought(_)
                | PartKind::ToolCall(_)
                | PartKind::ToolResult(_)
                | PartKind::CodeExecution(_)
                | PartKind::CodeResult(_)
                | PartKind::WebSearch(_)
                | PartKind::Foreign { .. } => {}
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
            None if filtered => GeneratedImage::Failed {
                code: "content_policy_violation".to_owned(),
                say: "the provider's content policy blocked the image".to_owned(),
            },
            None if !excerpt.is_empty() => GeneratedImage::Failed {
                code: "no_image".to_owned(),
                say: format!("the model answered with text and no image: {excerpt}"),
            },
            None => GeneratedImage::Failed {
                code: "no_image".to_owned(),
                say: "the model made no picture".to_owned(),
            },
        });
    }
    let usage = reply.usage.filter(|usage| *usage != Usage::default());
    Ok(ImageReply { created: reply.created, images: made, usage, ..ImageReply::default() })
}
