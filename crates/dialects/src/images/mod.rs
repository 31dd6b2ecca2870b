//! Image generation and editing: `POST /v1/images/generations` and `/v1/images/edits`, and the
//! provider families behind them.
//!
//! Reference: <https://platform.openai.com/docs/api-reference/images>. Callers use one format
//! (`ImageRequestForm`), providers use several (`ImageProtocol`). Requests to the GPT image models are passed
//! through. The others are written from [`canon::Picture`], and fields they do not have are
//! recorded as losses. Some answer with a task that must be polled (`ImageAnswer::AsyncDelivery`).

mod aspect_ratio;
mod form;
mod gpt;
mod image_fields;
mod multipart;
mod names;
mod native;
mod protocol;
mod provider;
mod read_request;
mod rules;
mod seedream;
mod stream;
mod tasks;
#[cfg(test)]
mod tests;
mod write_reply;
mod xai;

pub use form::{AsyncDelivery, GATEWAY_FIELDS, ImageRequestForm, ParsedImageRequest};
pub use multipart::boundary;
pub use names::PATH_ENDING;
pub use protocol::ImageProtocol;
pub use provider::{ImageAnswer, ImageProviderRequest};
pub use rules::{check_inputs, parse_size};
pub use stream::{stream_meter, write_stream, write_stream_error};
pub use write_reply::{ImageReplyDefaults, complete as complete_reply, write as write_reply};
