//! Embedded deterministic models, and an upstream made of them that speaks every dialect.
//!
//! Knows nothing of accounts or money. [`answer`] is the model, [`events`] its answer in pieces,
//! [`serve`] an upstream as a plain function, [`simulate`] the same upstream behind a socket, where
//! it can be made to fail in every way [`faults`] lists.

mod dice;
mod faults;
mod model;
mod pictures;
mod pieces;
mod seal;
mod server;
mod simulate;
mod tokens;

pub use faults::{BadOrder, Rules, faults};
pub use model::{MAX_OUTPUT, Persona, answer, count_input};
pub use pieces::events;
pub use server::{Body, MODELS, Meter, Pace, Upstream, serve};
pub use simulate::{Options, simulate};
pub use tokens::count as count_tokens;
