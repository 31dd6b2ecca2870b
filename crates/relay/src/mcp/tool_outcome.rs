//! Result of a call of a tool, as a model reads it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// Images of one result that are shown.
const MAX_IMAGES: usize = 16;
/// Types of images that every format takes.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Image of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolImage {
    pub(super) mime: String,
    /// Content in base64.
    pub(super) data: String,
}

/// Result of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ToolOutcome {
    /// Text for the model.
    pub(super) text: String,
    /// Images for the model. The text names them.
    pub(super) images: Vec<ToolImage>,
    /// Reason of the failure in the words of the responses format, if it failed.
    pub(super) error: Option<Value>,
}

impl ToolOutcome {
    /// Failure of the call itself, not of its server.
    pub(super) fn refused(why: &str) -> Self {
        let error = json!({ "type": "mcp_protocol_error", "code": -32602, "message": why });
        Self { text: why.to_owned(), images: Vec::new(), error: Some(error) }
    }

    /// Reads the result of a tool. Images are named, and shown to models that take them.
    pub(super) fn read(result: &Map<String, Value>, shows_images: bool) -> Self {
        if result.get("resultType").and_then(Value::as_str) == Some("input_required") {
            return Self::refused("the tool asks for more input, which cannot be given here");
        }
        let content = result.get("content").and_then(Value::as_array);
        let (mut texts, mut images) = (Vec::new(), Vec::new());
        for part in content.into_iter().flatten() {
            let image = read_image(part).filter(|_| shows_images && images.len() < MAX_IMAGES);
            texts.push(content_text(part, image.is_some()));
            images.extend(image);
        }
        if texts.is_empty()
            && let Some(structured) = result.get("structuredContent")
        {
            texts.push(structured.to_string());
        }
        let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
        let error = is_error.then(
            || json!({ "type": "mcp_tool_execution_error", "content": result.get("content") }),
        );
        Self { text: texts.join("\n"), images, error }
    }

    /// Returns the size of what the next request has of it.
    pub(super) fn bytes(&self) -> usize {
        self.images.iter().map(|image| image.data.len()).sum::<usize>() + self.text.len()
    }
}

/// Returns the image of a part, if it is one that every format takes.
fn read_image(part: &Value) -> Option<ToolImage> {
    let word = |name: &str| part.get(name).and_then(Value::as_str);
    let (mime, data) = (word("mimeType")?, word("data")?);
    let is_image = word("type") == Some("image") && IMAGE_TYPES.contains(&mime);
    let is_whole = is_image && !data.is_empty() && STANDARD.decode(data).is_ok();
    is_whole.then(|| ToolImage { mime: mime.to_owned(), data: data.to_owned() })
}

/// Returns one part of a result as text. Media are named.
fn content_text(part: &Value, is_shown: bool) -> String {
    let word = |name: &str| part.get(name).and_then(Value::as_str);
    match word("type") {
        Some("text") => word("text").unwrap_or_default().to_owned(),
        Some(kind @ ("image" | "audio")) => {
            let bytes = word("data").map_or(0, |data| data.len() / 4 * 3);
            let mime = word("mimeType").unwrap_or("unknown type");
            let end = if is_shown { "" } else { ", not shown" };
            format!("[{kind} of {bytes} bytes, {mime}{end}]")
        }
        Some("resource") => {
            let text = part.pointer("/resource/text").and_then(Value::as_str);
            text.map_or_else(|| part.to_string(), str::to_owned)
        }
        Some(_) | None => part.to_string(),
    }
}
