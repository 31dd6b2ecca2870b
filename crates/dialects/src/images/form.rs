//! Body formats of an image request: read, checked, and passed through.

use bytes::Bytes;
use canon::{ApiError, ImageRequest};
use std::ops::Range;

use super::names::{EDITS_PATH, GENERATIONS_PATH, ORIGIN};
use super::provider::ImageProviderRequest;
use super::{read_request, rules};
use crate::ProviderRequest;
use crate::address_scan::first_address;
use crate::body_outline::BodyOutline;
use crate::fields::ObjectWriter;
use crate::json::{self, BodyEdit, BodySegments};

/// Body formats of an image request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageRequestForm {
    /// `POST /v1/images/generations`.
    Generation,
    /// `POST /v1/images/edits` as JSON.
    JsonEdit,
    /// `POST /v1/images/edits` as `multipart/form-data`.
    MultipartEdit {
        /// Boundary between its parts.
        boundary: String,
    },
}

impl ImageRequestForm {
    /// Returns true if the request has input images.
    pub const fn is_edit(&self) -> bool {
        !matches!(self, Self::Generation)
    }

    /// Returns the content type of the body.
    pub fn content_type(&self) -> String {
        match self {
            Self::Generation | Self::JsonEdit => "application/json".to_owned(),
            Self::MultipartEdit { boundary } => format!("multipart/form-data; boundary={boundary}"),
        }
    }

    /// Reads a request and applies the rules that hold for all models.
    pub fn read(&self, body: &Bytes) -> Result<ParsedImageRequest, ApiError> {
        let order = match self {
            Self::Generation => read_request::json(body, false)?,
            Self::JsonEdit => read_request::json(body, true)?,
            Self::MultipartEdit { boundary } => read_request::form(body, boundary)?,
        };
        rules::check(&order.picture)?;
        Ok(order)
    }

    /// Returns the caller's body with the provider's model name. Parts for the gateway are removed
    /// from a form. In JSON, the caller of this function removes them as the provider requires.
    pub fn patch(
        &self,
        body: &Bytes,
        order: &ParsedImageRequest,
        model: &str,
    ) -> ImageProviderRequest {
        let removed = |at: &Range<usize>| BodyEdit { range: at.clone(), replacement: Bytes::new() };
        let mut edits: Vec<BodyEdit> = order.gateway_parts.iter().map(removed).collect();
        let (name, content_type) = match self {
            Self::Generation | Self::JsonEdit => (json::to_json_string(model), None),
            Self::MultipartEdit { .. } => {
                (Bytes::from(model.to_owned()), Some(self.content_type()))
            }
        };
        let range = order.model_range.clone().filter(|_| order.picture.model != model);
        edits.extend(range.map(|range| BodyEdit { range, replacement: name }));
        let path = if self.is_edit() { EDITS_PATH } else { GENERATIONS_PATH };
        let outgoing =
            ProviderRequest { path: path.to_owned(), body: BodySegments::with_edits(body, edits) };
        ImageProviderRequest { outgoing, content_type, headers: &[] }
    }
}

/// A parsed image request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedImageRequest {
    /// The requested images.
    pub picture: ImageRequest,
    /// The field of each input image, as the caller named it.
    pub input_paths: Vec<String>,
    /// Options for asynchronous delivery.
    pub delivery: AsyncDelivery,
    /// Byte range of the model name.
    pub(super) model_range: Option<Range<usize>>,
    /// Byte ranges of form parts that only the gateway reads.
    pub(super) gateway_parts: Vec<Range<usize>>,
    /// True if the GPT family accepts the body unchanged at the same endpoint.
    pub(super) is_gpt_body: bool,
}

impl ParsedImageRequest {
    /// Returns true if the GPT family accepts the caller's body unchanged.
    pub const fn is_gpt_body(&self) -> bool {
        self.is_gpt_body
    }

    /// Returns the path of the first address in a field that the image APIs do not have.
    pub fn first_other_address(&self) -> Result<Option<String>, ApiError> {
        let others = ObjectWriter::new().with_extras(&self.picture.extras, ORIGIN).into_json();
        first_address(&others, &BodyOutline::default(), false, &|_| false)
    }
}

/// Options for asynchronous delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AsyncDelivery {
    /// True if the caller wants to poll for the result.
    pub is_requested: bool,
    /// URL to notify when the task ends.
    pub webhook: Option<String>,
}

/// Fields only the gateway reads. The GPT image models reject the first one.
pub const GATEWAY_FIELDS: [&str; 4] = ["response_format", "async", "webhook", "webhook_url"];
