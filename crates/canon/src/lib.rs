//! Canonical data model of the gateway: requests, replies, events, usage, losses, errors and money.
//!
//! Every wire format is read into these values and written from them. Four formats therefore need
//! eight translations instead of sixteen. This crate knows no JSON field name of any format, no
//! HTTP, no provider and no async code. It holds plain data and the few rules that apply to all
//! formats.
//!
//! Two rules apply:
//! - A field enters this crate only when at least two formats can express it. Until then it stays
//!   in [`ExtraFields`] or [`PartKind::Foreign`], bound to its format.
//! - Nothing here implements `From` for a wire type. A translation returns [`Lossy`], because only
//!   a return value can report what it could not carry.

mod charge;
mod request;
mod event;
mod extra_fields;
mod api_error;
mod reply_builder;
mod loss;
mod micros;
mod money;
mod wire_format;
mod part;
mod image;
mod reply;
mod signature;
mod tool;
mod usage;

pub use charge::{Charge, PriceDimension};
pub use request::{
    ImageShape, ChatRequest, ImageDetail, ResponseFormat, RequestHints, EffortLevel, Modality, Role, SamplingOptions, JsonSchema, ThinkingDisplay, ConversationState,
    ThinkingOptions, ServiceTier, Turn,
};
pub use event::{Event, EventGrammar, PartDelta, PartStart, PartIndex};
pub use extra_fields::ExtraFields;
pub use api_error::{Blame, ApiError, UpstreamProgress, ErrorKind};
pub use reply_builder::{ReplyBuilder, into_events};
pub use loss::{Loss, Losses, Lossy, MAX_LOSS_NAME_CHARS, MAX_NAMED_LOSSES};
pub use micros::Micros;
pub use money::{Money, Price, AmountError};
pub use wire_format::WireFormat;
pub use part::{
    CacheBreakpoint, Citation, VideoClip, CodeExecution, CodeResult, PartKind, Media, MediaKind, Part, WebSearch, MediaSource,
    Thought, ToolCall, ToolResult,
};
pub use image::{ImageDelivery, ImageSize, ImageFamily, GeneratedImage, ImageRequest, ImageReply};
pub use reply::{ReplyCandidate, Finish, Logprob, RawReason, ChatReply, TokenLogprob, FinishReason};
pub use signature::Signature;
pub use tool::{ToolChoiceMode, FunctionTool, UserLocation, WebSearchTool, Tool, ToolChoice};
pub use usage::Usage;
