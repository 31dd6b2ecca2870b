//! The middle language of the gateway.
//!
//! Every wire format is read into these values and written from them, so that four formats need
//! eight translations and not sixteen. Canon knows no JSON field name of any format, no HTTP, no
//! provider and no async; it is plain data with the few rules that hold for all formats.
//!
//! Two habits keep it honest:
//! - a field enters canon when at least two formats can express it; until then it rides in
//!   [`Extras`] or in [`Kind::Foreign`], bound to the format it came from;
//! - nothing here implements `From` for a wire type: a translation returns [`Lossy`], because only
//!   a return value can confess what it could not carry.

mod charge;
mod chat;
mod event;
mod extras;
mod fault;
mod fold;
mod loss;
mod micros;
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
pub use micros::Micros;
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
