//! Canonical data model of the gateway: requests, replies, events, usage, losses, errors and money.
//!
//! Every wire format is read into these values and written from them. Four formats therefore need
//! eight translations instead of sixteen. This crate knows no JSON field name of any format, no
//! HTTP, no provider and no async code. It holds plain data and the few rules that apply to all
//! formats.
//!
//! Two rules apply:
//! - A field enters this crate only when at least two formats can express it. Until then it stays
//!   in [`Extras`] or [`Kind::Foreign`], bound to its format.
//! - Nothing here implements `From` for a wire type. A translation returns [`Lossy`], because only
//!   a return value can report what it could not carry.

mod charge;
mod chat;
mod event;
mod extras;
mod fault;
mod fold;
mod loss;
mod money;
mod origin;
mod part;
mod picture;
mod reply;
mod seal;
mod tool;
mod usage;

pub use charge::{Charge, Dimension};
pub use chat::{
    Canvas, Chat, Detail, Format, Hints, Level, Modality, Role, Sampling, Schema, Show, State,
    Thinking, Tier, Turn,
};
pub use event::{Event, Grammar, Growth, Opening, Place};
pub use extras::Extras;
pub use fault::{Blame, Fault, Reach, Trouble};
pub use fold::{Fold, unfold};
pub use loss::{Loss, Losses, Lossy};
pub use money::{Money, Price, PriceError};
pub use origin::Origin;
pub use part::{
    CacheMark, Citation, Clip, Code, CodeOutcome, Kind, Media, MediaKind, Part, Search, Source,
    Thought, ToolCall, ToolResult,
};
pub use picture::{Delivery, Extent, Family, Made, Picture, Pictures};
pub use reply::{Candidate, Finish, Logprob, Raw, Reply, TokenChance, Why};
pub use seal::Seal;
pub use tool::{Choice, FunctionTool, Location, SearchTool, Tool, ToolChoice};
pub use usage::Usage;
