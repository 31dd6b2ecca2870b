//! Image requests at the images endpoint. The model `demo-image-url` behaves like the Seedream
//! family, with URLs and polling for large images; the other models behave like the GPT family.

use bytes::Bytes;
use canon::{
    ApiError, ErrorKind, GeneratedImage, ImageReply, ImageRequest, ImageSize, MediaSource, Usage,
};
use dialects::images::{self, ImageReplyDefaults, ImageRequestForm};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::stamp;
use super::temp_store::{self, StoreLookup};
use crate::drawing::{self, Raster, Sketch};
use crate::seeded_random;
use crate::tokens;

/// Model that behaves like the Seedream family.
const URL_MODEL: &str = "demo-image-url";
/// Size that the gateway has to poll for.
const POLLED_SIZE: &str = "2K";
/// Maximum number of pixels that are drawn.
const MAX_PIXELS: u64 = 4 << 20;
/// A prompt with this word is refused, so that refusals can be tested.
const REFUSED_WORD: &str = "forbidden";

/// An answer to an image request.
pub(super) struct DrawnAnswer {
    pub(super) model: String,
    pub(super) usage: Usage,
    pub(super) reply: ImageAnswerBody,
}

/// Form of the answer.
pub(super) enum ImageAnswerBody {
    Whole(Vec<u8>),
    Stream(Vec<Bytes>),
}

/// Answers an image request with these headers at that host.
pub(super) fn serve(
    edit: bool,
    headers: &HeaderMap,
    host: &str,
    body: &Bytes,
) -> Result<DrawnAnswer, ApiError> {
    let kind = headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let form = match (edit, images::boundary(kind.unwrap_or_default())) {
        (false, _) => ImageRequestForm::Generation,
        (true, None) => ImageRequestForm::JsonEdit,
        (true, Some(boundary)) => ImageRequestForm::MultipartEdit { boundary: boundary? },
    };
    let picture = form.read(body)?.picture;
    let third = picture.model == URL_MODEL;
    if !third && picture.delivery.is_some() {
        // The GPT image models do the same.
        return Err(ApiError::invalid("response_format", "Unknown parameter: 'response_format'.")
            .with_code("unknown_parameter"));
    }
    if picture.prompt.to_lowercase().contains(REFUSED_WORD) {
        return Err(ApiError::new(
            ErrorKind::ContentPolicy,
            "your prompt was held back by the safety system",
        )
        .with_code("moderation_blocked"));
    }
    let order = ImageOrder::of(picture)?;
    if third { order.links(host) } else { order.plain() }
}

/// An image request with all defaults applied.
struct ImageOrder {
    picture: ImageRequest,
    size: (u32, u32),
    sketch: Sketch,
    count: u32,
    usage: Usage,
}

impl ImageOrder {
    fn of(picture: ImageRequest) -> Result<Self, ApiError> {
        let size = match &picture.size {
            ImageSize::Auto => (1_024, 1_024),
            ImageSize::Pixels(width, height) => (*width, *height),
            ImageSize::Class(word) => match word.as_str() {
                "512" => (512, 512),
                "1K" => (1_024, 1_024),
                POLLED_SIZE => (2_048, 2_048),
                _ => return Err(ApiError::invalid("size", "`size` must be 512, 1K or 2K")),
            },
        };
        if u64::from(size.0) * u64::from(size.1) > MAX_PIXELS {
            return Err(ApiError::invalid(
                "size",
                format!("`size` has more than {MAX_PIXELS} pixels"),
            ));
        }
        let read = |source: &MediaSource, name: &str| {
            let MediaSource::Inline { data, .. } = source else {
                return Err(ApiError::invalid(name, format!("`{name}` must be inline here")));
            };
            let read = media::decode_base64(data).and_then(|bytes| drawing::decode(&bytes));
            read.ok_or_else(|| ApiError::invalid(name, format!("`{name}` cannot be read")))
        };
        let inputs = picture.inputs.iter().map(|source| read(source, "image"));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let mask = picture.mask.as_ref().map(|source| read(source, "mask")).transpose()?;
        let (detail, square) = match picture.quality.as_deref() {
            Some("low") => (2, 272),
            Some("high") => (6, 4_160),
            Some(_) | None => (4, 1_056),
        };
        let series =
            picture.extras.get(canon::WireFormat::Images, "sequential_image_generation_options");
        let series = series.and_then(|options| options.get("max_images")?.as_u64());
        let series = series.and_then(|most| u32::try_from(most).ok());
        let count = series.unwrap_or(picture.count).clamp(1, 10);
        let pixels = u64::from(size.0) * u64::from(size.1);
        let one = (square * pixels).div_ceil(1_024 * 1_024);
        let drafts = picture.partial_images.unwrap_or_default() * 100;
        let output = (one + if picture.stream { drafts } else { 0 }) * u64::from(count);
        let input_image = inputs.len() as u64 * 323;
        let usage = Usage {
            input: tokens::count(&picture.prompt) + input_image,
            input_image,
            output,
            output_image: output,
            ..Usage::default()
        };
        let sketch = Sketch {
            text: picture.prompt.clone(),
            seed: 0,
            size,
            detail,
            transparent: picture.background.as_deref() == Some("transparent"),
            inputs,
            mask,
        };
        Ok(Self { picture, size, sketch, count, usage })
    }

    /// Returns the files of the images.
    fn files(&self) -> Vec<Vec<u8>> {
        (0..self.count).map(|number| self.encode(&self.draw(number))).collect()
    }

    fn draw(&self, number: u32) -> Raster {
        let given = self.picture.seed.map_or(0, |seed| seeded_random::hash(&seed.to_le_bytes()));
        let seed = given ^ u64::from(number);
        drawing::draw(&Sketch { seed, ..self.sketch.clone() })
    }

    fn encode(&self, picture: &Raster) -> Vec<u8> {
        let quality = self.picture.compression.and_then(|quality| u8::try_from(quality).ok());
        drawing::encode(picture, self.format(), quality.unwrap_or(90))
    }

    fn format(&self) -> &str {
        self.picture.format.as_deref().unwrap_or("png")
    }

    fn size(&self) -> String {
        format!("{}x{}", self.size.0, self.size.1)
    }

    /// Answers like the GPT family.
    fn plain(self) -> Result<DrawnAnswer, ApiError> {
        let quality = match self.picture.quality.as_deref() {
            None | Some("auto") => "medium",
            Some(word) => word,
        };
        let background = if self.sketch.transparent { "transparent" } else { "opaque" };
        let mime = format!("image/{}", self.format());
        let made = |file: Vec<u8>| GeneratedImage::Image {
            source: MediaSource::Inline { mime: mime.clone(), data: media::encode_base64(&file) },
            revised: None,
            size: None,
        };
        let mut pictures = ImageReply {
            created: Some(stamp::now()),
            images: Vec::new(),
            usage: Some(self.usage),
            background: Some(background.to_owned()),
            format: Some(self.format().to_owned()),
            quality: Some(quality.to_owned()),
            size: Some(self.size()),
            extras: canon::ExtraFields::new(),
        };
        let defaults = ImageReplyDefaults::of_request(&self.picture, &[], stamp::now());
        let (model, usage) = (self.picture.model.clone(), self.usage);
        if !self.picture.stream {
            pictures.images = self.files().into_iter().map(made).collect();
            let body = images::write_reply(&pictures, &defaults);
            return Ok(DrawnAnswer { model, usage, reply: ImageAnswerBody::Whole(body) });
        }
        let mut pieces = Vec::new();
        let drafts =
            u32::try_from(self.picture.partial_images.unwrap_or_default()).unwrap_or_default();
        for number in 0..self.count {
            let whole = self.draw(number);
            for draft in 0..drafts {
                let file = self.encode(&drawing::draft(&whole, draft, drafts));
                let data = media::encode_base64(&file);
                pieces.push(partial(&pictures, &self.picture, draft, &data));
            }
            pictures.images.push(made(self.encode(&whole)));
        }
        let completed = images::write_stream(&pictures, &defaults);
        pieces.push(Bytes::from(completed));
        Ok(DrawnAnswer { model, usage, reply: ImageAnswerBody::Stream(pieces) })
    }

    /// Answers like the Seedream family: with URLs unless it streams, and with a task for a large
    /// image.
    fn links(self, host: &str) -> Result<DrawnAnswer, ApiError> {
        let (model, usage) = (self.picture.model.clone(), self.usage);
        let counts = json!({ "generated_images": self.count, "output_tokens": usage.output,
            "total_tokens": usage.output });
        if self.picture.stream {
            let reply = ImageAnswerBody::Stream(self.series(&counts));
            return Ok(DrawnAnswer { model, usage, reply });
        }
        let kind = if self.format() == "jpeg" { "image/jpeg" } else { "image/png" };
        let mut data = Vec::new();
        for file in self.files() {
            let name = format!("{}.{}", stamp::fresh().id, self.format());
            data.push(
                json!({ "url": format!("http://{host}/pictures/{name}"), "size": self.size() }),
            );
            temp_store::keep(name, kind, Bytes::from(file));
        }
        let done =
            json!({ "model": model, "created": stamp::now(), "data": data, "usage": counts });
        let slow = matches!(&self.picture.size, ImageSize::Class(word) if word == POLLED_SIZE);
        if !slow {
            let body = done.to_string().into_bytes();
            return Ok(DrawnAnswer { model, usage, reply: ImageAnswerBody::Whole(body) });
        }
        let id = format!("task_{}", stamp::fresh().id);
        let mut later = done;
        for (name, value) in [("id", json!(id)), ("status", json!("completed"))] {
            later.as_object_mut().and_then(|object| object.insert(name.to_owned(), value));
        }
        temp_store::keep_for_later(id.clone(), Bytes::from(later.to_string()));
        let body = task(&id, "pending").to_string().into_bytes();
        Ok(DrawnAnswer { model, usage, reply: ImageAnswerBody::Whole(body) })
    }

    /// Streams a series like the Seedream family.
    fn series(&self, counts: &Value) -> Vec<Bytes> {
        let event = |data: Value| {
            let name = data.get("type").and_then(Value::as_str).unwrap_or_default();
            Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
        };
        let mut pieces: Vec<Bytes> = (0_u32..)
            .zip(self.files())
            .map(|(index, file)| {
                event(json!({ "type": "image_generation.partial_succeeded", "image_index": index,
                    "b64_json": media::encode_base64(&file), "size": self.size() }))
            })
            .collect();
        pieces.push(event(json!({ "type": "image_generation.completed", "usage": counts })));
        pieces.push(Bytes::from_static(b"data: [DONE]\n\n"));
        pieces
    }
}

fn partial(pictures: &ImageReply, picture: &ImageRequest, number: u32, data: &str) -> Bytes {
    let front = if picture.edit { "image_edit" } else { "image_generation" };
    let name = format!("{front}.partial_image");
    let data = json!({ "type": name, "b64_json": data, "partial_image_index": number,
        "created_at": stamp::now(), "size": pictures.size, "quality": pictures.quality,
        "background": pictures.background, "output_format": pictures.format });
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

fn task(id: &str, status: &str) -> Value {
    json!({ "id": id, "object": "image.generation.task", "status": status, "created": stamp::now(),
        "data": null, "error": null })
}

/// Returns the state of a polled task.
pub(super) fn poll(id: &str) -> Result<Bytes, ApiError> {
    match temp_store::find(id) {
        StoreLookup::Ready(body, _) => Ok(body),
        StoreLookup::Pending => Ok(Bytes::from(task(id, "processing").to_string())),
        StoreLookup::Gone => Err(ApiError::new(ErrorKind::NotFound, "there is no such task")),
    }
}

/// Returns an image behind a URL: status, media type and bytes.
pub(super) fn file(name: &str) -> (StatusCode, &'static str, Bytes) {
    match temp_store::find(name) {
        StoreLookup::Ready(body, kind) => (StatusCode::OK, kind, body),
        StoreLookup::Pending | StoreLookup::Gone => {
            (StatusCode::FORBIDDEN, "text/plain", Bytes::from_static(b"this link has expired\n"))
        }
    }
}
