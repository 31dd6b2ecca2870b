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

mod api_error;
mod arithmetic;
mod charge;
mod client_tool;
mod event;
mod extra_fields;
mod hosted_tools;
mod image;
mod in_place;
mod loss;
mod micros;
mod model_kind;
mod model_list;
mod money;
mod part;
mod reply;
mod reply_builder;
mod request;
mod request_need;
mod reserved_name;
mod scrub;
mod shared_text;
mod signature;
mod stop_enforcer;
mod text_owners;
mod thinking_range;
mod time_histogram;
mod tool;
mod tool_kind;
mod usage;
mod wire_format;
mod work_token;

pub use api_error::{ApiError, Blame, ErrorKind, UpstreamProgress};
pub use charge::{Charge, PriceDimension};
pub use client_tool::{ClientTool, ClientToolKind};
pub use event::{Event, EventGrammar, GrammarError, PartDelta, PartIndex, PartStart};
pub use extra_fields::ExtraFields;
pub use hosted_tools::{DEFAULT_MAX_USES, HostedTools, PLUGINS_FIELD, TOOL_IMAGE_TOKENS};
pub use image::{GeneratedImage, ImageDelivery, ImageFamily, ImageReply, ImageRequest, ImageSize};
pub use in_place::boxed;
pub use loss::{Loss, Losses, Lossy, MAX_LOSS_NAME_CHARS, MAX_NAMED_LOSSES};
pub use micros::{AtomicMicros, Micros};
pub use model_kind::ModelKind;
pub use model_list::covers_model;
pub use money::{AmountError, Money, Price};
pub use part::{
    CacheBreakpoint, CacheField, Citation, CodeExecution, CodeResult, Media, MediaKind,
    MediaSource, Part, PartKind, Thought, ToolCall, ToolResult, VideoClip, WebSearch,
};
pub use reply::{
    ChatReply, Finish, FinishReason, Logprob, RawReason, ReplyCandidate, TokenLogprob,
};
pub use reply_builder::{ReplyBuilder, into_events, into_part_events};
pub use request::{
    ChatRequest, ConversationState, EffortLevel, ImageDetail, ImageShape, JsonSchema, Modality,
    RequestHints, ResponseFormat, Role, SamplingOptions, ServiceTier, ThinkingDisplay,
    ThinkingOptions, Turn,
};
pub use request_need::{
    JsonOutput, MediaNeed, NeedKind, RequestNeed, RequestNeeds, SamplingParameter,
};
pub use reserved_name::{RESERVED_NAME, has_reserved_name, is_reserved, read_value};
pub use scrub::{HIDDEN, scrub, scrub_for_log, scrub_value};
pub use shared_text::SharedText;
pub use signature::Signature;
pub use stop_enforcer::{StopEnforcer, StopSupport, UsageEstimator};
pub use text_owners::{TextOwners, scrub_for};
pub use thinking_range::ThinkingRange;
pub use time_histogram::{HistogramSnapshot, TimeHistogram};
pub use tool::{FunctionTool, Tool, ToolChoice, ToolChoiceMode, UserLocation, WebSearchTool};
pub use tool_kind::ToolKind;
pub use usage::{SearchContext, ToolUses, Usage};
pub use wire_format::WireFormat;
pub use work_token::{WorkToken, is_abandoned, is_abandoned_now};
