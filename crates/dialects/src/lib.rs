//! Wire formats. One folder per format reads it into `canon` and writes it from `canon`, whole and
//! streamed.
//!
//! Every conversation format has the same files: `wire` (JSON shapes), `rules` (checks that answer
//! 400), `read_request`, `write_request`, `read_reply`, `write_reply`, `read_stream`,
//! `write_stream`, `pass_through` (patches the caller's own bytes) and `fault` (errors). This crate
//! knows nothing of sockets, keys, prices or async.

pub mod chat;
mod custom_tool_calls;
mod dialect;
pub mod embeddings;
mod envelope;
mod fault;
mod fields;
mod frame;
mod heads;
pub mod images;
pub mod json;
mod judge;
pub mod keepsake;
mod media_urls;
pub mod messages;
pub mod native;
pub mod responses;
mod served;
mod steering;
mod stop_enforcer;
mod stretch;
mod text;

pub use custom_tool_calls::CustomCalls;
pub use dialect::{
    Dialect, Ends, Lane, Outgoing, Passage, Peek, Reader, Said, Sniffer, Stamp, Target, Verdict,
    Writer,
};
pub use frame::{Cutter, Frame, MAX_FRAME};
pub use media_urls::{Address, addresses};
pub use served::tier_told;
pub use steering::Steering;
pub use stop_enforcer::{Brake, Scale};

use canon::Origin;

/// Returns all conversation formats in their listing order.
pub fn all() -> impl Iterator<Item = &'static dyn Dialect> {
    Origin::ALL.into_iter().filter_map(get)
}

/// Returns the format of an origin; `None` for an origin without conversations.
pub fn get(origin: Origin) -> Option<&'static dyn Dialect> {
    match origin {
        Origin::Chat => Some(&chat::Chat),
        Origin::Messages => Some(&messages::Messages),
        Origin::Native => Some(&native::Native),
        Origin::Responses => Some(&responses::Responses),
        Origin::Images => None,
    }
}
